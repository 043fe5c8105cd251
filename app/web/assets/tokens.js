// A reply token by token: each one opens a list of what else could have stood there, from which the reply branches.

import { el, iconButton } from "./dom.js";

const HOVER_MS = 120; // so long the pointer rests before a list opens
const GAP_PX = 6;
const MARGIN_PX = 8;
const NARROW = "(max-width: 699px)"; // there the list stands at the bottom

export class TokenView {
  /** answer: what the server says of the reply. actions: `weigh(index)`, `plan(index)`, `branch(index, tokenId)`, `close()`. */
  constructor(answer, actions) {
    this.answer = answer;
    this.actions = actions;
    this.plans = new Map(); // by index: which token is taken doesn't matter
    this.place = null; // the index whose list is open
    this.isPinned = false;
    const legend = answer.legend.map(([look, words]) => el("span", {}, el("span", { class: `token is-${look}` }, "token"), ` ${words}`));
    const close = iconButton("close", "Back to the text", () => this.close());
    this.spans = answer.tokens.map((token, index) => this.span(token, index));
    this.text = el("div", { class: "token-text", role: "group", "aria-label": "Tokens" }, ...this.spans);
    this.list = el("div", { class: "alternatives", role: "dialog", hidden: true });
    this.element = el("section", { class: "token-view", "aria-label": "Reply token by token" },
      el("header", { class: "token-head" }, el("p", { class: "token-note" }, answer.note), close),
      this.text,
      legend.length > 0 && el("p", { class: "token-legend" }, ...legend),
      this.list);
    this.listen();
    this.setStop(0);
  }

  span(token, index) {
    const look = token.look ? ` is-${token.look}` : "";
    const span = el("span", { class: `token${look}`, tabindex: "-1", role: "button", "data-index": index }, token.text);
    span.setAttribute("aria-label", `${token.text}, ${token.title}`);
    span.setAttribute("aria-haspopup", "dialog");
    return span;
  }

  listen() {
    const indexOf = (event) => event.target.closest(".token[data-index]")?.dataset.index;
    this.text.addEventListener("click", (event) => {
      const index = indexOf(event);
      if (index === undefined) return;
      this.setStop(Number(index));
      this.open(Number(index), { isPinned: true });
    });
    this.text.addEventListener("keydown", (event) => this.moveOver(event));
    this.list.addEventListener("keydown", (event) => this.moveInList(event));
    this.element.addEventListener("pointerover", (event) => {
      if (event.pointerType !== "mouse" || this.isPinned) return;
      clearTimeout(this.timer);
      const index = indexOf(event);
      if (index !== undefined) this.timer = setTimeout(() => this.open(Number(index)), HOVER_MS);
      else if (!this.list.contains(event.target)) this.timer = setTimeout(() => this.hide(), HOVER_MS * 2);
    });
    this.element.addEventListener("pointerleave", () => {
      clearTimeout(this.timer);
      if (!this.isPinned) this.timer = setTimeout(() => this.hide(), HOVER_MS * 2);
    });
    this.onOutside = (event) => {
      if (this.isPinned && !this.list.contains(event.target) && !this.text.contains(event.target)) this.hide();
    };
    this.onScroll = (event) => {
      if (!this.list.hidden && !this.list.contains(event.target)) this.put();
    };
    document.addEventListener("pointerdown", this.onOutside);
    document.addEventListener("scroll", this.onScroll, { capture: true, passive: true });
  }

  close() {
    clearTimeout(this.timer);
    document.removeEventListener("pointerdown", this.onOutside);
    document.removeEventListener("scroll", this.onScroll, { capture: true });
    this.element.remove();
    this.actions.close();
  }

  focus() {
    this.spans[this.stop]?.focus();
  }

  // The tokens

  /** The one that the Tab key stops at. */
  setStop(index) {
    if (this.spans.length === 0) return;
    this.spans[this.stop]?.setAttribute("tabindex", "-1");
    this.stop = Math.min(Math.max(index, 0), this.spans.length - 1);
    this.spans[this.stop].setAttribute("tabindex", "0");
  }

  moveOver(event) {
    const steps = { ArrowRight: 1, ArrowLeft: -1, Home: -this.spans.length, End: this.spans.length };
    if (event.key in steps) this.setStop(this.stop + steps[event.key]);
    else if (event.key === "ArrowDown" || event.key === "ArrowUp") this.setStop(this.inNextLine(event.key === "ArrowDown"));
    else if (event.key === "Enter" || event.key === " ") {
      this.open(this.stop, { isPinned: true });
      this.choices[0]?.focus();
    } else if (event.key === "Escape") {
      if (this.list.hidden) this.close();
      else this.hide();
    } else return;
    event.preventDefault();
    event.stopPropagation();
    if (event.key.startsWith("Arrow") || event.key in steps) {
      this.hide();
      this.focus();
    }
  }

  /** The token in the line below or above that is nearest to the one it is at. */
  inNextLine(isDown) {
    const [here] = this.spans[this.stop].getClientRects();
    let found = this.stop;
    let least = Infinity;
    let line = null;
    for (let index = this.stop; isDown ? index < this.spans.length : index >= 0; index += isDown ? 1 : -1) {
      const [box] = this.spans[index].getClientRects();
      if (!box || Math.abs(box.top - here.top) < here.height / 2) continue;
      line ??= box.top;
      if (Math.abs(box.top - line) > here.height / 2) break;
      if (Math.abs(box.left - here.left) < least) [found, least] = [index, Math.abs(box.left - here.left)];
    }
    return found;
  }

  // The list of one token's alternatives

  open(index, { isPinned = false } = {}) {
    clearTimeout(this.timer); // what the pointer began, a click has overtaken
    const token = this.answer.tokens[index];
    const isKnown = token.alternatives.length > 0;
    if (!isKnown && !isPinned) {
      this.hide();
      return;
    }
    this.isPinned = isPinned;
    if (this.place !== index || this.list.hidden) {
      this.mark(index);
      this.choices = token.alternatives.map((alternative) => this.choice(index, alternative));
      this.cost = el("p", { class: "branch-cost", role: "status" });
      this.branchButton = el("button", { type: "button", class: "button is-primary" }, this.answer.branch);
      this.foot = el("div", { class: "branch-foot", hidden: true }, this.cost, this.branchButton);
      this.list.setAttribute("aria-label", token.title);
      const hint = isKnown && el("p", { class: "alternatives-hint" }, this.answer.hint);
      this.list.replaceChildren(...[el("p", { class: "alternatives-head" }, token.title), ...this.choices, hint, this.foot].filter(Boolean));
      this.list.hidden = false;
      if (!isKnown) this.offerToWeigh(index);
    }
    this.put();
  }

  /** What wasn't kept can be worked out, once it is known what that costs. */
  async offerToWeigh(index) {
    const button = this.branchButton;
    this.foot.hidden = false;
    button.textContent = this.answer.work_out;
    button.disabled = true;
    button.onclick = () => this.weigh(index, button);
    const plan = await this.planOf(index);
    if (!plan || this.branchButton !== button) return;
    this.cost.textContent = plan.refusal ?? plan.words;
    button.disabled = Boolean(plan.refusal);
    this.put();
    button.focus();
  }

  async weigh(index, button) {
    button.disabled = true;
    const token = await this.actions.weigh(index);
    button.disabled = false;
    if (!token) return;
    this.answer.tokens[index] = token;
    const span = this.span(token, index);
    this.spans[index].replaceWith(span);
    this.spans[index] = span;
    this.setStop(this.stop);
    if (this.branchButton !== button || this.list.hidden) return;
    this.hide();
    this.open(index, { isPinned: true });
    this.choices[0]?.focus();
  }

  planOf(index) {
    if (!this.plans.has(index)) this.plans.set(index, this.actions.plan(index));
    return this.plans.get(index);
  }

  choice(index, alternative) {
    const button = el("button", { type: "button", class: "alternative", "aria-pressed": "false" },
      el("span", { class: "alternative-bar", style: `--share: ${alternative.share}` }),
      el("span", { class: "alternative-label" }, alternative.label),
      alternative.note && el("span", { class: "alternative-note" }, alternative.note),
      el("span", { class: "alternative-percent" }, alternative.percent));
    button.addEventListener("click", () => this.choose(index, alternative, button));
    return button;
  }

  async choose(index, alternative, button) {
    this.isPinned = true;
    for (const other of this.choices) other.setAttribute("aria-pressed", other === button);
    this.foot.hidden = false;
    this.cost.textContent = alternative.choice;
    this.branchButton.onclick = () => this.branch(index, alternative);
    this.branchButton.disabled = false;
    this.put();
    const plan = await this.planOf(index);
    if (!plan || this.place !== index || button.getAttribute("aria-pressed") !== "true") return;
    this.cost.textContent = plan.refusal ?? `${alternative.choice}: ${plan.words}`;
    this.branchButton.disabled = Boolean(plan.refusal);
    this.put();
    this.branchButton.focus();
  }

  async branch(index, alternative) {
    this.branchButton.disabled = true;
    if (await this.actions.branch(index, alternative.token_id)) this.close();
    else this.branchButton.disabled = false;
  }

  moveInList(event) {
    const focused = this.choices.indexOf(document.activeElement);
    if (event.key === "Escape") {
      this.hide();
      this.focus();
    } else if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      const next = focused + (event.key === "ArrowDown" ? 1 : -1);
      const all = this.foot.hidden ? this.choices : [...this.choices, this.branchButton];
      (focused === -1 ? all.at(event.key === "ArrowUp" ? -2 : -1) : all[Math.min(Math.max(next, 0), all.length - 1)])?.focus();
    } else return;
    event.preventDefault();
    event.stopPropagation();
  }

  hide() {
    this.isPinned = false;
    this.list.hidden = true;
    this.mark(null);
  }

  mark(index) {
    this.spans[this.place]?.classList.remove("is-marked");
    this.place = index;
    this.spans[index]?.classList.add("is-marked");
  }

  /** Under the token, or above it where the window ends; on a phone at the bottom, where the thumb is. */
  put() {
    const { style } = this.list;
    if (matchMedia(NARROW).matches) {
      style.left = style.top = "";
      return;
    }
    const box = [...this.spans[this.place].getClientRects()].at(-1);
    if (!box) {
      this.hide(); // another reply, or another chat, has taken the place of this one
      return;
    }
    const { offsetWidth, offsetHeight } = this.list;
    const left = Math.min(Math.max(box.left, MARGIN_PX), innerWidth - offsetWidth - MARGIN_PX);
    const below = box.bottom + GAP_PX;
    const fits = below + offsetHeight < innerHeight - MARGIN_PX;
    style.left = `${left}px`;
    style.top = `${fits ? below : Math.max(MARGIN_PX, box.top - GAP_PX - offsetHeight)}px`;
  }
}

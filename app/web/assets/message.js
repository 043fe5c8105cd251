// One message: its text, which grows while a reply is written, and what can be done with it.

import { ActionPreview } from "./action_preview.js";
import { directed, el, iconButton, setText, svg } from "./dom.js";
import { costLine } from "./format.js";
import { drawFrame } from "./frames.js";
import { morphChildren } from "./morph.js";
import { drawStrip } from "./panel_strip.js";
import { TokenView } from "./tokens.js";

const LONG_PX = 420; // a person's longer message is folded
const DIFF_TAGS = { same: "span", "only here": "ins", "only there": "del" };
const COPIED_MS = 1500;

export class MessageNode {
  /** actions: what the buttons do, each with the message's id: pick, stop, retry, edit, continue, fork, delete, tokens. `plan` tells what one would cost. */
  constructor(view, actions) {
    this.actions = actions;
    this.blocks = []; // as they stand in the body
    this.body = el("div", { class: "body" });
    this.strip = el("div", { class: "strip", hidden: true });
    this.fault = el("p", { class: "fault", hidden: true });
    this.line = el("span", { class: "cost" });
    this.tools = el("div", { class: "tools" });
    this.preview = new ActionPreview((action) => actions.plan(view.id, action));
    this.foot = el("div", { class: "foot" }, this.line, this.tools);
    this.element = el("article", { class: `message is-${view.role}`, "data-id": view.id, tabindex: "-1" }, this.body, this.fault, this.strip, this.foot);
    this.element.setAttribute("aria-label", view.role === "user" ? "You" : "Reply");
    this.update(view);
  }

  get isLive() {
    return this.view.blocks === null;
  }

  /** Takes the message as it is stored; of a reply that is being written the text comes with `grow`. */
  update(view) {
    const wasLive = this.view?.blocks === null;
    if (this.view && this.view.text !== view.text) this.tokens?.close();
    this.view = view;
    if (view.blocks !== null) {
      let numKept = 0;
      while (numKept < this.blocks.length && this.blocks[numKept] === view.blocks[numKept]) numKept += 1;
      this.setBlocks(numKept, view.blocks.slice(numKept));
    }
    this.element.classList.toggle("is-live", this.isLive);
    this.element.setAttribute("aria-busy", this.isLive);
    this.showFault(view.error);
    if (!(wasLive && this.isLive)) {
      // While it is written both grow with the text.
      this.line.textContent = view.role === "assistant" ? costLine(view) : "";
      drawStrip(this.strip, view.strip);
      this.drawTools();
    }
    if (view.role === "user") this.foldIfLong();
  }

  /** Takes what is new of a reply that is being written. */
  grow(news) {
    this.setBlocks(news.num_kept, news.blocks);
    if (news.new_text !== undefined) {
      this.view.text = news.is_whole ? news.new_text : this.view.text + news.new_text;
      const figures = { ...this.view, cost: news.cost, status: news.status };
      this.line.textContent = costLine({ ...figures, num_generated_tokens: news.num_generated_tokens, tokens_per_s: news.tokens_per_s, search: news.search });
      this.element.classList.toggle("is-waiting", news.status === "draft" && !news.num_generated_tokens && !news.search);
      this.showFault(news.error);
      drawStrip(this.strip, news.strip);
    }
  }

  setBlocks(numKept, newBlocks) {
    const template = document.createElement("template");
    const elements = newBlocks.map((html) => {
      template.innerHTML = html;
      return directed(template.content.firstElementChild);
    });
    morphChildren(this.body, elements, numKept);
    this.blocks.splice(numKept, Infinity, ...newBlocks);
  }

  showFault(error) {
    setText(this.fault, error ?? "");
    this.fault.hidden = !error;
  }

  /** How the reply differs from another one, in spans of [kind, text], in the place of its text; null: the text. */
  showDiff(spans) {
    this.diff?.remove();
    this.diff = spans && el("div", { class: "diff" }, ...spans.map(([kind, text]) => el(DIFF_TAGS[kind], {}, text)));
    this.element.classList.toggle("shows-diff", spans !== null);
    if (this.diff) this.body.after(this.diff);
  }

  drawTools() {
    const { view, actions } = this;
    const act = (name) => () => actions[name](view.id);
    const isReply = view.role === "assistant";
    this.tools.replaceChildren(
      ...[
        view.sibling_ids.length > 1 && this.siblingWalk(),
        isReply && view.can_continue && this.preview.of("continue", iconButton("play", "Continue this reply", act("continue"))),
        this.isLive && iconButton("stop", "Stop this reply", act("stop")),
        isReply && this.preview.of("retry", iconButton("retry", "Retry: another reply beside this one", act("retry"))),
        !isReply && this.preview.of("edit", iconButton("edit", "Edit: another message beside this one", () => this.beginEdit())),
        iconButton("copy", "Copy the message", (event) => this.copy(event.currentTarget)),
        isReply && !this.isLive && iconButton("tokens", "Tokens: how likely each was, and what else could stand there", () => this.toggleTokens()),
        !this.isLive && this.preview.of("fork", iconButton("fork", "Fork: a new chat that begins with all up to here", act("fork"))),
        iconButton("delete", "Delete this message and what follows", act("delete")),
        this.preview.element,
      ].filter(Boolean),
    );
  }

  siblingWalk() {
    const ids = this.view.sibling_ids;
    const index = ids.indexOf(this.view.id);
    const walk = (step) => () => this.actions.pick(ids[index + step]);
    return el(
      "span",
      { class: "siblings" },
      iconButton("previous", "The one before", walk(-1), { disabled: index === 0 }),
      el("span", { class: "sibling-count" }, `${index + 1} / ${ids.length}`),
      iconButton("next", "The next one", walk(1), { disabled: index === ids.length - 1 }),
    );
  }

  /** The reply token by token in the place of its text, or its text again. */
  async toggleTokens() {
    if (this.tokens) {
      this.tokens.close();
      return;
    }
    const { id } = this.view;
    const answer = await this.actions.tokens(id);
    if (!answer || this.tokens || this.isLive) return;
    this.tokens = new TokenView(answer, {
      weigh: (index) => this.actions.token(id, index, answer.tokens.length),
      plan: (index) => this.actions.planBranch(id, index),
      branch: (index, tokenId) => this.actions.branch(id, index, tokenId),
      close: () => {
        this.tokens = null;
        this.element.classList.remove("shows-tokens");
        this.element.focus();
      },
    });
    this.element.classList.add("shows-tokens");
    this.body.after(this.tokens.element);
    this.tokens.focus();
  }

  async copy(button) {
    await copyText(this.view.text);
    showCopied(button);
  }

  foldIfLong() {
    this.element.querySelector(".unfold")?.remove();
    drawFrame(() => {
      const isLong = this.body.scrollHeight > LONG_PX + 80 && !this.element.classList.contains("is-unfolded");
      this.element.classList.toggle("is-folded", isLong);
      if (!isLong) return;
      const unfold = el("button", { type: "button", class: "unfold" }, "Show all");
      unfold.addEventListener("click", () => this.unfold());
      this.body.after(unfold);
    });
  }

  unfold() {
    this.element.classList.remove("is-folded");
    this.element.classList.add("is-unfolded");
    this.element.querySelector(".unfold")?.remove();
  }

  /** Unfolds what hides a part of the text. */
  open(part) {
    this.unfold();
    const thinking = part.parentElement.closest("details");
    if (thinking) thinking.open = true;
  }

  /** The text in a field; what comes of it is sent as a sibling. `actions.planEdit` tells what that would cost. */
  beginEdit() {
    if (this.element.classList.contains("is-edited")) return;
    const field = el("textarea", { class: "edit-field", dir: "auto", "aria-label": "Edit the message", rows: 3 });
    field.value = this.view.text;
    const price = el("span", { class: "price" });
    const end = () => {
      form.remove();
      this.element.classList.remove("is-edited");
      this.element.focus();
    };
    const send = async () => {
      if (await this.actions.edit(this.view.id, field.value)) end();
    };
    const form = el(
      "form",
      { class: "edit", onsubmit: (event) => { event.preventDefault(); send(); } },
      field,
      el(
        "div",
        { class: "edit-foot" },
        price,
        el("button", { type: "button", class: "button", onclick: end }, "Cancel"),
        el("button", { type: "submit", class: "button is-primary" }, "Send"),
      ),
    );
    field.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
        event.preventDefault();
        send();
      } else if (event.key === "Escape") {
        event.stopPropagation();
        end();
      }
    });
    const plan = () => this.actions.planEdit(this.view.id, field.value, (words) => (price.textContent = words));
    field.addEventListener("input", plan);
    this.element.classList.add("is-edited");
    this.body.after(form);
    field.focus();
    field.setSelectionRange(field.value.length, field.value.length);
    plan();
  }
}

/** Copies, also where the page isn't allowed to the modern way: a plain address that isn't this machine's. */
export async function copyText(text) {
  if (navigator.clipboard) {
    await navigator.clipboard.writeText(text);
    return;
  }
  const field = el("textarea", { class: "off-screen" });
  field.value = text;
  document.body.append(field);
  field.select();
  document.execCommand("copy");
  field.remove();
}

export function showCopied(button) {
  const before = [...button.childNodes];
  button.replaceChildren(button.querySelector("svg") ? svg("done") : "Copied");
  setTimeout(() => button.replaceChildren(...before), COPIED_MS);
}

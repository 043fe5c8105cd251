// Where a message is written: text, files beside it, how many replies, and what sending it would cost.

import { post, upload } from "./api.js";
import { el, iconButton, svg } from "./dom.js";
import { count, counted } from "./format.js";
import { attempt, notify } from "./notices.js";

export const PLAN_PAUSE_MS = 350; // of the writing, before it is asked what sending would cost
const LONG_PASTE = 3000; // characters; longer text that is pasted becomes an attachment
const MAX_REPLIES = 8;
const COMPARE = "compare"; // in the place of a number of replies
const MAX_ATTACHMENT_BYTES = 1_000_000; // the server refuses more, too

export class Composer {
  /**
   * actions: send(question) gives whether it was taken; stop(); question() gives where a question would stand, null for nowhere;
   * leftOut(ids).
   */
  constructor(actions) {
    this.actions = actions;
    this.attachments = [];
    this.chatId = null;
    this.number = 1; // of replies
    this.isNumberChosen = false; // here; else it is as the chat's settings have it
    this.comparison = null;
    this.isRunning = false;
    this.endWait = () => {}; // takes away the word that a reply is being written
    this.field = el("textarea", { rows: 1, dir: "auto", placeholder: "Message…", "aria-label": "Message", enterkeyhint: "send" });
    this.chips = el("div", { class: "chips" });
    this.picker = el("input", { type: "file", multiple: true, hidden: true, onchange: () => this.attachPicked() });
    this.replies = el("select", { title: "How many replies, side by side", "aria-label": "Replies" });
    for (let n = 1; n <= MAX_REPLIES; n += 1) this.replies.append(el("option", { value: n }, n === 1 ? "1 reply" : `${n} replies`));
    this.replies.append(el("option", { value: COMPARE }, "Compare…"));
    this.replies.addEventListener("change", () => this.chooseReplies());
    this.compared = el("div", { class: "compared", hidden: true });
    this.price = el("span", { class: "price", "aria-live": "polite" });
    this.fill = el("span", { class: "meter-fill" });
    this.used = el("span", { class: "meter-words" });
    this.meter = el("span", { class: "meter", title: "Tokens of this chat, of the model's window" }, el("span", { class: "meter-bar" }, this.fill), this.used);
    this.button = el("button", { type: "submit", class: "send" });
    this.element = el(
      "form",
      { class: "composer", "aria-label": "Write a message" },
      this.chips,
      this.compared,
      this.field,
      el("div", { class: "composer-foot" }, iconButton("attach", "Attach text files", () => this.picker.click()), this.picker, this.replies, this.price, this.meter, this.button),
    );
    this.element.addEventListener("submit", (event) => { event.preventDefault(); this.submit(); });
    this.field.addEventListener("keydown", (event) => this.onKey(event));
    this.field.addEventListener("input", () => this.onInput());
    this.field.addEventListener("paste", (event) => this.onPaste(event));
    this.element.addEventListener("dragover", (event) => event.preventDefault());
    this.element.addEventListener("drop", (event) => this.onDrop(event));
    this.drawButton();
  }

  /** Another chat: with what was being written there. */
  open(chatId) {
    this.chatId = chatId;
    this.attachments = [];
    this.isNumberChosen = false;
    this.setComparison(null);
    this.field.value = sessionStorage.getItem(this.draftKey) ?? "";
    this.price.textContent = "";
    this.meter.hidden = true;
    this.drawChips();
    this.fit();
  }

  /** All that is being written and chosen, to be put elsewhere. */
  take() {
    const taken = { text: this.field.value, attachments: this.attachments, number: this.isNumberChosen ? this.number : null, comparison: this.comparison };
    this.field.value = "";
    sessionStorage.removeItem(this.draftKey);
    return taken;
  }

  put({ text, attachments, number, comparison }) {
    this.field.value = text;
    if (text) sessionStorage.setItem(this.draftKey, text);
    this.attachments = attachments;
    if (number !== null) this.chooseNumber(number);
    this.setComparison(comparison);
    this.drawChips();
    this.fit();
  }

  get draftKey() {
    return `paged-chat draft ${this.chatId ?? ""}`;
  }

  setRunning(isRunning) {
    if (isRunning === this.isRunning) return;
    this.isRunning = isRunning;
    this.drawButton();
    if (isRunning) return;
    this.endWait();
    this.plan();
  }

  setNumReplies(number) {
    this.number = Math.min(number, MAX_REPLIES);
    if (!this.comparison) this.replies.value = String(this.number);
  }

  chooseNumber(number) {
    this.setNumReplies(number);
    this.isNumberChosen = true;
  }

  get numReplies() {
    return this.number;
  }

  // Several settings

  async chooseReplies() {
    if (this.replies.value !== COMPARE) {
      this.chooseNumber(Number(this.replies.value));
      this.setComparison(null);
      return;
    }
    const comparison = await this.actions.chooseVariants();
    if (comparison) this.setComparison(comparison);
    else if (!this.comparison) this.replies.value = String(this.number);
    this.field.focus();
  }

  /** What the next message is asked under, as {variants, names}; null: under the chat's own settings. */
  setComparison(comparison) {
    this.comparison = comparison;
    this.compared.hidden = comparison === null;
    this.replies.value = comparison ? COMPARE : String(this.number);
    if (comparison) {
      const change = el("button", { type: "button", class: "compared-names", title: "Change what is compared", onclick: () => this.chooseReplies() }, `Compare ${comparison.names.join(" | ")}`);
      this.compared.replaceChildren(change, iconButton("close", "Don't compare", () => this.setComparison(null)));
    }
    this.plan();
  }

  drawButton() {
    const name = this.isRunning ? "Stop (Esc)" : "Send (Enter)";
    this.button.replaceChildren(svg(this.isRunning ? "stop" : "send"));
    this.button.title = name;
    this.button.setAttribute("aria-label", name);
    this.button.classList.toggle("is-stop", this.isRunning);
  }

  onKey(event) {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    if (this.isRunning) this.endWait = notify("A reply is being written: wait for its end, or stop it with Esc.");
    else this.submit();
  }

  onInput() {
    sessionStorage.setItem(this.draftKey, this.field.value);
    this.fit();
    this.plan();
  }

  fit() {
    this.field.style.height = "auto";
    this.field.style.height = `${this.field.scrollHeight}px`;
  }

  async submit() {
    if (this.isRunning) {
      this.actions.stop();
      return;
    }
    const text = this.field.value;
    if (!text.trim() && this.attachments.length === 0) return;
    const { attachments } = this;
    const key = this.draftKey;
    this.field.value = "";
    this.attachments = [];
    this.drawChips();
    this.fit();
    const how = this.comparison ? { variants: this.comparison.variants } : { n: this.numReplies };
    if (await this.actions.send({ text, attachments: plain(attachments), ...how })) {
      this.setComparison(null);
      sessionStorage.removeItem(key);
      return;
    }
    // It wasn't taken: nothing that was written is lost.
    this.field.value = text;
    this.attachments = attachments;
    this.drawChips();
    this.fit();
  }

  /** What sending this would cost, once there is a pause in the writing. */
  plan() {
    this.endPlan();
    this.planTimer = setTimeout(() => this.askPlan(), PLAN_PAUSE_MS);
  }

  endPlan() {
    clearTimeout(this.planTimer);
    this.planRequest?.abort();
  }

  async askPlan() {
    const place = this.actions.question();
    if (place === null) return;
    this.planRequest = new AbortController();
    const question = { text: this.field.value, attachments: plain(this.attachments), parent_id: place.parent_id };
    let plan;
    try {
      plan = await post(`${pathOf(place)}plan`, question, this.planRequest.signal);
      if (this.comparison && !plan.refusal) plan = { ...plan, ...(await this.askComparisonPlan(place, question)) };
    } catch {
      return; // more was typed meanwhile, or the line is broken
    }
    if (place.chat_id !== this.chatId) return;
    const isWritten = question.text.trim() || question.attachments.length;
    this.price.textContent = isWritten ? (plan.refusal ?? plan.words) : "";
    this.price.classList.toggle("is-refusal", Boolean(plan.refusal));
    if (plan.refusal) return;
    this.showUse(plan.num_prompt_tokens, plan.window);
    this.actions.leftOut(plan.left_out_ids);
  }

  askComparisonPlan(place, question) {
    return post(`${pathOf(place)}plan-comparison`, { ...question, variants: this.comparison.variants }, this.planRequest.signal);
  }

  showUse(numTokens, window) {
    this.meter.hidden = false;
    const share = Math.min(1, numTokens / window);
    this.fill.style.width = `${100 * share}%`;
    this.meter.classList.toggle("is-nearly-full", share > 0.85);
    this.used.textContent = `${count(numTokens)} / ${count(window)}`;
  }

  // Attachments

  attachPicked() {
    for (const file of this.picker.files) this.attach(file);
    this.picker.value = "";
  }

  onDrop(event) {
    event.preventDefault();
    for (const file of event.dataTransfer.files) this.attach(file);
  }

  onPaste(event) {
    const files = [...event.clipboardData.files];
    const text = event.clipboardData.getData("text/plain");
    if (files.length) for (const file of files) this.attach(file);
    else if (text.length > LONG_PASTE) this.attach(new File([text], "Pasted text.txt", { type: "text/plain" }));
    else return;
    event.preventDefault();
  }

  async attach(file) {
    if (file.size > MAX_ATTACHMENT_BYTES) {
      notify(`${file.name} is larger than ${MAX_ATTACHMENT_BYTES / 1e6} MB: attach or paste the part that matters.`, { isError: true });
      return;
    }
    const attachment = await attempt(() => upload("attachments", file));
    if (!attachment) return;
    this.attachments.push(attachment);
    this.drawChips();
    this.plan();
    this.field.focus();
  }

  drawChips() {
    this.chips.hidden = this.attachments.length === 0;
    this.chips.replaceChildren(
      ...this.attachments.map((attachment) => {
        const size = attachment.num_tokens === null ? counted(attachment.text.length, "character") : counted(attachment.num_tokens, "token");
        const remove = () => {
          this.attachments = this.attachments.filter((other) => other !== attachment);
          this.drawChips();
          this.plan();
        };
        return el("span", { class: "chip" }, el("span", { class: "chip-name" }, attachment.name), el("span", { class: "chip-size" }, size), iconButton("close", `Take away ${attachment.name}`, remove));
      }),
    );
  }
}

/** Of the requests about a question in its chat; a chat that isn't begun yet has none. */
function pathOf({ chat_id }) {
  return chat_id === null ? "" : `chats/${chat_id}/`;
}

function plain(attachments) {
  return attachments.map(({ name, text }) => ({ name, text }));
}

// Under the log: why a reply's prompt found no more in the cache. Of the newest reply, or of the one that is pointed out.

import { get } from "./api.js";
import { el, setText } from "./dom.js";

const UNKNOWN = "Nothing is known of this reply: it was imported, or written by an earlier version.";

export class PanelWhy {
  constructor() {
    this.which = el("strong", {});
    this.words = el("p", { class: "why-words" });
    this.figures = el("p", { class: "panel-quiet why-figures" });
    this.element = el("details", { class: "panel-why", hidden: true }, el("summary", {}, "why not more?"), el("p", {}, this.which), this.words, this.figures);
    this.element.addEventListener("toggle", async () => {
      await this.ask();
      if (this.element.open) this.element.scrollIntoView({ block: "nearest" }); // a phone's panel ends above it
    });
    addEventListener("paged-chat:open", ({ detail }) => this.reset(detail.chatId));
    addEventListener("paged-chat:reply", ({ detail }) => this.takeNewest(detail));
    // A click on a reply, and walking to it by keyboard.
    document.addEventListener("focusin", ({ target }) => this.pointOut(target));
    document.addEventListener("click", ({ target }) => this.pointOut(target));
  }

  reset(chatId) {
    this.chatId = chatId;
    this.id = null;
    this.known = new Map(); // by reply: what the server said
    this.element.hidden = chatId === null;
    this.draw();
    this.ask();
  }

  takeNewest({ id, why }) {
    if (!why || (this.id === id && this.known.get(id)?.words === why.words)) return;
    this.known.set(id, why);
    this.show(id);
  }

  pointOut(target) {
    const reply = target.closest?.(".message.is-assistant");
    if (reply) this.show(Number(reply.dataset.id));
  }

  show(id) {
    this.id = id;
    this.draw();
    this.ask();
  }

  /** What isn't known is asked for once somebody wants to see it. */
  async ask() {
    if (!this.element.open || this.chatId === null) return;
    this.id ??= newestReplyId();
    const { id, chatId } = this;
    if (id === null || this.known.has(id)) {
      this.draw();
      return;
    }
    const answer = await get(`chats/${chatId}/messages/${id}/why`).catch(() => null);
    if (answer === null || chatId !== this.chatId) return; // the line is broken, or another chat is open
    this.known.set(id, answer.why);
    this.draw();
  }

  draw() {
    const why = this.known.get(this.id);
    const isKnown = this.id !== null && this.known.has(this.id);
    setText(this.which, this.id === null ? "" : this.id === newestReplyId() ? "Newest reply" : "This reply");
    setText(this.words, isKnown ? (why?.words ?? UNKNOWN) : "");
    setText(this.figures, why?.figures ?? "");
    this.element.classList.toggle("is-fault", Boolean(why?.is_fault));
  }
}

function newestReplyId() {
  const replies = document.querySelectorAll(".message.is-assistant");
  return replies.length ? Number(replies[replies.length - 1].dataset.id) : null;
}

// The conversation of the open chat: the path that is shown, and replies side by side at its end.

import { el, iconButton, setChildren } from "./dom.js";
import { counted } from "./format.js";
import { markWords, unmarkWords } from "./found_words.js";
import { drawFrame } from "./frames.js";
import { MessageNode, copyText, showCopied } from "./message.js";
import { SideBySide } from "./side_by_side.js";

const BOTTOM_PX = 80; // so near to the end it follows what is written
const OLDER_PX = 300; // so near to the beginning it asks for older messages

export class Conversation {
  /** actions: those of MessageNode, `older`, which asks for older messages, and `chatId`, which names the open chat. */
  constructor(actions) {
    this.actions = actions;
    this.nodes = new Map(); // by message id
    this.older = el("button", { type: "button", class: "button older", hidden: true, onclick: () => this.askForOlder() });
    this.list = el("div", { class: "messages" });
    this.scroller = el("div", { class: "scroller", tabindex: "-1" }, this.older, this.list);
    this.toBottom = iconButton("down", "To the newest message", () => this.follow(), { class: "icon-button to-bottom", hidden: true });
    this.element = el("section", { class: "conversation", "aria-label": "Conversation" }, this.scroller, this.toBottom);
    this.clear();
    this.scroller.addEventListener("scroll", () => this.noteScroll(), { passive: true });
    this.element.addEventListener("click", (event) => this.copyCode(event));
    // What is said grows, or the field below does.
    const resized = new ResizeObserver(() => this.isFollowing && this.scrollToEnd());
    resized.observe(this.list);
    resized.observe(this.scroller);
  }

  clear() {
    this.list.replaceChildren();
    for (const node of this.nodes.values()) node.tokens?.close(); // it listens to the whole page
    this.nodes.clear();
    this.path = [];
    this.columns = [];
    this.sharing = null; // what the columns share, in words, once they are written
    this.sideBySide = null;
    this.numOlder = 0;
    this.isFollowing = true;
    this.topBefore = 0; // where it was scrolled to
    this.isAskingForOlder = false;
    this.wantedId = null; // a message to bring into view
    this.wantedWords = []; // which were looked for in it
    unmarkWords();
    this.pickedToReveal = null;
    this.leftOutIds = new Set();
    this.older.hidden = true;
    this.toBottom.hidden = true;
  }

  get leafId() {
    return this.path.at(-1) ?? null;
  }

  get isRunning() {
    return [...this.path, ...this.columns].some((id) => this.nodes.get(id)?.isLive);
  }

  /** Takes the chat as it is now. */
  update(news) {
    const heightBefore = this.scroller.scrollHeight;
    const isPrepended = this.isAskingForOlder && news.num_older < this.numOlder;
    for (const view of news.messages) {
      const node = this.nodes.get(view.id);
      if (node) node.update(view);
      else this.nodes.set(view.id, new MessageNode(view, this.actions));
    }
    this.path = news.path;
    this.columns = isPicked(news.columns) ? [] : news.columns;
    this.sharing = news.sharing;
    this.numOlder = news.num_older;
    this.draw();
    if (isPrepended) {
      this.isAskingForOlder = false;
      this.scroller.scrollTop += this.scroller.scrollHeight - heightBefore;
    }
    if (this.isFollowing) this.scrollToEnd();
    else if (!this.toBottom.hidden) this.noteScroll(); // what is shorter now may be seen to its end
    if (this.wantedId !== null) this.reveal(this.wantedId, this.wantedWords);
  }

  grow(news) {
    this.nodes.get(news.id)?.grow(news);
    if (news.left_out_ids) this.showLeftOut(news.left_out_ids);
    if (!this.isFollowing) this.toBottom.hidden = false; // else the observer scrolls, once it is laid out
  }

  /** Greys the messages that don't fit the model's window any more. */
  showLeftOut(ids) {
    this.leftOutIds = new Set(ids);
    for (const [id, node] of this.nodes) node.element.classList.toggle("is-left-out", this.leftOutIds.has(id));
    this.drawBoundary();
  }

  /** Brings a message into view, and the words in it, once the chat is here: older ones first, or the branch that it is on. */
  reveal(id, words = []) {
    this.wantedId = id;
    this.wantedWords = words;
    if (this.path.length === 0) return;
    if (this.path.includes(id)) {
      this.wantedId = null;
      this.isFollowing = false;
      this.show(this.nodes.get(id), words);
    } else if (this.numOlder > 0) this.askForOlder();
    else if (this.pickedToReveal !== id) {
      this.pickedToReveal = id; // once: it may be deleted meanwhile
      this.actions.pick(id);
    }
  }

  show(node, words) {
    const { element } = node;
    element.classList.remove("is-found");
    const place = markWords(node.body, words);
    if (place) {
      node.open(place.startContainer);
      const { top, height } = place.getBoundingClientRect();
      const middle = this.scroller.getBoundingClientRect().top + this.scroller.clientHeight / 2;
      this.scroller.scrollTop += top + height / 2 - middle;
      return;
    }
    element.scrollIntoView({ block: "center" });
    drawFrame(() => element.classList.add("is-found"));
  }

  follow() {
    this.isFollowing = true;
    this.toBottom.hidden = true;
    this.scrollToEnd();
  }

  draw() {
    const shown = this.columns.length ? this.path.slice(0, -1) : this.path;
    const wanted = shown.map((id) => this.nodes.get(id).element);
    if (this.columns.length) wanted.push(this.drawColumns());
    setChildren(this.list, wanted);
    this.older.hidden = this.numOlder === 0;
    this.older.textContent = `Show ${counted(this.numOlder, "older message")}`;
    this.showLeftOut(this.leftOutIds);
  }

  drawColumns() {
    if (this.sideBySide?.key !== this.columns.join()) {
      const nodes = this.columns.map((id) => this.nodes.get(id));
      this.sideBySide = new SideBySide(nodes, { pick: (id) => this.pickColumn(id), chatId: this.actions.chatId });
    } else this.sideBySide.refresh();
    this.sideBySide.showSharing(this.sharing);
    return this.sideBySide.element;
  }

  pickColumn(id) {
    rememberPick(this.columns);
    this.columns = [];
    this.sideBySide.leave();
    this.sideBySide = null;
    this.draw();
    this.actions.pick(id);
  }

  drawBoundary() {
    this.list.querySelector(".boundary")?.remove();
    const first = this.path.find((id) => !this.leftOutIds.has(id));
    if (this.leftOutIds.size === 0 || first === this.path[0]) return;
    const words = `The ${counted(this.leftOutIds.size, "message")} above ${this.leftOutIds.size === 1 ? "doesn't" : "don't"} fit the model's window any more`;
    const boundary = el("p", { class: "boundary" }, words);
    if (first === undefined) this.list.append(boundary);
    else this.nodes.get(first).element.before(boundary);
  }

  askForOlder() {
    if (this.isAskingForOlder || this.numOlder === 0) return;
    this.isAskingForOlder = true;
    this.isFollowing = false;
    this.actions.older();
  }

  noteScroll() {
    const { scrollTop, scrollHeight, clientHeight } = this.scroller;
    // Text that came since the page scrolled itself hasn't moved it yet: only who goes up leaves the end.
    if (scrollHeight - scrollTop - clientHeight < BOTTOM_PX) this.isFollowing = true;
    else if (scrollTop < this.topBefore) this.isFollowing = false;
    this.topBefore = scrollTop;
    this.toBottom.hidden = this.isFollowing;
    if (scrollTop < OLDER_PX && !this.isFollowing) this.askForOlder();
  }

  scrollToEnd() {
    this.scroller.scrollTop = this.scroller.scrollHeight;
  }

  async copyCode(event) {
    const button = event.target.closest(".copy-code");
    if (!button) return;
    await copyText(button.closest(".code").querySelector("code").textContent);
    showCopied(button);
  }
}

// Which groups of replies somebody has chosen from. The chat itself doesn't say: its first reply is shown from the start.
const PICKED = "paged-chat picked";

function isPicked(columns) {
  return columns.length > 0 && (localStorage.getItem(PICKED) ?? "").split(" ").includes(String(columns[0]));
}

function rememberPick(columns) {
  const before = (localStorage.getItem(PICKED) ?? "").split(" ").slice(-200);
  localStorage.setItem(PICKED, [...before, columns[0]].join(" "));
}

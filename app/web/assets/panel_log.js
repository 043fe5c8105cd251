// What happens to blocks, line by line: "14:02:07 reused 13".

import { el } from "./dom.js";
import { count } from "./format.js";

const MAX_LINES = 200;
const NEAR_PX = 24; // so near to the end it follows

export class PanelLog {
  constructor() {
    this.list = el("ol", { class: "panel-log", tabindex: "0", "aria-label": "What happens in the cache" });
    this.element = this.list;
    this.isFollowing = true;
    this.list.addEventListener("scroll", () => this.noteScroll(), { passive: true });
  }

  clear() {
    this.list.replaceChildren();
  }

  /** lines: [Unix time, word, how many blocks, request]. */
  add(lines) {
    if (lines.length === 0) return;
    this.list.append(...lines.map(([time, word, numBlocks, request]) => row(time, word, numBlocks, request)));
    while (this.list.children.length > MAX_LINES) this.list.firstChild.remove();
    // With the next picture, for which all is laid out anyway.
    if (this.isFollowing) drawFrame(() => (this.list.scrollTop = this.list.scrollHeight));
  }

  noteScroll() {
    this.isFollowing = this.list.scrollHeight - this.list.scrollTop - this.list.clientHeight < NEAR_PX;
  }
}

function row(seconds, word, numBlocks, request) {
  const time = new Date(seconds * 1000).toLocaleTimeString("en-GB");
  return el("li", { title: request, "data-word": word }, el("time", {}, time), " ", `${word} ${count(numBlocks)}`);
}

// What happens to blocks, line by line: "14:02:07 reused 13".

import { el } from "./dom.js";
import { count } from "./format.js";

const MAX_LINES = 200;

export class PanelLog {
  constructor() {
    this.list = el("ol", {});
    // Laid out from its end, where it stays by itself: scrolling by script would draw a second picture for each line.
    this.element = el("div", { class: "panel-log", tabindex: "0", role: "group", "aria-label": "What happens in the cache" }, this.list);
  }

  clear() {
    this.list.replaceChildren();
  }

  /** lines: [Unix time, word, how many blocks, request]. */
  add(lines) {
    if (lines.length === 0) return;
    this.list.append(...lines.map(([time, word, numBlocks, request]) => row(time, word, numBlocks, request)));
    while (this.list.children.length > MAX_LINES) this.list.firstChild.remove();
  }
}

function row(seconds, word, numBlocks, request) {
  const time = new Date(seconds * 1000).toLocaleTimeString("en-GB");
  return el("li", { title: request, "data-word": word }, el("time", {}, time), " ", `${word} ${count(numBlocks)}`);
}

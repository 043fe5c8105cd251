// The cache beside the conversation: the pool block by block, its figures, and what happens in it.

import { el, setText } from "./dom.js";
import { count } from "./format.js";
import { Line } from "./line.js";
import { PanelLog } from "./panel_log.js";
import { BlockMap } from "./panel_map.js";
import { PanelWhy } from "./panel_why.js";

const ASK_PAUSE_MS = 80; // while the pointer runs over many blocks, none of them is asked for
const ASK_AGAIN_MS = 500; // a block that is pointed at and grows
const TOGETHER_MS = 300; // so long news of the pool waits for a reply that grows here: one picture shows both

// What is counted, in the words that people see, and what it says on closer look.
const FIGURES = [
  ["hit rate", "Tokens of prompts that were found in the cache, of all", ({ hit_rate }) => `${Math.round(100 * hit_rate)} %`],
  ["held", "Blocks that replies use now, shared ones among them", ({ held }) => count(held)],
  ["shared", "Blocks that two or more replies use now", ({ shared }) => count(shared)],
  ["cached", "Blocks that nobody uses now and a hit revives", ({ cached }) => count(cached)],
  ["freed", "Blocks that the last one let go, since the start", ({ freed }) => count(freed)],
  ["copied", "Blocks that were copied because two continuations parted", ({ copies }) => count(copies)],
  ["evicted", "Blocks that were given up for the space", ({ evictions }) => count(evictions)],
  ["free", "Blocks that hold nothing", ({ free }) => count(free)],
];
const SAVED_TITLE = "The time that the reused tokens would have taken, at the speed measured for prompts; and the memory that shared blocks would take if everybody had their own";

export class Panel {
  /** root: the page, whose class says whether the panel is shown. */
  constructor(root) {
    this.root = root;
    this.map = new BlockMap((id) => this.point(id));
    this.log = new PanelLog();
    this.legend = el("ul", { class: "block-legend", "aria-label": "What the colours mean" });
    this.note = el("div", { class: "block-note", "aria-live": "polite" });
    this.saved = el("p", { class: "panel-saved", title: SAVED_TITLE });
    this.values = FIGURES.map(() => el("dd", {}));
    const figures = FIGURES.map(([word, title], index) => el("div", { title }, el("dt", {}, word), this.values[index]));
    this.why = new PanelWhy();
    this.body = el(
      "div",
      { class: "panel-body", hidden: true },
      this.map.element,
      this.legend,
      this.note,
      this.saved,
      el("dl", { class: "panel-figures" }, ...figures),
      this.log.element,
      this.why.element,
    );
    this.empty = el("p", { class: "panel-quiet panel-empty" }, "The blocks show here once the model is loaded.");
    this.element = el("div", { class: "cache-body" }, this.empty, this.body);
    this.askedAt = -Infinity;
    this.waiting = []; // news of the pool that isn't drawn yet
    this.grewAt = -Infinity; // when a reply on the page did
    this.line = new Line("panel", { onNews: (news) => this.take(news) });
    this.showNote(null);
    addEventListener("paged-chat:reply", () => {
      this.grewAt = performance.now();
      this.drawWaiting();
    });
    addEventListener("paged-chat:panel", () => this.listen());
    document.addEventListener("visibilitychange", () => this.listen());
    this.listen();
  }

  /** Only while it can be seen: otherwise nothing is sent, and the pool isn't looked at. */
  listen() {
    const isSeen = this.root.classList.contains("shows-panel") && document.visibilityState === "visible";
    this.line.want(isSeen);
    if (isSeen) return;
    this.map.pause();
    this.waiting = [];
  }

  take(news) {
    if (news.kind === "block") {
      this.takeBlock(news);
      return;
    }
    this.waiting.push(news);
    if (performance.now() - this.grewAt > 2 * TOGETHER_MS) this.drawWaiting();
    else this.drawTimer ??= setTimeout(() => this.drawWaiting(), TOGETHER_MS);
  }

  drawWaiting() {
    clearTimeout(this.drawTimer);
    this.drawTimer = null;
    for (const news of this.waiting.splice(0)) {
      if (news.kind === "pool") this.takePool(news);
      else this.showBody(false);
    }
  }

  takePool(news) {
    this.showBody(true);
    if (news.num_blocks !== undefined) {
      this.map.reset(news.num_blocks);
      this.log.clear();
      this.drawLegend(news.legend);
    }
    this.map.update(news.runs);
    this.log.add(news.log);
    if (news.figures) this.showFigures(news.figures);
    if (this.map.pointedId !== null && performance.now() - this.askedAt > ASK_AGAIN_MS) this.ask();
  }

  showBody(isShown) {
    this.body.hidden = !isShown;
    this.empty.hidden = isShown;
  }

  showFigures(figures) {
    FIGURES.forEach(([, , value], index) => setText(this.values[index], value(figures)));
    setText(this.saved, figures.saved);
  }

  drawLegend(legend) {
    this.legend.replaceChildren(...legend.map(({ letter, word, meaning }) => el("li", { title: meaning }, el("span", { class: `swatch is-${word}`, "aria-hidden": "true" }, letter), word)));
  }

  // The block that is pointed at

  point(id) {
    clearTimeout(this.askTimer);
    if (id === null) this.showNote(null);
    else this.askTimer = setTimeout(() => this.ask(), ASK_PAUSE_MS);
  }

  ask() {
    this.askedAt = performance.now();
    this.line.tell({ kind: "block", id: this.map.pointedId });
  }

  takeBlock(note) {
    if (note.id === this.map.pointedId) this.showNote(note);
  }

  showNote(note) {
    const key = JSON.stringify(note);
    if (key === this.noteKey) return; // said once, for those who hear it
    this.noteKey = key;
    if (note === null) {
      this.note.replaceChildren(el("p", { class: "panel-quiet" }, "Point at a block, or walk with the arrow keys, to see what it holds."));
      return;
    }
    const holders = note.holders ? `: ${note.holders}` : "";
    this.note.replaceChildren(
      el("p", { class: "note-state" }, el("strong", {}, note.state), holders),
      el("p", { class: "note-text" }, note.is_withheld ? "The text is somebody else's." : note.text),
      el("p", { class: "panel-quiet note-figures" }, note.figures),
    );
  }
}

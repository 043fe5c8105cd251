// The pool as a map, one cell a block: a canvas, for thousands of elements would be too many.

import { el } from "./dom.js";
import { BlockPainter } from "./panel_paint.js";

// Width of a cell with its gap, in pixels. The widest at which the blocks in use fill no more than half the map.
const PITCHES = [22, 16, 12, 9, 7, 5, 4];
const FEWEST_SHOWN = 120;
const LEAST_HEIGHT = 132;
const MOST_HEIGHT = 320;
const FADE_MS = 2000;
const FADE_STEP_MS = 250; // in steps, which come with other news where there is some: each picture is taken from the model
const FREE = "·";
const FREED = "f";

export class BlockMap {
  /** onPoint: called with the id of the block that somebody points at, null for none. */
  constructor(onPoint) {
    this.onPoint = onPoint;
    this.canvas = el("canvas", {
      class: "block-map",
      tabindex: "0",
      role: "application",
      "aria-roledescription": "map of blocks",
      "aria-label": "Blocks of the cache. Arrow keys walk from block to block.",
    });
    this.cursor = el("span", { class: "block-cursor", hidden: true });
    this.frame = el("div", { class: "block-frame" }, this.canvas, this.cursor);
    this.rest = el("p", { class: "panel-quiet block-rest", hidden: true });
    this.element = el("div", { class: "block-box" }, this.frame, this.rest);
    this.painter = new BlockPainter(this.canvas);
    this.freedAt = new Map(); // when a block was seen to be freed, by its place
    this.pinned = null; // the place that was clicked, or walked to
    this.hovered = null;
    this.width = 0; // of the map, 0 while it can't be seen; to ask for it in mid-change would lay out the page once more
    this.room = 0; // the same where no scroll bar takes any of it
    this.numShown = 0;
    this.reset(0);
    this.bind();
  }

  /** Another pool, all of it free. */
  reset(numBlocks) {
    this.letters = new Array(numBlocks).fill(FREE);
    this.refCounts = new Uint32Array(numBlocks);
    this.lastUsed = -1;
    this.freedAt.clear();
    if (this.pinned !== null && this.pinned >= numBlocks) this.pin(null);
  }

  /** runs: [first id, how many, letter, holders]. Draws what has changed, or all where that changes the layout. */
  update(runs) {
    const now = performance.now();
    const changed = [];
    for (const [firstId, numBlocks, letter, refCount] of runs) {
      for (let place = firstId - 1; place < firstId - 1 + numBlocks; place += 1) {
        this.letters[place] = letter;
        this.refCounts[place] = refCount;
        if (letter === FREED) this.freedAt.set(place, now);
        else this.freedAt.delete(place);
        changed.push(place);
      }
      if (letter !== FREE) this.lastUsed = Math.max(this.lastUsed, firstId + numBlocks - 2);
    }
    if (this.fit()) this.drawAll();
    else changed.forEach((place) => this.redraw(place));
    this.fade();
  }

  measure() {
    const body = this.frame.closest(".cache-body");
    const { paddingLeft, paddingRight } = getComputedStyle(body);
    this.width = this.frame.clientWidth;
    this.room = body.offsetWidth - parseFloat(paddingLeft) - parseFloat(paddingRight);
    if (this.fit()) this.drawAll();
  }

  /**
   * Chooses the size of cells; tells whether it is another one than before. By the room, not the width: smaller cells
   * may take the panel's scroll bar away, larger ones in the width that it leaves bring it back, and so on forever.
   */
  fit() {
    const { width } = this;
    if (width === 0) return false;
    const numBlocks = this.letters.length;
    const numWanted = Math.min(numBlocks, Math.max(FEWEST_SHOWN, 2 * (this.lastUsed + 1)));
    const height = Math.max(LEAST_HEIGHT, Math.min(MOST_HEIGHT, 0.36 * innerHeight));
    const most = (pitch) => Math.floor(this.room / pitch) * Math.floor(height / pitch);
    const pitch = PITCHES.find((wide) => most(wide) >= numWanted) ?? PITCHES.at(-1);
    const numColumns = Math.floor(width / pitch);
    const numShown = Math.min(numBlocks, Math.max(most(pitch), this.lastUsed + 1));
    const key = [width, devicePixelRatio, pitch, numShown].join();
    if (key === this.key) return false;
    this.key = key;
    Object.assign(this, { pitch, numColumns, numShown });
    this.painter.resize(width, Math.ceil(numShown / numColumns) * pitch, pitch);
    const numHidden = numBlocks - numShown;
    this.rest.hidden = numHidden === 0;
    this.rest.textContent = `and ${numHidden.toLocaleString("en")} more, all free`;
    return true;
  }

  drawAll() {
    this.painter.clear();
    for (let place = 0; place < this.numShown; place += 1) this.draw(place);
    this.placeCursor();
  }

  redraw(place) {
    if (place >= this.numShown) return;
    this.painter.erase(...this.corner(place));
    this.draw(place);
  }

  /** Where nothing is painted yet. */
  draw(place) {
    const age = this.freedAt.has(place) ? (performance.now() - this.freedAt.get(place)) / FADE_MS : 0;
    const [x, y] = this.corner(place);
    this.painter.cell(x, y, this.letters[place], this.refCounts[place], Math.max(0.2, 1 - age));
  }

  /** Of the cell, in pixels from the map's. */
  corner(place) {
    return [(place % this.numColumns) * this.pitch, Math.floor(place / this.numColumns) * this.pitch];
  }

  /** Freed blocks fade; where there are none, no timer runs. */
  fade() {
    clearTimeout(this.fadeTimer);
    if (this.freedAt.size === 0) return;
    for (const place of this.freedAt.keys()) this.redraw(place);
    this.fadeTimer = setTimeout(() => this.fade(), FADE_STEP_MS);
  }

  /** Nobody sees it from now on. */
  pause() {
    clearTimeout(this.fadeTimer);
  }

  /** By day and by night the colours are others. */
  changeColours() {
    this.painter.readColours();
    if (this.numShown) this.drawAll();
  }

  // Pointing

  get pointedId() {
    const place = this.hovered ?? this.pinned;
    return place === null ? null : place + 1;
  }

  bind() {
    const { canvas } = this;
    canvas.addEventListener("pointermove", (event) => event.pointerType === "mouse" && this.hover(this.placeAt(event)));
    canvas.addEventListener("pointerleave", () => this.hover(null));
    canvas.addEventListener("click", (event) => {
      const place = this.placeAt(event);
      this.pin(place === this.pinned ? null : place);
    });
    canvas.addEventListener("keydown", (event) => this.onKey(event));
    canvas.addEventListener("focus", () => {
      if (this.pinned === null && canvas.matches(":focus-visible")) this.pin(0);
    });
    new ResizeObserver(() => this.measure()).observe(this.frame);
    new MutationObserver(() => this.changeColours()).observe(document.body, { attributeFilter: ["class"] });
  }

  onKey(event) {
    const steps = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -this.numColumns, ArrowDown: this.numColumns, Home: -Infinity, End: Infinity };
    if (event.key === "Escape" && this.pinned !== null) this.pin(null);
    else if (event.key in steps) {
      const place = (this.pinned ?? 0) + steps[event.key];
      this.hovered = null;
      if (Math.abs(steps[event.key]) === Infinity || (place >= 0 && place < this.numShown)) this.pin(Math.min(Math.max(place, 0), this.numShown - 1));
    } else return;
    event.preventDefault();
    event.stopPropagation(); // Esc stops a reply elsewhere
  }

  placeAt(event) {
    const column = Math.floor(event.offsetX / this.pitch);
    const place = Math.floor(event.offsetY / this.pitch) * this.numColumns + column;
    return column < this.numColumns && place < this.numShown ? place : null;
  }

  hover(place) {
    if (place === this.hovered) return;
    this.hovered = place;
    this.point();
  }

  pin(place) {
    this.pinned = place;
    this.point();
    if (place !== null) this.cursor.scrollIntoView({ block: "nearest" });
  }

  point() {
    this.placeCursor();
    this.onPoint(this.pointedId);
  }

  placeCursor() {
    const place = this.hovered ?? this.pinned;
    this.cursor.hidden = place === null || !(place < this.numShown);
    if (this.cursor.hidden) return;
    const [x, y] = this.corner(place);
    this.cursor.style.cssText = `width: ${this.pitch + 2}px; height: ${this.pitch + 2}px; transform: translate(${x - 2}px, ${y - 2}px)`;
  }
}

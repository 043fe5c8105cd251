// Replies to one question in columns, as many beside each other as have room, that scroll together: what differs, their table, and the one to go on with.

import { get, download } from "./api.js";
import { el, setText } from "./dom.js";
import { attempt, openMenu } from "./notices.js";

const MOST_IN_ROW = 4;
const FORMS = { md: "Markdown", json: "JSON", csv: "CSV" };

export class SideBySide {
  /** nodes: the replies' MessageNodes in their order. actions: `pick(id)`; `chatId()` is the open chat. */
  constructor(nodes, actions) {
    this.nodes = nodes;
    this.actions = actions;
    this.key = nodes.map((node) => node.view.id).join();
    this.reference = nodes[0].view.id;
    this.isDiff = false;
    const names = nodes.map((node, index) => node.view.name ?? `Reply ${index + 1}`);
    this.tabs = el("div", { class: "column-tabs", role: "tablist" }, ...names.map((name, index) => this.tab(name, index)));
    this.columns = nodes.map((node, index) => this.column(node, names[index]));
    this.diffButton = el("button", { type: "button", class: "button", "aria-pressed": "false", onclick: () => this.toggleDiff() }, "Diff");
    this.against = el("select", { "aria-label": "Diff against", hidden: true, onchange: () => this.setReference(Number(this.against.value)) },
      ...names.map((name, index) => el("option", { value: nodes[index].view.id }, `against ${name}`)));
    const exporting = el("button", { type: "button", class: "button", "aria-haspopup": "menu", onclick: () => this.openExport(exporting) }, "Export table");
    this.legend = el("p", { class: "diff-legend", role: "status", hidden: true });
    const bar = el("div", { class: "column-bar" }, this.diffButton, this.against, exporting, this.legend);
    const row = el("div", { class: "column-row", style: rowStyle(nodes.length) }, ...this.columns);
    this.sharing = el("p", { class: "sharing", role: "status", hidden: true });
    this.element = el("div", { class: "columns" }, bar, this.tabs, row, this.sharing);
    this.choose(0);
    this.refresh();
  }

  tab(name, index) {
    return el("button", { type: "button", role: "tab", onclick: () => this.choose(index), onkeydown: (event) => this.walk(event, index) }, name);
  }

  column(node, name) {
    const pick = el("button", { type: "button", class: "button pick", onclick: () => this.actions.pick(node.view.id) }, "Go on with this one");
    return el("section", { class: "reply-column", "aria-label": name }, el("header", {}, el("strong", {}, name), pick), node.element);
  }

  /** On a narrow page one column is seen at a time. */
  choose(index) {
    this.columns.forEach((column, place) => column.classList.toggle("is-chosen", place === index));
    [...this.tabs.children].forEach((tab, place) => {
      tab.setAttribute("aria-selected", place === index);
      tab.tabIndex = place === index ? 0 : -1;
    });
  }

  /** What they use together, and what they would use each alone; null while that isn't known. */
  showSharing(words) {
    setText(this.sharing, words ?? "");
    this.sharing.hidden = words === null;
  }

  /** With the arrow keys from tab to tab. */
  walk(event, index) {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    const next = (index + step + this.columns.length) % this.columns.length;
    this.choose(next);
    this.tabs.children[next].focus();
    event.preventDefault();
  }

  // What differs

  /** Once the chat has changed: what is still written has no end to compare. */
  refresh() {
    const isLive = this.nodes.some((node) => node.isLive);
    this.diffButton.disabled = isLive;
    this.diffButton.title = isLive ? "When all of them have come to their end" : "What is only in one of them";
    if (this.isDiff) this.drawDiff();
  }

  toggleDiff() {
    this.isDiff = !this.isDiff;
    this.diffButton.setAttribute("aria-pressed", this.isDiff);
    this.drawDiff();
  }

  setReference(id) {
    this.reference = id;
    this.drawDiff();
  }

  async drawDiff() {
    const answer = this.isDiff ? await attempt(() => get(`${this.path("diff")}&reference=${this.reference}`)) : null;
    this.against.hidden = this.legend.hidden = answer === null;
    this.legend.textContent = answer?.legend ?? "";
    for (const node of this.nodes) node.showDiff(answer?.spans[node.view.id] ?? null);
  }

  leave() {
    for (const node of this.nodes) node.showDiff(null);
  }

  // Taking along

  openExport(button) {
    openMenu(button, Object.entries(FORMS).map(([form, name]) => ({ name, run: () => download(this.path(`comparison.${form}`)) })));
  }

  path(what) {
    const query = this.nodes.map((node) => `reply=${node.view.id}`).join("&");
    return `chats/${this.actions.chatId()}/${what}?${query}`;
  }
}

/** For the style sheet: where so many columns have room in a row, how many stand in it, so that rows are about as full. */
function rowStyle(numColumns) {
  const inRow = (most) => Math.ceil(numColumns / Math.ceil(numColumns / most));
  return Array.from({ length: MOST_IN_ROW }, (_, index) => `--in-${index + 1}: ${inRow(index + 1)}`).join("; ");
}

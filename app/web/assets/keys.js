// Keys that work everywhere on the page.

import { el } from "./dom.js";
import { openDialog } from "./notices.js";

const KEYS = [
  ["Enter", "send"],
  ["Shift Enter", "a new line"],
  ["Esc", "close what is open, stop the reply"],
  ["Ctrl K", "search"],
  ["Ctrl Shift O", "new chat"],
  ["Ctrl /", "these keys"],
  ["Tab", "from message to message, and to what can be done with it"],
  ["↑ ↓", "through the list of chats"],
];

/** actions: newChat, search, help, and escape(target) for what has the focus. On a Mac the command key does what Ctrl does. */
export function bindKeys(actions) {
  addEventListener("keydown", (event) => {
    const isCommand = event.ctrlKey || event.metaKey;
    const key = event.key.toLowerCase();
    if (isCommand && !event.shiftKey && key === "k") actions.search();
    else if (isCommand && event.shiftKey && key === "o") actions.newChat();
    else if (isCommand && key === "/") actions.help();
    else if (event.key === "Escape" && !document.querySelector("dialog[open], .menu") && !isListOpen(event.target)) {
      actions.escape(event.target);
      return;
    } else return;
    event.preventDefault();
  });
}

/** One of Gradio's lists of choices: Escape closes it first. */
function isListOpen(target) {
  return target.getAttribute("role") === "listbox" && target.getAttribute("aria-expanded") === "true";
}

export function showKeys(root) {
  const rows = KEYS.map(([key, meaning]) => el("tr", {}, el("th", { scope: "row" }, el("kbd", {}, key)), el("td", {}, meaning)));
  openDialog(root, "Keys", el("table", { class: "keys" }, el("tbody", {}, ...rows)));
}

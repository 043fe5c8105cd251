// Keys that work everywhere on the page.

import { el } from "./dom.js";
import { openDialog } from "./notices.js";
import { isListOpen } from "./settings_lists.js";

const KEYS = [
  ["Enter", "send"],
  ["Shift Enter", "a new line"],
  ["Esc", "close what is open, stop the reply"],
  ["Ctrl K", "search"],
  ["Ctrl Shift O", "new chat"],
  ["Ctrl /", "these keys"],
  ["Tab", "from message to message, and to what can be done with it"],
  ["↑ ↓", "through the list of chats"],
  ["letters", "go to the field, wherever the focus is"],
];

/** actions: newChat, search, help, write, and escape(target) for what has the focus. On a Mac the command key does what Ctrl does. */
export function bindKeys(actions) {
  let wasListOpen = false; // before it heard of the key itself, which closes it alone
  addEventListener("keydown", ({ target }) => { wasListOpen = isListOpen(target); }, true);
  addEventListener("keydown", (event) => {
    const isCommand = event.ctrlKey || event.metaKey;
    const key = event.key.toLowerCase();
    if (isCommand && !event.shiftKey && key === "k") actions.search();
    else if (isCommand && event.shiftKey && key === "o") actions.newChat();
    else if (isCommand && key === "/") actions.help();
    else if (event.key === "Escape" && !document.querySelector("dialog[open], .menu") && !wasListOpen) {
      actions.escape(event.target);
      return;
    } else {
      if (isText(event)) actions.write(); // and the letter comes there
      return;
    }
    event.preventDefault();
  });
}

/** A letter typed where letters do nothing: after a button was pressed, say. */
function isText({ key, ctrlKey, metaKey, altKey, target }) {
  if ([...key].length > 1 || key === " " || ctrlKey || metaKey || altKey) return false;
  return !target.closest("input, textarea, select, #pc-settings, .menu, .alternatives") && !document.querySelector("dialog[open]");
}

export function showKeys(root) {
  const rows = KEYS.map(([key, meaning]) => el("tr", {}, el("th", { scope: "row" }, el("kbd", {}, key)), el("td", {}, meaning)));
  const close = el("button", { type: "button", class: "button", onclick: () => dialog.close() }, "Close");
  const dialog = openDialog(root, "Keys", el("table", { class: "keys" }, el("tbody", {}, ...rows)), el("div", { class: "dialog-buttons" }, close));
}

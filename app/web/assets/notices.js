// What pops up: short notices, menus, and questions.

import { el } from "./dom.js";

const NOTICE_MS = 7000;
const GAP_PX = 8; // to the field below
const LEAST_PX = 120; // of the window, where that field leaves no more

let place;

/** Where notices appear; root holds the composer. */
export function mountNotices(root) {
  place = el("div", { class: "notices", popover: "manual", role: "status", "aria-live": "polite" });
  root.append(place);
  place.showPopover();
  new ResizeObserver(stand).observe(root.querySelector(".composer"));
}

/**
 * A line of text for some seconds, and as long as the pointer or the focus is on it; with an action, such as
 * {name: "Undo", run}, which takes the focus if it is told to. Gives what takes it away before its time.
 */
export function notify(text, { action = null, takesFocus = false, isError = false } = {}) {
  const notice = el("div", { class: isError ? "notice is-error" : "notice" }, el("span", { dir: "auto" }, text));
  const close = () => {
    const hadFocus = notice.contains(document.activeElement);
    notice.remove();
    if (hadFocus && matchMedia("(hover: hover)").matches) document.querySelector(".composer textarea").focus();
  };
  if (!action) for (const other of [...place.children]) if (other.firstChild.textContent === text) other.remove(); // said again, not twice
  if (action) {
    const button = el("button", { type: "button", onclick: () => { close(); action.run(); } }, action.name);
    notice.append(button);
    if (takesFocus) setTimeout(() => button.focus()); // what is done beside the notice may move it
  }
  notice.append(el("button", { type: "button", class: "notice-close", "aria-label": "Close", onclick: close }, "×"));
  place.append(notice);
  stand();
  lift();
  const endLater = () => setTimeout(() => (notice.matches(":hover, :focus-within") ? endLater() : close()), NOTICE_MS);
  endLater();
  return close;
}

/** Above where is written, however much that is. */
function stand() {
  if (place.childElementCount === 0) return;
  const { left, top, width } = document.querySelector(".composer").getBoundingClientRect();
  const bottom = innerHeight - Math.max(top - GAP_PX, LEAST_PX);
  place.style.cssText = `left: ${left}px; width: ${width}px; bottom: ${bottom}px`;
}

/** Over a dialog that was opened since. */
function lift() {
  if (!document.querySelector("dialog[open]")) return;
  place.hidePopover();
  place.showPopover();
}

/** Whether what somebody does now is done with a key, on something that isn't written in. */
export function isByKeyboard() {
  const { activeElement } = document;
  return activeElement.matches(":focus-visible:not(input, textarea)") || (activeElement === document.body && isKeyLast);
}

let isKeyLast = false; // and not the pointer
addEventListener("keydown", () => { isKeyLast = true; }, true);
addEventListener("pointerdown", () => { isKeyLast = false; }, true);

/** Runs what asks the server; tells the person what was refused. Gives null then. */
export async function attempt(work) {
  try {
    return await work();
  } catch (error) {
    notify(error.message, { isError: true });
    return null;
  }
}

/** A menu below a button; entries are {name, run, isDanger}. */
export function openMenu(button, entries) {
  document.querySelector(".menu")?.remove();
  const menu = el("div", { class: "menu", role: "menu" });
  const close = (event) => {
    if (event && menu.contains(event.target)) return;
    menu.remove();
    document.removeEventListener("pointerdown", close, true);
    button.setAttribute("aria-expanded", "false");
  };
  for (const { name, run, isDanger } of entries) {
    menu.append(
      el("button", { type: "button", role: "menuitem", class: isDanger ? "is-danger" : null, onclick: () => { close(); run(); } }, name),
    );
  }
  menu.addEventListener("keydown", (event) => {
    const items = [...menu.children];
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step) items[(items.indexOf(document.activeElement) + step + items.length) % items.length].focus();
    else if (event.key === "Escape") { close(); button.focus(); }
    else if (event.key === "Tab") close();
    else return;
    if (event.key !== "Tab") event.preventDefault();
    event.stopPropagation();
  });
  button.closest(".pc").append(menu);
  const box = button.getBoundingClientRect();
  menu.style.left = `${Math.max(8, Math.min(box.left, innerWidth - menu.offsetWidth - 8))}px`;
  const isRoomBelow = box.bottom + menu.offsetHeight + 8 < innerHeight;
  menu.style.top = `${isRoomBelow ? box.bottom + 4 : Math.max(8, box.top - menu.offsetHeight - 4)}px`;
  button.setAttribute("aria-expanded", "true");
  document.addEventListener("pointerdown", close, true);
  menu.firstChild.focus();
}

/** Shows a dialog with these nodes; gives its element, which `close()` ends. */
export function openDialog(root, title, ...children) {
  const dialog = el("dialog", { class: "dialog", "aria-label": title }, el("h2", {}, title), ...children);
  dialog.addEventListener("close", () => dialog.remove());
  dialog.addEventListener("pointerdown", (event) => event.target === dialog && dialog.close());
  root.append(dialog);
  dialog.showModal();
  return dialog;
}

/** Asks for a line of text; `run` gets it. */
export function askForLine(root, title, value, run) {
  const input = el("input", { type: "text", dir: "auto", value, maxlength: 300, required: true, pattern: ".*\\S.*", title: "A name of at least one letter", "aria-label": title });
  const form = el(
    "form",
    { method: "dialog", onsubmit: () => run(input.value.trim()) },
    input,
    el(
      "div",
      { class: "dialog-buttons" },
      el("button", { type: "button", class: "button", onclick: () => dialog.close() }, "Cancel"),
      el("button", { type: "submit", class: "button is-primary" }, "Save"),
    ),
  );
  const dialog = openDialog(root, title, form);
  input.select();
}

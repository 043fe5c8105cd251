// Above the conversation: the chat's title, the model, and the ways to the list, the settings and the cache.

import { post } from "./api.js";
import { el, iconButton, titleParts } from "./dom.js";
import { loadingWords } from "./engine.js";
import { shortModel } from "./format.js";
import { askForLine, attempt } from "./notices.js";

const PANEL = "paged-chat panel";
const WIDE = "(min-width: 1200px)"; // the panel stands beside the conversation
const NARROW = "(max-width: 899px)"; // the list comes over it
const TEMPORARY = ["temporary", "Kept in memory alone: gone when the program ends"];
const ARCHIVED = ["archived", "In the archive: ⋯ below the list leads there"];

export class TopBar {
  /** actions: openSettings(), keepChat(). */
  constructor(root, { openSettings, keepChat }) {
    this.root = root;
    this.chat = null;
    this.title = el("button", { type: "button", class: "title", dir: "auto", title: "Rename the chat", onclick: () => this.rename() });
    this.mark = el("span", { class: "chat-mark", hidden: true });
    this.keep = el("button", { type: "button", class: "button keep", hidden: true, onclick: keepChat, title: "Store this temporary chat" }, "Keep this chat");
    this.model = el("button", { type: "button", class: "model", onclick: openSettings, title: "Model and settings" });
    this.panelButton = iconButton("cache", "Show or hide the cache", () => this.togglePanel(), { "aria-controls": "cache-panel" });
    this.sidebarButton = iconButton("menu", "Chats", () => this.toggleSidebar(), { class: "icon-button sidebar-toggle" });
    this.element = el(
      "header",
      { class: "topbar" },
      this.sidebarButton,
      el("div", { class: "title-place" }, this.title, this.mark, this.keep),
      this.model,
      iconButton("settings", "Settings", openSettings),
      this.panelButton,
    );
    // There from the start where there is room, unless somebody hid it; on a narrower page it would cover the chat.
    const wide = matchMedia(WIDE);
    const fit = () => this.setPanel(wide.matches && localStorage.getItem(PANEL) !== "hidden");
    wide.addEventListener("change", fit);
    fit();
  }

  showChat(chat) {
    this.chat = chat;
    this.title.replaceChildren(...titleParts(chat?.title ?? "").filter(Boolean));
    this.title.hidden = !chat;
    const mark = chat?.is_temporary ? TEMPORARY : chat?.is_archived ? ARCHIVED : null;
    this.mark.hidden = mark === null;
    [this.mark.textContent, this.mark.title] = mark ?? ["", ""];
    this.keep.hidden = !chat?.is_temporary;
  }

  showEngine(status) {
    this.model.textContent = shortModel(status.model);
    this.model.dataset.phase = status.phase;
    this.model.title = status.phase === "ready" ? "Model and settings" : loadingWords(status);
  }

  rename() {
    const { id, title } = this.chat;
    askForLine(this.root, "Rename the chat", title, (line) => attempt(() => post(`chats/${id}`, { title: line })));
  }

  /** On a wide page the list goes away; on a narrow one it comes over the conversation, and the focus with it. */
  toggleSidebar() {
    if (!matchMedia(NARROW).matches) this.root.classList.toggle("hides-sidebar");
    else if (this.root.classList.toggle("shows-sidebar")) this.root.querySelector(".sidebar .only-narrow").focus();
    else this.sidebarButton.focus();
  }

  showSidebar() {
    this.root.classList.add("shows-sidebar"); // where it is narrow
    this.root.classList.remove("hides-sidebar");
  }

  togglePanel() {
    const isShown = !this.root.classList.contains("shows-panel");
    localStorage.setItem(PANEL, isShown ? "shown" : "hidden");
    this.setPanel(isShown);
    if (!isShown) this.panelButton.focus();
    else if (!matchMedia(WIDE).matches) this.root.querySelector(".cache-head button").focus();
  }

  /** Whether it covers the conversation. */
  get isPanelOver() {
    return this.root.classList.contains("shows-panel") && !matchMedia(WIDE).matches;
  }

  setPanel(isShown) {
    this.root.classList.toggle("shows-panel", isShown);
    this.panelButton.setAttribute("aria-expanded", isShown);
    dispatchEvent(new CustomEvent("paged-chat:panel", { detail: { isShown } }));
  }
}

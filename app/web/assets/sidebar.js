// The list of chats, and the search in them.

import { download, get, post, upload } from "./api.js";
import { el, iconButton, titleParts } from "./dom.js";
import { clipped, counted, dayGroup } from "./format.js";
import { logOut, loggedInUser } from "./login.js";
import { askForLine, attempt, isByKeyboard, notify, openMenu } from "./notices.js";

const SEARCH_PAUSE_MS = 180;
const LIST_PAGE = 200;

export class Sidebar {
  /** actions: openChat(id, messageId, words), newChat({isTemporary}), keepChat(id), leave(id or null), tell(request), toggleTheme(), showHelp(), close(). */
  constructor(root, actions) {
    this.root = root;
    this.actions = actions;
    this.chatId = null;
    this.isArchive = false;
    this.news = { chats: [], has_more: false };
    this.search = el("input", { type: "search", placeholder: "Search", maxlength: 1000, "aria-label": "Search in all chats", title: "Search (Ctrl K)" });
    this.list = el("nav", { class: "chat-list", "aria-label": "Chats" });
    this.importer = el("input", { type: "file", hidden: true, accept: ".json,.md,.zip", onchange: () => this.importPicked() });
    const user = loggedInUser();
    const leave = user !== null && iconButton("leave", `Log out ${user}`, () => attempt(logOut));
    const more = iconButton("more", "Import, export, archive", () => this.openMore(more), { "aria-haspopup": "menu" });
    this.element = el(
      "aside",
      { class: "sidebar", "aria-label": "Chats" },
      el(
        "div",
        { class: "sidebar-head" },
        el("button", { type: "button", class: "button new-chat", title: "New chat (Ctrl Shift O)", onclick: () => actions.newChat() }, "+ New chat"),
        iconButton("temporary", "Temporary chat: kept in memory, never stored", () => actions.newChat({ isTemporary: true })),
        iconButton("close", "Close the list", () => actions.close(), { class: "icon-button only-narrow" }),
      ),
      this.search,
      this.list,
      el("div", { class: "sidebar-foot" }, more, iconButton("theme", "Light or dark", () => actions.toggleTheme()), iconButton("help", "Keys (Ctrl /)", () => actions.showHelp()), leave, this.importer),
    );
    this.search.addEventListener("input", () => this.onSearch());
    this.search.addEventListener("keydown", (event) => this.onSearchKey(event));
    this.list.addEventListener("keydown", (event) => this.onListKey(event));
  }

  update(news) {
    this.news = news;
    if (!this.search.value.trim()) this.draw();
  }

  setChat(chatId) {
    this.chatId = chatId;
    for (const row of this.list.querySelectorAll(".chat-row")) row.classList.toggle("is-open", row.dataset.id === chatId);
  }

  focusSearch() {
    this.search.focus();
    this.search.select();
  }

  draw() {
    const focusedId = document.activeElement?.closest?.(".chat-row")?.dataset.id;
    const groups = new Map();
    for (const chat of this.news.chats) {
      const name = chat.is_temporary ? "Temporary" : chat.is_pinned ? "Pinned" : dayGroup(chat.updated_at);
      if (!groups.has(name)) groups.set(name, []);
      groups.get(name).push(this.row(chat));
    }
    const nodes = [];
    if (this.isArchive) nodes.push(el("div", { class: "archive-head" }, el("strong", {}, "Archive"), el("button", { type: "button", class: "button", onclick: () => this.showArchive(false) }, "← Chats")));
    for (const [name, rows] of groups) nodes.push(el("section", {}, el("h3", {}, name), ...rows));
    if (groups.size === 0) nodes.push(el("p", { class: "list-empty" }, this.isArchive ? "Nothing is archived." : "Your chats will stand here."));
    if (this.news.has_more) nodes.push(el("button", { type: "button", class: "button", onclick: () => this.tellList(LIST_PAGE) }, "Show more"));
    const { scrollTop } = this.list;
    this.list.replaceChildren(...nodes);
    this.list.scrollTop = scrollTop;
    if (focusedId) this.list.querySelector(`[data-id="${focusedId}"] a`)?.focus();
  }

  row(chat) {
    const link = el("a", { href: `?chat=${chat.id}`, dir: "auto", title: chat.title, onclick: (event) => this.onLink(event, chat.id) }, ...titleParts(chat.title));
    const menu = iconButton("more", `More for ${chat.title}`, () => openMenu(menu, this.entries(chat)), { "aria-haspopup": "menu" });
    const classes = ["chat-row", chat.id === this.chatId && "is-open", chat.is_running && "is-running"].filter(Boolean);
    return el("div", { class: classes.join(" "), "data-id": chat.id }, chat.is_running && el("span", { class: "running-dot", title: "A reply is being written" }), link, menu);
  }

  onLink(event, chatId, messageId = null, words = []) {
    if (event.ctrlKey || event.metaKey || event.shiftKey) return; // a tab of its own
    event.preventDefault();
    this.actions.openChat(chatId, messageId, words);
  }

  entries(chat) {
    const change = (changes) => attempt(() => post(`chats/${chat.id}`, changes));
    const common = [{ name: "Rename", run: () => askForLine(this.root, "Rename the chat", chat.title, (title) => change({ title })) }];
    if (chat.is_temporary) common.push({ name: "Keep this chat", run: () => this.actions.keepChat(chat.id) });
    else {
      common.push({ name: chat.is_pinned ? "Unpin" : "Pin", run: () => change({ is_pinned: !chat.is_pinned }) });
      common.push({ name: chat.is_archived ? "Take out of the archive" : "Archive", run: () => this.archive(chat) });
    }
    return [
      ...common,
      { name: "Export as Markdown", run: () => download(`export/${chat.id}.md`) },
      { name: "Export as JSON", run: () => download(`export/${chat.id}.json`) },
      { name: "Delete", isDanger: true, run: () => this.delete(chat) },
    ];
  }

  async archive(chat) {
    const set = (is_archived) => attempt(() => post(`chats/${chat.id}`, { is_archived }));
    const takesFocus = isByKeyboard();
    if (!(await set(!chat.is_archived)) || chat.is_archived) return;
    notify(`“${clipped(chat.title)}” is in the archive.`, { action: { name: "Undo", run: () => set(false) }, takesFocus });
  }

  async delete(chat) {
    const takesFocus = isByKeyboard();
    this.actions.leave(chat.id);
    if (!(await attempt(() => post(`chats/${chat.id}/delete`)))) {
      this.actions.leave(null);
      return;
    }
    const undo = async () => {
      this.actions.leave(null);
      if (await attempt(() => post(`chats/${chat.id}/restore`))) this.actions.openChat(chat.id);
    };
    notify(`“${clipped(chat.title)}” is deleted.`, { action: { name: "Undo", run: undo }, takesFocus });
    if (chat.id === this.chatId) this.actions.newChat();
  }

  // Search

  onSearch() {
    clearTimeout(this.searchTimer);
    if (!this.search.value.trim()) {
      this.draw();
      return;
    }
    this.searchTimer = setTimeout(() => this.find(), SEARCH_PAUSE_MS);
  }

  async find() {
    const query = this.search.value;
    const answer = await attempt(() => get(`search?q=${encodeURIComponent(query)}`));
    if (!answer || query !== this.search.value) return; // more was typed meanwhile
    const rows = answer.hits.map((hit) => {
      // Every other piece is a match.
      const pieces = hit.pieces.map((piece, index) => (index % 2 ? el("mark", {}, piece) : piece));
      const words = el("span", { class: hit.message_id === null ? "hit-title" : "hit-text", dir: "auto" }, ...pieces);
      const head = hit.message_id === null ? null : el("span", { class: "hit-title", dir: "auto" }, hit.title);
      const found = hit.pieces.filter((_, index) => index % 2);
      return el("a", { class: "hit", href: `?chat=${hit.chat_id}`, onclick: (event) => this.onLink(event, hit.chat_id, hit.message_id, found) }, head, words);
    });
    const heading = rows.length ? counted(rows.length, "place") : "Nothing found.";
    this.list.replaceChildren(el("section", {}, el("h3", { role: "status" }, heading), ...rows));
  }

  onSearchKey(event) {
    if (event.key === "Escape") {
      event.stopPropagation();
      this.search.value = "";
      this.draw();
      this.search.blur();
    } else if (event.key === "ArrowDown" || event.key === "Enter") {
      event.preventDefault();
      this.list.querySelector("a")?.focus();
    }
  }

  onListKey(event) {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (!step) return;
    const links = [...this.list.querySelectorAll("a")];
    const next = links.indexOf(document.activeElement.closest(".chat-row")?.querySelector("a") ?? document.activeElement) + step;
    event.preventDefault();
    if (next < 0) this.search.focus();
    else links[next]?.focus();
  }

  // Everything else

  openMore(button) {
    openMenu(button, [
      { name: "Import chats…", run: () => this.importer.click() },
      { name: "Export all as Markdown", run: () => download("export/all.md") },
      { name: "Export all as JSON", run: () => download("export/all.json") },
      { name: this.isArchive ? "Show the chats" : "Show the archive", run: () => this.showArchive(!this.isArchive) },
    ]);
  }

  showArchive(isArchive) {
    this.isArchive = isArchive;
    this.tellList(0);
  }

  tellList(numMore) {
    this.actions.tell({ kind: "list", is_archive: this.isArchive, num_more: numMore });
  }

  async importPicked() {
    const [file] = this.importer.files;
    this.importer.value = "";
    if (!file) return;
    const answer = await attempt(() => upload("import", file));
    if (!answer) return;
    notify(`${counted(answer.chat_ids.length, "chat")} imported from ${file.name}.`);
    if (answer.chat_ids.length === 1) this.actions.openChat(answer.chat_ids[0]);
  }
}

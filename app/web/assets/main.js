// The page: which chat is open, and what goes between the server and the parts of the page.

import "./frames.js"; // first
import { get, post } from "./api.js";
import { CompareDialog } from "./compare_dialog.js";
import { Composer, PLAN_PAUSE_MS } from "./composer.js";
import { Conversation } from "./conversation.js";
import { el, iconButton, standing } from "./dom.js";
import { engineWords } from "./engine.js";
import { clipped, shortModel } from "./format.js";
import { bindKeys, showKeys } from "./keys.js";
import { Line } from "./line.js";
import { explainLogin } from "./login.js";
import { attempt, isByKeyboard, mountNotices, notify } from "./notices.js";
import { Panel } from "./panel.js";
import { SettingsChat } from "./settings_chat.js";
import { tellRefusals } from "./settings_faults.js";
import { guardNumbers } from "./settings_fields.js";
import { closeLeftLists } from "./settings_lists.js";
import { Sidebar } from "./sidebar.js";
import { keepTheme, toggleTheme } from "./theme.js";
import { setTitle } from "./title.js";
import { TopBar } from "./topbar.js";
import { Welcome } from "./welcome.js";

const SETTINGS = "pc-shows-settings"; // a class of the body, which Gradio's part of the page sees too

class Page {
  constructor() {
    this.chatId = null;
    this.leavingId = null; // a chat that is being deleted or kept
    this.root = el("div", { class: "pc" });
    this.settingsChat = new SettingsChat(() => this.creating ?? this.createChat({}, { isForSettings: true })); // Gradio's part asks it, too
    this.line = new Line("live", {
      onNews: (news) => this.take(news),
      onOpen: () => {
        this.root.classList.remove("is-cut-off");
        this.line.tell({ kind: "open", chat_id: this.chatId });
        this.sidebar.tellList(0);
      },
      onBreak: () => this.root.classList.add("is-cut-off"),
    });
    this.sidebar = new Sidebar(this.root, {
      openChat: (id, messageId, words) => this.openChat(id, { messageId, words }),
      newChat: (options) => this.newChat(options),
      keepChat: (id) => this.keepChat(id),
      leave: (id) => this.leave(id),
      tell: (request) => this.line.tell(request),
      toggleTheme,
      showHelp: () => showKeys(this.root),
      close: () => this.topBar.toggleSidebar(),
    });
    this.topBar = new TopBar(this.root, { openSettings: () => this.openSettings(), keepChat: () => this.keepChat(this.chatId) });
    this.welcome = new Welcome((text) => this.composer.actions.send({ text, attachments: [], n: this.composer.numReplies }));
    this.conversation = new Conversation(this.messageActions());
    this.composer = new Composer({
      send: (question) => this.send(question),
      stop: () => this.stop(),
      chooseVariants: () => this.chooseVariants(),
      question: () => (this.chatId !== null && this.chatId === this.leavingId ? null : { chat_id: this.chatId, parent_id: this.conversation.leafId }),
      leftOut: (ids) => this.conversation.showLeftOut(ids),
    });
    this.engineNote = el("p", { class: "engine-note", role: "status", hidden: true });
    const hidePanel = iconButton("close", "Hide the cache", () => this.topBar.togglePanel());
    this.panel = new Panel(this.root);
    const cache = el("aside", { class: "cache-panel", id: "cache-panel", "aria-label": "Cache" }, el("header", { class: "cache-head" }, el("h2", {}, "Cache"), hidePanel), this.panel.element);
    this.root.append(this.sidebar.element, el("main", { class: "main" }, this.topBar.element, this.welcome.element, this.conversation.element, this.engineNote, this.composer.element), cache);
    document.body.prepend(this.root);
    mountNotices(this.root);
    guardNumbers();
    closeLeftLists();
    tellRefusals();
    bindKeys({
      newChat: () => this.newChat(),
      search: () => { this.topBar.showSidebar(); this.sidebar.focusSearch(); },
      escape: (target) => this.escape(target),
      help: () => showKeys(this.root),
      write: () => this.composer.field.focus(),
    });
    addEventListener("paged-chat:settings-read", () => this.takeSettingsRead());
    addEventListener("click", ({ target }) => target.closest?.("#pc-settings-close") && this.closeSettings());
    addEventListener("popstate", () => this.show(chatIdOfAddress()));
    this.show(chatIdOfAddress());
    this.settingsStand = new Promise((stand) => addEventListener("paged-chat:settings-stand", stand, { once: true }));
    this.line.want(true);
  }

  // What the server tells

  take(news) {
    if (news.kind === "engine") this.takeEngine(news);
    else if (news.kind === "list") this.sidebar.update(news);
    else if (news.kind === "fault") notify(news.error, { isError: true });
    else if (news.kind === "gone") this.takeGone(news);
    else if (news.kind === "chat" && news.chat.id === this.chatId) this.takeChat(news);
    else if (news.kind === "reply") {
      this.conversation.grow(news);
      dispatchEvent(new CustomEvent("paged-chat:reply", { detail: news }));
    }
  }

  takeEngine(status) {
    const isNew = this.engine?.phase !== status.phase;
    const refusal = status.fetch?.error;
    if (refusal && this.engine && this.engine.fetch?.error !== refusal) notify(`${refusal}. ${shortModel(status.model)} goes on answering.`, { isError: true });
    this.engine = status;
    this.topBar.showEngine(status);
    this.welcome.showEngine(status);
    const words = engineWords(status);
    this.engineNote.hidden = words === null;
    this.engineNote.textContent = words ?? "";
    this.engineNote.classList.toggle("is-failed", status.phase === "failed");
    if (isNew && status.phase === "ready") this.composer.plan();
    if (isNew) dispatchEvent(new CustomEvent("paged-chat:engine", { detail: status }));
  }

  takeChat(news) {
    const leafBefore = this.conversation.leafId;
    this.conversation.update(news);
    this.topBar.showChat(news.chat);
    setTitle(news.chat.title);
    const isNew = this.numReplies === null; // then what was chosen before the chat was there counts
    if (this.numReplies !== news.num_replies && !(isNew && this.composer.isNumberChosen)) this.composer.setNumReplies(news.num_replies);
    this.numReplies = news.num_replies;
    this.showEmptiness(news.path.length === 0);
    this.composer.setRunning(this.conversation.isRunning);
    if (leafBefore !== this.conversation.leafId) this.composer.plan();
  }

  takeGone(news) {
    if (news.chat_id !== this.chatId || news.chat_id === this.leavingId) return;
    const { chat } = this.topBar;
    const written = this.composer.take();
    this.newChat();
    if (written.text || written.attachments.length) this.composer.put({ ...written, text: [this.composer.field.value, written.text].filter(Boolean).join("\n\n") });
    if (chat === null || chat.is_temporary) { // which may have been kept, under another address
      notify("There is no such chat, or it was deleted.");
      return;
    }
    const restore = async () => (await attempt(() => post(`chats/${chat.id}/restore`))) && this.openChat(chat.id);
    notify(`“${clipped(chat.title)}” was deleted in another place.`, { action: { name: "Undo", run: restore } });
  }

  // Which chat is open

  openChat(chatId, { messageId = null, words = [], isForSettings = false } = {}) {
    if (chatId !== this.chatId) {
      history.pushState(null, "", chatId ? `?chat=${chatId}` : location.pathname);
      this.show(chatId, { isForSettings });
    }
    this.root.classList.remove("shows-sidebar");
    if (messageId !== null) this.conversation.reveal(messageId, words);
  }

  /** isForSettings: somebody goes on setting there what the chat begins with. */
  show(chatId, { isForSettings = false } = {}) {
    this.chatId = chatId;
    this.numReplies = null; // as the settings have it
    this.conversation.clear();
    this.composer.setRunning(false);
    this.composer.open(chatId);
    this.sidebar.setChat(chatId);
    this.topBar.showChat(null);
    setTitle(null);
    this.showEmptiness(chatId === null);
    this.line.tell({ kind: "open", chat_id: chatId });
    dispatchEvent(new CustomEvent("paged-chat:open", { detail: { chatId } }));
    if (isForSettings) return;
    this.tellSettings();
    if (matchMedia("(min-width: 700px)").matches) this.composer.field.focus();
  }

  async newChat({ isTemporary = false } = {}) {
    this.openChat(null);
    if (isTemporary) await this.createChat({ is_temporary: true });
  }

  /** What is written and chosen meanwhile is meant for it: messages wait until it stands, and the rest goes along. */
  createChat(options = {}, how = {}) {
    this.creating = this.beginChat(options, how).finally(() => { this.creating = null; });
    return this.creating;
  }

  async beginChat(options, how) {
    const answer = await attempt(() => post("chats", options));
    if (!answer) return null;
    const taken = this.chatId === null ? this.composer.take() : null;
    this.openChat(answer.chat_id, how);
    if (taken) this.composer.put(taken);
    return answer.chat_id;
  }

  /** A chat goes by what is done here: that it has gone is no news, and what is sent next would be for another one. */
  leave(id) {
    this.leavingId = id;
    if (id !== null && id === this.chatId) this.composer.endPlan();
  }

  /** A temporary chat becomes a stored one, under another address. */
  async keepChat(id) {
    this.leave(id);
    const answer = await attempt(() => post(`chats/${id}/keep`));
    if (!answer) {
      this.leave(null);
      return;
    }
    if (id === this.chatId) {
      history.replaceState(null, "", `?chat=${answer.chat_id}`);
      this.show(answer.chat_id);
    }
    notify("The chat is kept.");
  }

  showEmptiness(isEmpty) {
    this.root.classList.toggle("is-empty", isEmpty);
  }

  /** Settings are a chat's; where there is none yet, they are what one begins with. */
  async openSettings() {
    const opener = document.activeElement;
    await this.settingsStand;
    if (document.body.classList.contains(SETTINGS)) {
      this.closeSettings();
      return;
    }
    document.body.classList.add(SETTINGS);
    this.settingsOpener = opener;
    this.readSettings();
  }

  /** Another chat is open. */
  tellSettings() {
    if (!document.body.classList.contains(SETTINGS)) return;
    if (this.chatId === null) this.closeSettings();
    else this.readSettings();
  }

  /** Gradio's part of the page reads the settings of this chat. */
  readSettings() {
    this.blockSettings();
    this.settingsChat.forget();
    dispatchEvent(new CustomEvent("paged-chat:settings", { detail: { chatId: this.chatId ?? "" } }));
  }

  closeSettings() {
    document.body.classList.remove(SETTINGS);
    this.settingsOpener?.focus();
    this.settingsOpener = null;
  }

  async takeSettingsRead() {
    document.getElementById("pc-settings").classList.remove("is-loading");
    const close = await standing("pc-settings-close");
    // Who opened them goes on there; who has gone on elsewhere meanwhile stays.
    if (this.settingsOpener && this.settingsOpener === document.activeElement) close.focus();
  }

  /** Until they are read, what somebody changes would be another chat's. */
  blockSettings() {
    document.getElementById("pc-settings").classList.add("is-loading");
  }

  // What the person does

  async send(question) {
    await this.creating;
    const chatId = this.chatId ?? (await this.createChat());
    if (chatId === null) return false;
    this.conversation.follow();
    const what = question.variants ? "compare" : "send";
    return attempt(() => post(`chats/${chatId}/${what}`, { ...question, parent_id: this.conversation.leafId }));
  }

  /** Gives what is to be compared as {variants, names}, or null. */
  async chooseVariants() {
    const form = await attempt(() => get("comparison-form"));
    if (!form) return null;
    const check = (variants) => post("variants", { chat_id: this.chatId, variants });
    return new Promise((take) => new CompareDialog(this.root, form, check, take));
  }

  /** Closes what covers the conversation and has the focus; else stops what is being written, or closes the settings. */
  escape(target) {
    if (target.closest("#pc-settings")) this.closeSettings();
    else if (target.closest(".sidebar") && this.root.classList.contains("shows-sidebar")) this.topBar.toggleSidebar();
    else if (target.closest(".cache-panel") && this.topBar.isPanelOver) this.topBar.togglePanel();
    else if (this.conversation.isRunning) this.stop();
    else if (document.body.classList.contains(SETTINGS)) this.closeSettings();
  }

  stop() {
    return attempt(() => post(`chats/${this.chatId}/stop`));
  }

  messageActions() {
    const act = (id, name, body) => attempt(() => post(`chats/${this.chatId}/messages/${id}/${name}`, body));
    const follow = (work) => {
      this.conversation.follow();
      return work;
    };
    return {
      chatId: () => this.chatId,
      older: () => this.line.tell({ kind: "older" }),
      pick: (id) => act(id, "pick"),
      stop: (id) => act(id, "stop"),
      retry: (id) => follow(act(id, "retry", { n: 1 })),
      continue: (id) => follow(act(id, "continue")),
      edit: (id, text) => follow(act(id, "edit", { text, n: this.composer.numReplies })),
      fork: async (id) => {
        const answer = await act(id, "fork");
        if (answer) this.openChat(answer.chat_id);
      },
      delete: async (id) => {
        const takesFocus = isByKeyboard();
        if (!(await act(id, "delete"))) return;
        notify("The message and what followed it are deleted.", { action: { name: "Undo", run: () => act(id, "restore") }, takesFocus });
      },
      tokens: (id) => attempt(() => get(`chats/${this.chatId}/messages/${id}/tokens`)),
      token: (id, index, numTokens) => attempt(() => get(`chats/${this.chatId}/messages/${id}/tokens/${index}?num_tokens=${numTokens}`)),
      planBranch: (id, index) => act(id, "plan-branch", { token_index: index }),
      branch: (id, index, tokenId) => follow(act(id, "branch", { token_index: index, token_id: tokenId })),
      planEdit: (id, text, show) => this.planEdit(id, text, show),
      plan: (id, action) => get(`chats/${this.chatId}/messages/${id}/plan?of=${action}`).catch(() => null),
    };
  }

  planEdit(id, text, show) {
    clearTimeout(this.editTimer);
    this.editTimer = setTimeout(async () => {
      const plan = await attempt(() => post(`chats/${this.chatId}/plan`, { message_id: id, text }));
      if (plan) show(plan.refusal ?? plan.words);
    }, PLAN_PAUSE_MS);
  }
}

function chatIdOfAddress() {
  return new URLSearchParams(location.search).get("chat");
}

// Gradio's login, where there is one, has the page for itself.
if (window.gradio_config?.auth_required) explainLogin();
else {
  keepTheme();
  window.pagedChat = new Page();
}

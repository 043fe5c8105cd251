// Which chat the settings are of. Where none is begun yet, one begins with the first thing that is set.

import { get } from "./api.js";

export class SettingsChat {
  /** begin: makes a chat and opens it; gives its id, or null. */
  constructor(begin) {
    this.begin = begin;
    this.begun = null; // a promise of the id, once something is set
  }

  /** The settings are read anew, of whichever chat. */
  forget() {
    this.begun = null;
  }

  /** The one that is to change: Gradio's part of the page has its id, or "" where none was begun when they were read. */
  async of(chatId, isSet = true) {
    if (chatId) return chatId;
    if (isSet) this.begun ??= this.begin();
    const begun = (await this.begun) ?? "";
    if (!begun) this.begun = null;
    return begun;
  }

  /** The same where only what is kept under a name sets something. */
  async ofKept(chatId, kind, name) {
    if (chatId) return chatId;
    const kept = await get("comparison-form");
    return this.of(chatId, kept[kind].includes(name));
  }
}

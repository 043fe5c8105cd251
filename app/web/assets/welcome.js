// A chat without a message: what this is, three prompts to press, and how the model's loading goes.

import { el } from "./dom.js";
import { engineWords } from "./engine.js";

const PROMPTS = [
  "Explain in five sentences why the sky is blue.",
  "Plan three days in Lisbon, without museums.",
  "Write a Python function that reverses the words of a sentence.",
];

export class Welcome {
  constructor(send) {
    this.words = el("span", {});
    this.bar = el("progress", { max: 1, "aria-label": "Loading the model" });
    this.loading = el("div", { class: "loading", role: "status" }, this.words, this.bar);
    this.element = el(
      "section",
      { class: "welcome", "aria-label": "Begin" },
      el("h1", {}, "What the model has read once, it never computes again."),
      el("p", {}, "Chat, branch, retry: everything shares one cache, on this machine alone."),
      el("div", { class: "prompts" }, ...PROMPTS.map((text) => el("button", { type: "button", onclick: () => send(text) }, text))),
      this.loading,
    );
  }

  showEngine(status) {
    const words = engineWords(status);
    this.loading.hidden = words === null;
    this.loading.classList.toggle("is-failed", status.phase === "failed");
    this.words.textContent = words ?? "";
    this.bar.hidden = status.phase === "failed" || status.phase === "closed";
    const progress = status.progress ?? status.fetch?.progress;
    if (progress?.total) this.bar.value = progress.done / progress.total;
    else this.bar.removeAttribute("value");
  }
}

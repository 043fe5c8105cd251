// What pressing one of a message's buttons would reuse and compute: said while the pointer or the focus is on it.

import { el } from "./dom.js";

const PAUSE_MS = 200; // a pointer that passes over asks for nothing

export class ActionPreview {
  /** plan: asks the server for the plan of an action by its name; gives null where there is none. */
  constructor(plan) {
    this.plan = plan;
    this.button = null; // the one that is pointed at
    this.element = el("span", { class: "preview", role: "status", hidden: true });
  }

  /** Gives the button back, which says from now on what it costs. */
  of(action, button) {
    for (const event of ["pointerenter", "focus"]) button.addEventListener(event, () => this.ask(action, button));
    for (const event of ["pointerleave", "blur", "click"]) button.addEventListener(event, () => this.end());
    return button;
  }

  ask(action, button) {
    this.end();
    this.button = button;
    this.timer = setTimeout(async () => {
      const plan = await this.plan(action);
      if (plan && this.button === button) this.show(action, plan);
    }, PAUSE_MS);
  }

  show(action, plan) {
    const forked = `what is said there next reuses ${plan.reused}`;
    this.element.textContent = plan.refusal ?? (action === "fork" ? forked : plan.words);
    this.element.hidden = false;
  }

  end() {
    clearTimeout(this.timer);
    this.button = null;
    this.element.hidden = true;
  }
}

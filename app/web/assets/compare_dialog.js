// What the next message is compared under: some variants of the chat's settings.

import { el, iconButton } from "./dom.js";
import { openDialog } from "./notices.js";

const OWN_TEXT = "\u0000own"; // no kept system prompt can have this name
const FIRST_FIELDS = [
  ["temperature", "Temperature"],
  ["top_p", "Top p"],
  ["seed", "Seed"],
  ["max_tokens", "Longest reply"],
];
const MORE_FIELDS = [
  ["top_k", "Top k"],
  ["min_p", "Min p"],
  ["repetition_penalty", "Repetition penalty"],
  ["presence_penalty", "Presence penalty"],
  ["frequency_penalty", "Frequency penalty"],
  ["logprobs", "Alternatives kept"],
  ["beam_width", "Beam search"],
  ["length_penalty", "Length penalty"],
];
// In the words of the settings.
const ENDS = [["", "same"], ["true", "once as many have ended"], ["false", "once it looks settled"], ["never", "once it surely is"]];

let last = [{}, { changes: { temperature: "0" } }]; // as they were compared last

export class CompareDialog {
  /**
   * form: what the server says can be chosen and written. check: asks it for the variants' names. take: hears
   * {variants, names}, or null.
   */
  constructor(root, form, check, take) {
    this.form = form;
    this.check = check;
    this.answer = null;
    this.rows = el("div", { class: "variants" });
    this.more = el("button", { type: "button", class: "button", onclick: () => this.addAndShow() }, "Add a variant");
    this.fault = el("p", { class: "fault", role: "alert", hidden: true });
    const fields = el("form", { onsubmit: (event) => { event.preventDefault(); this.submit(); } },
      el("p", { class: "hint" }, "The next message is answered under each of these, all at once. What is left empty is as the settings have it; variants without a seed share one, so that the settings alone make the difference."),
      this.rows,
      this.fault,
      el("div", { class: "dialog-buttons" }, this.more,
        el("button", { type: "button", class: "button", onclick: () => this.dialog.close() }, "Cancel"),
        el("button", { type: "submit", class: "button is-primary" }, "Compare")));
    for (const variant of last) this.add(variant);
    this.dialog = openDialog(root, "Compare", fields);
    this.dialog.classList.add("compare-dialog");
    this.dialog.addEventListener("close", () => take(this.answer));
  }

  /** One more row; gives its first field. */
  add(variant) {
    const name = el("input", { type: "text", "data-field": "name", maxlength: this.form.longest.name, value: variant.name ?? "", placeholder: "made of what differs" });
    const preset = choice("preset", [["", "This chat's"], ...this.form.presets.map((one) => [one, one])], variant.preset);
    const changes = variant.changes ?? {};
    const number = ([field, label]) => labelled(label, el("input", { type: "number", "data-change": field, ...this.form.limits[field], value: changes[field] ?? "", placeholder: "same" }));
    const ends = choice("", ENDS, changes.early_stopping);
    ends.dataset.change = "early_stopping";
    const stop = el("textarea", { "data-change": "stop", rows: 2, maxlength: this.form.longest.setting, placeholder: "same; one on each line" });
    stop.value = changes.stop ?? "";
    const isMoreUsed = MORE_FIELDS.some(([field]) => changes[field]) || changes.early_stopping || changes.stop;
    const more = el("details", { class: "variant-more", open: Boolean(isMoreUsed) }, el("summary", {}, "More settings"),
      el("div", { class: "variant-fields" }, ...MORE_FIELDS.map(number), labelled("Beam search ends", ends), labelled("Stop texts", stop)));
    more.addEventListener("invalid", () => { more.open = true; }, true); // what is at fault has to be seen
    const system = choice("system", [["", "This chat's"], ["-", "None"], ...this.form.system_prompts.map((one) => [one, one]), [OWN_TEXT, "Another…"]], variant.system_prompt === undefined ? variant.system : OWN_TEXT);
    const text = el("textarea", { "data-field": "system_prompt", rows: 2, "aria-label": "Text of the system prompt", placeholder: "System prompt of this variant" });
    text.value = variant.system_prompt ?? "";
    const showText = () => { text.hidden = system.value !== OWN_TEXT; };
    system.addEventListener("change", showText);
    showText();
    const remove = iconButton("close", "Take this variant away", () => { row.remove(); this.number(); });
    const row = el("fieldset", { class: "variant" }, el("legend", {}), remove,
      labelled("Name", name), labelled("Settings", preset), ...FIRST_FIELDS.map(number), labelled("System prompt", system), text, more);
    this.rows.append(row);
    this.number();
    return name;
  }

  addAndShow() {
    const first = this.add({});
    first.focus();
    first.closest(".variant").scrollIntoView({ block: "nearest" });
  }

  number() {
    const rows = [...this.rows.children];
    const [least, most] = this.form.num_variants;
    rows.forEach((row, index) => {
      row.querySelector("legend").textContent = `Variant ${index + 1}`;
      row.querySelector(".icon-button").disabled = rows.length <= least;
    });
    this.more.disabled = rows.length >= most;
  }

  read(row) {
    const value = (field) => row.querySelector(`[data-field="${field}"]`).value;
    const changes = {};
    for (const input of row.querySelectorAll("[data-change]")) if (input.value !== "") changes[input.dataset.change] = input.value;
    const variant = { name: value("name").trim(), preset: value("preset") || null, changes };
    if (value("system") === OWN_TEXT) variant.system_prompt = value("system_prompt");
    else if (value("system")) variant.system = value("system");
    return variant;
  }

  async submit() {
    const variants = [...this.rows.children].map((row) => this.read(row));
    try {
      const { names } = await this.check(variants);
      this.answer = { variants, names };
    } catch (error) {
      this.fault.textContent = error.message;
      this.fault.hidden = false;
      return;
    }
    last = variants;
    this.dialog.close();
  }
}

function labelled(label, input) {
  input.setAttribute("aria-label", label); // without the words of its options
  return el("label", {}, el("span", {}, label), input);
}

function choice(field, options, chosen) {
  const select = el("select", { "data-field": field || null }, ...options.map(([value, words]) => el("option", { value }, words)));
  select.value = chosen ?? "";
  if (select.selectedIndex < 0) select.value = "";
  return select;
}

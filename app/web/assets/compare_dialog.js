// What the next message is compared under: from two to six variants of the chat's settings.

import { el, iconButton } from "./dom.js";
import { openDialog } from "./notices.js";

const LEAST = 2;
const MOST = 6;
const OWN_TEXT = "\u0000own"; // no kept system prompt can have this name
const FIELDS = [
  ["temperature", "Temperature", { min: 0, max: 100, step: "any" }],
  ["top_p", "Top p", { min: 0, max: 1, step: "any" }],
  ["seed", "Seed", { min: 0, step: 1 }],
  ["beam_width", "Beam width", { min: 1, max: 64, step: 1 }],
];

let last = [{}, { changes: { temperature: "0" } }]; // as they were compared last

export class CompareDialog {
  /** kept: names of presets and of system prompts. check: asks the server for the names. take: hears {variants, names}, or null. */
  constructor(root, kept, check, take) {
    this.kept = kept;
    this.check = check;
    this.answer = null;
    this.rows = el("div", { class: "variants" });
    this.more = el("button", { type: "button", class: "button", onclick: () => this.add({}).focus() }, "Add a variant");
    this.fault = el("p", { class: "fault", role: "alert", hidden: true });
    const form = el("form", { onsubmit: (event) => { event.preventDefault(); this.submit(); } },
      el("p", { class: "hint" }, "The next message is answered under each of these, all at once. What is left empty is as the settings have it; variants without a seed share one, so that the settings alone make the difference."),
      this.rows,
      this.fault,
      el("div", { class: "dialog-buttons" }, this.more, el("span", { class: "spring" }),
        el("button", { type: "button", class: "button", onclick: () => this.dialog.close() }, "Cancel"),
        el("button", { type: "submit", class: "button is-primary" }, "Compare")));
    for (const variant of last) this.add(variant);
    this.dialog = openDialog(root, "Compare", form);
    this.dialog.classList.add("compare-dialog");
    this.dialog.addEventListener("close", () => take(this.answer));
  }

  /** One more row; gives its first field. */
  add(variant) {
    const name = el("input", { type: "text", "data-field": "name", maxlength: 60, value: variant.name ?? "", placeholder: "made of what differs" });
    const preset = choice("preset", [["", "This chat's"], ...this.kept.presets.map((one) => [one, one])], variant.preset);
    const fields = FIELDS.map(([field, label, limits]) => labelled(label, el("input", { type: "number", "data-change": field, ...limits, value: variant.changes?.[field] ?? "", placeholder: "same" })));
    const system = choice("system", [["", "This chat's"], ["-", "None"], ...this.kept.system_prompts.map((one) => [one, one]), [OWN_TEXT, "Another…"]], variant.system_prompt === undefined ? variant.system : OWN_TEXT);
    const text = el("textarea", { "data-field": "system_prompt", rows: 2, "aria-label": "Text of the system prompt", placeholder: "System prompt of this variant" });
    text.value = variant.system_prompt ?? "";
    const showText = () => { text.hidden = system.value !== OWN_TEXT; };
    system.addEventListener("change", showText);
    showText();
    const remove = iconButton("close", "Take this variant away", () => { row.remove(); this.number(); });
    const row = el("fieldset", { class: "variant" }, el("legend", {}), remove,
      labelled("Name", name), labelled("Settings", preset), ...fields, labelled("System prompt", system), text);
    this.rows.append(row);
    this.number();
    return name;
  }

  number() {
    const rows = [...this.rows.children];
    rows.forEach((row, index) => {
      row.querySelector("legend").textContent = `Variant ${index + 1}`;
      row.querySelector(".icon-button").disabled = rows.length <= LEAST;
    });
    this.more.disabled = rows.length >= MOST;
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
  const select = el("select", { "data-field": field }, ...options.map(([value, words]) => el("option", { value }, words)));
  select.value = chosen ?? "";
  if (select.selectedIndex < 0) select.value = "";
  return select;
}

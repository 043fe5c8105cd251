// Numbers in the settings, which are Gradio's. It would take an emptied field for the least number, and what is out of
// range for an error at each digit that is typed. Neither reaches it: when somebody is done with a field that is at
// fault, it is as it was before, and says what it takes. And a slider's own reset would lead to what the page was built
// with, whatever model answers: it leads to what suits that one.

import { count } from "./format.js";
import { notify } from "./notices.js";

const NUMBERS = "#pc-settings input[type=number]";
const MAY_BE_EMPTY = "#pc-max_tokens, #pc-seed";

const before = new WeakMap(); // what a field had when somebody was last done with it
const told = new WeakMap(); // what was wrong with what was typed last: Gradio may meanwhile write what it last heard of

function fault(input) {
  const { validity, min, max, step } = input;
  const isWhole = Number.isInteger(Number(step));
  const kind = isWhole ? "a whole number" : "a number";
  const range = `from ${count(Number(min))} to ${count(Number(max))}`;
  const isEmpty = input.value === "" && !validity.badInput;
  if (isEmpty && input.closest(MAY_BE_EMPTY)) return null;
  const isOff = isEmpty || validity.badInput || validity.rangeUnderflow || validity.rangeOverflow || (isWhole && validity.stepMismatch);
  return isOff ? `${kind} ${range}` : null;
}

function nameOf(input) {
  const label = input.getAttribute("aria-label")?.replace("number input for ", "");
  return label ?? input.closest("label")?.querySelector("[data-testid=block-info]")?.textContent.trim() ?? "This";
}

function hear(event, take) {
  const input = event.target.closest?.(NUMBERS);
  if (input) take(input);
}

/** From now on, for fields that come later too. */
export function guardNumbers() {
  addEventListener("focusin", (event) => hear(event, (input) => before.set(input, input.value)));
  // Before Gradio hears of it.
  addEventListener("input", (event) => hear(event, (input) => {
    const takes = fault(input);
    told.set(input, takes);
    input.toggleAttribute("aria-invalid", takes !== null);
    if (takes !== null) event.stopImmediatePropagation();
  }), true);
  addEventListener("change", (event) => hear(event, (input) => {
    const takes = told.get(input) ?? fault(input);
    if (takes !== null) {
      input.value = before.get(input) ?? "";
      input.dispatchEvent(new Event("input", { bubbles: true })); // a beginning of what was typed may have been in order
      notify(`${nameOf(input)}: ${takes}. It stays ${input.value || "empty"}.`, { isError: true });
    }
    before.set(input, input.value);
  }), true);
  addEventListener("click", (event) => {
    const field = event.target.closest?.("#pc-settings .reset-button")?.closest("[id^=pc-]");
    if (!field) return;
    event.stopImmediatePropagation();
    const suited = JSON.parse(document.querySelector("#pc-sampling-origin [data-suited]").dataset.suited);
    const input = field.querySelector("input[type=number]");
    input.value = suited[field.id.replace("pc-", "")];
    input.removeAttribute("aria-invalid");
    input.dispatchEvent(new Event("input", { bubbles: true }));
  }, true);
}

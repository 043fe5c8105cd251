// The settings' lists of choices, which are Gradio's. One that Tab leads away from stays open, over what stands below (6.31).

export function isListOpen(field) {
  return field.getAttribute?.("role") === "combobox" && field.getAttribute("aria-expanded") === "true";
}

/** From now on. */
export function closeLeftLists() {
  addEventListener("focusout", ({ target }) => setTimeout(() => {
    if (isListOpen(target) && target !== document.activeElement) target.dispatchEvent(new KeyboardEvent("keydown", { key: "Escape", bubbles: true }));
  }));
}

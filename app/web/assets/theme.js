// Light or dark: as the system has it, until somebody chooses. Gradio's own parts follow the class on the body.

const KEY = "paged-chat theme";
const system = matchMedia("(prefers-color-scheme: dark)");

function isDark() {
  const chosen = localStorage.getItem(KEY);
  return chosen ? chosen === "dark" : system.matches;
}

function applyTheme() {
  const { classList } = document.body;
  if (classList.contains("dark") !== isDark()) classList.toggle("dark");
}

/** From now on; Gradio, which comes later, would have it as the system does. */
export function keepTheme() {
  applyTheme();
  system.addEventListener("change", applyTheme);
  new MutationObserver(applyTheme).observe(document.body, { attributeFilter: ["class"] });
}

export function toggleTheme() {
  localStorage.setItem(KEY, isDark() ? "light" : "dark");
  applyTheme();
}

// Light or dark: as the system has it, until somebody chooses. Gradio's own parts follow the class on the body.

const KEY = "paged-chat theme";
const system = matchMedia("(prefers-color-scheme: dark)");

function isDark() {
  const chosen = localStorage.getItem(KEY);
  return chosen ? chosen === "dark" : system.matches;
}

export function applyTheme() {
  document.body.classList.toggle("dark", isDark());
  system.onchange = () => document.body.classList.toggle("dark", isDark());
}

export function toggleTheme() {
  localStorage.setItem(KEY, isDark() ? "light" : "dark");
  applyTheme();
}

// What the browser's tab says. Gradio, which comes later, would write its own over it.

let wanted = "paged-chat";

function keep() {
  if (document.title !== wanted) document.title = wanted;
}

export function setTitle(chatTitle) {
  wanted = chatTitle ? `${chatTitle} · paged-chat` : "paged-chat";
  keep();
}

new MutationObserver(keep).observe(document.head, { childList: true, subtree: true, characterData: true });

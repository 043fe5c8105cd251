// Elements, in few words.

/** An element: attributes by name, `on…` as listeners, null and false left out; children are nodes or text. */
export function el(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "class") element.className = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

/** A button that shows an icon and says its name to those who can't see it, and to the pointer that rests on it. */
export function iconButton(icon, name, onclick, attributes = {}) {
  return el("button", { type: "button", class: "icon-button", title: name, "aria-label": name, onclick, ...attributes }, svg(icon));
}

const RIGHT_TO_LEFT = /^\P{L}*[\p{Script=Hebrew}\p{Script=Arabic}\p{Script=Syriac}\p{Script=Thaana}\p{Script=Nko}]/u;

/** A block of a message, which reads from right to left where its first letter does; a thought's blocks each do. */
export function directed(block) {
  const blocks = block.tagName === "DETAILS" ? block.children : [block];
  for (const one of blocks) if (RIGHT_TO_LEFT.test(one.textContent)) one.dir = "rtl"; // others cost no layout
  return block;
}

/** A title for a place that may be too narrow for it: what tells a fork from its chat stays. */
export function titleParts(title) {
  const [, name, mark] = /^(.*?)((?: \(fork\))*)$/s.exec(title);
  return [el("span", { class: "title-name" }, name), mark && el("span", { class: "title-mark" }, mark)];
}

/** Text that mostly is what it was: then nothing is laid out anew. */
export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** Makes the children of `parent` be `wanted`, moving as little as possible. */
export function setChildren(parent, wanted) {
  let current = parent.firstChild;
  for (const node of wanted) {
    if (node === current) current = current.nextSibling;
    else parent.insertBefore(node, current);
  }
  while (current) {
    const next = current.nextSibling;
    current.remove();
    current = next;
  }
}

// Drawn in a square of 24, with strokes.
const PATHS = {
  plus: "M12 5v14M5 12h14",
  search: "M11 4a7 7 0 1 0 0 14 7 7 0 0 0 0-14zM20 20l-4-4",
  menu: "M4 7h16M4 12h16M4 17h16",
  settings: "M4 7h9M17 7h3M4 17h3M11 17h9M15 4.5v5M9 14.5v5",
  cache: "M4 4h6v6H4zM14 4h6v6h-6zM4 14h6v6H4zM14 14h6v6h-6z",
  send: "M12 19V5M6 11l6-6 6 6",
  stop: "M7 7h10v10H7z",
  attach: "M20 11l-8.5 8.5a5 5 0 0 1-7-7L13 4a3.4 3.4 0 0 1 5 5l-8.5 8.3a1.7 1.7 0 0 1-2.4-2.4L15 7",
  copy: "M9 9h11v11H9zM5 15H4V4h11v1",
  done: "M5 12.5l4.5 4.5L19 7",
  retry: "M4 12a8 8 0 0 1 13.7-5.6L20 9M20 4v5h-5M20 12a8 8 0 0 1-13.7 5.6L4 15M4 20v-5h5",
  edit: "M4 20h4L19 9l-4-4L4 16zM13 7l4 4",
  fork: "M7 4v9a4 4 0 0 0 4 4h6M14 14l3 3-3 3M7 4L4 7M7 4l3 3",
  tokens: "M4 6h5v5H4zM12 6h8v5h-8zM4 14h8v5H4zM15 14h5v5h-5z",
  delete: "M5 7h14M10 7V4h4v3M7 7l1 13h8l1-13",
  play: "M7 5l12 7-12 7z",
  previous: "M14 6l-6 6 6 6",
  next: "M10 6l6 6-6 6",
  more: "M6 12h.01M12 12h.01M18 12h.01",
  close: "M6 6l12 12M18 6L6 18",
  down: "M12 5v14M6 13l6 6 6-6",
  theme: "M12 4a8 8 0 1 0 0 16zM12 4a8 8 0 0 1 0 16",
  temporary: "M4 8a3 3 0 0 1 3-3M10.5 5h3M17 5a3 3 0 0 1 3 3M20 11v1M20 14.5a3 3 0 0 1-3 3M14 17.5h-2.5l-4 3.5v-3.5M4 14.5a3 3 0 0 0 3 3M4 11v1", // a bubble of dashes
  pin: "M9 4h6l-1 6 3 3H7l3-3zM12 13v7",
  archive: "M4 5h16v4H4zM6 9v10h12V9M10 13h4",
  leave: "M14 4H5v16h9M10 12h10M16 8l4 4-4 4",
  help: "M9.5 9a2.5 2.5 0 1 1 3.5 2.3c-.7.4-1 .9-1 1.7M12 17h.01",
};

const SVG = "http://www.w3.org/2000/svg";

export function svg(name) {
  const picture = document.createElementNS(SVG, "svg");
  picture.setAttribute("viewBox", "0 0 24 24");
  picture.setAttribute("aria-hidden", "true");
  const path = document.createElementNS(SVG, "path");
  path.setAttribute("d", PATHS[name]);
  picture.append(path);
  return picture;
}

/** The element, once it stands: Gradio puts each of its parts up when the code of that part has come. */
export function standing(id) {
  return new Promise((take) => {
    const look = () => {
      const found = document.getElementById(id);
      if (found) {
        observer.disconnect();
        take(found);
      }
    };
    const observer = new MutationObserver(look);
    observer.observe(document.body, { childList: true, subtree: true });
    look();
  });
}

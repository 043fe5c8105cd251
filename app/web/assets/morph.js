// Makes what stands on the page be what was written anew, touching no more than what differs. So a growing paragraph
// costs what was added to it; what somebody has selected in it stays selected, what was unfolded or scrolled stays so.

/** Of two nodes of one kind and with the same attributes the old one stays and gets the new one's content. */
export function morph(old, fresh) {
  if (!isAlike(old, fresh)) old.replaceWith(fresh);
  else if (old.nodeType === Node.TEXT_NODE) growText(old, fresh.data);
  else morphChildren(old, [...fresh.childNodes]);
}

/** Makes the children of `parent` from `index` on be `fresh`. */
export function morphChildren(parent, fresh, index = 0) {
  const old = [...parent.childNodes].slice(index);
  for (const surplus of old.slice(fresh.length)) surplus.remove();
  fresh.forEach((node, place) => (place < old.length ? morph(old[place], node) : parent.append(node)));
}

function growText(node, text) {
  if (text.startsWith(node.data)) {
    if (text.length > node.data.length) node.appendData(text.slice(node.data.length));
  } else node.data = text;
}

function isAlike(old, fresh) {
  return old.nodeType === fresh.nodeType && (old.nodeType !== Node.ELEMENT_NODE || shell(old).isEqualNode(shell(fresh)));
}

/** The element without its content, and as if nobody had unfolded it. */
function shell(element) {
  const copy = element.cloneNode(false);
  if (copy.tagName === "DETAILS") copy.open = false;
  return copy;
}

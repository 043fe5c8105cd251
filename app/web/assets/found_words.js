// What a search found in a message, marked where it stands until something else is looked at.

const NAME = "pc-found"; // in the style sheet
const MOST = 500;

/** Marks these words in an element. Gives the first place as a Range; null where they aren't to be seen as they were written. */
export function markWords(element, words) {
  unmarkWords();
  const wanted = words.filter((word) => word.length > 1 || word > "\u2e80"); // one letter stands everywhere
  const walker = document.createTreeWalker(element, NodeFilter.SHOW_TEXT);
  const ranges = [];
  while (walker.nextNode() && ranges.length < MOST) {
    const places = wanted.flatMap((word) => placesOf(word, walker.currentNode.data));
    for (const [start, end] of places.sort(([one], [other]) => one - other)) ranges.push(rangeOf(walker.currentNode, start, end));
  }
  if (CSS.highlights && ranges.length) CSS.highlights.set(NAME, new Highlight(...ranges));
  return ranges[0] ?? null;
}

export function unmarkWords() {
  CSS.highlights?.delete(NAME);
}

function placesOf(word, text) {
  const small = text.toLowerCase();
  const where = small.length === text.length ? small : text; // a few letters are longer when they are small
  const what = where === small ? word.toLowerCase() : word;
  const places = [];
  for (let at = where.indexOf(what); at !== -1; at = where.indexOf(what, at + what.length)) places.push([at, at + what.length]);
  return places;
}

function rangeOf(node, start, end) {
  const range = new Range();
  range.setStart(node, start);
  range.setEnd(node, end);
  return range;
}

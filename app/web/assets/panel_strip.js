// The strip under a reply: its blocks in a row, as many as were found, copied and computed.

import { el } from "./dom.js";

/** strip: {runs: [[kind, how many], …], is_partial, words}; null shows nothing. */
export function drawStrip(place, strip) {
  place.hidden = !strip;
  const key = JSON.stringify(strip);
  if (!strip || place.dataset.key === key) return;
  place.dataset.key = key;
  place.setAttribute("role", "img");
  place.setAttribute("aria-label", strip.words);
  place.title = `Blocks: ${strip.words}`;
  const last = strip.runs.length - 1;
  place.replaceChildren(...strip.runs.flatMap(([kind, numBlocks], index) => {
    const isPartial = strip.is_partial && index === last;
    const numFull = isPartial ? numBlocks - 1 : numBlocks;
    return [numFull > 0 && run(kind, numFull), isPartial && run(kind, 0.5)].filter(Boolean);
  }));
}

/** One element for blocks that follow each other; its background draws the single ones. */
function run(kind, numBlocks) {
  return el("span", { class: `strip-run is-${kind}${numBlocks < 1 ? " is-partial" : ""}`, style: `--num-blocks: ${numBlocks}` });
}

// How the model stands, in words.

import { megabytes } from "./format.js";

const STAGES = { download: "Downloading", convert: "Converting", load: "Loading", "warm up": "Warming up" };

export function shortModel(model) {
  return model.split(/[\\/]/).filter(Boolean).pop() ?? model;
}

export function loadingWords({ phase, model, progress, error }) {
  if (phase === "failed") return `${shortModel(model)} didn't load: ${error}`;
  if (phase === "closed") return "The server is ending";
  if (!progress) return `Loading ${shortModel(model)}…`;
  const share = progress.total ? ` · ${Math.round((100 * progress.done) / progress.total)} %` : "";
  const size = progress.stage === "download" && progress.total ? ` of ${megabytes(progress.total)}` : "";
  // Of unknown length it is while kernels are compiled and measured for this processor.
  const hint = progress.stage === "warm up" && !progress.total ? ": the first time this takes a minute or two" : "";
  return `${STAGES[progress.stage]} ${shortModel(model)}${share}${size}${hint}`;
}

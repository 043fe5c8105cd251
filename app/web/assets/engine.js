// How the model stands, in words.

import { megabytes, shortModel } from "./format.js";

export function loadingWords({ phase, model, progress, error }) {
  if (phase === "failed") return `${shortModel(model)} didn't load: ${error}`;
  if (phase === "closed") return "The server is ending";
  if (!progress) return `Loading ${shortModel(model)}…`;
  const share = progress.total ? ` · ${Math.round((100 * progress.done) / progress.total)} %` : "";
  const size = progress.stage === "download" && progress.total ? ` of ${megabytes(progress.total)}` : "";
  // Of unknown length it is while kernels are compiled and measured for this processor.
  const hint = progress.stage === "warm up" && !progress.total ? ": the first time this takes a minute or two" : "";
  return `${progress.words} ${shortModel(model)}${share}${size}${hint}`;
}

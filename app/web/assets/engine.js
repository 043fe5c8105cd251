// How the model stands, in words.

import { megabytes, shortModel } from "./format.js";

export function loadingWords({ phase, model, progress, error }) {
  if (phase === "failed") return `${shortModel(model)} didn't load: ${error}`;
  if (phase === "closed") return "The server is ending";
  return progressWords("Loading", model, progress);
}

/** What there is to say of it, loading or downloading another one; null where it just answers. */
export function engineWords(status) {
  if (status.phase !== "ready") return loadingWords(status);
  if (!status.fetch || status.fetch.error) return null;
  return `${progressWords("Downloading", status.fetch.model, status.fetch.progress)}; ${shortModel(status.model)} answers meanwhile`;
}

function progressWords(begin, model, progress) {
  if (!progress) return `${begin} ${shortModel(model)}…`;
  const share = progress.total ? ` · ${Math.round((100 * progress.done) / progress.total)} %` : "";
  const size = progress.stage === "download" && progress.total ? ` of ${megabytes(progress.total)}` : "";
  // Of unknown length it is while kernels are compiled and measured for this processor.
  const hint = progress.stage === "warm up" && !progress.total ? ": the first time this takes a minute or two" : "";
  return `${progress.words} ${shortModel(model)}${share}${size}${hint}`;
}

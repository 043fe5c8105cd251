// Numbers and dates for people.

const whole = new Intl.NumberFormat("en");

export function count(number) {
  return whole.format(number);
}

export function counted(number, noun) {
  return `${count(number)} ${noun}${number === 1 ? "" : "s"}`;
}

export function duration(ms) {
  return ms < 1000 ? `${Math.round(ms)} ms` : `${(ms / 1000).toFixed(1)} s`;
}

export function megabytes(bytes) {
  return `${Math.round(bytes / 1e6)} MB`;
}

/** The beginning of a text that may be long, for a sentence about it. */
export function clipped(text, most = 60) {
  const letters = [...text];
  return letters.length <= most ? text : `${letters.slice(0, most - 1).join("").trimEnd()}…`;
}

/** A model's own name, without the folder or the account that it comes from. */
export function shortModel(model) {
  return model.split(/[\\/]/).filter(Boolean).pop() ?? model;
}

/** Tokens a second: "1,180", "118", "8.2" and "0.37": whole from ten on, two digits below. */
export function rate(perSecond) {
  return perSecond >= 9.95 ? count(Math.round(perSecond)) : String(Number(perSecond.toPrecision(2)));
}

/** What a reply took: "smollm2-135m · 212 reused · 31 computed · 90 tokens · TTFT 48 ms · 118 tok/s". */
export function costLine(message) {
  const words = [];
  if (message.model) words.push(shortModel(message.model));
  const cost = message.cost;
  if (cost) words.push(`${count(cost.num_cached_tokens)} reused`, `${count(cost.num_computed_tokens)} computed`);
  if (message.search) words.push(`searching: ${message.search}`);
  else if (cost) {
    words.push(counted(cost.num_generated_tokens, "token"));
    if (cost.ttft_ms !== null) words.push(`TTFT ${duration(cost.ttft_ms)}`);
    if (cost.tokens_per_s) words.push(`${rate(cost.tokens_per_s)} tok/s`);
    if (cost.num_accepted_tokens) words.push(`${count(cost.num_accepted_tokens)} guessed`);
  } else if (message.num_generated_tokens) {
    words.push(counted(message.num_generated_tokens, "token"));
    if (message.tokens_per_s) words.push(`${rate(message.tokens_per_s)} tok/s`);
  }
  if (message.status === "stopped") words.push("stopped");
  if (message.status === "done" && message.finish_reason === "length") words.push("longest length reached");
  return words.join(" · ");
}

/** The heading in the list under which a chat of that moment stands. */
export function dayGroup(seconds, now = new Date()) {
  const moment = new Date(seconds * 1000);
  const startOfDay = (date) => new Date(date.getFullYear(), date.getMonth(), date.getDate());
  const days = Math.round((startOfDay(now) - startOfDay(moment)) / 86_400_000);
  if (days <= 0) return "Today";
  if (days === 1) return "Yesterday";
  if (days < 7) return "Last 7 days";
  if (days < 30) return "Last 30 days";
  return moment.toLocaleDateString("en", { month: "long", year: "numeric" });
}

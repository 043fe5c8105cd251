// What the server refuses of the settings, which are Gradio's: it says nothing of a request that waits in no queue (6.31).

import { notify } from "./notices.js";

const EVENTS = "/gradio_api/run/predict";

/** From now on. */
export function tellRefusals() {
  const { fetch } = window;
  window.fetch = async (address, options) => {
    const answer = await fetch(address, options);
    if (!answer.ok && new URL(address.url ?? address, location).pathname.endsWith(EVENTS)) notify(await words(answer.clone()), { isError: true });
    return answer;
  };
}

async function words(answer) {
  const { error } = await answer.json().catch(() => ({}));
  return error ?? `The server refused it (${answer.status}).`;
}

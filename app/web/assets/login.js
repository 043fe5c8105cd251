// How somebody with an account comes and goes. Gradio's login says when a password is wrong, and nothing when a field is
// empty, when too many were wrong, or when the server has gone: this does. And it knows no way out.

import { post } from "./api.js";

const EMPTY = 422;
const WRONG = 400; // which Gradio tells

// A login is the browser's: all its tabs leave together.
const otherTabs = new BroadcastChannel("paged-chat logged out");
otherTabs.onmessage = leave;

/** Null where there are no accounts. */
export function loggedInUser() {
  return window.gradio_config?.username ?? null;
}

export async function logOut() {
  await post("logout");
  otherTabs.postMessage(null);
  leave();
}

/** To the login; the next one to sit here finds neither what was being written nor which chat was open. */
function leave() {
  sessionStorage.clear();
  location.replace(location.pathname);
}

/** From now on, on the page that asks for a name and a password. */
export function explainLogin() {
  const { fetch } = window;
  window.fetch = async (address, options) => {
    const isLogin = options?.method === "POST" && new URL(address, location).pathname.endsWith("/login");
    if (!isLogin) return fetch(address, options);
    try {
      const answer = await fetch(address, options);
      tell(await fault(answer));
      return answer;
    } catch (error) {
      tell("The server doesn't answer: is paged-chat still running?");
      throw error;
    }
  };
}

async function fault(answer) {
  if (answer.ok || answer.status === WRONG) return null;
  if (answer.status === EMPTY) return "Type your name and your password.";
  const words = await answer.clone().text();
  return `${words[0].toUpperCase()}${words.slice(1)}.`;
}

function tell(words) {
  document.querySelector(".pc-login-fault")?.remove();
  if (words === null) return;
  const element = document.createElement("p");
  element.className = "pc-login-fault";
  element.role = "alert";
  element.textContent = words;
  document.querySelector("p.auth").after(element);
}

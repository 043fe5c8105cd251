// How somebody with an account comes and goes. Gradio's login says nothing when a field is empty, when too many passwords
// were wrong, or when the server has gone, and empties both fields when one was: this says all of it, and leaves the name.
// And it knows no way out.

import { post } from "./api.js";

const EMPTY = 422;
const WRONG = 400;

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
  new MutationObserver((_, observer) => {
    if (!fields().length) return;
    observer.disconnect();
    if (document.activeElement === document.body) fields()[0].focus();
  }).observe(document.body, { childList: true, subtree: true });
  const { fetch } = window;
  window.fetch = async (address, options) => {
    const isLogin = options?.method === "POST" && new URL(address, location).pathname.endsWith("/login");
    if (!isLogin) return fetch(address, options);
    try {
      const answer = await fetch(address, options);
      tell(await fault(answer));
      if (answer.status === WRONG) setTimeout(() => askAgain(options.body.get("username"))); // once Gradio has emptied both
      return answer;
    } catch (error) {
      tell("The server doesn't answer: is paged-chat still running?");
      throw error;
    }
  };
}

/** For the name and the password, once they are there. */
function fields() {
  return document.querySelector("p.auth")?.parentElement.querySelectorAll("input, textarea") ?? [];
}

function askAgain(username) {
  const [name, password] = fields();
  name.value = username;
  name.dispatchEvent(new Event("input", { bubbles: true }));
  password.focus();
}

async function fault(answer) {
  if (answer.ok) return null;
  if (answer.status === WRONG) return "The name or the password is wrong.";
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

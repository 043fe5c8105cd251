// Requests to the server; what it refuses is an Error whose message is for people.

async function ask(path, options) {
  let response;
  try {
    response = await fetch(`/paged-chat/${path}`, options);
  } catch {
    throw new Error("the server doesn't answer: is paged-chat still running?");
  }
  if (response.status === 401) {
    location.reload(); // to the login
  }
  const answer = await response.json().catch(() => ({}));
  if (!response.ok) {
    throw new Error(answer.error ?? `the server refused it (${response.status})`);
  }
  return answer;
}

export function get(path) {
  return ask(path);
}

export function post(path, body = {}, signal = undefined) {
  return ask(path, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body), signal });
}

/** Sends a file as it is; its name goes with the address. */
export function upload(path, file) {
  const headers = { "Content-Type": "application/octet-stream" };
  return ask(`${path}?name=${encodeURIComponent(file.name)}`, { method: "POST", headers, body: file });
}

/** Opens what the server offers as a file. */
export function download(path) {
  const link = document.createElement("a");
  link.href = `/paged-chat/${path}`;
  link.download = "";
  link.click();
}

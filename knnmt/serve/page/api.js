// Calls to the server. Every error becomes an Error whose message can be shown.

const KEY = "knnmt-key";

export const key = {
  get: () => sessionStorage.getItem(KEY) ?? "",
  set: (value) => sessionStorage.setItem(KEY, value),
};

export class Failure extends Error {
  constructor(message, status) {
    super(message);
    this.status = status;
  }
}

/** Send a request; `json` is sent as a body, `form` as it is. */
export async function call(method, path, { json, form, signal, raw = false } = {}) {
  const headers = key.get() ? { Authorization: `Bearer ${key.get()}` } : {};
  if (json !== undefined) headers["Content-Type"] = "application/json";
  const answer = await fetch(path, { method, headers, body: form ?? (json === undefined ? undefined : JSON.stringify(json)), signal });
  if (!answer.ok) throw new Failure(await reason(answer), answer.status);
  return raw ? answer.blob() : answer.json();
}

async function reason(answer) {
  try {
    return (await answer.json()).error;
  } catch {
    return `The server answered ${answer.status}.`;
  }
}

export const query = (path, values) => {
  const filled = Object.entries(values).filter(([, value]) => value !== "" && value !== null && value !== undefined);
  return `${path}?${new URLSearchParams(filled)}`;
};

// What the reader has chosen: memories that are on, weight, exact matches. Kept in this browser alone.

const NAME = "knnmt-settings";
const EMPTY = { off: [], weight: null, exact: true, source: "auto", target: "" };

function load() {
  try {
    return { ...EMPTY, ...JSON.parse(localStorage.getItem(NAME) ?? "{}") };
  } catch {
    return { ...EMPTY };
  }
}

export const chosen = load();
const listeners = [];

export const onChange = (listener) => listeners.push(listener);

export function choose(changes) {
  Object.assign(chosen, changes);
  localStorage.setItem(NAME, JSON.stringify(chosen));
  for (const listener of listeners) listener();
}

/** What of it a request for translations says. */
export function asked(memories) {
  const settings = chosen.weight === null ? {} : { weight: chosen.weight };
  const stores = chosen.off.length ? memories.map((one) => one.name).filter((name) => !chosen.off.includes(name)) : null;
  return { settings, exact_matches: chosen.exact, ...(stores ? { stores } : {}) };
}

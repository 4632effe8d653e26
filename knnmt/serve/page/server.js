// What the server has, and what this key may do with it.

import { call } from "./api.js";

const RANKS = ["translate", "correct", "admin"];
const listeners = [];

export const server = { frontend: null, languages: [], memories: [] };

export const onMemories = (listener) => listeners.push(listener);

export const nameOf = (code) => server.languages.find((one) => one.code === code)?.name ?? code;

export const memoryNamed = (name) => server.memories.find((one) => one.name === name);

/** Whether the key may do in a memory what this role may. */
export const may = (memory, role) => Boolean(memory) && RANKS.indexOf(memory.role) >= RANKS.indexOf(role);

export async function lookAtServer() {
  const [languages, memories] = await Promise.all([call("GET", "/languages"), call("GET", "/v1/memories")]);
  Object.assign(server, { languages, memories });
}

/** After a change: sizes and versions are others. */
export async function memoriesChanged() {
  server.memories = await call("GET", "/v1/memories");
  for (const listener of listeners) listener();
}

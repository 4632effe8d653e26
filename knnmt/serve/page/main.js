// Starts the page: what the server has, then each section.

import { call, key } from "./api.js";
import { $ } from "./dom.js";
import { startDocuments } from "./documents.js";
import { startMemory, showMemory } from "./memory.js";
import { lookAtServer, onMemories, server } from "./server.js";
import { startSettings } from "./settings.js";
import { startTranslate } from "./translate.js";

const SHOWN = { "#memory": showMemory };
const tabs = [...document.querySelectorAll("[role=tab]")];

function select(tab, { focus = false } = {}) {
  for (const one of tabs) {
    const is = one === tab;
    one.setAttribute("aria-selected", String(is));
    one.tabIndex = is ? 0 : -1;
    $(one.getAttribute("aria-controls")).hidden = !is;
  }
  if (focus) tab.focus();
  const name = tab.getAttribute("aria-controls");
  history.replaceState(null, "", `#${name}`);
  SHOWN[`#${name}`]?.();
}

function move(event) {
  const steps = { ArrowRight: 1, ArrowLeft: -1 };
  const at = tabs.indexOf(event.target);
  const next = event.key === "Home" ? 0 : event.key === "End" ? tabs.length - 1 : (at + (steps[event.key] ?? NaN) + tabs.length) % tabs.length;
  if (Number.isNaN(next)) return;
  event.preventDefault();
  select(tabs[next], { focus: true });
}

for (const tab of tabs) {
  tab.addEventListener("click", () => select(tab));
  tab.addEventListener("keydown", move);
}

async function ready() {
  while ((await call("GET", "/health")).status !== "ok") {
    $("state").textContent = "The model is being loaded…";
    await new Promise((resolve) => setTimeout(resolve, 400));
  }
}

async function start() {
  await ready();
  server.frontend = await call("GET", "/frontend/settings");
  if (server.frontend.keyRequired && !key.get()) return askForKey();
  await lookAtServer();
  $("key-form").hidden = true;
  startTranslate();
  startMemory();
  startDocuments();
  startSettings();
  showState();
  if (location.hash in SHOWN) SHOWN[location.hash]();
}

function showState() {
  const pairs = server.memories.reduce((sum, one) => sum + one.segments, 0);
  $("state").textContent = server.memories.length ? `Ready. ${pairs.toLocaleString()} sentence pairs` : "Ready. No memory";
  document.body.classList.toggle("no-memory", !server.memories.length);
}

function askForKey(message = "An API key is needed") {
  $("state").textContent = message;
  $("key-form").hidden = false;
  $("key").focus();
}

$("key-form").addEventListener("submit", (event) => {
  event.preventDefault();
  key.set($("key").value.trim());
  start().catch(failed);
});

function failed(error) {
  if (error.status === 403 || error.status === 400) {
    key.set("");
    askForKey(error.message);
  } else {
    $("state").textContent = `The server cannot be reached: ${error.message}`;
  }
}

const wanted = tabs.find((tab) => `#${tab.getAttribute("aria-controls")}` === location.hash);
if (wanted) select(wanted);
onMemories(showState);
start().catch(failed);

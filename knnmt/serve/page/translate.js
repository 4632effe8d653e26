// Two panes: text on the left, its translation on the right as it is written, each word shaded by the memory's share.

import { call } from "./api.js";
import { $, commonWords, make, pairItem, percent, replace } from "./dom.js";
import { asked, choose, chosen, onChange } from "./preferences.js";
import { may, memoriesChanged, nameOf, server } from "./server.js";

const PAUSE = 300; // milliseconds after the last key
const DOUBTFUL = 0.2; // probability below which a language is hardly that of the text
let running = null;
let timer = null;
let shown = []; // the translations, one for each line
let languages = ["", ""]; // codes of what is shown

export function startTranslate() {
  fillLanguages();
  if (startTranslate.done) return;
  startTranslate.done = true;
  $("source-text").addEventListener("input", later);
  $("source-language").addEventListener("change", () => choose({ source: $("source-language").value }));
  $("target-language").addEventListener("change", () => choose({ target: $("target-language").value }));
  $("clear").addEventListener("click", clear);
  $("copy").addEventListener("click", copy);
  $("why-close").addEventListener("click", closeWhy);
  $("translation").addEventListener("keydown", moveAmongWords);
  document.addEventListener("keydown", (event) => event.key === "Escape" && closeWhy());
  onChange(translate);
}

function fillLanguages() {
  const sources = server.languages.filter((one) => one.targets.length);
  const targets = [...new Set(sources.flatMap((one) => one.targets))];
  const option = (code, text) => make("option", { value: code }, text);
  replace($("source-language"), option("auto", "Detect language"), ...sources.map((one) => option(one.code, one.name)));
  replace($("target-language"), ...targets.map((code) => option(code, nameOf(code))));
  if (sources.some((one) => one.code === chosen.source)) $("source-language").value = chosen.source;
  if (targets.includes(chosen.target)) $("target-language").value = chosen.target;
}

function later() {
  $("learned").hidden = true;
  const length = $("source-text").value.length;
  $("count").textContent = `${length.toLocaleString()} character${length === 1 ? "" : "s"}`;
  clearTimeout(timer);
  timer = setTimeout(translate, PAUSE);
}

function clear() {
  $("source-text").value = "";
  later();
  translate();
  $("source-text").focus();
}

export async function translate() {
  clearTimeout(timer);
  running?.abort();
  const text = $("source-text").value;
  closeWhy();
  if (!text.trim()) return show([], null);
  running = new AbortController();
  $("translation").classList.add("busy");
  try {
    const json = { texts: text.split("\n"), source: $("source-language").value, target: $("target-language").value, explain: true, ...asked(server.memories) };
    const answer = await call("POST", "/v1/translations", { json, signal: running.signal });
    show(answer.translations, answer);
  } catch (error) {
    if (error.name === "AbortError") return;
    shown = [];
    replace($("translation"), make("p", { role: "alert" }, error.message));
    $("translation").classList.remove("busy");
  }
}

function show(translations, answer) {
  shown = translations;
  if (answer) languages = [answer.source, answer.target];
  $("translation").lang = languages[1];
  $("translation").classList.remove("busy");
  replace($("translation"), ...translations.map(line));
  const first = $("translation").querySelector("button.word");
  if (first) first.tabIndex = 0;
  $("copy").disabled = !translations.length;
  $("detected").textContent = answer ? detected(answer) : "";
  summarise(translations);
}

/** Which language it was taken for, and whether that is doubtful. */
function detected({ source, detected: share }) {
  if (share === null) return "";
  return share < DOUBTFUL ? `Taken for ${nameOf(source)}` : nameOf(source);
}

/** The memories that are in use for what is shown. */
const inUse = () => server.memories.filter((one) => one.source === languages[0] && one.target === languages[1] && !chosen.off.includes(one.name));

function summarise(translations) {
  const filled = translations.filter((one) => one.text.trim());
  const length = filled.reduce((sum, one) => sum + one.text.length, 0);
  const share = filled.reduce((sum, one) => sum + one.share * one.text.length, 0) / (length || 1);
  const exact = filled.filter((one) => one.origin === "exact").length;
  const parts = filled.length ? [`${percent(share)} from the memory`] : [];
  if (exact) parts.push(filled.length === 1 ? "known sentence" : `${exact} known sentence${exact === 1 ? "" : "s"}`);
  $("summary").textContent = parts.join(" · ");
}

function line(translation, number) {
  const text = make("div", { dir: "auto" }, ...words(translation), ...translation.flags.map((flag) => make("span", { className: "badge warn" }, flag)));
  const fix = make("button", { className: "plain fix", type: "button", "aria-label": `Correct: ${translation.text}` }, "Correct");
  fix.addEventListener("click", () => edit(number));
  const can = translation.source.trim() && inUse().some((one) => may(one, "correct"));
  return make("div", { className: "line" }, text, can ? fix : null);
}

function words(translation) {
  const characters = [...translation.text];
  const parts = [];
  let at = 0;
  for (const word of translation.words ?? []) {
    parts.push(characters.slice(at, word.start).join(""));
    parts.push(wordOf(word, translation.source));
    at = word.start + [...word.text].length;
  }
  parts.push(characters.slice(at).join(""));
  return parts;
}

function wordOf(word, source) {
  const level = Math.round(10 * word.share);
  const className = `word share-${level}`;
  if (!word.sentences.length) return make("span", { className }, word.text);
  const made = make("button", { className, type: "button", tabIndex: -1, title: `${percent(word.share)} from the memory`, "aria-expanded": "false", "aria-controls": "why" }, word.text);
  made.addEventListener("click", () => explain(made, word, source));
  return made;
}

/** Words are one stop for the tab key; arrows go from word to word. */
function moveAmongWords(event) {
  const all = [...$("translation").querySelectorAll("button.word")];
  const at = all.indexOf(event.target);
  const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
  if (at < 0 || !step || !all[at + step]) return;
  event.preventDefault();
  event.target.tabIndex = -1;
  all[at + step].tabIndex = 0;
  all[at + step].focus();
}

function explain(button, word, source) {
  const again = button.getAttribute("aria-expanded") === "true";
  closeWhy();
  if (again) return;
  button.setAttribute("aria-expanded", "true");
  $("why-title").textContent = `“${word.text}”: ${percent(word.share)} from the memory`;
  const items = word.sentences.map((one) => pairItem({ ...one, sourceMarks: commonWords(one.source, source), sourceMarkKind: "same" }, languages));
  replace($("why-body"), make("ul", { className: "pairs", "aria-label": "Sentences behind the word" }, ...items));
  $("why").hidden = false;
}

function closeWhy() {
  $("why").hidden = true;
  for (const word of $("translation").querySelectorAll("[aria-expanded=true]")) {
    word.setAttribute("aria-expanded", "false");
    if (document.activeElement === $("why-close")) word.focus();
  }
}

// Correcting

function edit(number) {
  closeWhy();
  const translation = shown[number];
  const field = make("textarea", { className: "edit", rows: 3, value: translation.text, "aria-label": `Correct translation of: ${translation.source}` });
  const learn = make("button", { className: "primary", type: "button" }, "Learn");
  const cancel = make("button", { type: "button" }, "Cancel");
  const names = inUse().filter((one) => may(one, "correct")).map((one) => make("option", {}, one.name));
  const into = make("select", { "aria-label": "Memory that learns it", hidden: names.length < 2 }, ...names);
  const back = () => show(shown, null);
  cancel.addEventListener("click", back);
  learn.addEventListener("click", () => teach(translation, field.value, into.value, learn));
  field.addEventListener("keydown", (event) => {
    if (event.key === "Escape") back();
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) teach(translation, field.value, into.value, learn);
  });
  replace($("translation").children[number], make("div", {}, field, make("div", { className: "edit-bar" }, learn, cancel, into, make("span", { className: "quiet" }, "Ctrl+Enter learns, Esc cancels"))));
  field.focus();
}

async function teach(translation, correction, store, button) {
  button.disabled = true;
  try {
    const json = { text: translation.source, correction, store, source: languages[0], target: languages[1] };
    const learned = await call("POST", "/v1/corrections", { json });
    await translate();
    memoriesChanged();
    tell(`Learned into ${learned.store}. The next translation uses it.`, learned.id);
  } catch (error) {
    tell(error.message);
    button.disabled = false;
  }
}

function tell(message, undoable = null) {
  const undo = make("button", { type: "button" }, "Undo");
  undo.addEventListener("click", () => takeBack(undoable, undo));
  replace($("learned"), make("span", {}, message), undoable ? undo : null);
  $("learned").hidden = false;
}

async function takeBack(id, button) {
  button.disabled = true;
  try {
    await call("DELETE", `/v1/corrections/${id}`);
    await translate();
    memoriesChanged();
    tell("Undone. The sentence is as it was before.");
  } catch (error) {
    tell(error.message);
  }
}

async function copy() {
  const text = shown.map((one) => one.text).join("\n");
  try {
    await navigator.clipboard.writeText(text);
    $("copy").textContent = "Copied";
  } catch {
    $("copy").textContent = "Not allowed here";
  }
  setTimeout(() => ($("copy").textContent = "Copy"), 1500);
}

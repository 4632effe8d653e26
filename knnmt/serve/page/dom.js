// Small helpers for the document. Text always goes in as text, never as markup.

export const $ = (id) => document.getElementById(id);

/** An element with properties, attributes (those with a dash, and role) and children. */
export function make(tag, properties = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name.includes("-") || name === "role" || name === "for") made.setAttribute(name, value);
    else made[name] = value;
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

export function replace(parent, ...children) {
  parent.replaceChildren(...children.filter((child) => child !== null && child !== undefined));
}

export const percent = (share) => `${Math.round(100 * share)} %`;

export function day(time) {
  const parsed = new Date(time);
  return Number.isNaN(parsed.getTime()) ? time : parsed.toLocaleString(undefined, { dateStyle: "medium", timeStyle: "short" });
}

/** Ask before what cannot be taken back at a click. */
export function confirmed(question, yes) {
  $("confirm-text").textContent = question;
  $("confirm-yes").textContent = yes;
  const dialog = $("confirm");
  dialog.returnValue = "no";
  dialog.showModal();
  return new Promise((resolve) => dialog.addEventListener("close", () => resolve(dialog.returnValue === "yes"), { once: true }));
}

/** Save what a server sent as a file. */
export function save(blob, name) {
  const link = make("a", { href: URL.createObjectURL(blob), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

/** A sentence pair of a memory: both sides, marked words, and where it is from; `languages` are its two codes. */
export function pairItem(pair, languages, ...tools) {
  const facts = [
    pair.support === null || pair.support === undefined ? null : support(pair.support),
    make("span", {}, `${pair.store} / ${pair.corpus}`),
    make("time", { dateTime: pair.created }, day(pair.created)),
    ...Object.entries(pair.metadata).map(([name, value]) => make("span", {}, `${name}: ${value}`)),
  ];
  return make("li", { className: "pair" },
    make("div", { className: "texts" },
      make("span", { lang: languages[0], dir: "auto" }, ...marked(pair.source, pair.sourceMarks, pair.sourceMarkKind)),
      make("span", { lang: languages[1], dir: "auto" }, ...marked(pair.target, pair.marks))),
    make("div", { className: "about" }, ...facts.filter(Boolean), tools.length ? make("span", { className: "tools" }, ...tools) : null));
}

function support(share) {
  return make("span", { className: "support" }, make("meter", { min: 0, max: 1, value: share, "aria-label": "part of the word" }), `${percent(share)} of the word`);
}

/** Where a text stands in another, whatever its case. */
export function places(text, wanted) {
  const [inside, sought] = [text, wanted].map((one) => [...one].map((sign) => sign.toLowerCase()));
  const found = [];
  for (let at = 0; sought.length && at + sought.length <= inside.length; at++) {
    if (sought.every((sign, offset) => inside[at + offset] === sign)) {
      found.push([at, at + sought.length]);
      at += sought.length - 1;
    }
  }
  return found;
}

/** Where the longer words of one text stand in another. */
export function commonWords(text, other) {
  const wanted = new Set(words(other).map(([word]) => word));
  return words(text).filter(([word]) => wanted.has(word)).map(([, start, end]) => [start, end]);
}

/** Words of four letters and more in small letters, with their places. */
function words(text) {
  const found = [];
  for (const match of text.matchAll(/[\p{L}\p{N}]{4,}/gu)) {
    const start = [...text.slice(0, match.index)].length;
    found.push([match[0].toLowerCase(), start, start + [...match[0]].length]);
  }
  return found;
}

/** Places are counted in characters as Python counts them, so that one beyond the basic plane is one. */
export function marked(text, marks, className = "") {
  const characters = [...text];
  const parts = [];
  let at = 0;
  for (const [start, end] of marks ?? []) {
    parts.push(characters.slice(at, start).join(""), make("mark", { className }, characters.slice(start, end).join("")));
    at = end;
  }
  parts.push(characters.slice(at).join(""));
  return parts;
}

// The memories: search both sides, add, edit, delete, import, export, history.

import { call, query } from "./api.js";
import { $, confirmed, day, make, pairItem, places, replace, save } from "./dom.js";
import { may, memoriesChanged, memoryNamed, server } from "./server.js";
import { translate } from "./translate.js";

let after = null;

export function startMemory() {
  $("no-memory").hidden = server.memories.length > 0;
  $("with-memory").hidden = server.memories.length === 0;
  replace($("memory-name"), ...server.memories.map((one) => make("option", { value: one.name }, one.name)));
  if (startMemory.done || !server.memories.length) return;
  startMemory.done = true;
  const { importedMemories, exportedMemories } = server.frontend;
  $("import-kinds").textContent = `File (${importedMemories.join(" ")})`;
  $("import-file").accept = [...importedMemories, ".gz"].join(",");
  replace($("export-format"), ...exportedMemories.map((ending) => make("option", {}, ending.slice(1))));
  $("history-card").open = matchMedia("(min-width: 46rem)").matches;
  $("search").addEventListener("submit", (event) => {
    event.preventDefault();
    search();
  });
  $("add").addEventListener("submit", addPair);
  $("memory-name").addEventListener("change", showMemory);
  $("more").addEventListener("click", () => search(after));
  $("import").addEventListener("click", importFile);
  $("export").addEventListener("click", exportFile);
}

const shown = () => memoryNamed($("memory-name").value);
const path = (rest) => `/v1/memories/${encodeURIComponent($("memory-name").value)}/${rest}`;

export function showMemory() {
  if (!shown()) return;
  $("add-card").hidden = $("files-card").hidden = !may(shown(), "correct");
  $("import-controls").hidden = $("history-card").hidden = !may(shown(), "admin") || !shown().whole;
  search();
  history();
}

async function search(from = 0) {
  try {
    const wanted = { q: $("query").value, side: $("side").value, filter: $("filter").value.trim(), limit: 20, after: from };
    const found = await call("GET", query(path("segments"), wanted));
    const items = found.segments.map(item);
    if (from) $("segments").append(...items);
    else replace($("segments"), ...items);
    after = found.next;
    $("more").hidden = after === null;
    const count = $("segments").children.length;
    $("found").textContent = count ? `${count}${after === null ? "" : " or more"} sentence pair${count === 1 ? "" : "s"}, the newest first` : "Nothing found";
  } catch (error) {
    $("found").textContent = error.message;
  }
}

function item(pair) {
  const memory = shown();
  const [words, side] = [$("query").value, $("side").value];
  const marks = side === "source" ? [] : places(pair.target, words);
  const sourceMarks = side === "target" ? [] : places(pair.source, words);
  const made = pairItem({ ...pair, marks, sourceMarks }, [memory.source, memory.target], ...tools(memory, pair, () => made));
  return made;
}

function tools(memory, pair, place) {
  const edit = make("button", { className: "plain", type: "button", "aria-label": `Edit: ${pair.source}` }, "Edit");
  edit.addEventListener("click", () => editPair(pair, place()));
  const remove = make("button", { className: "plain", type: "button", "aria-label": `Delete: ${pair.source}` }, "Delete");
  remove.addEventListener("click", () => deletePair(pair, place()));
  return [may(memory, "correct") ? edit : null, may(memory, "admin") ? remove : null].filter(Boolean);
}

/** What a change needs afterwards: other numbers, other history, another translation. */
function changed() {
  history();
  translate();
  memoriesChanged();
}

async function deletePair(pair, made) {
  if (!(await confirmed(`Delete “${pair.source}”? It is not used from then on. The history can bring it back.`, "Delete"))) return;
  try {
    await call("DELETE", path(`segments/${encodeURIComponent(pair.id)}`));
    made.remove();
    $("found").textContent = "Deleted";
    $("query").focus();
    changed();
  } catch (error) {
    $("found").textContent = error.message;
  }
}

/** A form in the pair's place; saved, the pair takes the place of all others with its source. */
function editPair(pair, made) {
  const field = make("textarea", { rows: 2, value: pair.target, "aria-label": `Translation of: ${pair.source}` });
  const cancel = make("button", { type: "button" }, "Cancel");
  const form = make("form", {}, field, make("div", { className: "edit-bar" }, make("button", { className: "primary" }, "Save"), cancel));
  cancel.addEventListener("click", () => made.replaceWith(item(pair)));
  form.addEventListener("keydown", (event) => {
    if (event.key === "Escape") made.replaceWith(item(pair));
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) form.requestSubmit();
  });
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    teach(pair.source, field.value, pair.metadata);
  });
  made.append(form);
  made.querySelector(".about .tools").remove();
  field.focus();
}

async function teach(source, correction, metadata = {}) {
  try {
    await call("POST", "/v1/corrections", { json: { text: source, correction, metadata, store: shown().name, source: shown().source, target: shown().target } });
    await search();
    $("found").textContent = "Saved. The next translation uses it.";
    changed();
  } catch (error) {
    $("found").textContent = error.message;
  }
}

async function addPair(event) {
  event.preventDefault();
  try {
    await call("POST", path("segments"), { json: { segments: [{ source: $("add-source").value, target: $("add-target").value }] } });
    $("add").reset();
    await search();
    $("found").textContent = "Added. The next translation uses it.";
    changed();
  } catch (error) {
    $("found").textContent = error.message;
  }
}

async function importFile() {
  const file = $("import-file").files[0];
  if (!file) return ($("files-state").textContent = "Choose a file first.");
  const form = new FormData();
  form.append("file", file);
  $("files-state").textContent = `Importing ${file.name}…`;
  try {
    const done = await call("POST", path("import"), { form });
    const skipped = Object.entries(done.skipped).map(([reason, count]) => `, ${count.toLocaleString()} left out (${reason})`).join("");
    $("files-state").textContent = `${done.segments.toLocaleString()} pairs added, ${done.duplicates.toLocaleString()} were known${skipped}.`;
    search();
    changed();
  } catch (error) {
    $("files-state").textContent = error.message;
  }
}

async function exportFile() {
  $("files-state").textContent = "Exporting…";
  try {
    const kind = $("export-format").value;
    save(await call("GET", query(path("export"), { format: kind }), { raw: true }), `${$("memory-name").value}.${kind}`);
    $("files-state").textContent = "Exported.";
  } catch (error) {
    $("files-state").textContent = error.message;
  }
}

async function history() {
  if ($("history-card").hidden) return;
  try {
    const versions = await call("GET", path("versions"));
    replace($("history"), ...versions.map(version));
  } catch (error) {
    replace($("history"), make("li", {}, error.message));
  }
}

function version(one) {
  const back = make("button", { type: "button", "aria-label": `Go back to version ${one.version}` }, "Go back");
  back.addEventListener("click", () => rollBack(one));
  const facts = make("span", {}, make("strong", {}, `Version ${one.version}`), ` ${one.change}`, make("br"),
    make("span", { className: "quiet" }, `${day(one.changed)}, ${one.segments.toLocaleString()} pairs`));
  return make("li", {}, facts, one.current ? make("span", { className: "badge" }, "now") : back);
}

async function rollBack(one) {
  if (!(await confirmed(`Go back to version ${one.version}, with ${one.segments.toLocaleString()} pairs? That becomes a new version, so it can be undone too.`, "Go back"))) return;
  try {
    await call("POST", path("rollback"), { json: { version: one.version } });
    await search();
    $("found").textContent = `The memory is as in version ${one.version} again.`;
    changed();
  } catch (error) {
    $("found").textContent = error.message;
  }
}

// The memories: search both sides, delete, import, export, history.

import { call, query } from "./api.js";
import { $, confirmed, day, make, pairItem, places, replace, save } from "./dom.js";
import { translate } from "./translate.js";

let after = null;

export function startMemory(server) {
  $("no-memory").hidden = server.memories.length > 0;
  $("with-memory").hidden = server.memories.length === 0;
  replace($("memory-name"), ...server.memories.map((one) => make("option", { value: one.name }, one.name)));
  if (startMemory.done || !server.memories.length) return;
  startMemory.done = true;
  $("search").addEventListener("submit", (event) => {
    event.preventDefault();
    search();
  });
  $("memory-name").addEventListener("change", showMemory);
  $("more").addEventListener("click", () => search(after));
  $("import").addEventListener("click", importFile);
  $("export").addEventListener("click", exportFile);
}

const path = (rest) => `/v1/memories/${encodeURIComponent($("memory-name").value)}/${rest}`;

export function showMemory() {
  if (!$("memory-name").value) return;
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
  const remove = make("button", { className: "plain", type: "button", "aria-label": `Delete: ${pair.source}` }, "Delete");
  const [words, side] = [$("query").value, $("side").value];
  const marks = side === "source" ? [] : places(pair.target, words);
  const sourceMarks = side === "target" ? [] : places(pair.source, words);
  const made = pairItem({ ...pair, marks, sourceMarks }, remove);
  remove.addEventListener("click", () => deletePair(pair, made));
  return made;
}

async function deletePair(pair, made) {
  if (!(await confirmed(`Delete “${pair.source}”? It is not used from then on. The history can bring it back.`, "Delete"))) return;
  try {
    await call("DELETE", path(`segments/${encodeURIComponent(pair.id)}`));
    made.remove();
    $("found").textContent = "Deleted";
    $("query").focus();
    history();
    translate();
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
    $("files-state").textContent = `${done.segments.toLocaleString()} pairs added, ${done.duplicates.toLocaleString()} were known.`;
    showMemory();
    translate();
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
    showMemory();
    translate();
  } catch (error) {
    $("files-state").textContent = error.message;
  }
}

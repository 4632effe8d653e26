// Documents: drop a file, see its progress, flags and report, download it.

import { call } from "./api.js";
import { $, confirmed, make, percent, replace, save } from "./dom.js";
import { asked, chosen } from "./preferences.js";
import { nameOf, server } from "./server.js";

const PAUSE = 700; // milliseconds between two looks at work that goes on
let timer = null;
const open = new Set(); // ids of the documents whose report is shown

export function startDocuments() {
  $("document-kinds").textContent = server.frontend.supportedFilesFormat.join(" ");
  $("document").accept = server.frontend.supportedFilesFormat.join(",");
  if (!startDocuments.done) {
    startDocuments.done = true;
    $("document").addEventListener("change", () => send($("document").files));
    for (const name of ["source-language", "target-language"]) $(name).addEventListener("change", showLanguages);
    for (const name of ["dragover", "dragleave", "drop"]) $("drop").addEventListener(name, drag);
  }
  showLanguages();
  look();
}

function showLanguages() {
  const from = $("source-language").value === "auto" ? "detected" : nameOf($("source-language").value);
  $("document-languages").textContent = `From: ${from}. To: ${nameOf($("target-language").value)}. Choose languages under Translate.`;
}

function drag(event) {
  event.preventDefault();
  $("drop").classList.toggle("over", event.type === "dragover");
  if (event.type === "drop") send(event.dataTransfer.files);
}

async function send(files) {
  for (const file of files) {
    const form = new FormData();
    form.append("file", file);
    form.append("source", $("source-language").value);
    form.append("target", $("target-language").value);
    const { settings, stores } = asked(server.memories);
    if (chosen.weight !== null) form.append("weight", settings.weight);
    for (const name of stores?.length === 0 ? [""] : stores ?? []) form.append("stores", name); // an empty one: none
    $("documents-state").textContent = `Sending ${file.name}…`;
    try {
      await call("POST", "/v1/documents", { form });
      $("documents-state").textContent = "";
    } catch (error) {
      $("documents-state").textContent = `${file.name}: ${error.message}`;
    }
  }
  $("document").value = "";
  look();
}

async function look() {
  clearTimeout(timer);
  try {
    const jobs = await call("GET", "/v1/documents");
    replace($("jobs"), ...jobs.map(item));
    if (jobs.some((job) => job.state === "waiting" || job.state === "working")) timer = setTimeout(look, PAUSE);
  } catch (error) {
    $("documents-state").textContent = error.message;
  }
}

function item(job) {
  const place = make("div", { hidden: true });
  const tools = job.state === "done" ? [download(job), reportOf(job, place)] : [];
  const remove = make("button", { className: "plain", type: "button", "aria-label": `Remove ${job.name}` }, "Remove");
  remove.addEventListener("click", () => removeJob(job));
  return make("li", {},
    make("div", { className: "job-head" }, make("strong", {}, job.name), make("span", { className: "quiet" }, state(job))),
    job.state === "working" || job.state === "waiting" ? make("progress", { max: Math.max(1, job.units), value: job.done, "aria-label": `Progress of ${job.name}` }) : null,
    make("div", { className: "controls" }, ...tools, remove), place);
}

function state(job) {
  if (job.state === "failed") return job.error;
  if (job.state !== "done") return job.units ? `${job.done} of ${job.units} units` : "waiting";
  const known = job.exact ? `, ${job.exact} known` : "";
  return `${job.units} unit${job.units === 1 ? "" : "s"}${known}, ${job.flagged} to look at`;
}

function download(job) {
  const button = make("button", { type: "button", className: "primary" }, "Download");
  button.addEventListener("click", async () => {
    try {
      save(await call("GET", `/v1/documents/${job.id}/result`, { raw: true }), job.result);
    } catch (error) {
      $("documents-state").textContent = error.message;
    }
  });
  return button;
}

/** A button that shows and hides what somebody should look at; shown, it stays so when the list is drawn anew. */
function reportOf(job, place) {
  const button = make("button", { type: "button", "aria-expanded": "false" }, "Report");
  const show = async (visible) => {
    open[visible ? "add" : "delete"](job.id);
    button.setAttribute("aria-expanded", String(visible));
    place.hidden = !visible;
    if (visible) replace(place, ...(await reportItems(job)));
  };
  button.addEventListener("click", () => show(place.hidden));
  if (open.has(job.id)) show(true);
  return button;
}

async function reportItems(job) {
  try {
    const { doubtful } = await call("GET", `/v1/documents/${job.id}/report`);
    const title = doubtful.length ? "To look at, the least certain first" : "Nothing is doubtful.";
    return [make("p", { className: "quiet" }, title), make("ul", { className: "pairs", "aria-label": `To look at in ${job.name}` }, ...doubtful.map((unit) => doubt(unit, job)))];
  } catch (error) {
    return [make("p", { role: "alert" }, error.message)];
  }
}

function doubt(unit, job) {
  const facts = [
    make("span", {}, `Unit ${unit.number}`),
    unit.confidence === null ? null : make("span", {}, `${percent(unit.confidence)} certain`),
    ...unit.flags.map((flag) => make("span", { className: "badge warn" }, flag)),
  ];
  return make("li", { className: "pair" },
    make("div", { className: "texts" },
      make("span", { lang: job.source, dir: "auto" }, unit.source),
      make("span", { lang: job.target, dir: "auto" }, unit.translation)),
    make("div", { className: "about" }, ...facts.filter(Boolean)));
}

async function removeJob(job) {
  if (!(await confirmed(`Remove ${job.name} and its translation from the server?`, "Remove"))) return;
  try {
    await call("DELETE", `/v1/documents/${job.id}`);
  } catch (error) {
    $("documents-state").textContent = error.message;
  }
  look();
}

// Documents: drop a file, see its progress, flags and report, download it.

import { call } from "./api.js";
import { $, confirmed, make, replace, save } from "./dom.js";
import { asked, chosen } from "./preferences.js";

const PAUSE = 700; // milliseconds between two looks at work that goes on
let server;
let timer = null;

export function startDocuments(given) {
  server = given;
  $("document-kinds").textContent = server.frontend.supportedFilesFormat.join(" ");
  $("document").accept = server.frontend.supportedFilesFormat.join(",");
  if (!startDocuments.done) {
    startDocuments.done = true;
    $("document").addEventListener("change", () => send($("document").files));
    for (const name of ["dragover", "dragleave", "drop"]) $("drop").addEventListener(name, drag);
  }
  look();
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
    for (const name of stores ?? []) form.append("stores", name);
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
  const tools = job.state === "done" ? [download(job, "result", job.result), download(job, "report", `${job.name}.report.json`)] : [];
  const remove = make("button", { className: "plain", type: "button", "aria-label": `Remove ${job.name}` }, "Remove");
  remove.addEventListener("click", () => removeJob(job));
  return make("li", {},
    make("div", { className: "job-head" }, make("strong", {}, job.name), make("span", { className: "quiet" }, state(job))),
    job.state === "working" || job.state === "waiting" ? make("progress", { max: Math.max(1, job.units), value: job.done, "aria-label": `Progress of ${job.name}` }) : null,
    make("div", { className: "controls" }, ...tools, remove));
}

function state(job) {
  if (job.state === "failed") return job.error;
  if (job.state !== "done") return job.units ? `${job.done} of ${job.units} units` : "waiting";
  const known = job.exact ? `, ${job.exact} known` : "";
  return `${job.units} units${known}, ${job.flagged} to look at`;
}

function download(job, what, name) {
  const button = make("button", { type: "button", className: what === "result" ? "primary" : "" }, what === "result" ? "Download" : "Report");
  button.addEventListener("click", async () => {
    try {
      save(await call("GET", `/v1/documents/${job.id}/${what}`, { raw: true }), name);
    } catch (error) {
      $("documents-state").textContent = error.message;
    }
  });
  return button;
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

// Which memories are used, and how much they weigh. A change is seen at once in the translation.

import { $, make, replace } from "./dom.js";
import { choose, chosen } from "./preferences.js";

let fitted = null;

export function startSettings(server) {
  fitted = server.memories[0]?.fitted?.weight ?? null;
  replace($("stores"), ...server.memories.map(store));
  if (!server.memories.length) replace($("stores"), make("p", { className: "quiet" }, "None. The model translates alone."));
  $("weight").disabled = !server.memories.length;
  $("exact").checked = chosen.exact;
  $("exact").onchange = () => choose({ exact: $("exact").checked });
  $("weight").oninput = () => setWeight(Number($("weight").value));
  $("weight-fitted").onclick = () => setWeight(null);
  showWeight();
  facts(server);
}

function setWeight(weight) {
  choose({ weight });
  showWeight();
}

function showWeight() {
  $("weight").value = chosen.weight ?? fitted ?? 0.5;
  const value = fitted === null ? "" : fitted.toFixed(2);
  $("weight-value").textContent = chosen.weight === null ? `as fitted ${value}` : chosen.weight.toFixed(2);
  $("weight-fitted").textContent = `Use the fitted value ${value}`;
  $("weight-fitted").disabled = chosen.weight === null;
}

function store(memory) {
  const box = make("input", { type: "checkbox", id: `use-${memory.name}`, checked: !chosen.off.includes(memory.name) });
  box.addEventListener("change", () => {
    const others = chosen.off.filter((name) => name !== memory.name);
    choose({ off: box.checked ? others : [...others, memory.name] });
  });
  const about = `${memory.source} → ${memory.target}, ${memory.segments.toLocaleString()} pairs, version ${memory.version}`;
  return make("div", { className: "setting row" }, box, make("label", { for: box.id }, make("strong", {}, memory.name), make("br"), make("span", { className: "quiet" }, about)));
}

function facts(server) {
  const models = [...new Set(server.memories.map((one) => one.model))].join(", ") || "the model alone";
  const limit = server.frontend.charLimit > 0 ? `${server.frontend.charLimit.toLocaleString()} characters` : "none";
  const entries = { Model: models, "Limit of a request": limit, "API key": server.frontend.keyRequired ? "required" : "not required" };
  replace($("server"), ...Object.entries(entries).flatMap(([name, value]) => [make("dt", {}, name), make("dd", {}, value)]));
}

// Which memories are used, and how much they weigh. A change is seen at once in the translation.

import { $, make, replace } from "./dom.js";
import { choose, chosen } from "./preferences.js";
import { onMemories, server } from "./server.js";

export function startSettings() {
  showStores();
  if (!startSettings.done) onMemories(showStores);
  startSettings.done = true;
  $("weight").disabled = !server.memories.length;
  $("exact").checked = chosen.exact;
  $("exact").onchange = () => choose({ exact: $("exact").checked });
  $("weight").oninput = () => setWeight(Number($("weight").value));
  $("weight-fitted").onclick = () => setWeight(null);
  showWeight();
  facts();
}

function showStores() {
  const none = make("p", { className: "quiet" }, "None. The model translates alone.");
  replace($("stores"), ...(server.memories.length ? server.memories.map(store) : [none]));
}

/** The first memory that is on decides how the model and the memories are mixed. */
const deciding = () => server.memories.find((one) => !chosen.off.includes(one.name));

function setWeight(weight) {
  choose({ weight });
  showWeight();
}

function showWeight() {
  const memory = deciding();
  const learned = memory && memory.fitted.weight === undefined;
  const best = memory?.fitted_weight ?? memory?.fitted.weight ?? null;
  const fitted = best ?? 0.5;
  const own = learned ? "decided word by word" : fitted.toFixed(2);
  $("weight").value = chosen.weight ?? fitted;
  $("weight-value").textContent = chosen.weight === null ? `as fitted: ${own}` : chosen.weight.toFixed(2);
  $("weight-fitted").disabled = chosen.weight === null;
  $("weight-about").textContent = memory ? aboutWeight(memory, learned, best) : "";
}

function aboutWeight(memory, learned, fitted) {
  const best = fitted === null ? `${memory.name} is too small for a weight of its own.` : `The one weight that fits ${memory.name} best is ${fitted.toFixed(2)}.`;
  return learned ? `As fitted, the weight of the memory is decided for each word anew. Moving the slider uses one weight for all words. ${best}` : best;
}

function store(memory) {
  const box = make("input", { type: "checkbox", id: `use-${memory.name}`, checked: !chosen.off.includes(memory.name) });
  box.addEventListener("change", () => {
    const others = chosen.off.filter((name) => name !== memory.name);
    choose({ off: box.checked ? others : [...others, memory.name] });
    showWeight();
  });
  const about = `${memory.source} → ${memory.target}, ${memory.segments.toLocaleString()} pairs, version ${memory.version}, ${memory.model}`;
  return make("div", { className: "setting row" }, box, make("label", { for: box.id }, make("strong", {}, memory.name), make("br"), make("span", { className: "quiet" }, about)));
}

function facts() {
  const models = [...new Set(server.memories.map((one) => one.model))].join(", ") || "the model alone";
  const limit = server.frontend.charLimit > 0 ? `${server.frontend.charLimit.toLocaleString()} characters` : "none";
  const entries = { Model: models, "Limit of a request": limit, "API key": server.frontend.keyRequired ? "required" : "not required" };
  replace($("server"), ...Object.entries(entries).flatMap(([name, value]) => [make("dt", {}, name), make("dd", {}, value)]));
}

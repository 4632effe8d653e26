// The OpenAPI document as a page: each operation with its parameters, body and answers.

import { $, make } from "./dom.js";

const document_ = await (await fetch("/spec")).json();

const resolved = (schema) => (schema?.$ref ? document_.components.schemas[schema.$ref.split("/").pop()] : schema);

function kind(schema) {
  const whole = schema ?? {};
  if (whole.$ref) return whole.$ref.split("/").pop();
  if (whole.anyOf) return whole.anyOf.map(kind).join(" or ");
  if (whole.type === "array") return `list of ${kind(whole.items)}`;
  return whole.enum?.join(", ") ?? (whole.type ? [whole.type].flat().join(" or ") : "anything");
}

/** A text whose parts between backticks are code. */
const told = (text) => (text ?? "").split("`").map((part, number) => (number % 2 ? make("code", {}, part) : part));

function table(rows, caption) {
  if (!rows.length) return null;
  const cells = rows.map(([name, type, about]) => make("tr", {}, make("td", {}, make("code", {}, name)), make("td", {}, type), make("td", {}, ...told(about))));
  return make("table", {}, make("caption", { className: "visually-hidden" }, caption), make("tbody", {}, ...cells));
}

function fields(schema) {
  const whole = resolved(schema);
  const needed = whole?.required ?? [];
  return Object.entries(whole?.properties ?? {}).map(([name, one]) => [name, kind(one) + (needed.includes(name) ? ", needed" : ""), one.description ?? resolved(one)?.description]);
}

function answered(one, schema) {
  return schema ? kind(schema) : Object.keys(one.responses["200"]?.content ?? {}).join(", ") || "a file";
}

function operation(path, method, one) {
  const body = Object.values(one.requestBody?.content ?? {})[0]?.schema;
  const answer = one.responses["200"]?.content?.["application/json"]?.schema;
  const kinds = Object.keys(one.requestBody?.content ?? {}).map((name) => name.split("/").pop());
  const parameters = (one.parameters ?? []).map((given) => [given.name, kind(given.schema), given.description]);
  return make("details", {},
    make("summary", {}, make("span", { className: "method" }, method.toUpperCase()), make("code", {}, path), " ", ...told(one.description?.split("\n")[0] ?? one.summary)),
    ...[["Parameters", parameters], [`Body: ${kinds.join(", ")}`, fields(body)], [`Answer: ${answered(one, answer)}`, fields(answer?.items ?? answer)]].flatMap(([title, rows]) => (rows.length || title.startsWith("Answer") ? [make("h3", {}, title), table(rows, title)] : [])));
}

for (const [path, methods] of Object.entries(document_.paths)) {
  for (const [method, one] of Object.entries(methods)) $("operations").append(operation(path, method, one));
}

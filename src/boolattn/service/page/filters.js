// Filters by facets, and the chips of what narrows a search. A filter is a text like place=Peru.

import { fill, h, plural } from "./dom.js";

const $ = (id) => document.getElementById(id);
const LIKE = "like:";
const titles = new Map(); // of documents that were shown, by id

export const remember = (hits) => hits.forEach((hit) => titles.set(hit.id, hit.title || hit.id));

// How an operand is called: a document by its title.
export function nameOfOperand({ text, kind, weight }) {
  const name = kind === "document" ? `like ${titles.get(idOf(text)) ?? idOf(text)}` : text;
  return weight === 1 ? name : `${name} ^${weight}`;
}

// An operand that is a document, as explicit syntax writes it.
export const likeOf = (id) => `${LIKE}"${id.replace(/["\\]/g, "\\$&")}"`;
const idOf = (text) => text.slice(LIKE.length).replace(/^"(.*)"$/s, "$1").replace(/\\(["\\])/g, "$1");

const countOf = (documents) =>
  h("span", { class: "count" }, h("span", { class: "visually-hidden" }, ", "), documents.toLocaleString("en"), h("span", { class: "visually-hidden" }, " documents"));

// Of a field that is filtered already, the other values have no count in the result.
function values(facet, current, state, change) {
  const counts = current && new Map(current.values.map((one) => [one.filter, one.documents]));
  // Only the most frequent values of a result are counted.
  const absent = current && current.different === current.values.length ? 0 : null;
  const isFiltered = facet.values.some(({ filter }) => state.filter.includes(filter));
  const toggle = (text, isOn) => change({ filter: isOn ? [...state.filter, text] : state.filter.filter((own) => own !== text) });
  return facet.values.map(({ value, documents, filter }) => {
    const isOn = state.filter.includes(filter);
    const n = counts ? (counts.get(filter) ?? absent) : documents;
    return h(
      "label",
      {},
      h("input", { type: "checkbox", checked: isOn, onchange: (event) => toggle(filter, event.target.checked) }),
      h("span", { dir: "auto" }, String(value)),
      n === null || (isFiltered && !isOn) ? null : countOf(n),
    );
  });
}

// The least and the largest number, or date, that a document may have.
function range(facet, state, change) {
  const limit = (sign, words, placeholder) => {
    const start = facet.field + sign;
    const present = state.filter.find((text) => text.startsWith(start));
    const set = (text) => change({ filter: [...state.filter.filter((own) => own !== present), ...(text ? [start + text] : [])] });
    return h("input", {
      ...(facet.is_date ? { type: "date", min: `${facet.low}-01-01`, max: `${facet.high}-12-31` } : { type: "number", step: "any" }),
      "aria-label": `${facet.field}, ${words}`, placeholder,
      value: present?.slice(start.length), onchange: (event) => set(event.target.value.trim()),
    });
  };
  const shown = (number) => String(Number(number.toPrecision(12)));
  const years = facet.is_date ? h("span", { class: "hint" }, `${shown(facet.low)} to ${shown(facet.high)}`) : null;
  return h("p", { class: "range" }, years, limit(">=", "at least", shown(facet.low)), "–", limit("<=", "at most", shown(facet.high)));
}

function field(facet, current, state, change) {
  const more = facet.different - facet.values.length;
  return h(
    "fieldset",
    {},
    h("legend", {}, facet.field),
    facet.low === null
      ? [values(facet, current, state, change), more > 0 ? h("p", { class: "hint" }, `and ${plural(more, "other value")}: ${facet.field}=…`) : null]
      : range(facet, state, change),
  );
}

// The fields of the index, with the counts of a result where there is one.
export function drawFacets(reply, result, state, change) {
  $("filters").hidden = !reply.facets.length;
  const nameOfBox = (box) => box?.ariaLabel ?? box?.nextElementSibling?.innerText;
  const name = nameOfBox(document.activeElement?.closest("#facets input"));
  const current = new Map((result?.facets ?? []).map((facet) => [facet.field, facet]));
  const empty = { values: [], different: null };
  fill($("facets"), reply.facets.map((facet) => field(facet, result && (current.get(facet.field) ?? empty), state, change)));
  fill($("field-names"), reply.facets.map((facet) => h("option", { value: `${facet.field}=` })));
  const first = reply.facets.find((facet) => facet.low !== null);
  $("condition").placeholder = first ? `${first.field}>=${first.low}` : (reply.facets[0]?.values[0].filter ?? "");
  const isExact = (result?.facets ?? []).every((facet) => facet.is_exact);
  $("counted").textContent = result ? `How many ${isExact ? "" : "of the 500 best "}documents of this search have each value.` : "How many documents have each value.";
  // The box that was just changed keeps the focus.
  if (name) [...$("facets").querySelectorAll("input")].find((box) => nameOfBox(box) === name)?.focus();
}

async function nameOf(id, load, element) {
  const known = titles.get(id) ?? (await load(id).then((found) => found.title || id, () => id));
  titles.set(id, known);
  element.textContent = known;
}

function chip(kind, text, state, change, load) {
  const name = h("span", { class: "name", dir: "auto" }, text);
  const words = { filter: "", positive: "more like ", negative: "fewer like ", allow: "not excluded: " }[kind];
  if (text.startsWith(LIKE)) nameOf(idOf(text), load, name);
  const remove = () => {
    change({ [kind]: state[kind].filter((own) => own !== text) });
    ($("chips").querySelector("button") ?? $("query")).focus();
  };
  return h(
    "li",
    { class: `chip ${kind}` },
    h("span", {}, words, name),
    h("button", { type: "button", "aria-label": `Remove ${words}${text}`, onclick: remove }, "×"),
  );
}

export function drawChips(state, change, load) {
  const chips = ["filter", "positive", "negative", "allow"].flatMap((kind) =>
    state[kind].map((text) => chip(kind, text, state, change, load)),
  );
  fill($("chips"), chips);
  $("chips").hidden = !chips.length;
}

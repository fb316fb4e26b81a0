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

function facet(one, state, change) {
  const more = one.different - one.values.length;
  const toggle = (text, isOn) => change({ filter: isOn ? [...state.filter, text] : state.filter.filter((own) => own !== text) });
  return h(
    "fieldset",
    {},
    h("legend", {}, one.field),
    one.values.map(({ value, documents, filter }) =>
      h(
        "label",
        {},
        h("input", { type: "checkbox", checked: state.filter.includes(filter), onchange: (event) => toggle(filter, event.target.checked) }),
        h("span", { dir: "auto" }, String(value)),
        h("span", { class: "count" }, h("span", { class: "visually-hidden" }, ", "), documents.toLocaleString("en"), h("span", { class: "visually-hidden" }, " documents")),
      ),
    ),
    more > 0 ? h("p", { class: "hint" }, `and ${plural(more, "other value")}: ${one.field}=…`) : null,
  );
}

export function drawFacets(reply, state, change) {
  $("filters").hidden = false;
  const open = document.activeElement?.closest("#facets label")?.innerText;
  fill($("facets"), reply.facets.map((one) => facet(one, state, change)));
  fill($("field-names"), reply.facets.map((one) => h("option", { value: `${one.field}=` })));
  // The box that was just changed keeps the focus.
  if (open) [...$("facets").querySelectorAll("label")].find((label) => label.innerText === open)?.querySelector("input").focus();
}

async function nameOf(id, load, element) {
  const known = titles.get(id) ?? (await load(id).then((found) => found.title || id, () => id));
  titles.set(id, known);
  element.textContent = known;
}

function chip(kind, text, state, change, load) {
  const name = h("span", { class: "name", dir: "auto" }, text);
  const words = { filter: "", positive: "more like ", negative: "fewer like " }[kind];
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
  const chips = ["filter", "positive", "negative"].flatMap((kind) =>
    state[kind].map((text) => chip(kind, text, state, change, load)),
  );
  fill($("chips"), chips);
  $("chips").hidden = !chips.length;
}

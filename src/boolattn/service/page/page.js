// The page: calls the API, shows the replies, handles the keyboard. Its address has the parameters
// of GET /search, so that a link reproduces a search.

import { fill, h, plural } from "./dom.js";
import { drawChips, drawFacets, likeOf, remember } from "./filters.js";
import { drawNotes, drawParse, drawScopes } from "./parse.js";
import { drawLeftOut, drawList, summary } from "./results.js";

const $ = (id) => document.getElementById(id);
const lists = document.querySelector(".lists");
const SWITCHES = ["mode", "hybrid", "strict_not"];
const LISTS = ["filter", "positive", "negative", "allow"];
const REPLY = ["scopes", "parse", "results", "notes", "left-out", "compare-field"]; // what shows a reply
const N_EXAMPLES = 3;
const N_RESULTS = 10;
let about = { max_k: 100, has_words: false };
let facets = null;
let shown = null; // the last reply
let state = fromAddress();
let running = null;

class Refused extends Error {
  constructor(body) {
    super(body.message);
    Object.assign(this, body);
  }
}

async function call(path, options = {}) {
  const key = sessionStorage.getItem("key");
  let response;
  try {
    response = await fetch(path, { ...options, headers: key ? { "X-API-Key": key } : {} });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Refused({ code: "offline", message: "The service does not respond; is it still running?" });
  }
  const body = await response.json().catch(() => ({ error: { code: "broken", message: `The service sent an invalid reply (status ${response.status}).` } }));
  if (!response.ok) throw new Refused(body.error);
  return body;
}

const loadDocument = (id) => call(`/documents/${encodeURIComponent(id)}`);

function showError(error, query) {
  for (const id of REPLY) $(id).hidden = true;
  $("status").textContent = "";
  if (error.code === "no_key" || error.code === "wrong_key") {
    $("key").hidden = false;
    $("key-value").focus();
  }
  const caret = error.column
    ? h("pre", { "aria-hidden": "true" }, `${query}\n${" ".repeat(Array.from(query).slice(0, error.column - 1).length)}^`)
    : null;
  fill($("error"), h("p", {}, error.message), caret);
  $("error").hidden = false;
}

function fromAddress() {
  const values = new URLSearchParams(location.search);
  const found = { q: values.get("q") ?? "", k: Number(values.get("k")) || N_RESULTS, offset: Number(values.get("offset")) || 0 };
  for (const name of SWITCHES) found[name] = values.get(name) ?? "";
  for (const name of ["hybrid", "strict_not"]) if (found[name]) found[name] = String(/^(on|true|1)$/.test(found[name]));
  for (const name of LISTS) found[name] = [...new Set(values.getAll(name))];
  return { ...found, compare: values.get("compare") === "true" };
}

// Only what differs from the default, under the API's names.
function parameters() {
  const values = new URLSearchParams({ q: state.q });
  for (const name of SWITCHES) if (state[name]) values.set(name, state[name]);
  if (state.k !== N_RESULTS) values.set("k", String(state.k));
  if (state.offset) values.set("offset", String(state.offset));
  for (const name of LISTS) for (const text of state[name]) values.append(name, text);
  return values;
}

function addressOf() {
  const values = parameters();
  if (state.compare) values.set("compare", "true");
  return `/?${values}`;
}

function showState() {
  $("query").value = state.q;
  for (const name of SWITCHES) $(name).value = state[name];
  $("k").value = String(state.k);
  $("compare").checked = state.compare;
  if (facets) drawFacets(facets, shown, state, change);
  drawChips(state, change, loadDocument);
}

// Every change begins at the first page; a search is one entry of the history.
function change(values) {
  state = { ...state, offset: 0, ...values };
  showState();
  if (canSearch()) search();
}

// A query, or a document that results are to be like.
const canSearch = () => Boolean(state.q.trim() || state.positive.length);

async function search(isNew = true) {
  running?.abort();
  running = new AbortController();
  const { signal } = running;
  if (isNew && addressOf() !== location.pathname + location.search) history.pushState(null, "", addressOf());
  document.title = `${state.q || "more like this"} · boolattn`;
  $("status").textContent = "Searching…";
  $("error").hidden = true;
  document.body.setAttribute("aria-busy", "true");
  const asked = parameters();
  asked.set("facets", "true");
  const plainly = parameters();
  for (const name of ["compose", "strict_not"]) plainly.set(name, "false");
  try {
    const lists = [asked, ...(state.compare ? [plainly] : [])];
    const [reply, plain] = await Promise.all(lists.map((list) => call(`/search?${list}`, { signal })));
    draw(reply, plain ?? null);
  } catch (error) {
    if (error.name !== "AbortError") showError(error, state.q);
  } finally {
    if (running?.signal === signal) document.body.removeAttribute("aria-busy");
  }
}

function draw(reply, plain) {
  remember(reply.hits);
  drawNotes($("notes"), reply);
  drawParse($("parse"), reply);
  drawScopes($("scopes"), reply);
  // Somebody may have typed another query meanwhile.
  $("scopes").hidden ||= $("query").value.trim() !== reply.query.trim();
  const actions = {
    load: loadDocument,
    more: (id) => like("positive", "negative", id),
    fewer: (id) => like("negative", "positive", id),
  };
  drawLeftOut($("left-out"), reply, {
    takeBack: (word) => change({ allow: [...new Set([...state.allow, word])] }),
    rankLower: () => change({ strict_not: "false" }),
  });
  drawList($("boolean"), "boolean", reply, plain, reply.operands, actions);
  const ids = (hits) => hits.map((hit) => hit.id).join("\n");
  const isSame = plain !== null && ids(plain.hits) === ids(reply.hits);
  const isCompared = plain !== null && !isSame;
  $("same").hidden = !isSame;
  $("plain").hidden = !isCompared;
  document.querySelector(".switch").hidden = !isCompared;
  lists.classList.toggle("single", !isCompared);
  if (isCompared) {
    remember(plain.hits);
    drawList($("plain"), "plain", plain, reply, reply.operands, actions);
  } else show("boolean");
  drawPages(reply);
  shown = reply;
  if (facets) drawFacets(facets, shown, state, change);
  $("results").hidden = false;
  $("compare-field").hidden = false;
  $("status").textContent = summary(reply);
}

// A document is an example or a counter-example, never both.
function like(to, from, id) {
  const text = likeOf(id);
  change({ [to]: [...state[to].filter((own) => own !== text), text], [from]: state[from].filter((own) => own !== text) });
  $("chips").scrollIntoView({ block: "nearest" });
}

function drawPages(reply) {
  const last = reply.offset + reply.hits.length;
  $("previous").disabled = reply.offset === 0;
  $("next").disabled = reply.next_offset === null || !reply.hits.length;
  $("pages").hidden = $("previous").disabled && $("next").disabled;
  $("place").textContent = `${(reply.offset + 1).toLocaleString("en")}–${last.toLocaleString("en")} of ${reply.total.toLocaleString("en")}`;
}

function turn(offset) {
  change({ offset });
  $("results").focus({ preventScroll: true });
  scrollTo({ top: 0 });
}

function show(name) {
  lists.dataset.shown = name;
  for (const button of document.querySelectorAll(".switch button")) {
    button.setAttribute("aria-pressed", String(button.dataset.list === name));
  }
}

const titles = (name) => [...$(name).querySelectorAll("button.title")];
const isShown = (name) => $(name).getClientRects().length > 0;

function move(key) {
  const inPlain = $("plain").contains(document.activeElement);
  const inBoolean = $("boolean").contains(document.activeElement);
  const here = inPlain || (!inBoolean && !isShown("boolean")) ? "plain" : "boolean";
  const own = titles(here);
  const place = own.indexOf(document.activeElement);
  if (key === "ArrowDown") return own[Math.min(place + 1, own.length - 1)];
  if (key === "ArrowUp") return place > 0 ? own[place - 1] : $("query");
  if (place < 0) return null;
  const there = key === "ArrowLeft" ? "boolean" : "plain";
  if ($(there).hidden) return null;
  if (!isShown(there)) show(there);
  const others = titles(there);
  return others[Math.min(place, others.length - 1)];
}

function onKey(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
  const at = document.activeElement;
  const isField = at?.matches("input, select, textarea") ?? false;
  const isBox = at === $("query");
  if (event.key === "/" && !isField) {
    event.preventDefault();
    $("query").focus();
    $("query").select();
  } else if (event.key === "Escape") {
    const open = at?.closest(".hit")?.querySelector('button.title[aria-expanded="true"]');
    const panel = at?.closest("#options[open], #filters[open]");
    if (open) open.click();
    else if (panel) panel.open = false;
    else if (isBox && at.value) at.value = "";
    (open ?? panel?.querySelector("summary") ?? $("query")).focus();
    event.preventDefault();
  } else if (event.key.startsWith("Arrow") && (!isField || (isBox && event.key === "ArrowDown"))) {
    if ($("results").hidden || (!isBox && !at?.closest("#results") && at !== document.body)) return;
    const next = move(event.key);
    if (!next) return;
    event.preventDefault();
    next.focus();
    next.scrollIntoView({ block: "nearest" });
  }
}

function restore() {
  state = fromAddress();
  showState();
  if (canSearch()) return search(false);
  for (const id of [...REPLY, "error"]) $(id).hidden = true;
  shown = null;
  $("status").textContent = "";
  return null;
}

function drawAbout() {
  $("about").textContent = `${plural(about.documents, "document")}, searched with ${about.model}.`;
  $("holds").textContent = about.documents ? `This index holds ${plural(about.documents, "document")}.` : "This index holds no documents yet.";
  $("k").max = String(about.max_k);
  $("query").maxLength = about.max_length;
  $("hybrid-field").hidden = !about.has_words;
}

function drawExamples({ examples }) {
  // Those with an operator first: they show what other searches cannot do.
  const chosen = examples.toSorted((a, b) => b.operators.length - a.operators.length).slice(0, N_EXAMPLES);
  const chips = chosen.map((example) =>
    h("li", {}, h("button", { type: "button", onclick: () => change({ q: example.query }) }, example.query)),
  );
  fill($("examples").querySelector("ul"), chips);
  $("examples").hidden = !chips.length;
  if (chosen.length) $("query").placeholder = `for example: ${chosen[0].query}`;
}

function drawFields() {
  const names = facets.facets.map((facet) => facet.field);
  if (names.length) $("holds").textContent = `This index holds ${plural(facets.documents, "document")}, which can be narrowed by ${names.join(", ")}.`;
  drawFacets(facets, shown, state, change);
  // Beside the results there is room for them.
  $("filters").open = matchMedia("(min-width: 70rem)").matches;
}

async function begin() {
  try {
    about = await call("/about");
  } catch (error) {
    showError(error, "");
    return;
  }
  $("error").hidden = true;
  drawAbout();
  const typed = $("query").value; // while the page was loading
  restore();
  if (!state.q) $("query").value = typed;
  // The search need not wait for these, nor fail with them.
  call("/examples").then(drawExamples, () => null);
  call("/facets").then((found) => {
    facets = found;
    drawFields();
  }, () => null);
}

function addCondition() {
  const text = $("condition").value.trim();
  if (!text || state.filter.includes(text)) return;
  $("condition").value = "";
  change({ filter: [...state.filter, text] });
}

$("search").addEventListener("submit", (event) => {
  event.preventDefault();
  if (document.activeElement === $("condition")) addCondition();
  else change({ q: $("query").value });
});
$("query").addEventListener("input", () => { $("scopes").hidden = true; });
$("add-condition").addEventListener("click", addCondition);
for (const name of SWITCHES) $(name).addEventListener("change", () => change({ q: $("query").value, [name]: $(name).value }));
$("compare").addEventListener("change", () => change({ compare: $("compare").checked, offset: state.offset }));
$("k").addEventListener("change", () => {
  const k = Number.parseInt($("k").value, 10) || N_RESULTS;
  change({ k: Math.min(Math.max(k, 1), about.max_k) });
});
$("previous").addEventListener("click", () => turn(Math.max(0, state.offset - state.k)));
$("next").addEventListener("click", () => turn(state.offset + state.k));
$("key").addEventListener("submit", (event) => {
  event.preventDefault();
  sessionStorage.setItem("key", $("key-value").value);
  $("key-value").value = "";
  $("key").hidden = true;
  begin();
});
for (const button of document.querySelectorAll(".switch button")) {
  button.addEventListener("click", () => show(button.dataset.list));
}
document.addEventListener("keydown", onKey);
window.addEventListener("popstate", restore);
begin();

// The page: calls the API, shows the replies, handles the keyboard.

import { fill, h, plural } from "./dom.js";
import { drawParse } from "./parse.js";
import { drawList, summary } from "./results.js";

const $ = (id) => document.getElementById(id);
const lists = document.querySelector(".lists");
let about = { plain: null, max_k: 100, has_lexical: false, examples: [] };
let running = null;

class Refused extends Error {
  constructor(body) {
    super(body.message);
    Object.assign(this, body);
  }
}

async function call(path, options = {}) {
  const key = sessionStorage.getItem("key");
  const headers = { ...(options.body ? { "Content-Type": "application/json" } : {}), ...(key ? { "X-API-Key": key } : {}) };
  let response;
  try {
    response = await fetch(path, { ...options, headers });
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
  for (const id of ["parse", "results"]) $(id).hidden = true;
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

function settings() {
  const k = Number.parseInt($("k").value, 10) || 10;
  return { mode: $("mode").value, k: Math.min(Math.max(k, 1), about.max_k), hybrid: $("hybrid").checked };
}

function updateAddress(query, { mode, k, hybrid }, isNew) {
  const values = new URLSearchParams({ q: query });
  if (mode !== "auto") values.set("mode", mode);
  if (k !== 10) values.set("k", String(k));
  if (hybrid) values.set("hybrid", "on");
  if (isNew) history.pushState(null, "", `/?${values}`);
  document.title = `${query} · boolattn`;
}

async function search(query, isNew = true) {
  if (!query.trim()) return;
  running?.abort();
  running = new AbortController();
  const { signal } = running;
  const chosen = settings();
  updateAddress(query, chosen, isNew);
  $("status").textContent = "Searching…";
  $("error").hidden = true;
  document.body.setAttribute("aria-busy", "true");
  const body = JSON.stringify({ query, ...chosen, compare: about.plain !== null });
  const explanation = call(`/explain?${new URLSearchParams({ q: query, mode: chosen.mode })}`, { signal }).catch(() => null);
  try {
    const reply = await call("/search", { method: "POST", body, signal });
    draw(reply, await explanation);
  } catch (error) {
    if (error.name !== "AbortError") showError(error, query);
  } finally {
    if (running?.signal === signal) document.body.removeAttribute("aria-busy");
  }
}

function draw(reply, explained) {
  drawParse($("parse"), reply, explained);
  drawList($("boolean"), "boolean", reply, reply.operands, loadDocument);
  const isCompared = reply.plain !== null;
  $("plain").hidden = !isCompared;
  document.querySelector(".switch").hidden = !isCompared;
  lists.classList.toggle("single", !isCompared);
  if (isCompared) drawList($("plain"), "plain", reply.plain, reply.operands, loadDocument);
  else show("boolean");
  $("results").hidden = false;
  $("status").textContent = summary(reply);
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
  const here = inPlain ? "plain" : inBoolean || !isShown("plain") ? "boolean" : isShown("boolean") ? "boolean" : "plain";
  const own = titles(here);
  const place = own.indexOf(document.activeElement);
  if (key === "ArrowDown") return own[Math.min(place + 1, own.length - 1)];
  if (key === "ArrowUp") return place > 0 ? own[place - 1] : $("query");
  if (place < 0) return null;
  const there = key === "ArrowLeft" ? "plain" : "boolean";
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
    if (open) open.click();
    else if (isBox && at.value) at.value = "";
    (open ?? $("query")).focus();
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

function fromAddress() {
  const values = new URLSearchParams(location.search);
  $("query").value = values.get("q") ?? "";
  $("mode").value = values.get("mode") ?? "auto";
  $("k").value = values.get("k") ?? "10";
  $("hybrid").checked = values.get("hybrid") === "on";
  if ($("query").value) search($("query").value, false);
}

function drawAbout() {
  const compared = about.plain ? `, compared with ${about.plain}` : "";
  $("about").textContent = `${plural(about.documents, "document")}, searched with ${about.boolean}${compared}.`;
  $("k").max = String(about.max_k);
  $("query").maxLength = about.max_length;
  $("hybrid-field").hidden = !about.has_lexical;
  const chips = about.examples.map((example) =>
    h("li", {}, h("button", { type: "button", onclick: () => { $("query").value = example.query; search(example.query); } }, example.query)),
  );
  fill($("examples").querySelector("ul"), chips);
  $("examples").hidden = !chips.length;
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
  fromAddress();
}

$("search").addEventListener("submit", (event) => {
  event.preventDefault();
  search($("query").value);
});
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
window.addEventListener("popstate", fromAddress);
begin();

// The list of results, beside it that of one vector where they are compared, and what was left out.

import { colour, fill, h, letter, ordinal, plural } from "./dom.js";
import { nameOfOperand } from "./filters.js";

const MAX_FIELDS = 5; // of the metadata that a card shows
const MAX_VALUE = 60; // characters of one
const MAX_LEFT_OUT = 10; // the API returns no more

const MOST = 100; // the lowest rank that is told apart

function bars(ranks, operands) {
  if (!ranks.length || ranks.length > 12) return null;
  return h(
    "ul",
    { class: "operand-ranks", "aria-label": "Rank for each operand" },
    ranks.map((value, index) =>
      h(
        "li",
        {
          class: `operand-rank ${colour(index)}${operands[index].is_negated ? " negated" : ""}`,
          share: Math.max(0, 1 - Math.log10(value) / Math.log10(MOST)).toFixed(3),
          title: `rank for ${nameOfOperand(operands[index])}`,
        },
        operands[index].is_negated ? h("span", { class: "tag not" }, "not") : null,
        h("b", { class: "letter" }, letter(index)),
        h("span", { class: "bar", "aria-hidden": "true" }),
        h("span", { class: "value" }, value > MOST ? `>${MOST}` : ordinal(value)),
      ),
    ),
  );
}

// What a reader should know without opening anything.
function doubt(hit, operands) {
  if (hit.verdict !== "doubtful") return null;
  const index = hit.exceeds.indexOf(Math.max(...hit.exceeds));
  const words = /negated/.test(hit.why) ? `may be about ${nameOfOperand(operands[index])}` : "fits less well";
  return h("span", { class: "badge partial" }, words);
}

// There is a verdict only where scores are composed; in the plain list it is the Boolean model's.
function why(hit, other, system, operands) {
  const judged = system === "boolean" ? hit : other?.hits.find(({ id }) => id === hit.id);
  const ranks = judged?.ranks ?? [];
  if (!ranks.length) return null;
  const verdict = judged.why ? `${judged.verdict} because it ${judged.why}` : "";
  return h(
    "details",
    { class: "why" },
    h("summary", {}, "Why"),
    h("p", {}, "Its rank for each part of the query:"),
    bars(ranks, operands),
    verdict ? h("p", { class: judged.verdict }, verdict) : null,
  );
}

function otherPlace(hit, other, system) {
  if (!other) return null;
  const name = system === "boolean" ? "plain search" : "with and, or, not";
  const same = ({ id }) => id === hit.id;
  const removed = other.left_out.find(same);
  const rank = other.hits.find(same)?.rank;
  const words = removed ? `left out, ${removed.why}` : rank ? ordinal(rank) : `not in the first ${other.offset + other.k}`;
  return h("span", { class: "place" }, `${name}: ${words}`);
}

const shownValue = (value) => (Array.isArray(value) ? value.join(", ") : String(value));
const valuesOf = (metadata) => Object.entries(metadata).map(([name, value]) => [name, shownValue(value)]).filter(([, text]) => text !== "");

function metadata(hit) {
  const values = valuesOf(hit.metadata).filter(([, text]) => text.length <= MAX_VALUE).slice(0, MAX_FIELDS);
  if (!values.length) return null;
  return h("dl", { class: "meta" }, values.map(([name, text]) => h("div", {}, h("dt", {}, name), h("dd", { dir: "auto" }, text))));
}

// A snippet begins shortly before its first match. Spans count code points, as in Python.
const BEFORE = 60;

// The characters from a start on, with marks; spans count from the start of the passage.
function marked(points, spans, start, offset = 0) {
  const parts = [];
  let place = start;
  for (const [from, to] of spans) {
    parts.push(points.slice(place, offset + from).join(""), h("mark", {}, points.slice(offset + from, offset + to).join("")));
    place = offset + to;
  }
  return [parts, place];
}

function snippet(hit) {
  const points = Array.from(hit.text);
  const first = hit.highlights[0]?.[0] ?? 0;
  const start = first > 2 * BEFORE ? Math.max(0, points.indexOf(" ", first - BEFORE)) : 0;
  const [parts, place] = marked(points, hit.highlights, start);
  return h("p", { class: "snippet", dir: "auto" }, start || hit.passage?.[0] ? "…" : "", parts, points.slice(place).join(""), hit.is_cut ? "…" : "");
}

// The whole text, with the passage that was found.
function whole(text, hit) {
  const points = Array.from(text);
  const [start, end] = hit.passage ?? [0, points.length];
  const [parts, place] = marked(points, hit.highlights, start, start);
  const passage = h("span", { class: hit.passage ? "passage" : "" }, parts, points.slice(place, end).join(""));
  return h("p", { class: "whole", dir: "auto", tabindex: "0" }, points.slice(0, start).join(""), passage, points.slice(end).join(""));
}

async function toggle(button, panel, hit, load) {
  const isOpen = button.getAttribute("aria-expanded") === "true";
  button.setAttribute("aria-expanded", String(!isOpen));
  panel.hidden = isOpen;
  if (isOpen || panel.childElementCount) return;
  try {
    const found = await load(hit.id);
    const text = whole(found.text, hit);
    const values = valuesOf(found.metadata);
    fill(
      panel,
      text,
      values.length ? h("dl", {}, values.map(([name, value]) => [h("dt", {}, name), h("dd", { dir: "auto" }, value)])) : null,
      h("p", { class: "hint" }, `id ${found.id}`),
    );
    const target = text.querySelector(".passage") ?? text.querySelector("mark");
    const lines = target ? target.offsetTop - text.offsetTop : 0;
    // A little of what stands before it.
    if (lines > text.clientHeight / 2 || hit.passage) text.scrollTop = lines - 40;
  } catch (error) {
    fill(panel, h("p", { class: "hint" }, error.message));
  }
}

// A document without a title is called by the beginning of its text.
const nameOf = (hit) => hit.title || (!hit.passage?.[0] && Array.from(hit.text.trim().split("\n")[0]).slice(0, 80).join("")) || hit.id;

const action = (words, hit, act) =>
  h("button", { type: "button", "aria-label": `${words}: ${nameOf(hit)}`, onclick: () => act(hit.id) }, words);

function card(hit, other, system, operands, actions) {
  const name = `${system}-${hit.rank}`;
  const panel = h("div", { class: "panel", id: `${name}-panel`, hidden: true });
  const button = h(
    "button",
    {
      type: "button",
      class: "title",
      "aria-expanded": "false",
      "aria-controls": `${name}-panel`,
      onclick: () => toggle(button, panel, hit, actions.load),
    },
    h("span", { dir: "auto" }, nameOf(hit)),
  );
  return h(
    "li",
    { class: "hit" },
    h(
      "div",
      { class: "head" },
      h("span", { class: "rank", "aria-hidden": "true" }, String(hit.rank)),
      h("h3", {}, button),
      system === "boolean" ? doubt(hit, operands) : null,
    ),
    nameOf(hit) === hit.text.trim() ? null : snippet(hit),
    metadata(hit),
    h(
      "div",
      { class: "foot" },
      why(hit, other, system, operands),
      otherPlace(hit, other, system),
      h("p", { class: "actions" }, action("More like this", hit, actions.more), action("Fewer like this", hit, actions.fewer)),
    ),
    panel,
  );
}

// The other list is null where nothing is compared.
export function drawList(section, system, list, other, operands, actions) {
  fill(
    section,
    h(
      "div",
      { class: "heading" },
      h("h2", { id: `${system}-title` }, system === "boolean" ? "With and, or, not" : "Plain search"),
      h("p", { class: "hint" }, list.label),
    ),
    list.hits.length
      ? h("ol", {}, list.hits.map((hit) => card(hit, other, system, operands, actions)))
      : h("p", { class: "empty" }, "No document fits the query and the filters."),
  );
}

// What an exclusion removed, best first, and why; a word of a negated kind can be taken back.
export function drawLeftOut(section, reply, { takeBack, rankLower }) {
  const removed = reply.left_out;
  section.hidden = !removed.length;
  if (!removed.length) return;
  const reasons = [...new Set(removed.map((document) => document.why.toLowerCase()))];
  const more = reasons.length > 3 ? ", …" : "";
  const count = removed.length < MAX_LEFT_OUT ? String(removed.length) : `${removed.length} or more`;
  fill(section.querySelector("summary"), `Left out: ${count} — ${reasons.slice(0, 3).join(", ")}${more}`);
  const words = [...new Set(removed.map((document) => document.word.toLowerCase()))].filter(Boolean);
  fill(
    section.querySelector("ul"),
    removed.map((document) => h("li", {}, h("b", { dir: "auto" }, document.title || document.id), ` ${document.why}`)),
    h(
      "li",
      { class: "actions" },
      words.map((word) => h("button", { type: "button", onclick: () => takeBack(word) }, `Take back ${word}`)),
      h("button", { type: "button", onclick: rankLower }, "Show all, ranked lower"),
    ),
  );
}

export function summary(reply) {
  const first = reply.offset + 1;
  const place = reply.hits.length ? `Results ${first}–${reply.offset + reply.hits.length}` : "No results";
  return `${place} of ${plural(reply.total, "document")}, in ${Math.round(reply.took.total ?? 0)} ms.`;
}

// The two lists: each result with its rank for each operand, and why it is not ranked higher.

import { colour, fill, h, letter, ordinal, plural } from "./dom.js";
import { nameOfOperand } from "./filters.js";

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
          class: `operand-rank ${colour(index)}${operands[index].is_excluded ? " negated" : ""}`,
          share: Math.max(0, 1 - Math.log10(value) / Math.log10(MOST)).toFixed(3),
          title: `rank for ${nameOfOperand(operands[index])}`,
        },
        operands[index].is_excluded ? h("span", { class: "tag not" }, "not") : null,
        h("b", { class: "letter" }, letter(index)),
        h("span", { class: "bar", "aria-hidden": "true" }),
        h("span", { class: "value" }, value > MOST ? `>${MOST}` : ordinal(value)),
      ),
    ),
  );
}

// There is a verdict only where scores are composed; in the plain list it is the Boolean model's.
function why(hit, system) {
  const other = hit.other;
  const isBoolean = system === "boolean";
  const own = isBoolean ? hit : other;
  const line = [];
  if (own?.verdict && (!isBoolean || hit.ranks.length)) {
    line.push(h("b", { class: own.verdict.replace(" ", "-") }, own.verdict), own.why ? ` because it ${own.why}` : "");
  }
  if (other) {
    const name = isBoolean ? "one vector" : "Boolean search";
    const place = other.rank ? `${name}: ${ordinal(other.rank)}` : `${name}: not in the first ${other.looked}`;
    line.push(line.length ? " · " : "", h("span", { class: "place" }, place));
  }
  return line.length ? h("p", { class: "why" }, line) : null;
}

// A snippet begins shortly before its first match. Spans count code points, as in Python.
const BEFORE = 60;

function snippet(hit) {
  const points = Array.from(hit.text);
  const first = hit.highlights[0]?.[0] ?? 0;
  const start = first > 2 * BEFORE ? Math.max(0, points.indexOf(" ", first - BEFORE)) : 0;
  const parts = [start || hit.passage?.[0] ? "…" : ""];
  let place = start;
  for (const [from, to] of hit.highlights) {
    parts.push(points.slice(place, from).join(""), h("mark", {}, points.slice(from, to).join("")));
    place = to;
  }
  parts.push(points.slice(place).join(""), hit.is_cut ? "…" : "");
  return h("p", { class: "snippet", dir: "auto" }, parts);
}

async function toggle(button, panel, id, load) {
  const isOpen = button.getAttribute("aria-expanded") === "true";
  button.setAttribute("aria-expanded", String(!isOpen));
  panel.hidden = isOpen;
  if (isOpen || panel.childElementCount) return;
  try {
    const found = await load(id);
    const values = Object.entries(found.metadata).filter(([, value]) => value !== "");
    fill(
      panel,
      h("p", { class: "whole", dir: "auto" }, found.text),
      values.length
        ? h("dl", {}, values.map(([name, value]) => [h("dt", {}, name), h("dd", {}, String(value))]))
        : null,
      h("p", { class: "hint" }, `id ${found.id}`),
    );
  } catch (error) {
    fill(panel, h("p", { class: "hint" }, error.message));
  }
}

const action = (words, hit, act) =>
  h("button", { type: "button", "aria-label": `${words}: ${hit.title || hit.id}`, onclick: () => act(hit.id) }, words);

function card(hit, system, operands, actions) {
  const name = `${system}-${hit.rank}`;
  const panel = h("div", { class: "panel", id: `${name}-panel`, hidden: true });
  const button = h(
    "button",
    {
      type: "button",
      class: "title",
      "aria-expanded": "false",
      "aria-controls": `${name}-panel`,
      onclick: () => toggle(button, panel, hit.id, actions.load),
    },
    h("span", { dir: "auto" }, hit.title || hit.id),
  );
  const ranks = system === "boolean" ? hit.ranks : (hit.other?.ranks ?? []);
  return h(
    "li",
    { class: "hit" },
    h("div", { class: "head" }, h("span", { class: "rank", "aria-hidden": "true" }, String(hit.rank)), h("h3", {}, button)),
    snippet(hit),
    bars(ranks, operands),
    h(
      "div",
      { class: "foot" },
      why(hit, system),
      h("p", { class: "actions" }, action("More like this", hit, actions.more), action("Fewer like this", hit, actions.fewer)),
    ),
    panel,
  );
}

export function drawList(section, system, list, operands, actions) {
  fill(
    section,
    h(
      "div",
      { class: "heading" },
      h("h2", { id: `${system}-title` }, system === "boolean" ? "Boolean search" : "One vector"),
      h("p", { class: "hint" }, list.label.replace(", one vector", "")),
    ),
    list.hits.length
      ? h("ol", {}, list.hits.map((hit) => card(hit, system, operands, actions)))
      : h("p", { class: "empty" }, "No documents found."),
  );
}

export function summary(reply) {
  const first = reply.offset + 1;
  const place = reply.hits.length ? `Results ${first}–${reply.offset + reply.hits.length}` : "No results";
  return `${place} of ${plural(reply.total, "document")}, in ${Math.round(reply.took.total ?? 0)} ms.`;
}

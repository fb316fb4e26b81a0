// How the query was read: its words over the lanes of their operands, the tree, the attention.

import { colour, decimals, fill, h, letter } from "./dom.js";

const PARTS = [
  ["cue", "announces the operator"],
  ["scope", "is governed by it"],
  ["bias", "added to its attention"],
];
const MAX_LANES = 8;

// Spans count code points; JavaScript's strings count half of some.
function wordsOf(text) {
  const points = Array.from(text);
  const words = [];
  for (let start = 0; start < points.length; ) {
    let end = start;
    while (end < points.length && !/\s/u.test(points[end])) end += 1;
    if (end > start) words.push({ text: points.slice(start, end).join(""), start, end });
    start = end + 1;
  }
  return words;
}

const overlaps = (word, [start, end]) => word.start < end && start < word.end;

function operandName(operand, index) {
  return h(
    "span",
    { class: `operand ${colour(index)}${operand.is_excluded ? " excluded" : ""}` },
    h("b", { class: "letter" }, letter(index)),
    " ",
    h("span", { class: "name" }, operand.text),
  );
}

function tags(word, explained) {
  if (["AND", "OR", "NOT"].includes(word.text)) return [word.text.toLowerCase()];
  const own = explained.words.filter((item) => overlaps(word, [item.start, item.end]));
  return Object.keys(explained.gate).filter(
    (name) => explained.gate[name] && own.some((item) => item.cue[name] > 0.5),
  );
}

function lanes(words, operands, explained) {
  const shown = operands.length <= MAX_LANES ? operands : [];
  const inside = (word, operand) => operand.spans.some((span) => overlaps(word, span));
  // "but not" is one cue: its second word needs no tag of its own.
  const all = words.map((word) => tags(word, explained));
  const own = all.map((names, place) => names.filter((name) => !all[place - 1]?.includes(name)));
  return words.map((word, place) =>
    h(
      "span",
      { class: "word" },
      h("span", { class: "tags" }, own[place].map((name) => h("span", { class: `tag ${name}` }, name))),
      h("span", { class: "text", dir: "auto" }, word.text),
      shown.map((operand, index) => {
        const isIn = inside(word, operand);
        const isFirst = isIn && !(place && inside(words[place - 1], operand));
        const look = `lane ${colour(index)}${isIn ? " in" : ""}${operand.is_excluded ? " excluded" : ""}`;
        return h("span", { class: look, "aria-hidden": "true" }, isFirst ? letter(index) : "");
      }),
    ),
  );
}

function tree(node, operands) {
  if (node.op === "operand") return h("li", {}, operandName(operands[node.operand], node.operand));
  return h(
    "li",
    {},
    h("span", { class: `tag ${node.op}` }, node.op),
    h("ul", {}, node.parts.map((part) => tree(part, operands))),
  );
}

function cell(part, value, reach) {
  const share = Math.min(1, Math.abs(value) / reach);
  const look = `cell ${part}${value < 0 ? " down" : ""}${share > 0.55 ? " strong" : ""}`;
  const shown = share < 0.05 ? "·" : decimals(value, part === "bias" ? 1 : 2);
  return h("span", { class: look, share: share.toFixed(3) }, shown);
}

function strip(operator, words) {
  const reach = { cue: 1, scope: 1, bias: Math.max(0.5, ...words.map((word) => Math.abs(word.bias[operator]))) };
  return [
    h("h4", {}, h("span", { class: `tag ${operator}` }, operator)),
    h(
      "div",
      { class: "strip", "aria-hidden": "true" },
      h("span", { class: "column names" }, h("span", { class: "text" }, "\u00a0"), PARTS.map(([part]) => h("span", { class: "cell" }, part))),
      words.map((word) =>
        h(
          "span",
          { class: "column" },
          h("span", { class: "text", dir: "auto" }, word.text),
          PARTS.map(([part]) => cell(part, word[part][operator], reach[part])),
        ),
      ),
    ),
    numbers(operator, words),
  ];
}

// The same numbers for those who hear the page.
function numbers(operator, words) {
  return h(
    "table",
    { class: "unseen" },
    h("caption", {}, `${operator}: cue, scope and bias by word`),
    h("tr", {}, h("th", { scope: "col" }, "word"), PARTS.map(([part]) => h("th", { scope: "col" }, part))),
    words.map((word) =>
      h(
        "tr",
        {},
        h("th", { scope: "row" }, word.text),
        PARTS.map(([part]) => h("td", {}, decimals(word[part][operator]))),
      ),
    ),
  );
}

function attention(explained) {
  const open = Object.keys(explained.gate).filter((name) => explained.gate[name]);
  if (!open.length) return null;
  const legend = PARTS.map(([part, meaning]) => h("span", { class: `key ${part}` }, h("b", {}, part), ` ${meaning}`));
  return h(
    "details",
    // On a phone the results would be far below.
    { class: "attention", open: matchMedia("(min-width: 46.01rem)").matches },
    h("summary", {}, "What the attention does with each word"),
    h("p", { class: "hint legend" }, legend),
    open.map((name) => strip(name, explained.words)),
  );
}

function sentence(reply, explained) {
  const sure = reply.confidence === null || reply.confidence === 1 ? "" : ` (${Math.round(100 * reply.confidence)}% sure)`;
  if (reply.is_composed) return `Each operand is scored apart, and the scores are composed by the operators${sure}.`;
  if (reply.reading !== reply.tree) return `Read as ${reply.reading}, but not surely enough${sure}: the query stays one vector.`;
  if (Object.values(explained.gate).some(Boolean)) return "One operand: searched by one vector, in which the operators steer the attention.";
  return "One operand: searched by its own vector, as a plain encoder would.";
}

export function drawReading(section, reply, explained) {
  const known = explained ?? { gate: {}, words: [] };
  const words = wordsOf(reply.query);
  fill(
    section,
    h(
      "div",
      { class: "two" },
      h(
        "div",
        {},
        h("h2", { id: "reading-title" }, "How the query was read"),
        h("div", { class: "words" }, lanes(words, reply.operands, known)),
        h("p", { class: "hint" }, sentence(reply, known)),
        reply.warnings.map((warning) => h("p", { class: "warning" }, warning)),
      ),
      reply.is_composed
        ? h("div", {}, h("h3", {}, "Tree"), h("ul", { class: "tree" }, tree(reply.nodes, reply.operands)))
        : null,
    ),
    attention(known),
  );
  section.hidden = false;
}

export { operandName };

// The parsed query: its words with their operands, and the tree.

import { colour, fill, h, letter } from "./dom.js";
import { nameOfOperand } from "./filters.js";

const MAX_LANES = 8;

// Spans count code points, JavaScript strings count UTF-16 units.
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
    { class: `operand ${colour(index)}${operand.is_negated ? " negated" : ""}` },
    h("b", { class: "letter" }, letter(index)),
    " ",
    h("span", { class: "name", dir: "auto" }, nameOfOperand(operand)),
  );
}

function tags(word) {
  const names = ["AND", "OR", "NOT"].filter((name) => name === word.text);
  return names.map((name) => h("span", { class: `tag ${name.toLowerCase()}` }, name.toLowerCase()));
}

function lanes(words, operands) {
  const shown = operands.length <= MAX_LANES ? operands : [];
  const inside = (word, operand) => operand.spans.some((span) => overlaps(word, span));
  return words.map((word, place) =>
    h(
      "span",
      { class: "word" },
      h("span", { class: "tags" }, tags(word)),
      h("span", { class: "text", dir: "auto" }, word.text),
      shown.map((operand, index) => {
        const isIn = inside(word, operand);
        const isFirst = isIn && !(place && inside(words[place - 1], operand));
        const look = `lane ${colour(index)}${isIn ? " in" : ""}${operand.is_negated ? " negated" : ""}`;
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

// The tree in one line.
function formula(node, operands, isInner = false) {
  if (node.op === "operand") return [operandName(operands[node.operand], node.operand)];
  const sign = () => h("span", { class: `tag ${node.op}` }, node.op);
  if (node.op === "not") return [sign(), " ", ...formula(node.parts[0], operands, true)];
  const parts = node.parts.flatMap((part, place) => [
    place && !(node.op === "and" && part.op === "not") ? [" ", sign(), " "] : " ",
    ...formula(part, operands, true),
  ]);
  return isInner ? ["(", ...parts.slice(1), ")"] : parts.slice(1);
}

function sentence(reply) {
  const confidence = reply.confidence === null || reply.confidence === 1 ? "" : ` (confidence ${Math.round(100 * reply.confidence)}%)`;
  const ways = `${reply.hybrid ? " Words count as well as meaning." : ""}${reply.strict_not ? " Documents with what is excluded are left out." : ""}`;
  if (reply.is_composed) return `Each part of the query is scored on its own, and the operators combine the scores${confidence}.${ways}`;
  const parsed = reply.parsed !== reply.tree ? ` It was parsed as ${reply.parsed}${confidence}.` : "";
  return `Searched as one text: ${reply.why_one_vector}.${parsed}${ways}`;
}

const NO_OPERATOR = "no and / or / not found";

// What must be seen without opening anything: words that were corrected, cue words not obeyed.
export function drawNotes(list, reply) {
  const notes = [...reply.warnings, ...reply.notes];
  fill(list, notes.map((note) => h("li", {}, note)));
  list.hidden = !notes.length;
}

// The query as it was typed: what is asked for is underlined, what is excluded struck through.
export function drawScopes(line, reply) {
  const points = Array.from(reply.query);
  const covers = (isExcluded) => (place) =>
    reply.operands.some((operand) => operand.is_negated === isExcluded && operand.spans.some(([from, to]) => from <= place && place < to));
  const [isAsked, isExcluded] = [covers(false), covers(true)];
  const tagOf = (place) => (isAsked(place) ? "ins" : isExcluded(place) ? "del" : "span");
  const parts = [];
  for (let start = 0, end = 0; start < points.length; start = end) {
    while (end < points.length && tagOf(end) === tagOf(start)) end += 1;
    parts.push(h(tagOf(start), {}, points.slice(start, end).join("")));
  }
  fill(line, parts);
  line.hidden = !reply.is_composed || !parts.some((part) => part.matches("del"));
}

export function drawParse(section, reply) {
  const words = wordsOf(reply.query);
  const reading = reply.is_composed
    ? h("span", { class: "formula" }, formula(reply.nodes, reply.operands))
    : h("span", {}, reply.why_one_vector === NO_OPERATOR ? "plain search (no and, or, not found)" : `plain search: ${reply.why_one_vector}`);
  fill(section.querySelector("#reading"), reading);
  fill(
    section.querySelector("#parsed"),
    h("p", { class: "hint" }, sentence(reply)),
    h(
      "div",
      { class: "two" },
      h("div", {}, h("h3", {}, "Words and parts"), h("div", { class: "words" }, lanes(words, reply.operands))),
      reply.is_composed
        ? h("div", {}, h("h3", {}, "Tree"), h("ul", { class: "tree" }, tree(reply.nodes, reply.operands)))
        : null,
    ),
  );
  section.hidden = false;
}

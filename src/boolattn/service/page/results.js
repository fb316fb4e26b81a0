// The two lists: each result with its rank for each operand, and why it is not ranked higher.

import { colour, fill, h, letter, ordinal, plural } from "./dom.js";

const JUDGEMENTS = {
  answers: ["✓", "answers the query"],
  excluded: ["✕", "violates the query"],
  partial: ["◐", "matches only in part"],
  other: ["–", "not an answer"],
};

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
          title: `rank for ${operands[index].text}`,
        },
        operands[index].is_excluded ? h("span", { class: "tag not" }, "not") : null,
        h("b", { class: "letter" }, letter(index)),
        h("span", { class: "bar", "aria-hidden": "true" }),
        h("span", { class: "value" }, value > MOST ? `>${MOST}` : ordinal(value)),
      ),
    ),
  );
}

function badge(hit) {
  if (!hit.judgement) return null;
  const [sign, words] = JUDGEMENTS[hit.judgement];
  return h("span", { class: `badge ${hit.judgement}` }, h("span", { "aria-hidden": "true" }, `${sign} `), words);
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
    const name = isBoolean ? "plain encoder" : "Boolean model";
    const place = other.rank ? `${name}: ${ordinal(other.rank)}` : `${name}: not in the first ${other.looked}`;
    line.push(line.length ? " · " : "", h("span", { class: "place" }, place));
  }
  return line.length ? h("p", { class: "why" }, line) : null;
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

function card(hit, system, operands, load) {
  const name = `${system}-${hit.rank}`;
  const panel = h("div", { class: "panel", id: `${name}-panel`, hidden: true });
  const button = h(
    "button",
    {
      type: "button",
      class: "title",
      "aria-expanded": "false",
      "aria-controls": `${name}-panel`,
      onclick: () => toggle(button, panel, hit.id, load),
    },
    h("span", { dir: "auto" }, hit.title || hit.id),
  );
  const ranks = system === "boolean" ? hit.ranks : (hit.other?.ranks ?? []);
  return h(
    "li",
    { class: `hit ${hit.judgement ?? ""}` },
    h("div", { class: "head" }, h("span", { class: "rank", "aria-hidden": "true" }, String(hit.rank)), h("h3", {}, button), badge(hit)),
    h("p", { class: "snippet", dir: "auto" }, hit.text + (hit.is_cut ? "…" : "")),
    bars(ranks, operands),
    why(hit, system),
    panel,
  );
}

function tally(judged, n) {
  if (!judged) return null;
  const bad = judged.excluded_found;
  return h(
    "p",
    { class: "tally" },
    h("span", { class: "badge answers" }, `✓ ${judged.answers_found} of ${n} results ${judged.answers_found === 1 ? "answers" : "answer"}`),
    " ",
    judged.excluded
      ? h("span", { class: `badge ${bad ? "excluded" : "none"}` }, `${bad ? "✕" : "✓"} ${bad} ${bad === 1 ? "violates" : "violate"} the query`)
      : null,
  );
}

export function drawList(section, system, list, operands, load) {
  fill(
    section,
    h("h2", { id: `${system}-title` }, system === "boolean" ? "Boolean model" : "Plain encoder"),
    h("p", { class: "hint" }, list.label),
    tally(list.judged, list.hits.length),
    list.hits.length
      ? h("ol", {}, list.hits.map((hit) => card(hit, system, operands, load)))
      : h("p", { class: "empty" }, "No documents found."),
  );
}

export const summary = (reply) =>
  `${plural(reply.hits.length, "result")} in ${Math.round(reply.took.total ?? 0)} ms.` +
  (reply.judged?.excluded ? ` ${plural(reply.judged.excluded_found, "violation")}.` : "");

"""Queries: operands in a wording, with their document sets."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from benchmark_data.taxa.phrases import Builder, Phrase, fill, slots_of
from benchmark_data.taxa.places import places
from benchmark_data.taxa.wordings import Parts, Wording, families, links, requests, wordings
from boolattn.data import records
from boolattn.files import package_table
from boolattn.query.syntax import template_operators

if TYPE_CHECKING:
    import random

    from benchmark_data.taxa.sets import Group, Operand

# Plain names are the commonest, so they are repeated.
_COMMON_FORMS = ("{0}",) * 6 + ("species of {0}",)
_SCIENTIFIC_FORMS = ("{0}",) * 5 + ("{0} species", "species of {0}", "members of {0}")


def shape_of(operands: Sequence[Operand]) -> str:
    """Return the shape of operands: one group in "places", "groups" in one place, or "any"."""
    groups = {operand.group for operand in operands}
    cut = [operand.place for operand in operands]
    if all(cut) and len(groups) == 1 and len(set(cut)) == len(cut):
        return "places"
    if cut[0] and len(set(cut)) == 1 and len(groups) == len(operands):
        return "groups"
    return "any"


class Speaker:
    """Words operands; every choice is drawn from one random generator."""

    def __init__(self, rng: random.Random, *, unseen: bool) -> None:
        self._rng = rng
        self._unseen = unseen
        self._wordings = _by_skeleton(unseen=unseen)

    def word(
        self, template: str, operands: Sequence[Operand]
    ) -> tuple[Wording, Phrase, tuple[str, ...]]:
        """Return a wording, the query with its spans, and each operand as a query of its own."""
        heads = {operand.group: self.head(operand.group) for operand in operands}
        wording = self._wording(template, operands)
        link = dict(wording.cues).get("in") or self._choice(links())
        slots = self.slots(operands, heads, link)
        builder = Builder(len(operands))
        request = "*"
        if wording.takes_request and self._rng.random() < 0.45:
            request = self._choice(requests())
        before, _, after = request.partition("*")
        builder.add(before)
        cues = {
            name: (families()[name].operator, cue) for name, cue in wording.cues if name != "in"
        }
        fill(wording.skeleton, cues, slots, builder)
        builder.add(after)
        texts = tuple(
            f"{heads[operand.group]} of {places()[operand.place].noun}"
            if operand.place
            else heads[operand.group]
            for operand in operands
        )
        return wording, self.cased(builder.finish()), texts

    def _choice(self, choices: Parts) -> str:
        return self._rng.choice(choices.allowed(unseen=self._unseen))

    def _wording(self, template: str, operands: Sequence[Operand]) -> Wording:
        """Draw a skeleton that fits, then its cues, so that no skeleton dominates."""
        fitting = [
            rows
            for shape in ("any", shape_of(operands))
            for skeleton, rows in self._wordings[template].get(shape, {}).items()
            if has_words(slots_of(skeleton), operands)
        ]
        return self._rng.choice(self._rng.choice(fitting))

    def head(self, group: Group) -> str:
        """Draw a name of a group, common or scientific."""
        if group.common and self._rng.random() < 0.65:
            return self._rng.choice(_COMMON_FORMS).format(group.common)
        return self._rng.choice(_SCIENTIFIC_FORMS).format(group.name)

    def slots(
        self, operands: Sequence[Operand], heads: Mapping[Group, str], link: str
    ) -> dict[str, str]:
        """Return the words of every slot that the operands can fill."""
        lead, _, prep = link.partition("|")
        first = operands[0]
        domains = {operand.group.domain for operand in operands}
        verbs = package_table("benchmark_data.taxa", "wordings.toml")["verbs"]
        slots = {
            "G": heads[first.group],
            "in": f"{lead} {prep}".strip(),
            "lead": lead,
            "prep": prep,
            # Plants and animals together can only occur.
            "live": self._rng.choice(verbs[domains.pop()]) if len(domains) == 1 else "occur",
        }
        for index, operand in enumerate(operands):
            slots[f"G{index}"] = heads[operand.group]
            slots[f"N{index}"] = self._noun_phrase(operand, heads[operand.group])
            if operand.place:
                place = places()[operand.place]
                forms = {"P": place.noun, "A": place.adjective, "S": place.possessive}
                slots |= {f"{key}{index}": words for key, words in forms.items()}
                slots[f"B{index}"] = place.name
                if operand is first:
                    slots |= forms
        return slots

    def _noun_phrase(self, operand: Operand, head: str) -> str:
        """Word one operand in full: "frogs of Peru", "Peruvian frogs", "Peru's frogs"."""
        if not operand.place:
            return head
        place = places()[operand.place]
        draw = self._rng.random()
        if draw < 0.22 and place.adjective:
            return f"{place.adjective} {head}"
        if draw > 0.92:
            return f"{place.possessive} {head}"
        return f"{head} {self._choice(links()).replace('|', ' ').strip()} {place.noun}"

    def cased(self, phrase: Phrase) -> Phrase:
        """Vary the capitals, and the question mark."""
        draw = self._rng.random()
        text = phrase.text
        if draw < 0.3:
            text = text[0].upper() + text[1:]
        elif draw > 0.8:
            text = text.lower()
        if text.endswith("?") and self._rng.random() < 0.3:
            text = text[:-1]
        return type(phrase)(text, phrase.operands, phrase.cues)


def make_query(
    qid: str,
    template: str,
    operands: Sequence[Operand],
    postings: Mapping[Operand, frozenset[str]],
    word: Callable[[str, Sequence[Operand]], tuple[Wording, Phrase, tuple[str, ...]]],
) -> records.Query:
    """Word operands and compute their sets."""
    wording, phrase, texts = word(template, operands)
    answers = records.answer_sets(template, [postings[operand] for operand in operands])
    return records.Query(
        id=qid,
        text=phrase.text,
        template=template,
        operators=template_operators(template),
        operands=tuple(map(records.Operand, texts, phrase.operands)),
        **answers._asdict(),
        domain=operands[0].group.domain,
        wording=wording.name,
    )


def has_words(slots: frozenset[str], operands: Sequence[Operand]) -> bool:
    """Say whether every place has the adjective a skeleton needs."""
    needed = [operands[int(slot[1:] or 0)].place for slot in sorted(slots) if slot[0] == "A"]
    return all(places()[name].adjective for name in needed)


def _by_skeleton(*, unseen: bool) -> Mapping[str, Mapping[str, Mapping[str, list[Wording]]]]:
    """Return the wordings by template, shape and skeleton."""
    table: dict[str, dict[str, dict[str, list[Wording]]]] = {}
    for template, row in wordings().items():
        for wording in row:
            if wording.is_unseen == unseen:
                shapes = table.setdefault(template, {}).setdefault(wording.shape, {})
                shapes.setdefault(wording.skeleton, []).append(wording)
    return table

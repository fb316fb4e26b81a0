"""Queries of one domain: operands chosen so that every operator matters, with exact sets."""

from __future__ import annotations

import random
import re
from collections import Counter, defaultdict
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

from benchmark_data.domains.items import Value, stems
from benchmark_data.domains.wordings import STRUCTURES, Speaker, Worded
from boolattn.data.records import answer_sets
from boolattn.query.operators import Operator
from boolattn.query.structure import operand_signs, template_operators, template_tree
from boolattn.query.tree import answers

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from benchmark_data.domains.items import Decided

    Sets = Mapping[Value, frozenset[str]]

_MIN_MEMBERS, _MIN_GOLD = 5, 3
#: A NOT excludes at least two documents, and one for so many relevant ones.
_MAX_GOLD_SHARE = 8
_TRIES = 60
#: Words that look like operators inside a name.
CUE_WORDS = re.compile(r"\w\W+(?:and|or|not|without|except|but|nor|no)\W+\w", re.IGNORECASE)
#: A query takes at most so many undecided documents for each relevant one.
_MAX_UNDECIDED = 2


class Planner:
    """Chooses operands over the facets of one domain."""

    def __init__(self, domain: str, documents: Sequence[Decided], max_judged: int) -> None:
        self.domain, self.max_judged = domain, max_judged
        yes, maybe = defaultdict(set), defaultdict(set)
        for one in documents:
            for value in one.yes:
                yes[value].add(one.item.id)
            for value in one.maybe:
                maybe[value].add(one.item.id)
        self.yes = {v: frozenset(own) for v, own in yes.items() if len(own) >= _MIN_MEMBERS}
        self.possible = {v: own | maybe[v] for v, own in self.yes.items()}
        self._everything = frozenset(one.item.id for one in documents)
        # Numbers instead of values: counting them is most of the work.
        self._values = sorted(self.yes)
        numbers = {value: number for number, value in enumerate(self._values)}
        self._facets = {
            one.item.id: [numbers[value] for value in one.yes if value in numbers]
            for one in documents
        }
        by_kind = defaultdict(list)
        for value in sorted(self.yes):
            if len(self.yes[value]) <= max_judged:
                by_kind[value.kind].append(value)
        self._by_kind = [own for _, own in sorted(by_kind.items())]
        self._weights = [len(own) ** 0.5 for own in self._by_kind]
        #: Values with few enough documents to be asked alone.
        self.narrow = [value for own in self._by_kind for value in own]

    def draw(self, template: str, rng: random.Random) -> tuple[Value, ...] | None:
        """Draw operands; ``None`` where the tries did not find any."""
        for _ in range(_TRIES):
            operands = self._propose(template, rng)
            if operands and self._is_good(template, operands):
                return operands
        return None

    def _propose(self, template: str, rng: random.Random) -> tuple[Value, ...] | None:
        signs = list(operand_signs(template_tree(template, ["_"] * template.count("_"))))
        is_or = template.startswith("_ or")
        [kind] = rng.choices(self._by_kind, self._weights)
        chosen = [rng.choice(kind)]
        current = self.yes[chosen[0]]
        for sign in signs[1:]:
            if is_or and sign > 0:
                value = rng.choice(kind if rng.random() < 0.75 else rng.choice(self._by_kind))
                current = current | self.yes[value]
            else:
                beside = Counter(chain.from_iterable(map(self._facets.__getitem__, current)))
                common = [number for number, n in beside.items() if 1 < n < len(current)]
                if not common:
                    return None
                value = self._values[rng.choice(sorted(common))]
                if sign > 0:
                    current = current & self.yes[value]
            chosen.append(value)
        return tuple(chosen)

    def _is_good(self, template: str, operands: Sequence[Value]) -> bool:
        words = [set(stems(value.name)) for value in operands]
        if any(a <= b for i, a in enumerate(words) for j, b in enumerate(words) if i != j):
            return False
        sets = self.sets(template, operands)
        n_gold = len(sets["gold"])
        n_excluded = len(sets["excluded"])
        if n_gold < _MIN_GOLD or n_gold + n_excluded > self.max_judged:
            return False
        is_negated = Operator.NOT in template_operators(template)
        if is_negated and n_excluded < max(2, n_gold / _MAX_GOLD_SHARE):
            return False
        if len(sets["undecided"]) > _MAX_UNDECIDED * n_gold:
            return False
        return all(self._matters(template, operands, index) for index in range(len(operands)))

    def _matters(self, template: str, operands: Sequence[Value], index: int) -> bool:
        """Say whether the answer changes without one operand."""
        names = [str(number) for number in range(len(operands))]
        tree = template_tree(template, names)
        members = dict(zip(names, (self.yes[value] for value in operands), strict=True))
        gold = answers(tree, members)
        is_and = list(operand_signs(tree))[index] > 0 and not template.startswith("_ or")
        members[names[index]] = self._everything if is_and else frozenset()
        return len(operands) == 1 or answers(tree, members) != gold

    def sets(self, template: str, operands: Sequence[Value]) -> dict[str, frozenset[str]]:
        """Return what is relevant, excluded, partly matching and undecided, each for certain."""
        signs = operand_signs(template_tree(template, ["_"] * len(operands)))
        pairs = list(zip(operands, signs, strict=True))
        certain = [self.yes[v] if sign > 0 else self.possible[v] for v, sign in pairs]
        possible = [self.possible[v] if sign > 0 else self.yes[v] for v, sign in pairs]
        gold = answer_sets(template, certain).gold
        undecided = answer_sets(template, possible).gold - gold
        plain = answer_sets(template, [self.yes[v] for v in operands])
        return {
            "gold": gold,
            "excluded": plain.excluded - undecided,
            "partial": plain.partial - undecided,
            "undecided": undecided,
        }


def generate(
    planner: Planner, documents: Sequence[Decided], split: str, counts: Mapping[str, int]
) -> Iterator[dict[str, Any]]:
    """Generate the queries of a split: as many of each structure as ``counts`` says."""
    for structure, count in counts.items():
        rng = random.Random(f"{planner.domain} {split} {structure}")
        speaker = Speaker(planner.domain, split, rng)
        rows: Iterator[dict[str, Any]]
        if structure in ("known", "name"):
            rows = _items(planner, documents, structure, rng)
            if structure == "name":
                rows = chain(islice(_names(planner, speaker, rng), count // 2), rows)
        else:
            rows = _queries(planner, speaker, structure, rng, count)
        seen: set[str] = set()
        for row in rows:
            if len(seen) == count:
                break
            if row["text"] not in seen:
                row["id"] = f"{planner.domain}-{split}-{structure}-{len(seen):04}"
                seen.add(row["text"])
                yield row


def _queries(
    planner: Planner, speaker: Speaker, structure: str, rng: random.Random, count: int
) -> Iterator[dict[str, Any]]:
    templates = [name for name in dict.fromkeys(STRUCTURES.values()) if name != "_"]
    for _ in range(20 * count):
        is_explicit = structure == "explicit"
        template = rng.choice(templates) if is_explicit else STRUCTURES[structure]
        operands = planner.draw(template, rng)
        if operands is None:
            continue
        if is_explicit:
            worded = speaker.explicit(template, operands)
            found = worded and ("seen:explicit/0", worded)
        else:
            found = speaker.word(structure, operands)
        if found:
            yield _row(planner, template, operands, *found)


def _names(planner: Planner, speaker: Speaker, rng: random.Random) -> Iterator[dict[str, Any]]:
    """Ask for single values with a word in their names that looks like an operator."""
    named = [v for v in planner.narrow if CUE_WORDS.search(v.name)]
    for value in rng.sample(named, len(named)):
        if found := speaker.word("single", (value,)):
            row = _row(planner, "_", (value,), *found)
            yield {**row, "wording": row["wording"].partition(":")[0] + ":name/1"}


def _items(
    planner: Planner, documents: Sequence[Decided], structure: str, rng: random.Random
) -> Iterator[dict[str, Any]]:
    """Ask for single documents by title, or by words of the text where there is no title."""
    titles = Counter(one.item.title.lower() for one in documents)
    for one in rng.sample(list(documents), len(documents)):
        title = one.item.title
        if titles[title.lower()] > 1 and title:
            continue
        text = title or " ".join(one.item.text.split()[2:14])
        if (structure == "name") != bool(CUE_WORDS.search(title)) or not text:
            continue
        worded = Worded(text, (text,), (((0, len(text)),),))
        sets = {"gold": frozenset({one.item.id})}
        yield _row(planner, "_", (), f"seen:{structure}/0", worded, sets)


def _row(
    planner: Planner,
    template: str,
    operands: Sequence[Value],
    wording: str,
    worded: Worded,
    sets: Mapping[str, frozenset[str]] | None = None,
) -> dict[str, Any]:
    found = sets or planner.sets(template, operands)
    parts = zip(worded.operands, worded.spans, strict=True)
    return {
        "id": "",
        "text": worded.text,
        "template": template,
        "operators": [operator.value for operator in template_operators(template)],
        "operands": [{"text": text, "spans": spans} for text, spans in parts],
        **{
            name: sorted(found.get(name, ()))
            for name in ("gold", "excluded", "partial", "undecided")
        },
        "domain": planner.domain,
        "wording": wording,
        "values": [[value.kind, value.name] for value in operands],
    }

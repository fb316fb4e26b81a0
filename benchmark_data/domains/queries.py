"""Queries of one domain: operands chosen so that every operator matters, with exact sets."""

from __future__ import annotations

import random
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

from benchmark_data.domains.items import Decided, Value, stems
from benchmark_data.domains.kinds import PREFIX, Kind
from benchmark_data.domains.wordings import STRUCTURES, Speaker, Worded
from boolattn.data.records import answer_sets
from boolattn.query.syntax import template_operators, template_tree
from boolattn.query.tree import Operator, answers, signed_atoms

if TYPE_CHECKING:
    IdSets = Mapping[str, Iterable[str]]
    Phrased = tuple[str, Worded]  # the name of a wording, and the query

_MIN_MEMBERS, _MIN_GOLD = 5, 3
#: A NOT excludes at least two documents, and one for so many relevant ones.
_MAX_GOLD_SHARE = 8
_TRIES = 60
_SETS = ("gold", "excluded", "partial", "undecided")
#: Words that look like operators inside a name.
CUE_WORDS = re.compile(r"\w\W+(?:and|or|not|without|except|but|nor|no)\W+\w", re.IGNORECASE)
#: A query takes at most so many undecided documents for each relevant one.
_MAX_UNDECIDED = 2


class Planner:
    """Chooses operands over the facets of one domain."""

    def __init__(
        self, domain: str, documents: Sequence[Decided], max_judged: int, kinds: Sequence[Kind] = ()
    ) -> None:
        self.domain, self.max_judged = domain, max_judged
        yes, maybe = defaultdict(set), defaultdict(set)
        for decided in documents:
            for value in decided.yes:
                yes[value].add(decided.item.id)
            for value in decided.maybe:
                maybe[value].add(decided.item.id)
        for kind in kinds:
            yes[kind.value], maybe[kind.value] = kind.yes, kind.maybe
        self.yes = {v: frozenset(ids) for v, ids in yes.items() if len(ids) >= _MIN_MEMBERS}
        self.possible = {v: ids | maybe[v] for v, ids in self.yes.items()}
        self._everything = frozenset(decided.item.id for decided in documents)
        # Numbers instead of values: counting them is most of the work.
        self._values = sorted(self.yes)
        self._facets = defaultdict(list)
        self._wider = [kind.value for kind in kinds if kind.value in self.yes]
        by_kind = defaultdict(list)
        for number, value in enumerate(self._values):
            for document in self.yes[value]:
                self._facets[document].append(number)
            if len(self.yes[value]) <= max_judged and value not in self._wider:
                by_kind[value.kind].append(value)
        self._by_kind = [values for _, values in sorted(by_kind.items())]
        self._weights = [len(values) ** 0.5 for values in self._by_kind]
        #: Values with few enough documents to be asked alone.
        self.narrow = [value for values in self._by_kind for value in values]

    def draw(self, template: str, rng: random.Random) -> tuple[Value, ...] | None:
        """Draw operands; ``None`` where the tries did not find any."""
        for _ in range(_TRIES):
            operands = (self._propose_kind if self._wider else self._propose)(template, rng)
            if operands and self._is_good(template, operands):
                return operands
        return None

    def _propose(self, template: str, rng: random.Random) -> tuple[Value, ...] | None:
        atoms = signed_atoms(template_tree(template, ["_"] * template.count("_")))
        is_or = template.startswith("_ or")
        [kind] = rng.choices(self._by_kind, self._weights)
        chosen = [rng.choice(kind)]
        current = self.yes[chosen[0]]
        for _, sign in islice(atoms, 1, None):
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

    def _propose_kind(self, template: str, rng: random.Random) -> tuple[Value, ...] | None:
        """Propose a value with kinds after it, or a kind alone."""
        last = rng.choice(self._wider)
        narrow = sorted(self._beside(self.yes[last]).intersection(self.narrow))
        if template == "_" or not narrow:
            return (last,) if template == "_" else None
        first = rng.choice(narrow)
        others = sorted(self._beside(self.yes[first]).intersection(self._wider) - {last})
        n_others = template.count("_") - 2
        return (first, *rng.sample(others, n_others), last) if len(others) >= n_others else None

    def _beside(self, documents: frozenset[str]) -> set[Value]:
        """Return the values that at least two of the documents have."""
        counts = Counter(chain.from_iterable(map(self._facets.__getitem__, documents)))
        return {self._values[number] for number, n in counts.items() if n > 1}

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
        is_and = list(signed_atoms(tree))[index][1] > 0 and not template.startswith("_ or")
        members[names[index]] = self._everything if is_and else frozenset()
        return len(operands) == 1 or answers(tree, members) != gold

    def sets(self, template: str, operands: Sequence[Value]) -> dict[str, frozenset[str]]:
        """Return what is relevant, excluded, partly matching and undecided, each for certain."""
        atoms = signed_atoms(template_tree(template, ["_"] * len(operands)))
        pairs = [(value, sign) for value, (_, sign) in zip(operands, atoms, strict=True)]
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
        yield from numbered(rows, f"{planner.domain}-{split}-{structure}", count)


def numbered(rows: Iterable[dict[str, Any]], name: str, count: int) -> Iterator[dict[str, Any]]:
    """Number queries, up to ``count``, each text once."""
    seen: set[str] = set()
    for row in rows:
        if len(seen) == count:
            break
        if row["text"] not in seen:
            row["id"] = f"{name}-{len(seen):04}"
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
            wording = worded and ("seen:explicit/0", worded)
        else:
            spoken = [Value(v.kind.removeprefix(PREFIX), v.name) for v in operands]
            wording = speaker.word(structure, spoken)
        if wording:
            sets = planner.sets(template, operands)
            yield query_row(planner.domain, template, operands, wording, sets)


def _names(planner: Planner, speaker: Speaker, rng: random.Random) -> Iterator[dict[str, Any]]:
    """Ask for single values with a word in their names that looks like an operator."""
    named = [v for v in planner.narrow if CUE_WORDS.search(v.name)]
    for value in rng.sample(named, len(named)):
        if wording := speaker.word("single", (value,)):
            sets = planner.sets("_", (value,))
            row = query_row(planner.domain, "_", (value,), wording, sets)
            yield {**row, "wording": row["wording"].partition(":")[0] + ":name/1"}


def _items(
    planner: Planner, documents: Sequence[Decided], structure: str, rng: random.Random
) -> Iterator[dict[str, Any]]:
    """Ask for single documents by title, or by words of the text where there is no title."""
    titles = Counter(document.item.title.lower() for document in documents)
    for document in rng.sample(list(documents), len(documents)):
        title = document.item.title
        if titles[title.lower()] > 1 and title:
            continue
        text = title or " ".join(document.item.text.split()[2:14])
        if (structure == "name") != bool(CUE_WORDS.search(title)) or not text:
            continue
        worded = Worded(text, (text,), (((0, len(text)),),))
        sets = {"gold": frozenset({document.item.id})}
        yield query_row(planner.domain, "_", (), (f"seen:{structure}/0", worded), sets)


def query_row(
    domain: str, template: str, operands: Sequence[Value], phrased: Phrased, sets: IdSets
) -> dict[str, Any]:
    """Return a query as it is written, without its id."""
    wording, worded = phrased
    pairs = zip(worded.operands, worded.spans, strict=True)
    return {
        "id": "",
        "text": worded.text,
        "template": template,
        "operators": [operator.value for operator in template_operators(template)],
        "operands": [{"text": text, "spans": spans} for text, spans in pairs],
        **{name: sorted(sets.get(name, ())) for name in _SETS},
        "domain": domain,
        "wording": wording,
        "values": [[value.kind, value.name] for value in operands],
    }

"""Queries made from QUEST's categories: more training, and a validation large enough to trust.

A category file gives exact sets, so every query made from it has exact gold, excluded and partly
matching documents. Training never uses a category that a validation or test query names,
generated validation uses only categories that no training query names or is made from, and what
models are chosen by uses those that neither does.
May import: boolattn.data, boolattn.logic, boolattn.errors.
"""

from __future__ import annotations

import random
import re
from collections import defaultdict
from dataclasses import dataclass, replace
from itertools import permutations
from math import factorial
from typing import TYPE_CHECKING

from boolattn.data.records import Operand, Query, answer_sets
from boolattn.errors import ConfigError, MissingDataError
from boolattn.logic.templates import TEMPLATES, template_operators
from boolattn.logic.tree import And, Atom, Not, Or

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from boolattn.data.quest import Quest
    from boolattn.data.records import AnswerSets

#: By template, wordings by name; ``{0}`` is the first operand. "quest" is QUEST's own.
WORDINGS: Mapping[str, Mapping[str, str]] = {
    "_": {"quest": "{0}", "list": "list of {0}", "what": "what are some {0}?"},
    "_ or _": {
        "quest": "{0} or {1}",
        "either": "either {0} or {1}",
        "what": "what are {0} or {1}?",
    },
    "_ or _ or _": {
        "quest": "{0} or {1} or {2}",
        "comma": "{0}, {1}, or {2}",
        "either": "either {0}, {1} or {2}",
    },
    "_ that are also _": {
        "quest": "{0} that are also {1}",
        "both": "both {0} and {1}",
        "well": "{0} that are {1} as well",
        "which": "which {1} are also {0}?",
    },
    "_ that are also both _ and _": {
        "quest": "{0} that are also both {1} and {2}",
        "list": "{0} that are {1} and {2}",
        "well": "{0} that are {1} as well as {2}",
    },
    "_ that are not _": {
        "quest": "{0} that are not {1}",
        "but": "{0} but not {1}",
        "excluding": "{0} excluding {1}",
        "other": "{0} other than {1}",
        "what": "what are {0} except {1}?",
    },
    "_ that are also _ but not _": {
        "quest": "{0} that are also {1} but not {2}",
        "excluding": "{0} that are {1}, excluding {2}",
        "without": "both {0} and {1}, without {2}",
        "which": "which {1} are {0} but not {2}?",
    },
}

# A category of one document gives queries that only its name can answer.
_MIN_MEMBERS = 2

_SLOT = re.compile(r"\{(\d)\}")


@dataclass(frozen=True, slots=True, kw_only=True)
class CategorySplit:
    """Categories by what may be made of them; no category is in both."""

    train: Mapping[str, frozenset[str]]
    held_out: Mapping[str, frozenset[str]]


def split_categories(quest: Quest, *, seed: int = 0, share: float = 0.2) -> CategorySplit:
    """Divide QUEST's categories into those for training and those for validation.

    Categories are held out by the documents they share, not one by one: an intersection of
    held-out categories needs several that meet in one document.

    Args:
        quest: Loaded with its category file and with every split that must stay unseen.
        seed: Another seed holds out other categories.
        share: Share of the categories free to choose from that is held out.
    """
    if not quest.categories:
        raise MissingDataError(
            f"{quest.name} has no category file; put categories.jsonl beside its queries"
        )
    if not 0.0 < share < 1.0:
        raise ConfigError(f"the share held out must be between 0 and 1, got {share}")
    usable = {n: d for n, d in sorted(quest.categories.items()) if len(d) >= _MIN_MEMBERS}
    trained = _named(quest, is_training=True)
    unseen = _named(quest, is_training=False)
    held_out = {name for name in usable if name in unseen and name not in trained}
    free = {name for name in usable if name not in unseen and name not in trained}
    n_wanted = len(held_out) + round(share * len(free))
    by_document = _by_document({name: usable[name] for name in free | held_out})
    meeting_points = sorted(d for d, names in by_document.items() if len(names) > 1)
    random.Random(seed).shuffle(meeting_points)
    for document in meeting_points:
        if len(held_out) >= n_wanted:
            break
        held_out.update(by_document[document])
    return CategorySplit(
        train={n: d for n, d in usable.items() if n not in held_out and n not in unseen},
        held_out={n: d for n, d in usable.items() if n in held_out},
    )


def generated_training(
    quest: Quest, n: int = 5000, *, seed: int = 0, templates: Sequence[str] = tuple(TEMPLATES)
) -> tuple[Query, ...]:
    """Make augmented training queries that use no held-out category."""
    pool = split_categories(quest, seed=seed).train
    return generate_queries(pool, n, seed=seed, templates=templates, prefix="generated-train")


def generated_validation(quest: Quest, n: int = 2000, *, seed: int = 0) -> tuple[Query, ...]:
    """Make validation queries in all seven templates over categories unseen in training.

    Only training made by :func:`generated_training` with the same seed leaves them unseen.
    """
    pool = split_categories(quest, seed=seed).held_out
    return generate_queries(pool, n, seed=seed, prefix="generated-val")


def generated_choice(
    quest: Quest, trained: Sequence[Query], n: int = 1000, *, seed: int = 0
) -> tuple[Query, ...]:
    """Make queries to choose models and numbers by, over categories left over by training.

    What a model was trained on it finds far better than anything else, so numbers chosen there
    suit no other query; and what is reported must not choose. Categories left over are few and
    seldom meet, so some templates get fewer queries, or none.

    Args:
        quest: As in :func:`split_categories`.
        trained: All queries that are trained on, those of :func:`generated_training` too.
        n: How many to make, if there are so many.
        seed: As in :func:`generated_training`.
    """
    named = {operand.text for query in trained for operand in query.operands}
    pool = split_categories(quest, seed=seed).train
    free = {name: documents for name, documents in pool.items() if name not in named}
    return generate_queries(free, n, seed=seed, prefix="generated-choice")


def with_generated(
    quest: Quest, *, n_train: int = 5000, n_val: int = 2000, n_choice: int = 1000, seed: int = 0
) -> Quest:
    """Add ``generated_train``, ``generated_val`` and ``generated_choice`` to a loaded QUEST."""
    made = generated_training(quest, n_train, seed=seed)
    trained = (*quest.splits.get("train", ()), *made)
    return replace(
        quest,
        splits={
            **quest.splits,
            "generated_train": made,
            "generated_val": generated_validation(quest, n_val, seed=seed),
            "generated_choice": generated_choice(quest, trained, n_choice, seed=seed),
        },
    )


def generate_queries(
    categories: Mapping[str, frozenset[str]],
    n: int,
    *,
    seed: int,
    templates: Sequence[str] = tuple(TEMPLATES),
    prefix: str = "generated",
) -> tuple[Query, ...]:
    """Make queries over categories, as many of each template as of any other.

    Every two operands share a document. An OR needs each of its operands, an AND answers with
    less than any one of them, a NOT excludes something. Those with several answers come before
    those with one, because categories are small and most intersections hold one. When a
    template has fewer such combinations than wanted, fewer queries come back.

    Args:
        categories: Documents of each category.
        n: How many to make.
        seed: Equal seeds give equal queries.
        templates: Those to use.
        prefix: Of the ids.
    """
    if unknown := [template for template in templates if template not in TEMPLATES]:
        raise ConfigError(f"unknown template {unknown[0]!r}; known: {', '.join(TEMPLATES)}")
    generator = random.Random(seed)
    groups = _meeting_groups(categories)
    queries: list[Query] = []
    for place, template in enumerate(templates):
        n_wanted = n // len(templates) + (place < n % len(templates))
        several: list[_Choice] = []
        single: list[_Choice] = []
        for choice in _choices(template, groups[TEMPLATES[template][0]], categories, generator):
            (several if len(choice.sets.gold) > 1 else single).append(choice)
            if len(several) >= n_wanted:
                break
        for choice in (several + single)[:n_wanted]:
            qid = f"{prefix}-{len(queries)}"
            queries.append(_worded(qid, template, choice, generator))
    return tuple(queries)


@dataclass(frozen=True, slots=True)
class _Choice:
    """Operands for a template, and what they name."""

    names: tuple[str, ...]
    members: tuple[frozenset[str], ...]
    sets: AnswerSets


def _choices(
    template: str,
    groups: Sequence[tuple[str, ...]],
    categories: Mapping[str, frozenset[str]],
    generator: random.Random,
) -> Iterator[_Choice]:
    """Go through the groups in a random order, each in the first order of operands that works."""
    for group in generator.sample(groups, len(groups)):
        for names in generator.sample(list(permutations(group)), factorial(len(group))):
            members = [categories[name] for name in names]
            sets = answer_sets(template, members)
            if _is_worthwhile(template, members, sets):
                yield _Choice(names, tuple(members), sets)
                break


def _named(quest: Quest, *, is_training: bool) -> frozenset[str]:
    """Collect the categories that the training files name, or those that all others name."""
    splits = [split for split in quest.splits if split.startswith("train") is is_training]
    named = set().union(*(quest.named[split] for split in splits))
    # Augmented queries do not mark their operands, but are written with the categories' names.
    names = {_folded(name): name for name in quest.categories}
    for split in splits:
        for query in quest.splits[split]:
            if not query.operands:
                named.update(_mentioned(query.text, names))
    return frozenset(named)


def _folded(text: str) -> str:
    return " ".join(re.findall(r"[\w'()-]+", text.casefold()))


def _mentioned(text: str, names: Mapping[str, str]) -> set[str]:
    words = _folded(text).split()
    runs = (" ".join(words[i:j]) for i in range(len(words)) for j in range(i + 1, len(words) + 1))
    return {names[run] for run in runs if run in names}


def _by_document(categories: Mapping[str, frozenset[str]]) -> dict[str, list[str]]:
    index: dict[str, list[str]] = defaultdict(list)
    for name, documents in categories.items():
        for document in documents:
            index[document].append(name)
    return index


def _meeting_groups(
    categories: Mapping[str, frozenset[str]],
) -> dict[int, list[tuple[str, ...]]]:
    """List the groups of one, two and three categories of which every two share a document.

    Sorted throughout, because the order of a set differs from one run to the next.
    """
    index = _by_document(categories)
    after = {
        name: frozenset(o for d in categories[name] for o in index[d] if o > name)
        for name in categories
    }
    pairs = [(first, second) for first in sorted(after) for second in sorted(after[first])]
    return {
        1: [(name,) for name in sorted(categories)],
        2: [*pairs],
        3: [
            (first, second, third)
            for first, second in pairs
            for third in sorted(after[first] & after[second])
        ],
    }


def _is_worthwhile(template: str, members: list[frozenset[str]], sets: AnswerSets) -> bool:
    """Tell whether a query has an answer that no simpler query over its operands has."""
    tree = TEMPLATES[template][1]([Atom(str(place)) for place in range(len(members))])
    match tree:
        case Or():
            rest = (members[:i] + members[i + 1 :] for i in range(len(members)))
            return all(
                not own <= frozenset().union(*others)
                for own, others in zip(members, rest, strict=True)
            )
        case And(parts):
            has_exclusion = any(isinstance(part, Not) for part in parts)
            kept = members[:-1] if has_exclusion else members
            in_all = sets.gold | sets.excluded
            return (
                bool(sets.gold)
                and (bool(sets.excluded) or not has_exclusion)
                and (len(kept) == 1 or all(own != in_all for own in kept))
            )
        case _:
            return bool(sets.gold)


def _worded(qid: str, template: str, choice: _Choice, generator: random.Random) -> Query:
    names, sets = choice.names, choice.sets
    wording, pattern = generator.choice(list(WORDINGS[template].items()))
    text = ""
    spans: dict[int, tuple[int, int]] = {}
    for place, piece in enumerate(_SLOT.split(pattern)):
        if place % 2:
            operand = names[int(piece)]
            spans[int(piece)] = (len(text), len(text) + len(operand))
            text += operand
        else:
            text += piece
    return Query(
        id=qid,
        text=text,
        gold=sets.gold,
        template=template,
        operators=template_operators(template),
        operands=tuple(
            Operand(name, (spans[i],), own)
            for i, (name, own) in enumerate(zip(names, choice.members, strict=True))
        ),
        excluded=sets.excluded,
        partial=sets.partial,
        wording=wording,
    )

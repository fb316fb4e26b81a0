"""Queries generated from QUEST's categories, with exact gold, excluded and partial documents.

Generated training uses no category of a validation or test query. Generated validation uses only
categories of no training query, and the queries for model selection use those left over.
"""

from __future__ import annotations

import random
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import permutations
from math import factorial
from typing import TYPE_CHECKING

from boolattn.data.records import AnswerSets, Operand, Query, answer_sets
from boolattn.errors import ConfigError, MissingDataError
from boolattn.files import package_table
from boolattn.query.syntax import TEMPLATES, template_operators, template_tree
from boolattn.query.tree import And, Not, Or

if TYPE_CHECKING:
    from boolattn.data.quest import Quest

# A category of one document is found by its name alone.
_MIN_MEMBERS = 2

_SLOT = re.compile(r"\{(\d)\}")


@dataclass(frozen=True, slots=True, kw_only=True)
class CategorySplit:
    """Categories for training and for validation, disjoint."""

    train: Mapping[str, frozenset[str]]
    held_out: Mapping[str, frozenset[str]]


def split_categories(quest: Quest, *, seed: int = 0, share: float = 0.2) -> CategorySplit:
    """Divide QUEST's categories into those for training and those for validation.

    Categories that share a document are held out together, because an intersection of held-out
    categories needs several with a common document.

    Args:
        quest: With its category file and every split that must stay unseen.
        seed: Selects the held-out categories.
        share: Share of the categories of no query that is held out.
    """
    if not quest.categories:
        raise MissingDataError(
            f"{quest.name} has no category file; put categories.jsonl beside its queries"
        )
    if not 0.0 < share < 1.0:
        raise ConfigError(f"the held-out share must be between 0 and 1, got {share}")
    usable = {n: d for n, d in sorted(quest.categories.items()) if len(d) >= _MIN_MEMBERS}
    trained = _named(quest, is_training=True)
    unseen = _named(quest, is_training=False)
    held_out = {name for name in usable if name in unseen and name not in trained}
    free = {name for name in usable if name not in unseen and name not in trained}
    n_held_out = len(held_out) + round(share * len(free))
    by_document = _by_document({name: usable[name] for name in free | held_out})
    shared_documents = sorted(d for d, names in by_document.items() if len(names) > 1)
    random.Random(seed).shuffle(shared_documents)
    for document in shared_documents:
        if len(held_out) >= n_held_out:
            break
        held_out.update(by_document[document])
    return CategorySplit(
        train={n: d for n, d in usable.items() if n not in held_out and n not in unseen},
        held_out={n: d for n, d in usable.items() if n in held_out},
    )


def with_generated(
    quest: Quest, *, n_train: int = 5000, n_val: int = 2000, n_choice: int = 1000, seed: int = 0
) -> Quest:
    """Add three splits to a loaded QUEST.

    ``generated_train`` has no held-out category and ``generated_val`` no other.
    ``generated_choice``, for model selection, has categories of no training query: settings
    selected on training queries suit no others, and reported queries must not select. Few
    categories are left over, so some templates get fewer queries, or none.
    """
    pools = split_categories(quest, seed=seed)
    train = generate_queries(pools.train, n_train, seed=seed, prefix="generated-train")
    trained = (*quest.splits.get("train", ()), *train)
    named = {operand.text for query in trained for operand in query.operands}
    free = {name: documents for name, documents in pools.train.items() if name not in named}
    generated = {
        "generated_train": train,
        "generated_val": generate_queries(pools.held_out, n_val, seed=seed, prefix="generated-val"),
        "generated_choice": generate_queries(free, n_choice, seed=seed, prefix="generated-choice"),
    }
    return replace(quest, splits={**quest.splits, **generated})


def generate_queries(
    categories: Mapping[str, frozenset[str]],
    n: int,
    *,
    seed: int,
    templates: Sequence[str] = tuple(TEMPLATES),
    prefix: str = "generated",
) -> tuple[Query, ...]:
    """Generate queries over categories, equally many of each template.

    Every two operands share a document. An OR needs each of its operands, an AND has fewer
    answers than any of them, a NOT excludes something. Combinations with several answers come
    first, because most intersections have one. Where a template has too few combinations, fewer
    queries are returned.
    """
    if unknown := [template for template in templates if template not in TEMPLATES]:
        raise ConfigError(f"unknown template {unknown[0]!r}; known: {', '.join(TEMPLATES)}")
    generator = random.Random(seed)
    groups = _overlapping_groups(categories)
    queries: list[Query] = []
    for index, template in enumerate(templates):
        n_queries = n // len(templates) + (index < n % len(templates))
        several: list[_Choice] = []
        single: list[_Choice] = []
        for choice in _choices(template, groups[template.count("_")], categories, generator):
            (several if len(choice.sets.gold) > 1 else single).append(choice)
            if len(several) >= n_queries:
                break
        for choice in (several + single)[:n_queries]:
            qid = f"{prefix}-{len(queries)}"
            queries.append(_worded(qid, template, choice, generator))
    return tuple(queries)


@dataclass(frozen=True, slots=True)
class _Choice:
    """Operands for a template, their members and the query's sets."""

    names: tuple[str, ...]
    members: tuple[frozenset[str], ...]
    sets: AnswerSets


def _choices(
    template: str,
    groups: Sequence[tuple[str, ...]],
    categories: Mapping[str, frozenset[str]],
    generator: random.Random,
) -> Iterator[_Choice]:
    """Yield groups in random order, each with the first order of operands that is useful."""
    for group in generator.sample(groups, len(groups)):
        for names in generator.sample(list(permutations(group)), factorial(len(group))):
            members = [categories[name] for name in names]
            sets = answer_sets(template, members)
            if _is_useful(template, members, sets):
                yield _Choice(names, tuple(members), sets)
                break


def _named(quest: Quest, *, is_training: bool) -> frozenset[str]:
    """Return the categories of the training splits, or of all other splits."""
    splits = [split for split in quest.splits if split.startswith("train") is is_training]
    named = set().union(*(quest.named[split] for split in splits))
    # Augmented queries do not label their operands, but contain the categories' names.
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


def _overlapping_groups(
    categories: Mapping[str, frozenset[str]],
) -> dict[int, list[tuple[str, ...]]]:
    """Return the groups of one to three categories that pairwise share a document, sorted."""
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


def _is_useful(template: str, members: list[frozenset[str]], sets: AnswerSets) -> bool:
    """Say whether every operand and operator of a query changes its answer."""
    tree = template_tree(template, [str(index) for index in range(len(members))])
    match tree:
        case Or():
            rest = (members[:i] + members[i + 1 :] for i in range(len(members)))
            return all(
                not documents <= frozenset().union(*others)
                for documents, others in zip(members, rest, strict=True)
            )
        case And(operands):
            has_negation = any(isinstance(part, Not) for part in operands)
            positive = members[:-1] if has_negation else members
            in_all = sets.gold | sets.excluded
            return (
                bool(sets.gold)
                and (bool(sets.excluded) or not has_negation)
                and (len(positive) == 1 or all(documents != in_all for documents in positive))
            )
        case _:
            return bool(sets.gold)


def _worded(qid: str, template: str, choice: _Choice, generator: random.Random) -> Query:
    names, sets = choice.names, choice.sets
    table = package_table("experiments", "quest_queries.toml")
    wording, pattern = generator.choice(list(table[template].items()))
    text = ""
    spans: dict[int, tuple[int, int]] = {}
    for index, piece in enumerate(_SLOT.split(pattern)):
        if index % 2:
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
            Operand(name, (spans[i],), documents)
            for i, (name, documents) in enumerate(zip(names, choice.members, strict=True))
        ),
        excluded=sets.excluded,
        partial=sets.partial,
        wording=wording,
    )

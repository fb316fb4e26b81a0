"""How well a model reads plain text, and how far the probabilities it composes can be trusted.

Two things a ranking does not show: how often a name with a cue word in it ("Romeo and Juliet") is
taken apart, and whether documents said to belong to an operand with probability .8 belong to it in
8 of 10 cases. May import: boolattn.composition, boolattn.data, boolattn.logic.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from boolattn.composition.calibration import reliability
from boolattn.composition.scores import signs
from boolattn.data.parser_tests import cue_word_names, unseen_queries
from boolattn.evaluation.operand_samples import drawn_operands, looked_at
from boolattn.logic.tree import And, Not, Or, atoms

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from torch import Tensor

    from boolattn.composition.plan import Plan
    from boolattn.data.records import Query
    from boolattn.encoder.retriever import Retriever
    from boolattn.logic.tree import QueryTree

_AT_ONCE = 256


def shape(tree: QueryTree) -> tuple[int, int, str]:
    """Say how many operands are kept, how many excluded, and what joins the kept.

    >>> from boolattn.logic.tree import Atom
    >>> shape(And((Atom("a"), Atom("b"), Not(Atom("c")))))
    (2, 1, 'and')
    """
    parts = tree.parts if isinstance(tree, And) else (tree,)
    excluded = sum(1 for part in parts if isinstance(part, Not))
    kept = [part for part in parts if not isinstance(part, Not)]
    if len(kept) == 1 and isinstance(kept[0], Or):
        return len(kept[0].parts), excluded, "or"
    return len(kept), excluded, "and"


def has_same_words(first: QueryTree, second: QueryTree) -> bool:
    """Say whether two trees have one shape and operands of the same words, in any order."""
    return shape(first) == shape(second) and _bag(first) == _bag(second)


def word_f1(right: QueryTree, read: QueryTree) -> float:
    """Say how many words of the operands are given to the operands they belong to, as F1.

    Kept operands are laid beside kept ones and excluded beside excluded ones, the likest first.

    >>> from boolattn.logic.tree import Atom
    >>> word_f1(Or((Atom("red moths"), Atom("ants"))), Or((Atom("moths"), Atom("red ants"))))
    0.6666666666666666
    """
    first, second = ([(s, Counter(own)) for s, own in _bag(tree)] for tree in (right, read))
    pairs = [
        ((a & b).total() / max(1, (a | b).total()), (a & b).total(), i, j)
        for i, (sign, a) in enumerate(first)
        for j, (other, b) in enumerate(second)
        if sign == other
    ]
    shared, taken, used = 0, set(), set()
    for _, n, i, j in sorted(pairs, reverse=True):
        if i not in taken and j not in used:
            taken.add(i)
            used.add(j)
            shared += n
    return 2 * shared / max(1, sum(own.total() for _, own in (*first, *second)))


def _bag(tree: QueryTree) -> list[tuple[int, list[str]]]:
    """Return each operand's sign and words; commas between them are no matter of reading."""
    return sorted(
        (sign, re.findall(r"\w+", atom.text.lower()))
        for sign, atom in zip(signs(tree), atoms(tree), strict=True)
    )


def misread_names(retriever: Retriever) -> dict[str, Any]:
    """Count the real names with a cue word in them that a model takes apart.

    Returns:
        ``n`` and ``misread``, and ``kinds``: the same two for each kind of name.
    """
    plans = plan_all(retriever, [name.query for name in cue_word_names()])
    every = Counter(name.kind for name in cue_word_names())
    wrong = Counter(
        n.kind for n, plan in zip(cue_word_names(), plans, strict=True) if plan.is_composed
    )
    return {
        "n": every.total(),
        "misread": wrong.total(),
        "kinds": {kind: {"n": n, "misread": wrong[kind]} for kind, n in every.items()},
    }


def read_fresh(retriever: Retriever) -> dict[str, Any]:
    """Say how many queries in words that nobody here wrote are read right.

    Returns:
        ``n`` and shares: ``structure`` (how many operands are kept and excluded, and what joins
        them), ``obeyed`` (the same of what is scored: a reading that is not trusted is not), and,
        of the queries of several operands, ``words`` (all words of each operand too) and the mean
        ``word_f1``. Then the same by ``forms`` and ``domains``, and for all domains but taxa.
    """
    queries = unseen_queries()
    plans = plan_all(retriever, [query.labelled.text for query in queries])
    rows = []
    for query, plan in zip(queries, plans, strict=True):
        right = query.labelled.parsed.tree(query.labelled.text)
        row = {
            "structure": float(shape(plan.parsed) == shape(right)),
            "obeyed": float(shape(plan.tree) == shape(right)),
        }
        if not query.labelled.parsed.is_plain:
            row["words"] = float(has_same_words(right, plan.parsed))
            row["word_f1"] = word_f1(right, plan.parsed)
        rows.append(row)
    domains = [query.domain for query in queries]
    elsewhere = [row for row, domain in zip(rows, domains, strict=True) if domain != "taxa"]
    return _shares(rows) | {
        "forms": _shares_by([query.form for query in queries], rows),
        "domains": _shares_by(domains, rows),
        "elsewhere": _shares(elsewhere),
    }


def _shares_by(keys: Sequence[str], rows: Sequence[Mapping[str, float]]) -> dict[str, Any]:
    groups: dict[str, list[Mapping[str, float]]] = {}
    for key, row in zip(keys, rows, strict=True):
        groups.setdefault(key, []).append(row)
    return {key: _shares(group) for key, group in groups.items()}


def _shares(rows: Sequence[Mapping[str, float]]) -> dict[str, Any]:
    found: dict[str, Any] = {"n": len(rows)}
    for name in dict.fromkeys(name for row in rows for name in row):
        found[name] = round(float(np.mean([row[name] for row in rows if name in row])), 4)
    return found


def plan_all(retriever: Retriever, texts: Sequence[str]) -> list[Plan]:
    """Read any number of queries."""
    plans: list[Plan] = []
    for start in range(0, len(texts), _AT_ONCE):
        plans += retriever.plan(texts[start : start + _AT_ONCE])
    return plans


def operand_reliability(
    retriever: Retriever,
    queries: Sequence[Query],
    documents: Tensor,
    rows: Mapping[str, int],
    seed: int = 0,
) -> dict[str, Any]:
    """Lay the probabilities of operands beside what belongs to them.

    Operands are told as the queries word them, so what is measured is the calibration and not the
    reading. Of each, the most similar documents are looked at, and others drawn from the corpus:
    most documents are so far away that any calibration is right about them.

    Args:
        retriever: With its calibration.
        queries: Those whose operands' documents are not known, and those of one operand, for which
            no probability is asked, are passed over.
        documents: Vectors of the corpus. Shape ``(documents, dim)``.
        rows: Row of each document, by id.
        seed: For the queries and documents that are drawn.

    Returns:
        For ``kept`` and ``excluded`` operands ten bins, those that are filled: ``said``, ``found``,
        ``count``, the ``error`` over all pairs, most of which are improbable, and the ``bin_error``
        that counts each bin once. Empty where no operand's documents are known.
    """
    operands = drawn_operands(queries, rows, seed)
    if not operands:
        return {}
    logits, is_true = looked_at(retriever, operands, documents, seed)
    is_negated = np.array([operand.is_negated for operand in operands])
    with torch.inference_mode():
        shown = retriever.calibration.shown(
            torch.from_numpy(logits).to(retriever.towers.device, torch.float32),
            torch.from_numpy(is_negated).to(retriever.towers.device),
        )
    said = shown.double().cpu().numpy()
    found: dict[str, Any] = {}
    for name, chosen in (("kept", ~is_negated), ("excluded", is_negated)):
        if chosen.any():
            is_known = ~np.isnan(said[chosen])
            own = reliability(said[chosen][is_known], is_true[chosen][is_known])
            found[name] = {
                "operands": int(chosen.sum()),
                "said": own.said.round(5).tolist(),
                "found": own.found.round(5).tolist(),
                "count": own.count.tolist(),
                "error": round(own.error, 5),
                "bin_error": round(float(np.abs(own.said - own.found).mean()), 5),
            }
    return found

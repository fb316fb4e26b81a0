"""From what a person typed to a plan: the door is chosen, bad queries are refused.

May import: boolattn.composition, boolattn.logic, boolattn.search.result, boolattn.errors.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product
from typing import TYPE_CHECKING

from boolattn.composition.plan import Plan
from boolattn.errors import ConfigError, QueryError
from boolattn.logic.syntax import check_anchored, is_explicit, parse_with_spans
from boolattn.logic.tree import Atom, atoms, excluded_atoms
from boolattn.search.verdicts import probability

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

    from boolattn.encoder.retriever import Retriever
    from boolattn.logic.tree import QueryTree

MODES = ("auto", "plain", "explicit")
#: A tree with more different operands is not checked for contradictions: 2^n cases.
_MAX_CHECKED = 12


@dataclass(frozen=True)
class Question:
    """A query that can be searched.

    Attributes:
        text: As it was typed.
        plan: What is asked of the index.
        is_empty: Whether no document can satisfy it.
        warnings: What the caller should know.
    """

    text: str
    plan: Plan
    is_empty: bool = False
    warnings: tuple[str, ...] = ()


def read_queries(
    retriever: Retriever, texts: Sequence[str], mode: str, *, compose: bool
) -> list[Question]:
    """Plan queries; each door's in one batch.

    Args:
        retriever: Reads and encodes.
        texts: The queries.
        mode: ``plain``, ``explicit``, or ``auto``, which takes explicit syntax where it is used.
        compose: If not, a query is one vector.
    """
    if mode not in MODES:
        raise ConfigError(f"no mode {mode!r}; there are {', '.join(MODES)}")
    for text in texts:
        _check_text(text)
    if not compose:
        # Nothing is read, so that one vector costs what it costs.
        vectors = retriever.encode_queries(texts)
        return [_plain(text, vector) for text, vector in zip(texts, vectors, strict=True)]
    explicit = [mode == "explicit" or (mode == "auto" and is_explicit(text)) for text in texts]
    parsed = [parse_with_spans(text) for text, own in zip(texts, explicit, strict=True) if own]
    for tree, _ in parsed:
        check_anchored(tree)
    spoken = iter(retriever.plan([t for t, own in zip(texts, explicit, strict=True) if not own]))
    given = iter(retriever.plan_trees([tree for tree, _ in parsed]))
    spans = iter([spans for _, spans in parsed])
    found = []
    for text, own in zip(texts, explicit, strict=True):
        if own:
            plan = replace(next(given), spans=tuple((span,) for span in next(spans)))
            found.append(_explicit(text, plan))
        else:
            found.append(_spoken(text, next(spoken)))
    return found


def as_plain(plan: Plan) -> Plan:
    """Return the plan of the query's one vector."""
    if not plan.is_composed:
        return plan
    atom = Atom(plan.text)
    return replace(
        plan,
        tree=atom,
        atoms=(plan.text,),
        spans=(),
        vectors=plan.plain[None],
        is_composed=False,
    )


def is_contradiction(tree: QueryTree) -> bool:
    """Say whether no document at all can satisfy a tree, as in "A AND NOT A"."""
    names = [atom.text.casefold() for atom in atoms(tree)]
    if not set(names) & {atom.text.casefold() for atom in excluded_atoms(tree)}:
        return False
    different = sorted(set(names))
    if len(different) == len(names) or len(different) > _MAX_CHECKED:
        return False
    for values in product((True, False), repeat=len(different)):
        truth = dict(zip(different, values, strict=True))
        if probability(tree, [float(truth[name]) for name in names]):
            return False
    return True


def _explicit(text: str, plan: Plan) -> Question:
    if is_contradiction(plan.tree):
        return Question(text, plan, True, ("the query contradicts itself: nothing can satisfy it",))
    return Question(text, plan)


def _plain(text: str, vector: NDArray[np.float32]) -> Question:
    atom = Atom(text)
    return Question(text, Plan(text, atom, (text,), (), vector[None], vector, False, 1.0, atom))


def _spoken(text: str, plan: Plan) -> Question:
    if plan.is_composed and is_contradiction(plan.tree):
        # More likely misread than meant.
        warning = "read as a contradiction, so it was searched as one plain text"
        return Question(text, as_plain(plan), warnings=(warning,))
    return Question(text, plan)


def _check_text(text: str) -> None:
    if not text.strip():
        raise QueryError("the query is empty; write what you look for")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise QueryError(
            f"column {error.start + 1}: the query holds half a character; is it text?"
        ) from error

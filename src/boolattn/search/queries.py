"""From query texts to plans: plain language or explicit syntax; bad queries are refused."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product
from typing import TYPE_CHECKING

from boolattn.composition.plan import Plan
from boolattn.embedding.base import single_vector_plan
from boolattn.errors import ConfigError, QueryError
from boolattn.logic.lexicon import unused_cues
from boolattn.logic.structure import negated_atoms
from boolattn.logic.syntax import check_anchored, is_explicit, parse_with_spans
from boolattn.logic.tree import Atom, atoms
from boolattn.search.verdicts import truth

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from boolattn.embedding.base import BaseRetriever
    from boolattn.logic.tree import QueryTree
    from boolattn.search.storage.segments import Array

MODES = ("auto", "plain", "explicit")
#: A tree with more distinct operands is not checked for contradictions: 2^n cases.
_MAX_CHECKED = 12
#: Reasons for one vector that a user chose.
_IS_OFF, _NO_PARSER = "composition is off", "the model has no query parser"
_QUOTES = '"“„«'


@dataclass(frozen=True)
class PreparedQuery:
    """A query that can be searched."""

    text: str
    plan: Plan
    is_empty: bool = False  # no document can satisfy it
    warnings: tuple[str, ...] = ()


def prepare_queries(
    retriever: BaseRetriever,
    texts: Sequence[str],
    mode: str,
    *,
    compose: bool,
    is_title: Callable[[str], bool] = lambda _: False,
) -> list[PreparedQuery]:
    """Parse and encode queries; those in plain language in one batch, explicit ones in another.

    In mode ``auto`` a text is explicit where it uses explicit syntax. A text in plain language that
    is the title of a document stays one operand.
    """
    if mode not in MODES:
        raise ConfigError(f"no mode {mode!r}; there are {', '.join(MODES)}")
    for text in texts:
        _check_text(text)
    if not compose:
        vectors = retriever.encode_queries(texts)
        plans = map(_single_vector_plan, texts, vectors)
        return [
            _prepared(text, plan, is_explicit=False)
            for text, plan in zip(texts, plans, strict=True)
        ]
    explicit = {
        place: parse_with_spans(text)
        for place, text in enumerate(texts)
        if mode == "explicit" or (mode == "auto" and is_explicit(text))
    }
    for tree, _ in explicit.values():
        check_anchored(tree)
    reason = "" if retriever.has_parser else _NO_PARSER
    plain = iter(retriever.plan([t for place, t in enumerate(texts) if place not in explicit]))
    given = iter(retriever.plan_trees([tree for tree, _ in explicit.values()]))
    found = []
    for place, text in enumerate(texts):
        plan = next(given if place in explicit else plain)
        if place in explicit:
            plan = replace(plan, spans=tuple((span,) for span in explicit[place][1]))
        elif plan.is_composed and is_title(text):
            plan = single_vector_plan(plan, "a document has this title")
        elif reason:
            plan = replace(plan, fallback=reason)
        found.append(_prepared(text, plan, is_explicit=place in explicit))
    return found


def is_contradiction(tree: QueryTree) -> bool:
    """Return whether no document can satisfy a tree, as in "A AND NOT A"."""
    names = [atom.text.casefold() for atom in atoms(tree)]
    if not set(names) & {atom.text.casefold() for atom in negated_atoms(tree)}:
        return False
    different = sorted(set(names))
    if len(different) == len(names) or len(different) > _MAX_CHECKED:
        return False
    for values in product((1.0, 0.0), repeat=len(different)):
        known = dict(zip(different, values, strict=True))
        if truth(tree, [known[name] for name in names]):
            return False
    return True


def _prepared(text: str, plan: Plan, *, is_explicit: bool) -> PreparedQuery:
    """Return a query with what its user has to know of how it was read."""
    is_empty = False
    if not plan.fallback and is_contradiction(plan.tree):
        if is_explicit:
            is_empty = True
        else:
            # More likely a parser's error than a query that was meant.
            plan = single_vector_plan(plan, "it was parsed as a contradiction")
    warnings = tuple(_unused(text, plan, is_explicit=is_explicit))
    if is_empty:
        warnings += ("the query contradicts itself: nothing can satisfy it",)
    elif plan.fallback not in ("", _IS_OFF, _NO_PARSER) and not warnings:
        warnings += (f"searched as one vector: {plan.fallback}",)
    return PreparedQuery(text, plan, is_empty=is_empty, warnings=warnings)


def _unused(text: str, plan: Plan, *, is_explicit: bool) -> Iterator[str]:
    """Say which cue words became no operator, and why."""
    spans = plan.spans or [[(0, len(text))]]
    reasons: dict[str, list[str]] = {}
    for cue, operand in unused_cues(text, spans, plan.is_negated):
        if is_explicit:
            if operand is None or text[spans[operand][0][0]] in _QUOTES:
                continue
            reason = "in explicit syntax only AND, OR and NOT in capitals are"
        elif plan.fallback:
            reason = f"{plan.fallback}; the query is searched as one vector"
        elif operand is None:
            reason = "no operand was found that it negates"
        else:
            reason = f"it was read as part of {plan.atoms[operand]!r}"
        reasons.setdefault(reason, []).append(repr(cue.text))
    for reason, words in reasons.items():
        are = "is no operator" if len(words) == 1 else "are no operators"
        yield f"{', '.join(words)} {are} here: {reason}"


def _single_vector_plan(text: str, vector: Array) -> Plan:
    whole = Atom(text)
    return Plan(text, whole, (text,), (), vector[None], vector, False, 1.0, whole, _IS_OFF)


def _check_text(text: str) -> None:
    if not text.strip():
        raise QueryError("the query is empty; write what you look for")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise QueryError(
            f"column {error.start + 1}: the query holds half a character; is it text?"
        ) from error

"""From query texts to plans: plain language or explicit syntax; bad queries are refused."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import product
from typing import TYPE_CHECKING

from boolattn.errors import ConfigError, QueryError, QuerySyntaxError
from boolattn.query.lexicon import unused_cues
from boolattn.query.structure import negated_atoms
from boolattn.query.syntax import check_anchored, is_explicit, parse_entry, parse_with_spans
from boolattn.query.tree import Atom, Everything, Like, Where, atoms, join_all, negate, operand
from boolattn.search.verdicts import truth

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from boolattn.encoders.base import BaseRetriever
    from boolattn.query.parsed_query import Spans
    from boolattn.query.plan import Plan
    from boolattn.query.tree import QueryTree
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
    tree: QueryTree  # with its conditions and documents, also where it is searched as one vector
    is_empty: bool = False  # no document can satisfy it
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class QueryOptions:
    """How queries are parsed, and what an index knows."""

    mode: str = "auto"
    compose: bool = True
    added: tuple[QueryTree, ...] = ()  # parts that every query has besides
    is_title: Callable[[str], bool] = lambda _: False
    #: From ids of documents that are operands to their vectors.
    find: Callable[[Sequence[str]], Mapping[str, Array]] = lambda _: {}

    def __post_init__(self) -> None:
        if self.mode not in MODES:
            raise ConfigError(f"no mode {self.mode!r}; there are {', '.join(MODES)}")

    def uses_syntax(self, text: str) -> bool:
        """Whether a text is in explicit syntax; an empty one only adds nothing to the lists."""
        is_asked = self.mode == "explicit" or (self.mode == "auto" and is_explicit(text))
        is_all = bool(self.added) and isinstance(operand(text.strip()), Everything)
        return is_asked or is_all or not text.strip()


def added_operands(positive: Sequence[str], negative: Sequence[str]) -> tuple[QueryTree, ...]:
    """Return the parts that lists of operands add to a query; each entry is one operand.

    >>> added_operands(["red"], ["like:17"])
    (Atom(text='red'), Not(part=Like(text='17')))
    """
    return (*map(parse_entry, positive), *(negate(parse_entry(entry)) for entry in negative))


def check_queries(queries: object) -> None:
    """Refuse what is no list of texts."""
    if isinstance(queries, str) or not isinstance(queries, Iterable):
        raise QueryError(f"queries are a list of texts, not {type(queries).__name__}")
    for query in queries:
        if not isinstance(query, str):
            raise QueryError(f"a query is text, not {type(query).__name__}")


def prepare_queries(
    retriever: BaseRetriever, texts: Sequence[str], options: QueryOptions | None = None
) -> list[PreparedQuery]:
    """Parse and encode queries; those in plain language in one batch, explicit ones in another.

    In mode ``auto`` a text is explicit where it uses explicit syntax. A text in plain language that
    is the title of a document stays one operand.
    """
    options = options or QueryOptions()
    for text in texts:
        _check_text(text, may_be_empty=bool(options.added))
    if not options.compose:
        return _prepare_plain(retriever, texts, options)
    explicit = {
        place: _explicit(text, options)
        for place, text in enumerate(texts)
        if options.uses_syntax(text)
    }
    trees = [tree for tree, _ in explicit.values()]
    known = _vectors([*trees, *options.added], options)
    others = [text for place, text in enumerate(texts) if place not in explicit]
    refuse = _refusal(options)
    plain = iter(retriever.plan(others, added=options.added, known=known, refuse=refuse))
    given = iter(retriever.plan_trees(trees, known=known))
    found = []
    for place, text in enumerate(texts):
        plan = next(given if place in explicit else plain)
        if place in explicit:
            tree, spans = explicit[place]
            plan = replace(plan, spans=spans)
        else:
            tree = plan.tree if plan.is_composed else join_all([plan.tree, *options.added])
            plan = plan if retriever.has_parser else replace(plan, fallback=_NO_PARSER)
        found.append(_prepared(text, plan, tree, is_explicit=place in explicit))
    return found


def _prepare_plain(
    retriever: BaseRetriever, texts: Sequence[str], options: QueryOptions
) -> list[PreparedQuery]:
    """Make one vector of each text as it is typed, except for conditions, documents and lists."""
    trees = [_uncomposed(text, options) for text in texts]
    plans = retriever.plan_trees(trees, known=_vectors(trees, options), compose=False)
    plans = [replace(plan, parsed=plan.tree, fallback=_IS_OFF) for plan in plans]
    return [_prepared(*parts) for parts in zip(texts, plans, trees, strict=True)]


def _uncomposed(text: str, options: QueryOptions) -> QueryTree:
    if not text.strip():
        return _explicit(text, options)[0]
    tree: QueryTree = Atom(text)
    if options.uses_syntax(text):
        with suppress(QuerySyntaxError):
            own, _ = parse_with_spans(text)
            if any(isinstance(atom, Like | Where) or atom.weight != 1 for atom in atoms(own)):
                tree = own
    tree = join_all([tree, *options.added])
    check_anchored(tree)
    return tree


def _explicit(text: str, options: QueryOptions) -> tuple[QueryTree, tuple[Spans, ...]]:
    parts: list[QueryTree] = []
    spans: tuple[Spans, ...] = ()
    if text.strip() or not options.added:
        tree, found = parse_with_spans(text)
        parts, spans = [tree], tuple((span,) for span in found)
    tree = join_all([*parts, *options.added])
    check_anchored(tree)
    return tree, (*spans, *[()] * (sum(1 for _ in atoms(tree)) - len(spans)))


def _refusal(options: QueryOptions) -> Callable[[str, QueryTree], str]:
    def refuse(text: str, tree: QueryTree) -> str:
        if options.is_title(text):
            return "a document has this title"
        # More likely a parser's error than a query that was meant.
        return "it was parsed as a contradiction" if is_contradiction(tree) else ""

    return refuse


def _vectors(trees: Sequence[QueryTree], options: QueryOptions) -> Mapping[str, Array]:
    """Look up the documents that are operands."""
    likes = [atom.text for tree in trees for atom in atoms(tree) if isinstance(atom, Like)]
    return options.find(list(dict.fromkeys(likes))) if likes else {}


def is_contradiction(tree: QueryTree) -> bool:
    """Return whether no document can satisfy a tree, as in "A AND NOT A"."""
    names = [_key(atom) for atom in atoms(tree)]
    if not set(names) & {_key(atom) for atom in negated_atoms(tree)}:
        return False
    different = sorted(set(names))
    if len(different) == len(names) or len(different) > _MAX_CHECKED:
        return False
    for values in product((1.0, 0.0), repeat=len(different)):
        known = dict(zip(different, values, strict=True))
        if truth(tree, [known[name] for name in names]):
            return False
    return True


def _key(atom: Atom) -> str:
    """Return what is the same for equal operands; ids keep their case."""
    return atom.name if isinstance(atom, Like) else atom.name.casefold()


def _prepared(
    text: str, plan: Plan, tree: QueryTree, *, is_explicit: bool = False
) -> PreparedQuery:
    """Return a query with what its user has to know of how it was read."""
    is_empty = plan.fallback != _IS_OFF and is_contradiction(tree)
    warnings = tuple(_unused(text, plan, is_explicit=is_explicit))
    if is_empty:
        warnings += ("the query contradicts itself: nothing can satisfy it",)
    elif plan.fallback not in ("", _IS_OFF, _NO_PARSER) and not warnings and not plan.is_request:
        what = "the text is one operand" if plan.is_composed else "searched as one vector"
        warnings += (f"{what}: {plan.fallback}",)
    return PreparedQuery(text, plan, tree, is_empty, warnings)


def _unused(text: str, plan: Plan, *, is_explicit: bool) -> Iterator[str]:
    """Say which cue words became no operator, and why."""
    spans = plan.spans or [[(0, len(text))]]
    reasons: dict[str, list[str]] = {}
    for cue, place in unused_cues(text, spans, plan.is_negated):
        if is_explicit:
            if place is None or text[spans[place][0][0]] in _QUOTES:
                continue
            reason = "in explicit syntax only AND, OR and NOT in capitals are"
        elif plan.is_request and place is None:
            reason = plan.fallback
        elif plan.fallback and not plan.is_request:
            what = "text is one operand" if plan.is_composed else "query is searched as one vector"
            reason = f"{plan.fallback}; the {what}"
        elif place is None:
            reason = "no operand was found that it negates"
        else:
            reason = f"it was read as part of {plan.atoms[place]!r}"
        reasons.setdefault(reason, []).append(repr(cue.text))
    for reason, words in reasons.items():
        are = "is no operator" if len(words) == 1 else "are no operators"
        yield f"{', '.join(words)} {are} here: {reason}"


def _check_text(text: str, *, may_be_empty: bool) -> None:
    if not text.strip() and not may_be_empty:
        raise QueryError("the query is empty; write what you look for")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise QueryError(
            f"column {error.start + 1}: the query holds half a character; is it text?"
        ) from error

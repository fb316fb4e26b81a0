"""From query texts to trees: plain language or explicit syntax; bad queries are refused."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import product
from typing import TYPE_CHECKING

from boolattn.errors import ConfigError, QueryError, QuerySyntaxError
from boolattn.query.decoding import ParserOutput
from boolattn.query.forms import is_request, read_negated_form
from boolattn.query.parser import KNOWN_PHRASE
from boolattn.query.structure import in_words, negated_atoms, truth
from boolattn.query.syntax import check_anchored, is_explicit, parse_entry, parse_with_spans
from boolattn.query.tree import Atom, Everything, Like, Where, atoms, join_all, negate, operand

if TYPE_CHECKING:
    from collections.abc import Sequence

    from boolattn.query.parsed_query import Spans
    from boolattn.query.parser import Parser
    from boolattn.query.tree import QueryTree

MODES = ("auto", "plain", "explicit")
#: A tree with more distinct operands is not checked for contradictions: 2^n cases.
_MAX_CHECKED = 12
#: Reasons for one vector that a user chose.
IS_OFF, NO_PARSER = "composition is off", "the model has no query parser"


@dataclass(frozen=True)
class Reading:
    """A query as it was read.

    Attributes:
        text: As it was typed.
        wording: What the whole-query vector is of: the text, or a tree in words.
        tree: What it asks for; one operand where the operators of the text are not used.
        parsed: What was parsed, also where it is not used.
        spans: For each operand its characters in the text, where they are known.
        confidence: Of the parser; 1 for a tree.
        fallback: Why operators are not used, or not all words; empty where they are.
        is_explicit: Whether the text is in explicit syntax.
        is_request: Whether the text asks for one thing, and only the words that name it count.
        is_composed: Whether operands are scored one by one; if not, the query is one vector.
        added: Parts that every query has besides; they are in the tree.
    """

    text: str
    wording: str
    tree: QueryTree
    parsed: QueryTree
    spans: tuple[Spans, ...] = ()
    confidence: float = 1.0
    fallback: str = ""
    is_explicit: bool = False
    is_request: bool = False
    is_composed: bool = True
    added: tuple[QueryTree, ...] = ()

    @property
    def may_be_title(self) -> bool:
        """Whether the parser took the text apart, which would be wrong for a title."""
        is_parsed = self.is_composed and not self.is_explicit and not self.fallback
        return self.is_request or (
            is_parsed and self.tree != join_all([Atom(self.text), *self.added])
        )

    @property
    def documents(self) -> list[str]:
        """Ids of the documents that are operands."""
        return list(dict.fromkeys(a.text for a in atoms(self.tree) if isinstance(a, Like)))

    @property
    def is_empty(self) -> bool:
        """Whether no document can satisfy it."""
        return self.is_composed and is_contradiction(self.tree)

    def as_phrase(self, reason: str) -> Reading:
        """Return the text as one operand, and why."""
        whole = join_all([Atom(self.text), *self.added])
        return replace(
            self,
            tree=whole,
            parsed=whole if self.is_request else self.parsed,
            spans=_whole_span(self.text, self.added),
            fallback=reason,
            is_request=False,
        )


@dataclass(frozen=True, kw_only=True)
class ReadingOptions:
    """How queries are read."""

    mode: str = "auto"
    compose: bool = True
    added: tuple[QueryTree, ...] = ()  # parts that every query has besides
    threshold: float | None = None  # least confidence of a parse; left out, the parser's

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


def read_queries(
    texts: Sequence[str], parser: Parser | None, options: ReadingOptions | None = None
) -> list[Reading]:
    """Read queries; those in plain language are parsed in one batch.

    In mode ``auto`` a text is explicit where it uses explicit syntax.
    """
    options = options or ReadingOptions()
    for text in texts:
        _check_text(text, may_be_empty=bool(options.added))
    if not options.compose:
        return [_read_plain(text, options) for text in texts]
    plain = [text for text in texts if not options.uses_syntax(text)]
    outputs = iter([ParserOutput()] * len(plain) if parser is None else parser.parse(plain))
    return [
        _read_explicit(text, options)
        if options.uses_syntax(text)
        else _read_parsed(text, next(outputs), parser, options)
        for text in texts
    ]


def read_trees(trees: Sequence[QueryTree], texts: Sequence[str] | None = None) -> list[Reading]:
    """Return readings of trees; ``texts`` is their wording, by default the tree in words."""
    wordings = [in_words(tree) for tree in trees] if texts is None else texts
    return [
        Reading(wording, wording, tree, tree, is_explicit=True)
        for tree, wording in zip(trees, wordings, strict=True)
    ]


def _read_parsed(
    text: str, output: ParserOutput, parser: Parser | None, options: ReadingOptions
) -> Reading:
    """Read a text in plain language; a long request is read as the words that name its object."""
    added = options.added
    whole = join_all([Atom(text), *added])
    reading = Reading(text, in_words(whole), whole, whole, _whole_span(text, added), added=added)
    if parser is None:
        return replace(reading, fallback=NO_PARSER)
    output = _with_negated_form(text, output)
    parsed = output.parsed
    if parsed is None or (parsed.is_plain and not is_request(text, parsed.operands[0])):
        return replace(reading, fallback=output.reason)
    inner = parsed.tree(text)
    tree = join_all([inner, *added])
    reading = replace(
        reading,
        tree=tree,
        parsed=tree,
        # The tree's operands are in the order of these span lists.
        spans=(*parsed.operands, *_no_spans(added)),
        confidence=output.confidence,
        is_request=parsed.is_plain,
    )
    threshold = parser.threshold if options.threshold is None else options.threshold
    if output.confidence < threshold:
        doubt = f"the parser's confidence is {output.confidence:.2f}, below {threshold}"
        return _doubted(reading, doubt)
    if is_contradiction(inner):
        # More likely a parser's error than a query that was meant.
        return _doubted(reading, "it was parsed as a contradiction")
    if parsed.is_plain:
        named = " ".join(in_words(inner).split())
        reading = replace(reading, fallback=f"it was read as a request for {named!r}")
    return reading


def _doubted(reading: Reading, reason: str) -> Reading:
    doubted = reading.as_phrase(reason)
    return replace(doubted, confidence=1.0) if reading.is_request else doubted


def _with_negated_form(text: str, output: ParserOutput) -> ParserOutput:
    """Read what the parser left as one operand, and is a known form of negation."""
    is_left = output.parsed is None or output.parsed.is_plain
    if not is_left or output.reason == KNOWN_PHRASE:
        return output
    parsed = read_negated_form(text)
    return output if parsed is None else ParserOutput(parsed)


def _read_explicit(text: str, options: ReadingOptions) -> Reading:
    trees: list[QueryTree] = []
    spans: tuple[Spans, ...] = ()
    if text.strip() or not options.added:
        tree, places = parse_with_spans(text)
        trees, spans = [tree], tuple((span,) for span in places)
    tree = join_all([*trees, *options.added])
    check_anchored(tree)
    n_operands = sum(1 for _ in atoms(tree))
    spans = (*spans, *[()] * (n_operands - len(spans)))
    return Reading(text, in_words(tree), tree, tree, spans, is_explicit=True)


def _read_plain(text: str, options: ReadingOptions) -> Reading:
    """Read a text as one vector, except for conditions, documents and lists of operands."""
    if text.strip():
        tree: QueryTree = Atom(text)
        if options.uses_syntax(text):
            with suppress(QuerySyntaxError):
                parsed, _ = parse_with_spans(text)
                special = (isinstance(a, Like | Where) or a.weight != 1 for a in atoms(parsed))
                tree = parsed if any(special) else tree
        tree = join_all([tree, *options.added])
        check_anchored(tree)
    else:
        tree = _read_explicit(text, options).tree
    return Reading(text, in_words(tree), tree, tree, fallback=IS_OFF, is_composed=False)


def _whole_span(text: str, added: Sequence[QueryTree]) -> tuple[Spans, ...]:
    return (((0, len(text)),), *_no_spans(added))


def _no_spans(added: Sequence[QueryTree]) -> list[Spans]:
    return [()] * sum(1 for part in added for _ in atoms(part))


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


def _check_text(text: str, *, may_be_empty: bool) -> None:
    if not text.strip() and not may_be_empty:
        raise QueryError("the query is empty; write what you look for")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise QueryError(
            f"column {error.start + 1}: the query holds half a character; is it text?"
        ) from error

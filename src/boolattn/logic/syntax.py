"""The explicit syntax of queries: ``moths AND Borneo NOT Sumatra`` to a tree, and back.

::

    any    = all { "OR" all }
    all    = [ "NOT" ] item { [ "AND" ] [ "NOT" ] item }      NOT and "-" bind as AND does
    item   = phrase | quoted | "(" any ")" | "-" word | "-" quoted | "-(" any ")"
    phrase = word { word }                                    words side by side are one operand

Only upper-case words are operators, and none between quotes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from boolattn.errors import QueryError, QuerySyntaxError
from boolattn.logic.tree import And, Atom, Not, Or, atoms, positive_part

if TYPE_CHECKING:
    from boolattn.logic.tree import QueryTree

    Span = tuple[int, int]

OPERATOR_WORDS = ("AND", "OR", "NOT")
#: Deepest nesting of parentheses, far below Python's recursion limit.
MAX_DEPTH = 32
MAX_OPERANDS = 256

_CLOSING = {'"': '"', "“": "”", "„": "“”", "«": "»"}
_OPEN, _CLOSE = "(（", ")）"
_WORD = re.compile(r"[^\s()（）]+")
#: A minus sign before a letter, quote or parenthesis negates; before a digit it is a sign.
_MINUS = re.compile(r"[-−](?=[^\W\d_]|[\"“„«(（])")
_CUE = re.compile(r"\b(?:and|or|not)\b", re.IGNORECASE)


@dataclass(frozen=True)
class _Token:
    kind: str  # "word", "quoted", "(", ")", "-", "end", or one of OPERATOR_WORDS
    text: str
    start: int
    end: int


def parse(text: str) -> QueryTree:
    """Parse a query in explicit syntax; a ``QuerySyntaxError`` has the column of the error.

    >>> parse("hawk moths AND Borneo NOT Sumatra")
    And(parts=(Atom(text='hawk moths'), Atom(text='Borneo'), Not(part=Atom(text='Sumatra'))))
    """
    return parse_with_spans(text)[0]


def parse_with_spans(text: str) -> tuple[QueryTree, tuple[Span, ...]]:
    """Parse a query; return the tree, and each operand's span in the order of ``atoms``."""
    parser = _Parser(text, _tokens(text))
    tree = parser.any_of(0)
    parser.expect_end()
    if len(parser.spans) > MAX_OPERANDS:
        raise QueryError(f"a query has at most {MAX_OPERANDS} operands, not {len(parser.spans)}")
    return tree, tuple(parser.spans)


def is_explicit(text: str) -> bool:
    """Say whether a text is explicit syntax rather than plain language.

    It is when it has an upper-case operator outside quotes, a minus sign before a word, or an
    operator word inside quotes.

    >>> is_explicit("moths of Borneo but not Sumatra"), is_explicit("moths -Sumatra")
    (False, True)
    """
    try:
        tokens = _tokens(text)
    except QuerySyntaxError:
        # A quote without an end is an inch sign or a typing error; the operators decide.
        return any(word in OPERATOR_WORDS for word in text.split())
    return any(
        token.kind in (*OPERATOR_WORDS, "-")
        or (token.kind == "quoted" and _CUE.search(token.text) is not None)
        for token in tokens
    )


def unparse(tree: QueryTree) -> str:
    """Write a tree in explicit syntax, so that ``parse`` returns the same tree.

    >>> unparse(And((Or((Atom("moths"), Atom("Romeo AND Juliet"))), Not(Atom("Borneo")))))
    '(moths OR "Romeo AND Juliet") NOT Borneo'
    """
    match tree:
        case Atom(text):
            return text if _is_unquoted(text) else _quoted(text)
        case Not(part):
            return f"NOT {_grouped(part)}"
        case Or(parts):
            return " OR ".join(_grouped(part) for part in parts)
        case And(parts):
            # "A NOT B" reads better than "A AND NOT B", and means the same.
            shown = [unparse(p) if isinstance(p, Not) else f"AND {_grouped(p)}" for p in parts]
            return " ".join(shown).removeprefix("AND ")


def is_anchored(tree: QueryTree) -> bool:
    """Say whether every document that satisfies a tree matches some operand.

    "NOT moths" and "Borneo OR NOT moths" are not anchored: nearly everything satisfies them.
    """
    return positive_part(tree) is not None


def check_anchored(tree: QueryTree) -> None:
    """Refuse a query that only negates."""
    if not is_anchored(tree):
        first = next(atoms(tree)).text
        raise QueryError(
            "the query only negates, and nearly every document satisfies it: add a positive "
            f"operand, as in 'butterflies NOT {first}', on each side of an OR"
        )


class _Parser:
    def __init__(self, text: str, tokens: list[_Token]) -> None:
        self.text = text
        self.tokens = tokens
        self.position = 0
        self.spans: list[Span] = []

    @property
    def here(self) -> _Token:
        return self.tokens[self.position]

    def take(self) -> _Token:
        token = self.here
        self.position += token.kind != "end"
        return token

    def fail(self, message: str, token: _Token) -> QuerySyntaxError:
        return QuerySyntaxError(message, column=token.start + 1, text=self.text)

    def any_of(self, depth: int) -> QueryTree:
        parts = [self.all_of(depth)]
        while self.here.kind == "OR":
            self.take()
            parts.append(self.all_of(depth))
        return _joined(Or, parts)

    def all_of(self, depth: int) -> QueryTree:
        parts = [self.signed(depth)]
        while self.here.kind not in ("OR", ")", "end"):
            if self.here.kind == "AND":
                self.take()
            parts.append(self.signed(depth))
        return _joined(And, parts)

    def signed(self, depth: int) -> QueryTree:
        is_negated = is_single = False
        while not is_single and self.here.kind in ("NOT", "-"):
            is_single = self.take().kind == "-"
            is_negated = not is_negated
        item = self.item(depth, is_single=is_single)
        if not is_negated:
            return item
        return item.part if isinstance(item, Not) else Not(item)

    def item(self, depth: int, *, is_single: bool) -> QueryTree:
        token = self.take()
        if token.kind == "(":
            return self.group(token, depth)
        if token.kind == "quoted":
            if not token.text.strip():
                raise self.fail("there is nothing between these quotes", token)
            self.spans.append((token.start, token.end))
            return Atom(token.text.strip())
        if token.kind != "word":
            raise self.fail(self._missing(token), token)
        words = [token]
        while not is_single and self.here.kind == "word":
            words.append(self.take())
        self.spans.append((token.start, words[-1].end))
        return Atom(" ".join(word.text for word in words))

    def group(self, opening: _Token, depth: int) -> QueryTree:
        if depth >= MAX_DEPTH:
            raise self.fail(f"parentheses are nested more than {MAX_DEPTH} deep", opening)
        inside = self.any_of(depth + 1)
        if self.here.kind != ")":
            raise self.fail("this parenthesis is never closed", opening)
        self.take()
        return inside

    def expect_end(self) -> None:
        if self.here.kind != "end":
            raise self.fail("this parenthesis closes nothing", self.here)

    def _missing(self, token: _Token) -> str:
        place = self.tokens.index(token)
        is_end = token.kind == "end"
        if not place and is_end:
            return "the query is empty; write what you are looking for"
        if not place:
            return f"an operand is expected before {token.text!r}"
        before = self.tokens[place - 1].text
        if is_end:
            return f"an operand is expected after {before!r}, and the query ends"
        return f"an operand is expected between {before!r} and {token.text!r}"


def _tokens(text: str) -> list[_Token]:
    tokens: list[_Token] = []
    at = 0
    while at < len(text):
        if text[at].isspace():
            at += 1
            continue
        # Inside a word a quote is an inch sign and a minus sign a hyphen.
        is_start = not tokens or tokens[-1].end < at or tokens[-1].kind != "word"
        tokens.append(_token(text, at, is_start=is_start))
        at = tokens[-1].end
    tokens.append(_Token("end", "", len(text), len(text)))
    return tokens


def _token(text: str, at: int, *, is_start: bool) -> _Token:
    character = text[at]
    if character in _OPEN or character in _CLOSE:
        return _Token("(" if character in _OPEN else ")", character, at, at + 1)
    if is_start and character in _CLOSING:
        return _quote(text, at)
    if is_start and _MINUS.match(text, at):
        return _Token("-", character, at, at + 1)
    found = _WORD.match(text, at)
    word = found.group() if found else character
    kind = word if word in OPERATOR_WORDS else "word"
    return _Token(kind, word, at, at + len(word))


def _quote(text: str, start: int) -> _Token:
    closing = _CLOSING[text[start]]
    # A possessive quantifier: an escaped quote is never taken for the end.
    found = re.compile(rf'((?:\\["\\]|[^{closing}])*+)[{closing}]').match(text, start + 1)
    if found is None:
        raise QuerySyntaxError("this quote is never closed", column=start + 1, text=text)
    return _Token("quoted", re.sub(r'\\(["\\])', r"\1", found[1]), start, found.end())


def _joined(kind: type[And] | type[Or], parts: list[QueryTree]) -> QueryTree:
    """Join parts; nested parts of the same kind are flattened: "(A AND B) AND C" has three."""
    if len(parts) == 1:
        return parts[0]
    flat: list[QueryTree] = []
    for part in parts:
        flat += part.parts if isinstance(part, kind) else [part]
    return kind(tuple(flat))


def _grouped(tree: QueryTree) -> str:
    return unparse(tree) if isinstance(tree, Atom) else f"({unparse(tree)})"


def _is_unquoted(text: str) -> bool:
    """Say whether a text needs no quotes."""
    try:
        tokens = _tokens(text)
    except QuerySyntaxError:
        return False
    words = [token.text for token in tokens[:-1]]
    return bool(words) and all(t.kind == "word" for t in tokens[:-1]) and " ".join(words) == text


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'

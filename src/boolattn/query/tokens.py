"""Tokens of the explicit syntax, and cue words of plain language.

A cue expresses an operator. The longest one wins, so the "and" of "and not" is part of a NOT, and
the "not" of "not only" part of an AND. "&" is not a cue: it is more frequent in names than between
operands, and a model's tokens do not distinguish "R&B" from "R & B".
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

from boolattn.errors import QuerySyntaxError
from boolattn.files import package_table
from boolattn.query.tree import OPERATORS, Operator
from boolattn.settings import checked

OPERATOR_WORDS = ("AND", "OR", "NOT")
#: Largest weight of an operand.
MAX_WEIGHT = 100

#: A word in capitals that in lower case is a pronoun.
_IT = re.compile(r"(?<![\w'’-])IT(?![\w'’-])")
_CLOSING = {'"': '"', "“": "”", "„": "“”", "«": "»"}
_BRACKETS = {"(": "(", "（": "(", ")": ")", "）": ")"}
_CHARACTER = re.compile(r"\S")
_WORD = re.compile(r"[^\s()（）]+")
#: A minus sign before a letter, quote or parenthesis negates; before a digit it is a sign.
_MINUS = re.compile(r"[-−–](?=[^\W\d_]|[\"“„«(（])")
_LIKE = re.compile(r"like:(?=[^\s()（）])")
#: A field and a sign. A field begins with a letter, so that C++, 12:30 and 3>2 stay words, and so
#: do std::vector and addresses.
FIELD_NAME = re.compile(r"[^\W\d_](?:[\w.-]*\w)?")
_FIELD = re.compile(
    rf"(?P<name>{FIELD_NAME.pattern})"
    r"(?P<sign>\s*(?:>=|<=|!=|=|>|<)\s*|~|:(?![/:]))(?=[^\s()（）=<>!~])"
)
#: A field between quotes, and the sign after it: "Time (min)"<30.
_QUOTED_NAME = re.compile(r"[^\W\d_][^=!<>~]*")
_SIGN = re.compile(r"\s*(?P<sign>>=|<=|!=|=|>|<)\s*(?=[^\s()（）=<>!~])")
_NUMBER = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?|[-+]?(?:nan|inf)"
_WEIGHT = re.compile(rf"\^({_NUMBER})(?![^\s()（）])", re.IGNORECASE)
_WEIGHTED = re.compile(rf"(.+)\^({_NUMBER})", re.IGNORECASE | re.DOTALL)
_RANGE = re.compile(r"(.*?)\.\.(.*)")
_COMPARES = re.compile(r"(?:>=|<=|!=|=|>|<)\s*[-+]?\d[\d.:-]*$")
_OPERATOR = re.compile(r"\b(?:and|or|not)\b", re.IGNORECASE)


#: A text between quotes.
QUOTED = re.compile("|".join(f"{first}[^{last}]*[{last}]" for first, last in _CLOSING.items()))
#: Words that make or imply operators, in the order of the file.
WORDS: Mapping[str, Any] = package_table("boolattn.query", "cues.toml")


def spell_out(text: str, name: str = "information technology") -> str:
    """Replace IT by its name; in a line of capitals it is a pronoun.

    >>> spell_out("IT jobs, is it hard"), spell_out("IT"), spell_out("IT WORKS")
    ('information technology jobs, is it hard', 'information technology', 'IT WORKS')
    """
    lines = text.split("\n") if "IT" in text else [text]
    return "\n".join(t if t.isupper() and t != "IT" else _IT.sub(name, t) for t in lines)


def phrases_of(text: str) -> tuple[str, ...]:
    """Return the phrases of a list in a table."""
    return tuple(" ".join(phrase.split()) for phrase in text.split(","))


def any_of(text: str) -> str:
    """Return a pattern of the phrases of a list in a table, the longest first."""
    phrases = sorted(phrases_of(text), key=len, reverse=True)
    return "|".join(re.escape(phrase).replace(r"\ ", r"\s+") for phrase in phrases)


CUES = {operator: phrases_of(WORDS[operator]) for operator in OPERATORS}
#: Phrases that contain a cue word and express no operator.
NOT_CUES = phrases_of(WORDS["no_cues"])
#: Compounds that negate and hold no cue; most are read as an operator, some as one word.
_COMPOUND = re.compile(
    rf"(?<!\w)(?!(?:{any_of(WORDS['lexicalised'])})-)[^\W\d_]+[-\u2010\u2011]free(?!\w)",
    re.IGNORECASE,
)


class Token(NamedTuple):
    """A piece of a query, and its place in the query."""

    kind: str  # word, quoted, like, where, "(", ")", "-", end, or one of OPERATOR_WORDS
    text: str  # its words, without quotes and weight; of a document its id
    start: int
    end: int
    weight: str = ""  # as it was written
    conditions: tuple[str, ...] = ()  # of a token ``where``


def tokens(text: str) -> list[Token]:
    """Cut a query into tokens; the last one is its end."""
    query_tokens = [Token("", "", 0, 0)]
    while character := _CHARACTER.search(text, query_tokens[-1].end):
        at, before = character.start(), query_tokens[-1]
        if (before.kind, before.end) == (")", at) and _WEIGHT.match(text, at):
            message = "a weight belongs to one operand, as in (moths^2 OR ants^2)"
            raise QuerySyntaxError(message, column=at + 1, text=text)
        query_tokens.append(_token(text, at))
    return [*query_tokens[1:], Token("end", "", len(text), len(text))]


def split_weight(word: str) -> tuple[str, str]:
    """Split a word from its weight, if it has one.

    >>> split_weight("moths^2"), split_weight("x^y")
    (('moths', '2'), ('x^y', ''))
    """
    match = _WEIGHTED.fullmatch(word)
    return (match[1], match[2]) if match else (word, "")


def read_weight(weight: str, *, column: int, text: str) -> float:
    """Read the weight of an operand; refuse one that is none."""
    value = float(weight) if weight else 1.0
    if not (math.isfinite(value) and 0 < value <= MAX_WEIGHT):
        message = f"a weight is above 0 and at most {MAX_WEIGHT}, not {weight}; quotes make it text"
        raise QuerySyntaxError(message, column=column, text=text)
    return value


def is_word(text: str) -> bool:
    """Say whether a text can stand as one word without quotes, also after a sign."""
    return bool(_WORD.fullmatch(text)) and text[0] not in '"“„«=<>!~' and not split_weight(text)[1]


def _token(text: str, at: int) -> Token:
    """Read a token. Inside a word a quote is an inch sign and a minus sign a hyphen."""
    character = text[at]
    if character in _BRACKETS:
        return Token(_BRACKETS[character], character, at, at + 1)
    if _MINUS.match(text, at):
        return Token("-", character, at, at + 1)
    if match := _LIKE.match(text, at):
        return _weighted(_value(text, match.end()))._replace(kind="like", start=at)
    if character in _CLOSING:
        quoted = _quoted(text, at)
        match = None if quoted.weight else _SIGN.match(text, quoted.end)
        if match is None or not _QUOTED_NAME.fullmatch(quoted.text):
            return quoted
        return _where(text, at, quoted.text, match)
    if (match := _FIELD.match(text, at)) and match["name"] not in OPERATOR_WORDS:
        return _where(text, at, match["name"], match)
    word = _value(text, at)
    return word._replace(kind=word.text) if word.text in OPERATOR_WORDS else _weighted(word)


def _weighted(token: Token) -> Token:
    """Split a word from its weight; one after a sign has none."""
    word, weight = split_weight(token.text) if token.kind == "word" else (token.text, token.weight)
    return token._replace(text=word, weight=weight)


def _where(text: str, at: int, name: str, match: re.Match[str]) -> Token:
    """Return the conditions on a field; ``1990..2000`` after a colon is a range."""
    sign, value = match["sign"].strip(), _value(text, match.end())
    limits = _RANGE.fullmatch(value.text) if sign == ":" and value.kind == "word" else None
    if limits is None or not any(limits.groups()):
        conditions = [f"{name}{'=' if sign == ':' else sign}{value.text}"]
    else:
        pairs = zip((">=", "<="), limits.groups(), strict=True)
        conditions = [f"{name}{sign}{limit}" for sign, limit in pairs if limit]
    return Token("where", text[at : value.end], at, value.end, value.weight, (*conditions,))


def _value(text: str, at: int) -> Token:
    """Return what stands after ``like:`` or a sign: between quotes, or one word."""
    if text[at] not in _CLOSING:
        word = next(_WORD.finditer(text, at))[0]
        return Token("word", word, at, at + len(word))
    quoted = _quoted(text, at)
    if not quoted.text:
        message = "there is nothing between these quotes"
        raise QuerySyntaxError(message, column=at + 1, text=text)
    return quoted


def _quoted(text: str, start: int) -> Token:
    closing = _CLOSING[text[start]]
    # A possessive quantifier: an escaped quote is never taken for the end.
    match = re.compile(rf'((?:\\["\\]|[^{closing}])*+)[{closing}]').match(text, start + 1)
    if match is None:
        raise QuerySyntaxError("this quote is never closed", column=start + 1, text=text)
    content, end = re.sub(r'\\(["\\])', r"\1", match[1]), match.end()
    weight = _WEIGHT.match(text, end)
    return Token("quoted", content, start, *((weight.end(), weight[1]) if weight else (end, "")))


@checked
def is_explicit(text: str) -> bool:
    """Say whether a text is explicit syntax rather than plain language.

    It is when it has an upper-case operator outside quotes, a minus sign before a word, an
    operator word inside quotes, a weight, a number compared with a field, or ``like:ID``.

    >>> is_explicit("moths of Borneo but not Sumatra"), is_explicit("moths -Sumatra")
    (False, True)
    """
    if (query_tokens := tokens_of(text)) is None:
        # A quote without an end is an inch sign or a typing error; the operators decide.
        return any(word in OPERATOR_WORDS for word in text.split())
    return any(
        token.kind in (*OPERATOR_WORDS, "-", "like")
        or token.weight
        or (token.kind == "where" and _COMPARES.search(token.text) is not None)
        or (token.kind == "quoted" and _OPERATOR.search(token.text) is not None)
        for token in query_tokens
    )


def tokens_of(text: str) -> list[Token] | None:
    """Return the tokens of a text; ``None`` where they cannot be read."""
    with suppress(QuerySyntaxError):
        return tokens(text)[:-1]
    return None


@dataclass(frozen=True)
class Cue:
    """One cue found in a text: its operator and its character span."""

    operator: Operator
    start: int
    end: int
    text: str


@lru_cache(maxsize=1)
def _pattern() -> tuple[re.Pattern[str], Mapping[str, Operator]]:
    """Return one pattern of all cues, longest first, and the operator of each."""
    owner = {phrase: operator for operator in OPERATORS for phrase in CUES[operator]}
    phrases = sorted(
        (*owner, *NOT_CUES), key=lambda phrase: (-len(phrase.split()), -len(phrase), phrase)
    )
    branches = "|".join(r"(?u:\s+)".join(map(re.escape, phrase.split())) for phrase in phrases)
    # A letter or digit on either side makes it part of a longer word. Case is that of ASCII,
    # because a dotless i would match here and not be found in the mapping.
    return re.compile(rf"(?<!\w)(?ai:{branches})(?!\w)"), owner


def find_cues(text: str) -> tuple[Cue, ...]:
    """Find the cues of a text, left to right, without overlaps.

    >>> [(cue.operator.value, cue.text) for cue in find_cues("Moths of Borneo but not Sumatra")]
    [('not', 'but not')]
    >>> [cue.text for cue in find_cues("birds as well as bats, neither owls nor knots")]
    ['as well as', 'neither', 'nor']
    >>> [cue.text for cue in find_cues("more or less non-fiction")]
    []
    """
    pattern, owner = _pattern()
    # A curly apostrophe has one character too, so the spans stay correct.
    plain = text.replace("\u2019", "'")
    return tuple(
        Cue(operator, *match.span(), text[slice(*match.span())])
        for match in pattern.finditer(plain)
        if (operator := owner.get(" ".join(match[0].lower().split())))
    )


def unused_cues(
    text: str, operands: Sequence[Sequence[tuple[int, int]]], is_negated: Sequence[bool]
) -> tuple[tuple[Cue, int | None], ...]:
    """Return the cues of a text that became no operator, and compounds such as "nut-free".

    Each with the number of the operand that it is a word of, by the operands' character spans;
    ``None`` for one of NOT that stands between operands of which none is negated.

    >>> text = "films of Romeo and Juliet but not musicals"
    >>> for cue, operand in unused_cues(text, [[(0, 25)], [(34, 42)]], [False, True]):
    ...     print(cue.text, operand)
    and 0
    """
    unused: list[tuple[Cue, int | None]] = []
    compounds = (Cue(Operator.NOT, *match.span(), match[0]) for match in _COMPOUND.finditer(text))
    for cue in (*find_cues(text), *compounds):
        owners = (
            number
            for number, spans in enumerate(operands)
            if any(start <= cue.start and cue.end <= end for start, end in spans)
        )
        owner = next(owners, None)
        if owner is not None and is_negated[owner] and re.search("free$|^non", cue.text, re.I):
            continue  # "not gluten-free"
        if owner is not None or (cue.operator is Operator.NOT and not any(is_negated)):
            unused.append((cue, owner))
    return tuple(unused)

"""Tokens of the explicit syntax."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from boolattn.errors import QuerySyntaxError

OPERATOR_WORDS = ("AND", "OR", "NOT")
#: Largest weight of an operand.
MAX_WEIGHT = 100

_CLOSING = {'"': '"', "“": "”", "„": "“”", "«": "»"}
_OPEN, _CLOSE = "(（", ")）"
_WORD = re.compile(r"[^\s()（）]+")
#: A minus sign before a letter, quote or parenthesis negates; before a digit it is a sign.
_MINUS = re.compile(r"[-−](?=[^\W\d_]|[\"“„«(（])")
_LIKE = re.compile(r"like:(?=[^\s()（）])")
#: A field and a sign. A field begins with a letter, so that C++, 12:30 and 3>2 stay words, and so
#: do std::vector and addresses.
FIELD_NAME = re.compile(r"[^\W\d_](?:[\w.-]*\w)?")
_FIELD = re.compile(
    rf"(?P<name>{FIELD_NAME.pattern})"
    r"(?:\s*(?P<sign>>=|<=|!=|=|>|<)\s*|(?P<part>~)|(?P<colon>:)(?![/:]))(?=[^\s()（）=<>!~])"
)
#: A field between quotes, and the sign after it: "Time (min)"<30.
_QUOTED_NAME = re.compile(r"[^\W\d_][^=!<>~]*")
_SIGN = re.compile(r"\s*(?P<sign>>=|<=|!=|=|>|<)\s*(?=[^\s()（）=<>!~])")
_NUMBER = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?|[-+]?(?:nan|inf)"
_WEIGHT = re.compile(rf"\^({_NUMBER})(?![^\s()（）])", re.IGNORECASE)
_WEIGHTED = re.compile(rf"(.+)\^({_NUMBER})", re.IGNORECASE | re.DOTALL)
_RANGE = re.compile(r"(.*?)\.\.(.*)")


#: A text between quotes.
QUOTED = re.compile("|".join(f"{first}[^{last}]*[{last}]" for first, last in _CLOSING.items()))


@dataclass(frozen=True)
class Token:
    """A piece of a query, and its place in the query."""

    kind: str  # word, quoted, like, where, "(", ")", "-", end, or one of OPERATOR_WORDS
    text: str  # its words, without quotes; of a document its id
    start: int
    end: int
    weight: str = ""  # as it was written, after quotes or an id
    conditions: tuple[str, ...] = ()  # of a token ``where``


def tokens(text: str) -> list[Token]:
    """Cut a query into tokens; the last one is its end."""
    tokens: list[Token] = []
    at = 0
    while at < len(text):
        if text[at].isspace():
            at += 1
            continue
        before = tokens[-1] if tokens and tokens[-1].end == at else None
        if before is not None and before.kind == ")" and _WEIGHT.match(text, at):
            message = "a weight belongs to one operand, as in (moths^2 OR ants^2)"
            raise QuerySyntaxError(message, column=at + 1, text=text)
        # Inside a word a quote is an inch sign and a minus sign a hyphen.
        tokens.append(_token(text, at, is_start=before is None or before.kind != "word"))
        at = tokens[-1].end
    tokens.append(Token("end", "", len(text), len(text)))
    return tokens


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


def _token(text: str, at: int, *, is_start: bool) -> Token:
    character = text[at]
    if character in _OPEN or character in _CLOSE:
        return Token("(" if character in _OPEN else ")", character, at, at + 1)
    if is_start and character in _CLOSING:
        quoted = _quote(text, at)
        if (match := _SIGN.match(text, quoted.end)) and _QUOTED_NAME.fullmatch(quoted.text):
            value = _value(text, match.end())
            condition = f"{quoted.text}{match['sign']}{value.text}"
            return Token("where", text[at : value.end], at, value.end, value.weight, (condition,))
        return _weighted(text, quoted)
    if is_start and _MINUS.match(text, at):
        return Token("-", character, at, at + 1)
    if is_start and (match := _LIKE.match(text, at)):
        value = _value(text, match.end())
        is_quoted = value.kind == "quoted"
        id_, weight = (value.text, value.weight) if is_quoted else split_weight(value.text)
        return Token("like", id_, at, value.end, weight)
    if is_start and (match := _FIELD.match(text, at)) and match["name"] not in OPERATOR_WORDS:
        value = _value(text, match.end())
        conditions = _conditions(match, value)
        return Token("where", text[at : value.end], at, value.end, value.weight, conditions)
    match = _WORD.match(text, at)
    word = match.group() if match else character
    kind = word if word in OPERATOR_WORDS else "word"
    return Token(kind, word, at, at + len(word))


def _value(text: str, at: int) -> Token:
    """Return what stands after ``like:`` or a sign: between quotes, or one word."""
    token = _token(text, at, is_start=text[at] in _CLOSING)
    if not token.text:
        message = "there is nothing between these quotes"
        raise QuerySyntaxError(message, column=at + 1, text=text)
    return token


def _conditions(match: re.Match[str], value: Token) -> tuple[str, ...]:
    """Return the conditions of a field; ``1990..2000`` after a colon is a range."""
    name, sign = match["name"], match["sign"] or match["part"] or "="
    limits = _RANGE.fullmatch(value.text) if match["colon"] and value.kind == "word" else None
    if limits is None or not any(limits.groups()):
        return (f"{name}{sign}{value.text}",)
    pairs = zip((">=", "<="), limits.groups(), strict=True)
    return tuple(f"{name}{sign}{limit}" for sign, limit in pairs if limit)


def _weighted(text: str, token: Token) -> Token:
    if (match := _WEIGHT.match(text, token.end)) is None:
        return token
    return Token(token.kind, token.text, token.start, match.end(), match[1])


def _quote(text: str, start: int) -> Token:
    closing = _CLOSING[text[start]]
    # A possessive quantifier: an escaped quote is never taken for the end.
    match = re.compile(rf'((?:\\["\\]|[^{closing}])*+)[{closing}]').match(text, start + 1)
    if match is None:
        raise QuerySyntaxError("this quote is never closed", column=start + 1, text=text)
    return Token("quoted", re.sub(r'\\(["\\])', r"\1", match[1]), start, match.end())

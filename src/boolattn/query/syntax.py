"""The explicit syntax of queries: ``moths AND Borneo NOT Sumatra`` to a tree, and back.

::

    any    = all { "OR" all }
    all    = [ "NOT" ] item { [ "AND" ] [ "NOT" ] item }      NOT and "-" bind as AND does
    item   = operand | where | "(" any ")" | "-" operand | "-" where | "-(" any ")"
    operand = ( phrase | quoted | "like:" ( word | quoted ) ) [ "^" number ]
    phrase = word { word }                                    words side by side are one operand
    where  = field sign ( word | quoted )                     year>=1990, place:"New Guinea"
    field  = word | quoted                                    "Time (min)"<30
    sign   = "=" | "!=" | ">=" | "<=" | ">" | "<" | "~" | ":"

Only upper-case words are operators, and none between quotes. After "-" a phrase is one word.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from functools import lru_cache

from boolattn.errors import QueryError, QuerySyntaxError
from boolattn.query.tokens import (
    FIELD_NAME,
    Token,
    is_explicit,
    is_word,
    read_weight,
    split_weight,
    tokens,
    tokens_of,
)
from boolattn.query.tree import (
    And,
    Atom,
    Everything,
    Like,
    Not,
    Operator,
    Or,
    QueryTree,
    Where,
    join_all,
    map_words,
    negate,
    operand,
    operators_of,
    signed_atoms,
    truth,
)
from boolattn.settings import checked

Span = tuple[int, int]

#: Deepest nesting of parentheses, far below Python's recursion limit.
MAX_DEPTH = 32
MAX_OPERANDS = 256

#: Templates: names of the trees that queries of data sets have.
TEMPLATES = {
    "_": "_",
    "_ or _": "_ OR _",
    "_ or _ or _": "_ OR _ OR _",
    "_ that are also _": "_ AND _",
    "_ that are also both _ and _": "_ AND _ AND _",
    "_ that are not _": "_ NOT _",
    "_ that are also _ but not _": "_ AND _ NOT _",
}
#: Longer templates, in the same form; QUEST has none of them.
LONGER = {
    "_ or _ or _ or _": "_ OR _ OR _ OR _",
    "_ or _ or _ or _ or _": "_ OR _ OR _ OR _ OR _",
    "_ that are also _ and _ and _": "_ AND _ AND _ AND _",
    "_ or _ but not _": "(_ OR _) NOT _",
    "_ but neither _ nor _": "_ NOT _ NOT _",
}

_CONDITION = re.compile(r"([^=!<>~]+)(!=|>=|<=|=|>|<|~)(.*)", re.DOTALL)


@checked
def parse(text: str) -> QueryTree:
    """Parse a query in explicit syntax; a ``QuerySyntaxError`` has the column of the error.

    >>> parse("hawk moths AND Borneo NOT Sumatra")
    And(parts=(Atom(text='hawk moths'), Atom(text='Borneo'), Not(part=Atom(text='Sumatra'))))
    """
    return parse_with_spans(text)[0]


def parse_with_spans(text: str) -> tuple[QueryTree, tuple[Span, ...]]:
    """Parse a query; return the tree, and each operand's span in the order of ``atoms``."""
    parser = _Parser(text, tokens(text))
    tree = parser.any_of(0)
    if parser.here.kind != "end":
        raise parser.fail("this parenthesis closes nothing", parser.here)
    if len(parser.spans) > MAX_OPERANDS:
        raise QueryError(f"a query has at most {MAX_OPERANDS} operands, not {len(parser.spans)}")
    return tree, tuple(parser.spans)


def parse_entry(text: str) -> QueryTree:
    """Parse an entry of a list of operands: a phrase as it is, unless it uses the syntax.

    >>> parse_entry("rock (music)"), parse_entry("moths^2"), parse_entry("like:17")
    (Atom(text='rock (music)'), Atom(text='moths', weight=2.0), Like(text='17'))
    """
    if not text.strip():
        raise QueryError("an entry of positive or negative is empty; leave it out")
    kinds = [token.kind for token in tokens_of(text) or ()]
    uses_syntax = is_explicit(text) or kinds == ["quoted"] or "where" in kinds
    return parse(text) if uses_syntax else operand(text.strip())


def unparse(tree: QueryTree) -> str:
    """Write a tree in explicit syntax, so that ``parse`` returns the same tree.

    >>> unparse(And((Or((Atom("moths"), Atom("Romeo AND Juliet"))), Not(Atom("Borneo")))))
    '(moths OR "Romeo AND Juliet") NOT Borneo'
    """
    match tree:
        case Where(text):
            if (match := _CONDITION.fullmatch(text)) is None:
                raise QueryError(f"{text!r} is not a condition, as year>=1990 is")
            name, sign, value = match.groups()
            name = name if FIELD_NAME.fullmatch(name) else _quoted(name)
            return f"{name}{sign}{value if is_word(value) else _quoted(value)}"
        case Like(text, weight):
            return f"like:{text if is_word(text) else _quoted(text)}{_suffix(weight)}"
        case Everything(text, weight):
            return f"{text}{_suffix(weight)}"
        case Atom(text, weight):
            is_plain = _is_unquoted(text) and (weight == 1 or " " not in text)
            return f"{text if is_plain else _quoted(text)}{_suffix(weight)}"
        case Not(part):
            return f"NOT {_grouped(part)}"
        case Or(parts):
            return " OR ".join(_grouped(part) for part in parts)
        case And(parts):
            # "A NOT B" reads better than "A AND NOT B", and means the same.
            shown = [unparse(p) if isinstance(p, Not) else f"AND {_grouped(p)}" for p in parts]
            return " ".join(shown).removeprefix("AND ")


def template_tree(template: str, operands: Sequence[str]) -> QueryTree:
    """Return the tree of a template with operands.

    >>> template_tree("_ that are not _", ["moths", "moths of Sumatra"])
    And(parts=(Atom(text='moths'), Not(part=Atom(text='moths of Sumatra'))))
    """
    tree, texts = _parsed_template(template), iter(operands)
    if (n := len(operands)) != template.count("_"):
        raise QueryError(f"template {template!r} takes {template.count('_')} operands, got {n}")
    return map_words(tree, lambda _: next(texts))


@lru_cache
def _parsed_template(template: str) -> QueryTree:
    if template not in (known := TEMPLATES | LONGER):
        raise QueryError(f"unknown template {template!r}; known: {', '.join(known)}")
    return parse(known[template])


def template_operators(template: str) -> tuple[Operator, ...]:
    """Return the operators of a template, as the paper's oracle labels have them.

    >>> [op.value for op in template_operators("_ that are also _ but not _")]
    ['and', 'not']
    """
    return operators_of(template_tree(template, ["_"] * template.count("_")))


def anchored(tree: QueryTree) -> QueryTree:
    """Return a tree that selects from everything, where nearly every document satisfies it.

    So it is where a document need not match an operand, as in "Borneo OR NOT moths".

    >>> anchored(Not(Atom("pizza")))
    And(parts=(Everything(text='everything'), Not(part=Atom(text='pizza'))))
    """
    signed = list(signed_atoms(tree))
    # Where no operand matches, and no condition holds as it must.
    is_free = truth(tree, [isinstance(atom, Where) and sign < 0 for atom, sign in signed])
    if is_free or all(isinstance(atom, Where) for atom, _ in signed):
        return join_all([Everything("everything"), tree])
    return tree


class _Parser:
    def __init__(self, text: str, tokens: list[Token]) -> None:
        self.text = text
        self.tokens = tokens
        self.position = 0
        self.spans: list[Span] = []

    @property
    def here(self) -> Token:
        return self.tokens[self.position]

    def take(self) -> Token:
        token = self.here
        self.position += token.kind != "end"
        return token

    def fail(self, message: str, token: Token) -> QuerySyntaxError:
        return QuerySyntaxError(message, column=token.start + 1, text=self.text)

    def any_of(self, depth: int) -> QueryTree:
        nodes = [self.all_of(depth)]
        while self.here.kind == "OR":
            self.take()
            nodes.append(self.all_of(depth))
        return join_all(nodes, Or)

    def all_of(self, depth: int) -> QueryTree:
        nodes = [self.signed(depth)]
        while self.here.kind not in ("OR", ")", "end"):
            if self.here.kind == "AND":
                self.take()
            nodes.append(self.signed(depth))
        return join_all(nodes)

    def signed(self, depth: int) -> QueryTree:
        is_negated = is_single = False
        while not is_single and self.here.kind in ("NOT", "-"):
            is_single = self.take().kind == "-"
            is_negated = not is_negated
        item = self.item(depth, is_single=is_single)
        return negate(item) if is_negated else item

    def item(self, depth: int, *, is_single: bool) -> QueryTree:
        token = self.take()
        if token.kind == "(":
            return self.group(token, depth)
        if token.kind == "where":
            if token.weight:
                raise self.fail("a condition holds or not, and has no weight", token)
            self.spans += [(token.start, token.end)] * len(token.conditions)
            return join_all([Where(condition) for condition in token.conditions])
        if token.kind not in ("word", "quoted", "like"):
            raise self.fail(self._missing(token), token)
        if not token.text.strip():
            raise self.fail("there is nothing between these quotes", token)
        words = [token]
        while token.kind == "word" and not is_single and self.here.kind == "word":
            if words[-1].weight:
                break
            words.append(self.take())
        self.spans.append((token.start, words[-1].end))
        text, weight = " ".join(word.text for word in words), words[-1].weight
        if token.kind == "word" and not weight:  # "moths ^2"
            text, weight = split_weight(text)
        column = words[-1].end - len(weight) + 1
        value = read_weight(weight, column=column, text=self.text)
        kinds = {"like": Like, "quoted": Atom, "word": operand}
        return kinds[token.kind](text if token.kind == "like" else text.strip(), value)

    def group(self, opening: Token, depth: int) -> QueryTree:
        if depth >= MAX_DEPTH:
            raise self.fail(f"parentheses are nested more than {MAX_DEPTH} deep", opening)
        inside = self.any_of(depth + 1)
        if self.here.kind != ")":
            raise self.fail("this parenthesis is never closed", opening)
        self.take()
        return inside

    def _missing(self, token: Token) -> str:
        index, is_end = self.tokens.index(token), token.kind == "end"
        before = self.tokens[index - 1].text
        if not index:
            expected = f"an operand is expected before {token.text!r}"
            return "the query is empty; write what you are looking for" if is_end else expected
        if is_end:
            return f"an operand is expected after {before!r}, and the query ends"
        return f"an operand is expected between {before!r} and {token.text!r}"


def _grouped(tree: QueryTree) -> str:
    return unparse(tree) if isinstance(tree, Atom) else f"({unparse(tree)})"


def _is_unquoted(text: str) -> bool:
    with suppress(QueryError):
        return parse_with_spans(text)[0] == Atom(text)
    return False


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _suffix(weight: float) -> str:
    return "" if weight == 1 else f"^{repr(float(weight)).removesuffix('.0')}"

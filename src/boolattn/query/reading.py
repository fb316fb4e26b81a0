"""From query texts to trees: plain language or explicit syntax; bad queries are refused."""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, replace
from typing import TYPE_CHECKING

from boolattn.errors import QueryError, QuerySyntaxError
from boolattn.query.numbers import without_numbers
from boolattn.query.parsed_query import words
from boolattn.query.plan import IS_OFF, NO_PARSER, Plan
from boolattn.query.syntax import anchored, parse_with_spans
from boolattn.query.tokens import QUOTED, WORDS, any_of, find_cues, is_explicit, phrases_of
from boolattn.query.tree import (
    Atom,
    Everything,
    Like,
    Not,
    Operator,
    QueryTree,
    Where,
    atoms,
    in_words,
    is_contradiction,
    join_all,
    operand,
    operators_of,
    signed_atoms,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from boolattn.query.numbers import NumberPhrase
    from boolattn.query.parsed_query import Span, Spans
    from boolattn.query.parser import Parser

#: Somebody speaks for himself or asks; a passage of a document seldom does.
_ASKS = re.compile(
    r"\b(?:i|me|my|mine|we|us|our|please|anyone|anybody|(?:can|could|will|would|do|have) you)\b|\?",
    re.IGNORECASE,
)
#: Words that name nothing.
_EMPTY = re.compile(rf"(?:(?:{any_of(WORDS['empty'])})\b|\W|_)*")
#: What a word excludes that holds no cue.
_FREE = re.compile(r"(\w+)[ -]free\b", re.IGNORECASE)
_SAYS_FREE = re.compile(r"[ -]free\b", re.IGNORECASE)
_CUES = re.compile(rf"\b(?:{any_of(WORDS['not'] + ', ' + WORDS['excludes'])}|unless|\w+nt)\b", re.I)
#: One negation, directly before "sugar-free".
_CUE = re.compile(r"\A(.*)\b(?:no|not|\w+n['’]?t)\s+\Z", re.IGNORECASE | re.DOTALL)
_NOT_FREE = re.compile(r"(?:not|(?:is|are)n['’]?t)\s+(\w+[ -]free)", re.IGNORECASE)
_IMPLIED = {word: phrases_of(names) for word, names in WORDS["implied"].items()}
_IMPLYING = re.compile(rf"(?<![\w-])(?:{'|'.join(_IMPLIED)})(?![\w-])", re.IGNORECASE)
#: Of a longer text the parser may not have read the end.
_MOST_WORDS = 90


@dataclass(frozen=True)
class QueryReader:
    """Reads queries in plain language or explicit syntax."""

    parser: Parser | None  # without one a text with operators in capitals is always explicit
    _: KW_ONLY
    mode: str = "auto"  # or plain, explicit
    compose: bool = True
    added: tuple[QueryTree, ...] = ()  # parts that every query has besides

    def uses_syntax(self, text: str) -> bool:
        """Whether a text is in explicit syntax, as "everything" and nothing at all are."""
        text = text.strip()
        is_all = text.lower() != "nothing" and isinstance(operand(text), Everything)
        if self.mode == "explicit" or (is_all and self.compose) or not text:
            return True
        if self.mode != "auto" or not is_explicit(text):
            return False
        return self.parser is None or not mixes_operators(text)

    def read(self, text: str) -> Plan:
        """Read a query; in mode ``auto`` a text is explicit where it uses explicit syntax."""
        if not text.strip() and not self.added:
            raise QueryError("the query is empty; write what you look for")
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise QueryError(
                f"column {error.start + 1}: the query holds half a character; is it text?"
            ) from error
        if not self.compose:
            return self._read_plain(text)
        if self.uses_syntax(text):
            return self._read_explicit(text)
        return self._with_implied(self._read_parsed(text))

    def may_exclude(self, _names: Sequence[str]) -> bool:
        """Tell whether documents may be of kinds that a word excludes, as "vegan" does."""
        return True

    def _with_implied(self, plan: Plan) -> Plan:
        """Add what words such as "vegan" exclude, unless they are negated themselves.

        Of several alternatives each must have such a word: "beef or vegan burgers" excludes none.
        """
        signed = list(signed_atoms(plan.tree))
        pairs = zip(signed, plan.spans, strict=True)
        denied = [span for (_, sign), spans in pairs if sign < 0 for span in spans]
        implied: dict[str, Span] = {}
        for name, span in implied_exclusions(plan.text):
            if not any(start <= span[0] < end for start, end in denied):
                implied.setdefault(name, span)
        if Operator.OR in operators_of(plan.tree):
            for atom in (atom for atom, sign in signed if sign > 0):
                named = dict(implied_exclusions(atom.words))
                implied = {name: span for name, span in implied.items() if name in named}
        elif untyped := _of_not_free(plan, signed):
            tree, spans = join_all([plan.tree, *untyped]), ((),) * len(untyped)
            plan = replace(plan, tree=tree, parsed=tree, spans=(*plan.spans, *spans))
        if not implied or plan.fallback == NO_PARSER or not self.may_exclude([*implied]):
            return plan
        tree = join_all([plan.tree, *(Not(Atom(name)) for name in implied)])
        typed = (*plan.spans, *((span,) for span in implied.values()))
        return replace(plan, tree=tree, parsed=tree, spans=typed, fallback="")

    def may_be_title(self, plan: Plan) -> bool:
        """Tell whether the parser took the text apart, which would be wrong for a title."""
        is_plain = not plan.is_explicit or isinstance(plan.tree, Everything)
        is_parsed = is_plain and not plan.fallback and plan.tree != self._whole(plan.text)
        return plan.is_request or is_parsed

    def as_phrase(self, plan: Plan, reason: str) -> Plan:
        """Return the text as one operand, and why."""
        phrase = self._whole(plan.text)
        if plan.is_request:
            plan = replace(plan, parsed=phrase, confidence=1.0, is_request=False)
        spans = self._spans([((0, len(plan.text)),)])
        return replace(plan, tree=phrase, spans=spans, fallback=reason)

    def with_conditions(self, plan: Plan, text: str, phrases: Sequence[NumberPhrase]) -> Plan:
        """Return the plan of a text whose number phrases were left out before it was parsed."""
        remainder, spans = plan.tree, plan.spans
        if remainder == self._whole(plan.text):  # it was not taken apart
            remaining = without_numbers(text, phrases)
            others = tuple(match.span() for match in re.finditer(r"\S+(?:\s\S+)*", remaining))
            remainder, spans = self._whole(words(text, others)), (others, *spans[1:])
        elif plan.text == "everything":  # nothing but numbers was typed
            spans = ((), *spans[1:])
        tree = join_all([remainder, *(phrase.tree for phrase in phrases)])
        spans += tuple((phrase[:2],) for phrase in phrases for _ in atoms(phrase.tree))
        return replace(
            plan, text=text, wording=in_words(remainder), tree=tree, parsed=tree, spans=spans
        )

    def _whole(self, text: str) -> QueryTree:
        """Return the tree of a text that is one operand."""
        return join_all([Atom(text.strip()), *self.added])

    def _spans(self, spans: Sequence[Spans]) -> tuple[Spans, ...]:
        """Return the spans of all operands; those that were not typed have none."""
        return (*spans, *(() for part in self.added for _ in atoms(part)))

    def _read_parsed(self, text: str) -> Plan:
        """Read plain language; a long request is read as the words that name its object."""
        phrase = self._whole(text)
        plan = Plan(text, in_words(phrase), phrase, phrase, self._spans([((0, len(text)),)]))
        if self.parser is None:
            return replace(plan, fallback=NO_PARSER)
        if match := _NOT_FREE.fullmatch(text.strip(" .!?")):
            tree = anchored(join_all([Not(Atom(match[1])), *self.added]))
            return Plan(text, in_words(tree), tree, tree, self._spans([(), (match.span(1),)]))
        [output] = self.parser.parse([text])
        parsed = output.parsed
        if parsed is None or (parsed.is_plain and not _is_request(text, parsed.operands[0])):
            return replace(plan, fallback=output.reason)
        inner = parsed.tree(text)
        tree, named = join_all([inner, *self.added]), " ".join(in_words(inner).split())
        cancels = not any(parsed.is_negated) and Operator.NOT in {
            c.operator for c in find_cues(text)
        }
        plan = replace(
            plan,
            # Of two negations that cancel each other the text as typed says the opposite.
            wording=named if cancels and not parsed.is_plain else plan.wording,
            tree=tree,
            parsed=tree,
            # The tree's operands are in the order of these span lists.
            spans=self._spans(parsed.operands),
            confidence=output.confidence,
            fallback=f"it was read as a request for {named!r}" if parsed.is_plain else "",
            is_request=parsed.is_plain,
        )
        if output.confidence < (least := self.parser.threshold):
            doubt = f"the parser's confidence is {output.confidence:.2f}, below {least}"
            return self.as_phrase(plan, doubt)
        if is_contradiction(inner):
            # More likely a parser's error than a query that was meant.
            return self.as_phrase(plan, "it was parsed as a contradiction")
        return plan

    def _read_explicit(self, text: str) -> Plan:
        typed = [parse_with_spans(text)] if text.strip() else []
        joined = join_all([*(tree for tree, _ in typed), *self.added])
        spans = self._spans([(span,) for _, typed_spans in typed for span in typed_spans])
        tree = anchored(joined)
        spans = spans if tree == joined else ((), *spans)
        return Plan(text, in_words(tree), tree, tree, spans, is_explicit=True)

    def _read_plain(self, text: str) -> Plan:
        """Read a text as one vector, except for conditions, documents and lists of operands."""
        typed: list[QueryTree] = [Atom(text)] if text.strip() else []
        if typed and self.uses_syntax(text):
            with suppress(QuerySyntaxError):
                parsed, _ = parse_with_spans(text)
                if any(isinstance(a, Like | Where) or a.weight != 1 for a in atoms(parsed)):
                    typed = [parsed]
        tree = anchored(join_all([*typed, *self.added]))
        return Plan(text, in_words(tree), tree, tree).as_one_vector(IS_OFF)


def mixes_operators(text: str) -> bool:
    """Tell whether a text with operators in capitals also has "or" or negates in plain words.

    >>> mixes_operators("soup without cream AND noodles"), mixes_operators("rock and roll NOT jazz")
    (True, False)
    """
    cues = (cue.text for cue in find_cues(text) if cue.operator is not Operator.AND)
    is_plain = not any(sign in text for sign in '"()^:=<>')
    return is_plain and any({*cue.split()} - {"AND", "OR", "NOT"} for cue in cues)


def implied_exclusions(text: str) -> list[tuple[str, Span]]:
    """Return what words of a text exclude, each with the characters that say so.

    >>> implied_exclusions("meatless pasta"), implied_exclusions('"meatless" pasta')
    ([('meat', (0, 8))], [])
    """
    unquoted = QUOTED.sub(lambda match: " " * len(match[0]), text)
    return [
        (name, match.span())
        for match in _IMPLYING.finditer(unquoted)
        for name in _IMPLIED[match[0].lower()]
    ]


def _of_not_free(plan: Plan, signed: Sequence[tuple[Atom, int]]) -> list[QueryTree]:
    """Return what "not meat-free" means besides: with meat; or, said of meat, not meat-free."""
    if not any(sign > 0 and atom.words for atom, sign in signed):
        return []
    free = (_FREE.match(atom.words) for atom, sign in signed if sign < 0)
    meant: list[QueryTree] = [Atom(match[1]) for match in free if match]
    for (atom, sign), spans in zip(signed, plan.spans, strict=True):
        says_free = sign > 0 and spans and _SAYS_FREE.match(plan.text, spans[-1][1])
        cue = _CUE.search(plan.text[: spans[-1][0]]) if says_free else None
        if cue and not _CUES.search(cue[1]):
            meant.append(Not(Atom(f"{atom.words}-free")))
    return meant


def _is_request(text: str, spans: Spans) -> bool:
    """Tell whether a text asks for what one span of it names, in less than half of its words.

    >>> text = "I run a small museum and have no budget. Could you find me moths of Borneo?"
    >>> _is_request(text, ((59, 74),)), _is_request("moths of Borneo, please", ((0, 15),))
    (True, False)
    >>> _is_request(text, ((8, 20), (59, 74)))  # words that do not stand together name nothing
    False
    """
    if len(spans) != 1:
        return False
    (start, end), n_words = spans[0], len(text.split())
    return (
        n_words <= _MOST_WORDS
        and 2 * len(text[start:end].split()) < n_words
        and not _EMPTY.fullmatch(text[start:end].lower())
        and bool(_ASKS.search(f"{text[:start]} {text[end:]}"))
    )

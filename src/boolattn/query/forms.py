"""Forms of plain queries that a parser leaves as one operand.

Negation ("dairy-free desserts", "jobs, no experience needed", "anything but jazz"): only whole
queries of a few plain forms are read. Requests: long texts that ask for one thing, so that the
other words can be set aside.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from boolattn.query.operators import Operator
from boolattn.query.parsed_query import Gap, ParsedQuery
from boolattn.query.tree import EVERYTHING

if TYPE_CHECKING:
    from boolattn.query.parsed_query import Spans

#: What "-free" does not negate.
_LEXICALISED = "(?!(?:care|duty|fault|hands|post|rent|royalty|scot|tax|toll|trouble)-free)"
_FREE = rf"{_LEXICALISED}(?P<negated>[^\W\d_]+)-free"
_REST = r"(?P<positive>[^\W_][^,;.!?]*?)"
_FORMS = tuple(
    re.compile(form + r"[\s?.!]*$", re.IGNORECASE)
    for form in (
        rf"\s*{_FREE}\s+{_REST}",
        rf"\s*{_REST},?\s+(?:(?:that|which)\s+(?:is|are)\s+|(?:is|are)\s+)?{_FREE}",
        rf"\s*{_REST},?\s+(?:with\s+|where\s+)?no\s+(?P<negated>[^,;.!?]+?)\s+(?:is\s+)?"
        r"(?:necessary|needed|required)",
        # "Everything but the Girl" is a name.
        rf"\s*(?:\w+\s+me\s+)?(?P<positive>{EVERYTHING})\s+(?:but(?!\s+the\b)|except(?:\s+for)?|"
        r"other\s+than)\s+(?P<negated>[^,;.!?]+?)",
    )
)
#: Somebody speaks for himself or asks; a passage of a document seldom does.
_ASKS = re.compile(
    r"\b(?:i|me|my|mine|we|us|our|please|anyone|anybody|(?:can|could|will|would|do|have) you)\b|\?",
    re.IGNORECASE,
)
#: Words that name nothing.
_EMPTY = frozenset(
    re.findall(
        r"\w+",
        """
        a about all an any anything are everything for have i in is it me more of on one ones some
        something that the them there these thing things this those to what whatever you your
        """,
    )
)
#: Of a longer text the parser may not have read the end.
_MOST_WORDS = 90


def read_negated_form(text: str) -> ParsedQuery | None:
    """Read a query of a known form; ``None`` for any other.

    >>> text = "jobs in Leeds with no experience needed"
    >>> read_negated_form(text).tree(text)
    And(parts=(Atom(text='jobs in Leeds'), Not(part=Atom(text='experience'))))
    >>> read_negated_form("hands-free kit")
    """
    for form in _FORMS:
        if match := form.match(text):
            names = sorted(("positive", "negated"), key=match.start)
            operands = tuple((match.span(name),) for name in names)
            is_negated = tuple(name == "negated" for name in names)
            return ParsedQuery(operands, is_negated, (Gap(Operator.AND),))
    return None


def is_request(text: str, spans: Spans) -> bool:
    """Tell whether a text asks for what one span of it names, in less than half of its words.

    >>> text = "I run a small museum and have no budget. Could you find me moths of Borneo?"
    >>> is_request(text, ((59, 74),)), is_request("moths of Borneo, please", ((0, 15),))
    (True, False)
    >>> is_request(text, ((8, 20), (59, 74)))  # words that do not stand together name nothing
    False
    """
    if len(spans) != 1:
        return False
    (start, end), n_words = spans[0], len(text.split())
    named = re.findall(r"[^\W_]+", text[start:end].lower())
    return (
        n_words <= _MOST_WORDS
        and 2 * len(text[start:end].split()) < n_words
        and not _EMPTY.issuperset(named)
        and bool(_ASKS.search(f"{text[:start]} {text[end:]}"))
    )

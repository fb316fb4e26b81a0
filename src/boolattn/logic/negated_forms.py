"""Forms of negation: "dairy-free desserts", "jobs, no experience needed", "anything but jazz".

For queries that a parser leaves as one operand. Only whole queries of a few plain forms are read.
"""

from __future__ import annotations

import re

from boolattn.logic.operators import Operator
from boolattn.logic.parsed_query import Gap, ParsedQuery
from boolattn.logic.tree import EVERYTHING

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


def read_negated_form(text: str) -> ParsedQuery | None:
    """Read a query of a known form; ``None`` for any other.

    >>> text = "jobs in Leeds with no experience needed"
    >>> read_negated_form(text).tree(text)
    And(parts=(Atom(text='jobs in Leeds'), Not(part=Atom(text='experience'))))
    >>> read_negated_form("hands-free kit")
    """
    for form in _FORMS:
        if found := form.match(text):
            names = sorted(("positive", "negated"), key=found.start)
            operands = tuple((found.span(name),) for name in names)
            is_negated = tuple(name == "negated" for name in names)
            return ParsedQuery(operands, is_negated, (Gap(Operator.AND),))
    return None

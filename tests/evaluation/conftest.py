from __future__ import annotations

import pytest

from boolattn.data.records import Query
from boolattn.query.tree import Operator

#: Row of each document, by its id, "0" to "9".
ROWS = {str(row): row for row in range(10)}


@pytest.fixture
def queries() -> tuple[Query, ...]:
    """Three queries over ten documents: plain, with NOT, and with AND."""
    return (
        Query(id="plain", text="moths", template="_", gold=frozenset("012"), domain="animals"),
        Query(
            id="not",
            text="moths but not of Sumatra",
            template="_ that are not _",
            operators=(Operator.NOT,),
            gold=frozenset("34"),
            excluded=frozenset("56"),
            domain="animals",
            wording="seen:not/s00/but not",
        ),
        Query(
            id="and",
            text="plants of Peru and of Ecuador",
            template="_ that are also _",
            operators=(Operator.AND,),
            gold=frozenset("7"),
            partial=frozenset("89"),
            domain="plants",
        ),
    )

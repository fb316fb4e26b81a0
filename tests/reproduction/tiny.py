"""Documents and queries small enough to train on in a moment."""

from __future__ import annotations

import random

from boolattn.data.records import Document, Operand, Query
from boolattn.logic.operators import Operator

KINDS = ("moths", "birds", "ferns", "films")
PLACES = ("borneo", "sumatra", "peru", "chile")


def make_queries() -> tuple[list[Document], list[Query]]:
    """48 documents of four kinds in one or two places; "A not B" and "A" over them."""
    rng = random.Random(0)
    documents, members = [], {}
    for number in range(48):
        kind, places = KINDS[number % 4], rng.sample(PLACES, 1 + number % 2)
        name = f"d{number}"
        documents.append(Document(id=name, text=f"{kind} of {' and '.join(places)} {number}"))
        for place in places:
            members.setdefault((kind, place), set()).add(name)
    queries = []
    for (kind, first), names in sorted(members.items()):
        whole = f"{kind} of {first}"
        queries.append(
            Query(
                id=f"{kind}-{first}",
                text=whole,
                template="_",
                gold=frozenset(names),
                operands=(Operand(whole, ((0, len(whole)),)),),
            )
        )
        for second in PLACES:
            other = members.get((kind, second), set())
            if second == first or not names - other:
                continue
            text = f"{whole} but not {second}"
            spans = ((0, len(kind) + 4), (len(text) - len(second), len(text)))
            queries.append(
                Query(
                    id=f"{kind}-{first}-{second}",
                    text=text,
                    template="_ that are not _",
                    operators=(Operator.NOT,),
                    operands=(
                        Operand(whole, ((0, len(whole)),)),
                        Operand(f"{kind} of {second}", spans),
                    ),
                    gold=frozenset(names - other),
                    excluded=frozenset(names & other),
                )
            )
    return documents, queries

"""Labelled queries for the parser: those of the training split, and those of a file."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, NamedTuple

from boolattn.data.labelled_queries import read_labelled_queries
from boolattn.errors import ConfigError
from boolattn.logic.parsed_query import label_template

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from boolattn.data.records import Query
    from boolattn.logic.parsed_query import LabelledQuery
    from boolattn.training.settings import ComposeSettings

logger = logging.getLogger(__name__)

#: Sources of a file that the parser is trained on; the setting ``n_<source>`` says on how many.
SOURCES = ("generated", "sentences", "natural", "short")
#: Source whose rows label training queries of the same text.
PARAPHRASES = "paraphrases"
_COMMAND = "python -m experiments.parser_queries --out FILE"


class ParserSources(NamedTuple):
    """What a parser is trained on.

    Attributes:
        labels: Labels of the training queries, by text.
        sources: The labelled training queries, then the queries of each source.
    """

    labels: dict[str, LabelledQuery]
    sources: list[list[LabelledQuery]]


def read_parser_sources(
    queries: Sequence[Query], path: Path | None, settings: ComposeSettings
) -> ParserSources:
    """Label training queries, and read the parser queries that the settings ask for.

    Args:
        queries: The training queries; those that have operand spans are labelled by them.
        path: A file of labelled queries.
        settings: How many of each source.
    """
    wanted = {name: int(getattr(settings, f"n_{name}")) for name in SOURCES}
    found = read_labelled_queries(path) if path else {}
    for name, count in wanted.items():
        if count and name not in found:
            where = f"{path} has no {name!r} queries" if path else "no file of them was given"
            raise ConfigError(
                f"compose.n_{name}={count} asks for parser queries, and {where}; make a file with "
                f"{_COMMAND} and name it with --parser-queries FILE, or set compose.n_{name}=0"
            )
    labels: dict[str, LabelledQuery] = {}
    unlabelled = set()
    for query in queries:
        spans = [operand.spans for operand in query.operands]
        if spans and (labelled := label_template(query.text, query.template, spans)):
            labels[query.text] = labelled
        else:
            unlabelled.add(query.text)
    labels |= {row.text: row for row in found.get(PARAPHRASES, ()) if row.text in unlabelled}
    sources = [list(labels.values()), *(found.get(n, [])[:count] for n, count in wanted.items())]
    counts = dict(zip(("training queries", *SOURCES), map(len, sources), strict=True))
    logger.info("parser queries: %s", ", ".join(f"{n} {name}" for name, n in counts.items()))
    return ParserSources(labels, sources)

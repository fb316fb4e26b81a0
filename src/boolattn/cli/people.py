"""``evaluate --on people``: people's queries, judged by their first results."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING

import click

from boolattn.cli.output import note, print_json
from boolattn.errors import BoolattnError, ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_VERDICTS = ("right", "wrong", "inverted")


def evaluate_people(
    model: str, device: str | None, splits: Sequence[str], *, as_json: bool
) -> None:
    """Search every collection of some splits; print verdicts by collection and by type."""
    from boolattn.data.people import SPLITS
    from boolattn.evaluation.tables import markdown, short

    if unknown := [split for split in splits if split not in SPLITS]:
        raise ConfigError(f"people has no split {unknown[0]!r}; there are {', '.join(SPLITS)}")
    names = [name for split in splits for name in SPLITS[split]]
    groups: dict[str, Counter[str]] = defaultdict(Counter)
    for *keys, verdict in _verdicts(model, device, names):
        for key in (*keys, "all"):
            groups[key].update([verdict])
    if as_json:
        print_json({"model": model, "splits": splits, "verdicts": groups}, indent=2)
        return
    order = dict.fromkeys(names, 0) | {"all": 2}
    rows = []
    for key, counts in sorted(groups.items(), key=lambda group: order.get(group[0], 1)):
        cells = [*(counts[verdict] for verdict in _VERDICTS), n := counts.total()]
        rows.append([key, *map(str, cells), short(counts["right"] / n)])
    click.echo(markdown(["", *_VERDICTS, "queries", "share right"], rows))


def _verdicts(model: str, device: str | None, names: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """Yield the collection, the type and the verdict of each query; an error is a wrong answer."""
    from boolattn.data.people import load_collection
    from boolattn.search import Searcher, load_model

    encoder = load_model(model, device=device)
    for name in names:
        documents, queries = load_collection(name)
        note(f"{name}: {len(documents):,} documents, {len(queries):,} queries")
        searcher = Searcher.from_texts(documents, encoder)
        for query in queries:
            try:
                result = searcher.search(query.text, 40)  # some are undecided
                yield name, query.type, query.judge([hit.id for hit in result.hits])
            except BoolattnError as error:
                note(f"wrong: {query.text!r}: {error}")
                yield name, query.type, "wrong"

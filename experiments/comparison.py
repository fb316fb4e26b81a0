"""Tables of all runs, by data set and encoder, with each line compared with plain towers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from boolattn.errors import MissingDataError
from boolattn.evaluation.results import compare_results
from boolattn.reproduction.runs import ENDING, NO_ENCODER, Run, load_queries
from experiments.lines import Table, collect_lines
from experiments.registry import grids, registry

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from boolattn.evaluation.significance import Comparison
    from experiments.lines import Line

BASELINE = ("plain", "plain_text")
#: Metrics that are compared.
TESTED = ("r_precision", "leak", "recall@100")


def load_tables(folder: Path) -> tuple[list[Table], list[Run]]:
    """Read all finished runs below a folder."""
    runs = [Run.load(path) for path in sorted(folder.glob(f"*/*/*{ENDING}"))]
    if not runs:
        raise MissingDataError(f"no finished run below {folder}; run some first")
    known = registry()
    order = grids()[0].systems
    runs.sort(key=lambda run: _index(order, known.present_name(run.key.system)))
    found = collect_lines(runs, known)
    tables = []
    for dataset, encoder in sorted(
        found, key=lambda key: (_index(known.datasets, key[0]), _index(known.encoders, key[1]))
    ):
        # Systems without an encoder come first in the table of every encoder.
        others = found.get((dataset, NO_ENCODER), [])
        if encoder == NO_ENCODER and any(d == dataset and e != encoder for d, e in found):
            continue
        own = [] if encoder == NO_ENCODER else found[dataset, encoder]
        queries = load_queries(folder, dataset)
        spec = known.encoders.get(encoder)
        tables.append(Table(known.dataset(dataset), spec, [*others, *own], queries))
    return tables, runs


def find_line(table: Table, system: str, query_mode: str) -> Line | None:
    """Find a line of a table."""
    for line in table.lines:
        if (line.system.name, line.query_mode.name) == (system, query_mode):
            return line
    return None


def compare_with_baseline(table: Table, line: Line) -> dict[str, dict[str, Comparison]]:
    """Compare a line with plain towers, by split and metric, over the seeds both have."""
    base = find_line(table, *BASELINE)
    if base is None or line is base or not line.system.has_seeds:
        return {}
    compared = {}
    for split in table.splits:
        if seeds := base.seeds(split) & line.seeds(split):
            first, second = (table.averaged(one, split, seeds) for one in (base, line))
            compared[split] = compare_results(first, second, metrics=TESTED)
    return compared


def _index(names: Iterable[str], name: str) -> int:
    listed = list(names)
    return listed.index(name) if name in listed else len(listed)

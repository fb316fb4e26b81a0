"""One table of all systems that were measured on the domains benchmark.

``boolattn evaluate MODEL --on domains --out OUT`` ranks and measures one model, in one or several
ways. This lays all results of the folder out in Markdown, with tests of significance::

    python -m experiments.domains --out OUT --split test
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from boolattn.evaluation.results import MEAN, Results, compare_results, domain_columns, domain_rows
from boolattn.evaluation.tables import domain_figure, markdown, save_figure, short
from boolattn.files import write_text

_SPLITS = ("validation", "validation_unseen", "test", "unseen")


def write_tables(out: Path, splits: Sequence[str], against: str) -> None:
    """Write ``table.md`` and the figure of each split that has results."""
    every = [Results.load(path) for path in sorted(out.glob("*.json*"))]
    lines: list[str] = []
    for split in splits:
        systems = [results for results in every if results.split == split]
        if not systems:
            continue
        columns = ["system", *(heading for heading, _, _ in domain_columns(split))]
        means = [[results.label, *map(short, domain_rows(results)[MEAN])] for results in systems]
        lines += [f"\n{split}, mean of the domains\n", markdown(columns, means)]
        for results in systems:
            rows = [[name, *map(short, row)] for name, row in domain_rows(results).items()]
            lines += [f"\n{split}, {results.label}\n", markdown(["", *columns[1:]], rows)]
        reference = next((s for s in systems if s.label == against), systems[0])
        title = f"\n{split}: differences to {reference.label}, over all queries\n"
        lines += [title, _tests(systems, reference)]
        save_figure(domain_figure(systems), out / f"{split}.png")
    write_text(out / "table.md", "\n".join(lines).lstrip() + "\n")


def _tests(systems: Sequence[Results], reference: Results) -> str:
    """Compare every system with one, by kind of query."""
    rows = []
    for results in systems:
        for kind in results.by("kind") if results is not reference else ():
            pair = [system.only("kind", kind) for system in (reference, results)]
            for metric, test in compare_results(*pair, metrics=["r_precision", "leak"]).items():
                cells = [f"{test.difference:+.3f}", f"{test.p_value:.4f}"]
                rows.append([results.label, kind, metric, *cells])
    return markdown(["system", "kind", "metric", "difference", "p"], rows)


def main(argv: Sequence[str] | None = None) -> None:
    """Write the table."""
    parser = argparse.ArgumentParser(prog="python -m experiments.domains", description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="folder of the results")
    parser.add_argument("--split", action="append", default=[], choices=_SPLITS)
    parser.add_argument("--against", default="shipped, composed", help="system to compare with")
    options = parser.parse_args(argv)
    write_tables(options.out, options.split or _SPLITS, options.against)


if __name__ == "__main__":
    main()

"""Accuracy of query parsing on several sets; its cost is in ``benchmarks.without_torch``.

    python -m benchmarks.parsing [--data TAXA_FOLDER] [--n 600] [--json FILE]

Sets: seen and unseen wordings of the taxa benchmark (where ``--data`` names it), generated queries
with cue words and clauses that training does not use, and names with a cue word, each one operand.
*structure*: numbers of positive and negated operands, and the joiner; *words*: the words of each
operand too; *confident*: confidence at or above the parser's threshold.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from boolattn.data.built import taxa
from boolattn.data.labelled_queries import label_queries
from boolattn.evaluation.parsing import has_same_operands, structure
from boolattn.query.parser import load_parser
from boolattn.query.reading import ReadingOptions, read_queries
from experiments.parser_queries.generator import generate_queries
from experiments.parsing.test_sets import cue_word_name_queries

if TYPE_CHECKING:
    from collections.abc import Sequence

    from boolattn.data.labelled_queries import LabelledQuery
    from boolattn.query.parser import Parser

_PLAIN = ReadingOptions(mode="plain")


def main() -> None:
    """Print the table."""
    options, parser, rows = _options(), load_parser(), {}
    print("| set | queries | structure | words | confident | structure, if confident |")
    print("|---|---|---|---|---|---|")
    for name, items in _sets(options.data, options.n).items():
        rows[name] = row = accuracy(parser, items)
        shares = " | ".join(f"{value:.3f}" for key, value in row.items() if key != "n")
        print(f"| {name} | {row['n']} | {shares} |", flush=True)
    if options.json:
        options.json.write_text(json.dumps(rows, indent=2) + "\n", encoding="utf-8")


def _sets(data: Path | None, n: int) -> dict[str, list[LabelledQuery]]:
    """Return about ``n`` queries of each set, evenly spaced."""
    sets: dict[str, list[LabelledQuery]] = {}
    if data:
        splits = taxa.load(data).dataset().splits
        for name, split in (("taxa, seen", "validation"), ("taxa, unseen", "unseen")):
            sets[name] = list(label_queries(splits[split]))
    sets["generated, unseen"] = list(generate_queries(n, 1, held_out=True))
    sets["names"] = cue_word_name_queries()
    return {name: items[:: max(1, len(items) // n)] for name, items in sets.items()}


def accuracy(parser: Parser, items: Sequence[LabelledQuery]) -> dict[str, Any]:
    """Compare parses with labels."""
    rows = []
    readings = read_queries([item.text for item in items], parser, _PLAIN)
    for item, reading in zip(items, readings, strict=True):
        expected = item.parsed.tree(item.text)
        is_right = structure(reading.parsed) == structure(expected)
        # One operand is right whatever its words: it is the query.
        has_words = is_right and (
            item.parsed.is_plain or has_same_operands(expected, reading.parsed)
        )
        rows.append((is_right, has_words, reading.confidence >= parser.threshold))
    right, words, confident = np.array(rows).T
    return {
        "n": len(items),
        "structure": float(right.mean()),
        "words": float(words.mean()),
        "confident": float(confident.mean()),
        "structure_if_confident": float(right[confident].mean()) if confident.any() else np.nan,
    }


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, help="a built taxa folder")
    parser.add_argument("--n", type=int, default=600, help="queries of each set")
    parser.add_argument("--json", type=Path)
    return parser.parse_args()


if __name__ == "__main__":
    main()

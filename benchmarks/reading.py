"""How well a model reads: structures and words right, on wordings it has and has not seen.

    python -m benchmarks.reading --model FOLDER [--data TAXA_FOLDER] [--n 600] [--json FILE]

Sets: the taxa benchmark's validation and unseen wordings (where ``--data`` names it), generated
texts whose cues and clauses no training text has, and real names that hold a cue word, every one
of which is one operand. *structure*: how many operands are kept and excluded and what joins them;
*words*: also the words of each operand; *sure*: confidence at the model's own threshold.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from boolattn.data import taxa
from boolattn.data.labelled_queries import label_queries
from boolattn.data.parser_tests import cue_word_name_queries
from boolattn.embedding.int8_storage import shipped_model
from boolattn.encoder.retriever import Retriever
from boolattn.logic.parsed_query import words
from experiments.parser_queries.generator import generate_queries

if TYPE_CHECKING:
    from collections.abc import Sequence

    from boolattn.logic.parsed_query import LabelledQuery, ParsedQuery
    from boolattn.parsing.decoding import ParserOutput

_AT_ONCE = 128


def main() -> None:
    """Read every set and print a table."""
    options = _options()
    retriever = Retriever.load(options.model or shipped_model())
    sets: dict[str, list[LabelledQuery]] = {}
    if options.data:
        benchmark = taxa.load(options.data)
        for name, split in (("taxa, seen", "validation"), ("taxa, unseen", "unseen")):
            sets[name] = _some(list(label_queries(benchmark.queries(split))), options.n)
    sets["generated, unseen"] = list(generate_queries(options.n, 1, held_out=True))
    sets["names"] = _some(cue_word_name_queries(), options.n)
    rows = {name: measure(retriever, items) for name, items in sets.items()}
    print("| set | texts | structure | words | sure | structure, if sure |")
    print("|---|---|---|---|---|---|")
    for name, row in rows.items():
        print(
            f"| {name} | {row['n']} | {row['structure']:.3f} | {row['words']:.3f} "
            f"| {row['sure']:.3f} | {row['structure_if_sure']:.3f} |"
        )
    if options.json:
        options.json.write_text(json.dumps(rows, indent=2) + "\n", encoding="utf-8")


def measure(retriever: Retriever, items: Sequence[LabelledQuery]) -> dict[str, Any]:
    """Read texts and compare with what they are marked with."""
    structure, exact, sure = [], [], []
    for start in range(0, len(items), _AT_ONCE):
        part = items[start : start + _AT_ONCE]
        for item, verdict in zip(part, retriever.parse([m.text for m in part]), strict=True):
            is_right = _form(verdict) == item.parsed.form
            structure.append(is_right)
            exact.append(is_right and _same_words(item, verdict.parsed))
            sure.append(verdict.confidence >= retriever.threshold)
    right, is_sure = np.array(structure), np.array(sure)
    return {
        "n": len(items),
        "structure": float(right.mean()),
        "words": float(np.mean(exact)),
        "sure": float(is_sure.mean()),
        "structure_if_sure": float(right[is_sure].mean()) if is_sure.any() else float("nan"),
    }


def _form(verdict: ParserOutput) -> tuple[int, int, str]:
    return verdict.parsed.form if verdict.parsed else (1, 0, "and")


def _same_words(item: LabelledQuery, found: ParsedQuery | None) -> bool:
    if item.parsed.is_plain or found is None:
        return item.parsed.is_plain
    return all(
        sorted(words(item.text, spans) for spans in own)
        == sorted(words(item.text, spans) for spans in wanted)
        for own, wanted in (
            (found.positive, item.parsed.positive),
            (found.negated, item.parsed.negated),
        )
    )


def _some(items: list[LabelledQuery], n: int) -> list[LabelledQuery]:
    """Take ``n`` spread over all."""
    return items[:: max(1, len(items) // n)]


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", type=Path, help="the shipped model when not given")
    parser.add_argument("--data", type=Path)
    parser.add_argument("--n", type=int, default=600)
    parser.add_argument("--json", type=Path)
    return parser.parse_args()


if __name__ == "__main__":
    main()

"""Accuracy of query parsing on several sets, and its cost beside encoding the query alone.

    python -m benchmarks.parsing [--model FOLDER] [--data TAXA_FOLDER] [--n 600] [--rounds 40]
        [--threads 2] [--json FILE]

Sets: seen and unseen wordings of the taxa benchmark (where ``--data`` names it), generated queries
with cue words and clauses that training does not use, and names with a cue word, each one operand.
*structure*: numbers of positive and negated operands, and the joiner; *words*: the words of each
operand too; *confident*: confidence at or above the parser's threshold.

Cost: reading and planning a query, and encoding its text alone, one at a time and in turns, so
that a busy machine slows both. The table shows the median of the ratios and their quartiles.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from boolattn.data.built import taxa
from boolattn.data.labelled_queries import label_queries
from boolattn.encoders.models import SHIPPED, load_model
from boolattn.evaluation.parsing import has_same_operands, structure
from boolattn.query.parser import load_parser
from boolattn.query.plan import plan_queries
from boolattn.query.reading import ReadingOptions, read_queries
from experiments.parser_queries.generator import generate_queries
from experiments.parsing.test_sets import cue_word_name_queries

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from boolattn.encoders.base import Encoder
    from boolattn.query.parsed_query import LabelledQuery
    from boolattn.query.parser import Parser
    from boolattn.query.plan import Plan

_BATCH, _WARM_UP = 128, 3
_PLAIN = ReadingOptions(mode="plain")
QUERIES = {
    "no operator": [
        "moths of Borneo",
        "which frogs live in Peru?",
        "orchids native to New Guinea",
        "species of beetles found in Japan",
    ],
    "operators": [
        "moths of Borneo but not Sumatra",
        "frogs of Peru or Ecuador",
        "orchids found in both New Guinea and Australia",
        "beetles of Japan that are also found in China but not in Korea",
    ],
}


def main() -> None:
    """Print both tables."""
    options = _options()
    torch.set_num_threads(options.threads)
    encoder, parser = load_model(str(options.model or SHIPPED)), load_parser()
    found = {"accuracy": {}, "cost": {}}
    print("| set | queries | structure | words | confident | structure, if confident |")
    print("|---|---|---|---|---|---|")
    for name, items in _sets(options.data, options.n).items():
        found["accuracy"][name] = row = accuracy(parser, items)
        shares = " | ".join(f"{value:.3f}" for key, value in row.items() if key != "n")
        print(f"| {name} | {row['n']} | {shares} |", flush=True)
    print("\n| queries | parsed as Boolean | plan / encode_query | quartiles |")
    print("|---|---|---|---|")
    for name, texts in QUERIES.items():
        found["cost"][name] = row = cost(encoder, parser, texts, options.rounds)
        low, high = row["quartiles"]
        print(f"| {name} | {row['composed']} | {row['ratio']:.2f} | {low:.2f} to {high:.2f} |")
    if options.json:
        options.json.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")


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
    for start in range(0, len(items), _BATCH):
        batch = items[start : start + _BATCH]
        readings = read_queries([item.text for item in batch], parser, _PLAIN)
        for item, reading in zip(batch, readings, strict=True):
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


def cost(encoder: Encoder, parser: Parser, texts: Sequence[str], n_rounds: int) -> dict[str, Any]:
    """Time planning and encoding in turns."""

    def plan(texts: Sequence[str]) -> list[Plan]:
        return plan_queries(read_queries(texts, parser, _PLAIN), encoder)

    n_composed = sum(one.is_composed for one in plan(texts))
    ratios = []
    for number in range(n_rounds + _WARM_UP):
        text = [texts[number % len(texts)]]
        planned = _seconds(lambda text=text: plan(text))
        ratios.append(planned / _seconds(lambda text=text: encoder.encode_queries(text)))
    low, middle, high = np.percentile(ratios[_WARM_UP:], [25, 50, 75]).tolist()
    composed = f"{n_composed} of {len(texts)}"
    return {"ratio": middle, "quartiles": [low, high], "composed": composed}


def _seconds(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", type=Path, help="default: the shipped model")
    parser.add_argument("--data", type=Path, help="a built taxa folder")
    parser.add_argument("--n", type=int, default=600, help="queries of each set")
    parser.add_argument("--rounds", type=int, default=40, help="of the cost")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--json", type=Path)
    return parser.parse_args()


if __name__ == "__main__":
    main()

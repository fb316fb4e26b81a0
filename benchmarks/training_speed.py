"""Training steps with the plug-in, without it, and of sentence-transformers' trainer.

    python -m benchmarks.training_speed [--encoder FOLDER] [--data FOLDER] [--json FILE]
        [--steps 30] [--only NAME ...] [--seconds 150] [--set KEY=VALUE ...]

FOLDER of --data is written by ``boolattn data build taxa --out FOLDER``; without it documents are
128 random tokens, and queries 64 with all three operators. ``--encoder random`` has MiniLM's shape.
Everything runs in the real trainer: sampling, batches, both towers, loss, backward, clipping,
AdamW, schedule, log; no evaluation and no checkpoint. A few batches are repeated, so that
tokenising, compiling and graph capture are not timed. The table shows the median block of steps. A
ratio compares rows of equal settings. Rows that capture CUDA graphs come last: a failed capture may
spoil the rows after it.
"""

from __future__ import annotations

import argparse
import json
import logging
import statistics
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory, mkdtemp
from typing import TYPE_CHECKING, Any

import torch
from transformers import (
    AutoConfig,
    AutoModel,
    AutoTokenizer,
    PrinterCallback,
    Trainer,
    TrainerCallback,
    TrainerState,
    TrainingArguments,
)
from transformers.utils.logging import disable_progress_bar

from benchmarks import training_peer
from benchmarks.encoding import SIZES
from boolattn.data.catalog import DataOptions, open_dataset
from boolattn.data.records import Dataset, Document, Query
from boolattn.encoders.models import shipped_model
from boolattn.files import write_text
from boolattn.training.batches.sampling import Steps
from boolattn.training.launch import load_encoder, make_steps, make_towers
from boolattn.training.loop import RunFolder, processes
from boolattn.training.retrieval import Corpus, RetrievalTraining
from boolattn.training.settings import Preset, load_preset

if TYPE_CHECKING:
    from boolattn.training.batches.tokens import Features

#: Highest acceptable ratio of a step with the plug-in to one without.
MAX_RATIO = 1.10
#: Number of different batches, warm-up steps, and steps of one timed block.
PERIOD, WARM, BLOCK = 6, 12, 6


@dataclass(frozen=True)
class Variant:
    """One row of the table; ``peer`` selects sentence-transformers' trainer."""

    name: str
    plugin: bool = True
    captured: str = "none"
    chunk: int = 64
    workers: int = 0
    peer: bool = False


def _pair(name: str, **settings: Any) -> list[Variant]:
    return [
        Variant(f"plain, {name}", plugin=False, **settings),
        Variant(f"plug-in, {name}", **settings),
    ]


VARIANTS = [
    *_pair("default"),
    Variant("sentence-transformers, 4 workers", plugin=False, peer=True, workers=4),
    Variant("sentence-transformers", plugin=False, peer=True),
    *_pair("worker, chunk 192", workers=1, chunk=192),
    *_pair("worker, no padding", workers=1, chunk=0),
    *_pair("worker", workers=1),
    *_pair("all captured, worker, chunk 192", captured="all", workers=1, chunk=192),
    *_pair("all captured, worker, no padding", captured="all", workers=1, chunk=0),
    *_pair("all captured, worker", captured="all", workers=1),
    *_pair("queries captured, worker", captured="queries", workers=1),
    *_pair("queries captured", captured="queries"),
]


class Repeated(Steps):
    """The same few steps, repeated."""

    def __getitem__(self, step: int) -> Features:
        return super().__getitem__(step % PERIOD)


class Clock(TrainerCallback):
    """Takes the time of blocks of steps."""

    def __init__(self) -> None:
        self.marks: list[float] = []

    def on_step_end(self, _: TrainingArguments, state: TrainerState, *__: Any, **___: Any) -> None:
        """Take the time of a step of transformers' Trainer."""
        self.take(state.global_step)

    def take(self, step: int) -> None:
        """Take the time."""
        if step >= WARM and step % BLOCK == 0:
            if torch.cuda.is_available():
                torch.cuda.synchronize()
            self.marks.append(time.perf_counter())

    def blocks(self) -> list[float]:
        """Return milliseconds per step of every block."""
        return [1000 * (b - a) / BLOCK for a, b in pairwise(self.marks)]


class Timed(RetrievalTraining):
    """Our training with a clock, without checkpoints and without the saved model."""

    clock: Clock

    def after_step(self, step: int, optimizer: torch.optim.Optimizer) -> None:
        """Take the time."""
        self.clock.take(step)

    def save(self) -> None:
        """Save nothing."""


def measure(variant: Variant, preset: Preset, corpus: Corpus) -> dict[str, Any]:
    """Train a few steps and return their times."""
    torch.manual_seed(0)
    model = replace(preset.model, use_plugin=variant.plugin)
    train = replace(preset.train, chunk=variant.chunk, captured=variant.captured)
    preset = replace(preset, model=model, train=train)
    towers = make_towers(preset).to(processes().device)
    note = ""
    clock = Clock()
    steps = make_steps(preset, corpus)
    with TemporaryDirectory(prefix="boolattn-speed-") as folder:
        trainer: Trainer | Timed
        if variant.peer:
            # As one epoch: its workers are restarted with each.
            columns = training_peer.column_names(preset.train.n_negatives)
            rows = training_peer.text_rows(steps, corpus, columns, PERIOD)
            rows *= preset.train.max_steps // PERIOD + 1
            trainer, note = training_peer.make_peer(preset, towers, rows, variant.workers)
            trainer.remove_callback(PrinterCallback)
            trainer.add_callback(clock)
        else:
            repeated = Repeated(**vars(steps))
            run = RunFolder(Path(folder))
            trainer = Timed(preset, towers, repeated, run, n_workers=variant.workers)
            trainer.clock = clock
        if torch.cuda.is_available():
            torch.cuda.reset_peak_memory_stats()
        trainer.train()
    blocks = sorted(clock.blocks())
    history = trainer.run.history if isinstance(trainer, Timed) else trainer.state.log_history
    row = {
        **asdict(variant),
        "ms": statistics.median(blocks),
        "low": blocks[0],
        "high": blocks[-1],
        "note": note,
        "loss": next((row["loss"] for row in history[::-1] if "loss" in row), None),
    }
    if torch.cuda.is_available():
        row["peak_GiB"] = torch.cuda.max_memory_allocated() / 2**30
    return row


def random_encoder(folder: Path) -> str:
    """Write an encoder of MiniLM's shape with random weights; return its folder."""
    AutoModel.from_config(AutoConfig.for_model("bert", **SIZES["minilm"])).save_pretrained(folder)
    AutoTokenizer.from_pretrained(shipped_model()).save_pretrained(folder)
    return str(folder)


def random_dataset(tokenizer: Any) -> Dataset:  # noqa: ANN401 - any tokenizer
    """Return documents of 128 tokens, and queries of 64 with all three operators."""
    random = Random(0)
    words = sorted(word for word in tokenizer.get_vocab() if word.isalpha() and len(word) > 3)
    texts = [" ".join(random.choices(words, k=126)) for _ in range(2000)]
    documents = [Document(id=str(row), text=text) for row, text in enumerate(texts)]
    queries = [
        Query(
            id=str(number),
            text=" ".join([*random.choices(words, k=59), "and", "or", "not"]),
            gold=frozenset(random.sample([one.id for one in documents], 5)),
        )
        for number in range(32 * PERIOD)
    ]
    return Dataset(name="random", documents=documents, splits={"train": tuple(queries)})


def with_ratios(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Add ratios: with the plug-in to without, and of the peer's best to ours."""
    done = [row for row in rows if row.get("ms")]
    peers = [row["ms"] for row in done if row["peer"]]
    settings = ("captured", "chunk", "workers")
    for row in done:
        if row["plugin"]:
            same = [
                other["ms"]
                for other in done
                if not other["plugin"]
                and not other["peer"]
                and all(other[key] == row[key] for key in settings)
            ]
            row["to_plain"] = row["ms"] / same[0] if same else None
        elif peers and not row["peer"]:
            row["peer_to_this"] = min(peers) / row["ms"]
    return rows


def show(rows: list[dict[str, Any]]) -> None:
    """Print the table."""
    print(f"{'trainer and settings':44} {'ms a step':>9} {'blocks':>17}  ratio")
    for row in rows:
        if "error" in row:
            print(f"{row['name']:44} failed: {row['error']}")
            continue
        note = row["note"]
        if row.get("to_plain"):
            verdict = "met" if row["to_plain"] <= MAX_RATIO else "missed"
            note = f"{row['to_plain']:.2f} of plain (limit {MAX_RATIO:.2f} {verdict}) {note}"
        if row.get("peer_to_this"):
            note = f"{row['peer_to_this']:.2f} times as fast as sentence-transformers {note}"
        blocks = f"{row['low']:.1f} to {row['high']:.1f}"
        print(f"{row['name']:44} {row['ms']:9.2f} {blocks:>17}  {note}")


def attempt(row: dict[str, Any], call: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Measure, or return the error."""
    try:
        return call()
    except Exception as error:  # noqa: BLE001 - the other rows go on
        logging.warning("%s", traceback.format_exc())
        first = (str(error).splitlines() or [""])[0]
        return {**row, "error": f"{type(error).__name__}: {first[:200]}"}


def measured(
    preset: Preset, corpus: Corpus, options: argparse.Namespace, started: float
) -> Iterator[dict[str, Any]]:
    """Measure and print row after row."""
    for variant in VARIANTS:
        if options.only and not any(words in variant.name for words in options.only):
            continue
        if time.perf_counter() - started > options.seconds:
            yield {**asdict(variant), "error": "no time left (--seconds)"}
            continue
        row = attempt(asdict(variant), partial(measure, variant, preset, corpus))
        shown = row.get("error") or f"{row['ms']:.2f} ms {row['note']}"
        print(f"  {row['name']}: {shown}", flush=True)
        yield row
        if torch.cuda.is_available():
            torch.cuda.empty_cache()


def main() -> None:
    """Run the benchmark."""
    options = _options()
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    disable_progress_bar()
    n_steps = WARM + max(BLOCK, -(-options.steps // BLOCK) * BLOCK)
    if options.encoder == "random":
        options.encoder = random_encoder(Path(mkdtemp(prefix="boolattn-speed-")))
    changes = [f"model.encoder={options.encoder}", f"max_steps={n_steps}", "keep=last"]
    changes += ["data.validation=", f"save_every={10 * n_steps}", *options.set]
    preset = load_preset(options.preset, changes)
    started = time.perf_counter()
    _, tokenizer = load_encoder(preset.model.encoder)
    dataset = random_dataset(tokenizer)
    if options.data:
        splits = preset.data.train.split("+")
        data = DataOptions(folder=options.data, splits=splits, training=True)
        dataset = open_dataset(preset.data.name, data)
    corpus = Corpus(dataset, tokenizer, preset.model.document_length)
    steps = make_steps(replace(preset, train=replace(preset.train, max_steps=1)), corpus)
    for step in range(PERIOD):  # tokenise before anything is timed
        _ = steps[step]
    where = torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU"
    print(
        f"{where}, torch {torch.__version__}; {len(corpus.documents)} documents; batch "
        f"{preset.train.batch_size}, {preset.train.n_negatives} negatives; "
        f"{time.perf_counter() - started:.0f} s to open",
        flush=True,
    )
    table: dict[str, Any] = {"device": where, "torch": torch.__version__, "rows": []}
    for row in measured(preset, corpus, options, started):
        table["rows"] = with_ratios([*table["rows"], row])
        if options.json:  # in case the time runs out
            write_text(options.json, json.dumps(table, indent=1) + "\n")
    show(table["rows"])


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--encoder", default="minilm", help="folder; default: the installed MiniLM")
    parser.add_argument("--data", type=Path)
    parser.add_argument("--preset", default="minilm-taxa")
    parser.add_argument("--steps", type=int, default=30, help="timed steps of each row")
    parser.add_argument("--only", nargs="*", default=[], help="rows with these words in the name")
    parser.add_argument("--seconds", type=float, default=150, help="start no row after this time")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--json", type=Path)
    return parser.parse_args()


if __name__ == "__main__":
    main()

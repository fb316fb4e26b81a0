"""What a worker does: lay out a data set, make sentences, teach heads, train and measure a system.

May import: boolattn.reproduction, boolattn.evaluation, boolattn.training, boolattn.composition,
boolattn.data, boolattn.plugin, boolattn.errors.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import time
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from boolattn.composition.retriever import Retriever
from boolattn.data.made import Store
from boolattn.data.sentences import Mixture
from boolattn.evaluation.judgements import Judgements
from boolattn.evaluation.metrics import DEFAULT, measure, needed_depth
from boolattn.plugin import attach, save
from boolattn.plugin.folder import whole_folder
from boolattn.reproduction.asking import Asker
from boolattn.reproduction.prepared import Prepared
from boolattn.reproduction.runs import Row, Run, RunKey, save_queries
from boolattn.training import launch
from boolattn.training.pretrain import HELD_OUT_SEED, Pretrainer
from boolattn.training.run_folder import about_machine, write_json

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from boolattn.data.records import Query
    from boolattn.reproduction.negation import NegationSettings
    from boolattn.reproduction.places import Places
    from boolattn.reproduction.prepared import SavedCorpus
    from boolattn.reproduction.systems import Encoder, Suite, System
    from boolattn.training.settings import Preset, PretrainSettings

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Layout:
    """Lay out a data set."""

    folder: Path
    data: Path | None
    preset: Preset

    def do(self, places: Places) -> str:
        """Open and tokenise it."""
        del places
        prepared = Prepared(self.folder)
        if not prepared.exists:
            dataset = launch.open_data(self.preset, self.data)
            tokenizer = _tokenizer(self.preset.model.encoder)
            before = os.environ.get("TOKENIZERS_PARALLELISM", "")
            # The only one that tokenises much; the others wait for it.
            os.environ["TOKENIZERS_PARALLELISM"] = "true"
            prepared.write(dataset, tokenizer, self.preset.model.document_length)
            os.environ["TOKENIZERS_PARALLELISM"] = before
        return f"laid out {self.folder.name}"


@dataclass(frozen=True, kw_only=True)
class Make:
    """Make the sentences that heads learn from."""

    settings: PretrainSettings
    what: str

    def do(self, places: Places) -> str:
        """Make one kind of them, where they are not there yet."""
        store, settings = Store(places.made), self.settings
        if self.what == "triplets":
            store.triplets(settings.n_sentences, settings.seed)
        elif self.what == "sentences":
            store.sentences(settings.n_sentences, settings.seed)
        else:
            seed = settings.seed + HELD_OUT_SEED
            for unseen in (False, True):
                if settings.n_held_out:
                    store.sentences(settings.n_held_out, seed, Mixture(unseen=unseen))
        return f"{self.what} of seed {settings.seed} are there"


@dataclass(frozen=True, kw_only=True)
class Heads:
    """Teach a plug-in its cues, scopes and gate."""

    folder: Path
    preset: Preset

    def do(self, places: Places) -> str:
        """Run the auxiliary pretraining of a preset, from sentences that are made once."""
        preset = self.preset
        if (self.folder / "metrics.json").is_file():
            return "heads are there"
        torch.manual_seed(preset.pretrain.seed)
        encoder, tokenizer = launch.load_encoder(preset.model.encoder)
        attach(encoder, preset.plugin, tokenizer=tokenizer)
        nn.Module.to(encoder, _device())
        trainer = Pretrainer(
            encoder, tokenizer, preset.pretrain, preset.model.pooling, made=Store(places.made)
        )
        metrics = trainer.run()
        with whole_folder(self.folder) as draft:
            save(encoder.cpu().eval(), draft / "model", tokenizer=tokenizer)
            write_json(draft / "metrics.json", metrics)
        words = ", ".join(f"{name} {value:.3f}" for name, value in metrics.items() if "_f1" in name)
        return f"heads: {words}"


@dataclass(frozen=True, kw_only=True)
class Train:
    """Train a system, where it is trained, and measure it."""

    key: RunKey
    system: System
    suite: Suite
    encoder: Encoder
    preset: Preset
    layout: Path
    heads: Path | None = None
    start: Path | None = None

    def do(self, places: Places) -> str:
        """Train, rank, measure, write."""
        clock = _Clock()
        home = places.work / "models" / "-".join(map(str, self.key.path.with_suffix("").parts))
        shutil.rmtree(home, ignore_errors=True)
        corpus = _corpus(self.layout, self.preset.model.encoder, self.preset.model.document_length)
        clock.lap("open")
        details: dict[str, Any] = {}
        if self.system.kind == "towers":
            pretrained = self.heads / "model" if self.heads else self.start
            where = launch.Launch(out=home, pretrained=pretrained)
            result = launch.train(self.preset, where, corpus)
            details["training"] = {"steps": result.n_steps, **result.metrics}
            clock.lap("train")
            retriever = Retriever.load(result.model, device=_device())
        else:
            retriever = Retriever(launch.make_towers(self.preset).to(_device()))
        prefix = self.encoder.query_prefix if self.system.kind == "as-is" else ""
        asker = Asker(retriever, corpus, self.preset, prefix)
        clock.lap("encode")
        asked = judged(self.suite, corpus)
        rows = [
            _measured(asker, how, split, queries)
            for how in self.system.asks
            for split, queries in asked.items()
        ]
        clock.lap("rank")
        if self.heads:
            details["heads"] = json.loads((self.heads / "metrics.json").read_text("utf-8"))
        settings = self.preset.to_dict()
        # Where an encoder lies on this machine is nobody else's business.
        settings["model"]["encoder"] = self.encoder.source
        details |= {"seconds": clock.laps, "settings": settings, **_about(places)}
        if torch.cuda.is_available():
            details["gpu_bytes"] = torch.cuda.max_memory_allocated()
        if not (places.runs / self.key.dataset / "queries.json.gz").is_file():
            save_queries(places.runs, self.key.dataset, asked)
        Run(self.key, rows, details).save(places.runs)
        if not places.keep:
            shutil.rmtree(home, ignore_errors=True)
        return _words(rows)


@dataclass(frozen=True, kw_only=True)
class Bm25:
    """Measure BM25, which needs neither an encoder nor a GPU."""

    key: RunKey
    suite: Suite
    encoder: Encoder
    preset: Preset
    layout: Path

    def do(self, places: Places) -> str:
        """Index, rank, measure, write."""
        from boolattn.evaluation.rankers import Bm25Ranker

        clock = _Clock()
        corpus = _corpus(self.layout, self.preset.model.encoder, self.preset.model.document_length)
        ranker = Bm25Ranker([document.text for document in corpus.dataset.documents])
        clock.lap("index")
        asked = judged(self.suite, corpus)
        rows = []
        for split, judgements in asked.items():
            ranking = ranker.rank(judgements.texts, needed_depth(judgements))
            values = measure(ranking, judgements)
            rows.append(Row("own", split, "none", judgements.n_documents, values))
        clock.lap("rank")
        if not (places.runs / self.key.dataset / "queries.json.gz").is_file():
            save_queries(places.runs, self.key.dataset, asked)
        Run(self.key, rows, {"seconds": clock.laps, **_about(places)}).save(places.runs)
        return _words(rows)


@dataclass(frozen=True, kw_only=True)
class Negate:
    """Teach heads negation from people's annotations, and measure them."""

    corpus: str
    data: Path | None
    encoder: Encoder
    source: str
    settings: NegationSettings

    @property
    def path(self) -> Path:
        """Its file below the folder of results."""
        kind = "frozen" if self.settings.is_frozen else "tuned"
        return Path(self.corpus, self.encoder.name, f"{kind}-{self.settings.seed}.json")

    def do(self, places: Places) -> str:
        """Train, measure, write."""
        from boolattn.reproduction import negation

        clock = _Clock()
        found = negation.run(self.corpus, self.data, self.source, self.settings)
        clock.lap("train")
        details = {"encoder": self.encoder.name, "seconds": clock.laps, **_about(places)}
        write_json(places.runs.parent / "negation" / self.path, found | details)
        return ", ".join(f"{name} {value:.3f}" for name, value in found["test"].items())


Work = Layout | Make | Heads | Train | Bm25 | Negate


def judged(suite: Suite, corpus: SavedCorpus) -> dict[str, Judgements]:
    """Return what is right on each split that is reported and there."""
    return {
        split: Judgements.of(corpus.split(split), corpus.rows)
        for split in suite.splits
        if corpus.dataset.splits.get(split)
    }


def _measured(asker: Asker, how: str, split: str, judgements: Judgements) -> Row:
    queries: tuple[Query, ...] = judgements.queries
    answer = asker.ask(how, queries, needed_depth(judgements, DEFAULT))
    values = measure(answer.ranking, judgements, DEFAULT) | answer.values
    model = asker.preset.model
    gate = asker.preset.plugin.gate if model.use_plugin else "none"
    if how == "label" and gate != "label":
        gate = f"label, trained with {gate}"
    return Row(how, split, gate, judgements.n_documents, values)


def _about(places: Places) -> dict[str, Any]:
    return {"command": places.command, **about_machine()}


def _words(rows: list[Row]) -> str:
    """Say the main numbers of the first way of asking."""
    parts = []
    for row in rows:
        if row.ask != rows[0].ask:
            continue
        means = {name: _mean(row.values[name]) for name in ("r_precision", "leak", "recall@100")}
        parts.append(f"{row.split}: " + ", ".join(f"{n} {v:.3f}" for n, v in means.items()))
    return "; ".join(parts)


def _mean(values: Any) -> float:  # noqa: ANN401 - an array
    known = values[values == values]
    return float(known.mean()) if len(known) else float("nan")


class _Clock:
    """Seconds of each part of a job."""

    def __init__(self) -> None:
        self.laps: dict[str, float] = {}
        self._last = time.perf_counter()

    def lap(self, name: str) -> None:
        now = time.perf_counter()
        self.laps[name] = round(now - self._last, 2)
        self._last = now


def _device() -> str:
    return "cuda" if torch.cuda.is_available() else "cpu"


@lru_cache(maxsize=4)
def _tokenizer(encoder: str) -> PreTrainedTokenizerBase:
    from transformers import AutoTokenizer

    source = launch.encoder_source(encoder)
    is_local = Path(source).is_dir()
    tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(
        source, local_files_only=is_local
    )
    return tokenizer


@lru_cache(maxsize=2)
def _corpus(folder: Path, encoder: str, length: int) -> SavedCorpus:
    return Prepared(folder).open(_tokenizer(encoder), length)

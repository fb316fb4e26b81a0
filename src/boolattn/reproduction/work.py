"""What a worker does: lay out a data set, make sentences, teach heads, train and measure a system.

May import: boolattn.reproduction, boolattn.evaluation, boolattn.training, boolattn.composition,
boolattn.data, boolattn.plugin, boolattn.errors.
"""

from __future__ import annotations

import json
import logging
import os
import platform
import shutil
import time
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from boolattn.data.sentences.store import SentenceStore
from boolattn.embedding.models import encoder_source
from boolattn.encoder.operand_logits import operand_reliability
from boolattn.encoder.retriever import Retriever
from boolattn.evaluation.judgements import Judgements
from boolattn.evaluation.metrics import DEFAULT, measure, needed_depth
from boolattn.evaluation.parse_accuracy import split_names, unseen_accuracy
from boolattn.files import atomic_folder
from boolattn.plugin import attach, save
from boolattn.reproduction.asking import Asker
from boolattn.reproduction.prepared import Prepared
from boolattn.reproduction.runs import Row, Run, save_queries
from boolattn.training import launch
from boolattn.training.pretrain import Pretrainer
from boolattn.training.run_folder import about_machine, write_json
from boolattn.training.towers import load_encoder, make_towers

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from boolattn.data.records import Query
    from boolattn.reproduction.jobs import Bm25, Heads, Layout, Negate, Train
    from boolattn.reproduction.places import Places
    from boolattn.reproduction.prepared import SavedCorpus
    from boolattn.reproduction.systems import Suite

logger = logging.getLogger(__name__)


def lay_out(job: Layout, places: Places) -> str:
    """Open and tokenise a data set."""
    del places
    prepared = Prepared(job.folder)
    if not prepared.exists:
        dataset = launch.open_data(job.preset, job.data)
        tokenizer = _tokenizer(job.preset.model.encoder)
        before = os.environ.get("TOKENIZERS_PARALLELISM", "")
        # The only one that tokenises much; the others wait for it.
        os.environ["TOKENIZERS_PARALLELISM"] = "true"
        prepared.write(dataset, tokenizer, job.preset.model.document_length)
        os.environ["TOKENIZERS_PARALLELISM"] = before
    return f"laid out {job.folder.name}"


def teach(job: Heads, places: Places) -> str:
    """Run the auxiliary pretraining of a preset, from sentences that are made once."""
    preset = job.preset
    if (job.folder / "metrics.json").is_file():
        return "heads are there"
    torch.manual_seed(preset.pretrain.seed)
    encoder, tokenizer = load_encoder(preset.model.encoder)
    attach(encoder, preset.plugin, tokenizer=tokenizer)
    nn.Module.to(encoder, _device())
    trainer = Pretrainer(
        encoder, tokenizer, preset.pretrain, preset.model.pooling, made=SentenceStore(places.made)
    )
    metrics = trainer.run()
    with atomic_folder(job.folder, replace=True) as draft:
        save(encoder.cpu().eval(), draft / "model", tokenizer=tokenizer)
        write_json(draft / "metrics.json", metrics)
    shown = ("held_out_cue_f1", "unseen_cue_f1", "unseen_scope_f1", "unseen_gate_accuracy")
    return ", ".join(f"{name} {metrics[name]:.3f}" for name in shown if name in metrics)


def train(job: Train, places: Places) -> str:
    """Train a system, where it is trained, rank, measure, and write the run."""
    clock = _Clock()
    home = places.work / "models" / "-".join(map(str, job.key.path.with_suffix("").parts))
    shutil.rmtree(home, ignore_errors=True)
    corpus = _corpus(job.layout, job.preset.model.encoder, job.preset.model.document_length)
    clock.lap("open")
    details: dict[str, Any] = {}
    if job.system.kind == "towers":
        pretrained = job.heads / "model" if job.heads else job.start
        where = launch.Launch(out=home, pretrained=pretrained, made=places.made)
        result = launch.train(job.preset, where, corpus)
        details["training"] = {"steps": result.n_steps, **result.metrics}
        clock.lap("train")
        retriever = Retriever.load(result.model, device=_device())
    else:
        retriever = Retriever(make_towers(job.preset).to(_device()))
    prefix = job.encoder.query_prefix if job.system.kind == "as-is" else ""
    asker = Asker(retriever, corpus, job.preset, prefix)
    clock.lap("encode")
    asked = judged(job.suite, corpus)
    rows = [
        _measured(asker, how, split, queries)
        for how in job.system.asked(job.key.seed)
        for split, queries in asked.items()
    ]
    clock.lap("rank")
    if retriever.parser is not None:
        details |= _reading(asker, asked)
        clock.lap("reading")
    if job.heads:
        details["heads"] = json.loads((job.heads / "metrics.json").read_text("utf-8"))
    settings = job.preset.to_dict()
    # Where an encoder lies on this machine is nobody else's business.
    settings["model"]["encoder"] = job.encoder.source
    details |= {"seconds": clock.laps, "settings": settings, **_about(places)}
    if torch.cuda.is_available():
        details["gpu_bytes"] = torch.cuda.max_memory_allocated()
    _save(Run(job.key, rows, details), asked, places)
    if not places.keep:
        shutil.rmtree(home, ignore_errors=True)
    return _words(rows)


def rank_words(job: Bm25, places: Places) -> str:
    """Index the words, rank by BM25, measure, and write the run."""
    from boolattn.search.lexical import Bm25Ranker

    clock = _Clock()
    corpus = _corpus(job.layout, job.preset.model.encoder, job.preset.model.document_length)
    ranker = Bm25Ranker([document.text for document in corpus.dataset.documents])
    clock.lap("index")
    asked = judged(job.suite, corpus)
    rows = []
    for split, judgements in asked.items():
        ranking = ranker.rank(judgements.texts, needed_depth(judgements))
        values = measure(ranking, judgements)
        rows.append(Row("own", split, "none", judgements.n_documents, values))
    clock.lap("rank")
    _save(Run(job.key, rows, {"seconds": clock.laps, **_about(places)}), asked, places)
    return _words(rows)


def negate(job: Negate, places: Places) -> str:
    """Train on annotated negation, measure, and write."""
    from boolattn.reproduction import negation

    clock = _Clock()
    found = negation.run(job.corpus, job.data, job.source, job.settings)
    clock.lap("train")
    details = {"encoder": job.encoder.name, "seconds": clock.laps, **_about(places)}
    write_json(places.runs.parent / "negation" / job.path, found | details)
    return ", ".join(f"{name} {value:.3f}" for name, value in found["test"].items())


def _save(run: Run, asked: dict[str, Judgements], places: Places) -> None:
    if not (places.runs / run.key.dataset / "queries.json.gz").is_file():
        save_queries(places.runs, run.key.dataset, asked)
    run.save(places.runs)


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


def _reading(asker: Asker, asked: dict[str, Judgements]) -> dict[str, Any]:
    """Measure what a ranking does not show of a model that reads."""
    queries = [query for judgements in asked.values() for query in judgements.queries]
    found = {
        "names": split_names(asker.retriever.plan),
        "fresh": unseen_accuracy(asker.retriever.plan),
    }
    # The same draw whatever the seed of the run: seeds are compared on the same operands.
    curves = operand_reliability(
        asker.retriever, queries, asker.documents, asker.corpus.rows, seed=0
    )
    return found | ({"reliability": curves} if curves else {})


def _about(places: Places) -> dict[str, Any]:
    about = about_machine()
    # The kernel's own version says nothing about a result.
    about["machine"]["system"] = f"{platform.system()} {platform.machine()}"
    return {"command": places.command, **about}


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

    source = encoder_source(encoder)
    is_local = Path(source).is_dir()
    tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(
        source, local_files_only=is_local
    )
    return tokenizer


@lru_cache(maxsize=2)
def _corpus(folder: Path, encoder: str, length: int) -> SavedCorpus:
    return Prepared(folder).open(_tokenizer(encoder), length)

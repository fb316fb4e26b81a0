"""Runs: pretrain, train, rank the whole corpus, measure, and write the run file."""

from __future__ import annotations

import json
import logging
import platform
import shutil
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from boolattn.encoder.torch_encoder import TorchEncoder
from boolattn.errors import BoolattnError
from boolattn.evaluation.judgements import Judgements
from boolattn.evaluation.metrics import DEFAULT, mean, measure, needed_depth
from boolattn.evaluation.ranking import Ranking
from boolattn.files import atomic_file
from boolattn.query.tree import OPERATORS
from boolattn.reproduction.inputs import data_fingerprint, fingerprints, open_data
from boolattn.reproduction.preflight import check, open_corpus
from boolattn.reproduction.requests import RunInputs, find_finished, resolve
from boolattn.reproduction.runs import Row, Run, save_queries
from boolattn.reproduction.systems import paper_registry
from boolattn.scoring.exact import exact_search
from boolattn.training import launch
from boolattn.training.batches.sampling import label_columns
from boolattn.training.batches.tokens import Tokens
from boolattn.training.retrieval.training import release_memory
from boolattn.training.run_folder import about_machine
from boolattn.training.towers import make_towers
from boolattn.training.validation import encode

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from torch import Tensor

    from boolattn.data.records import Query
    from boolattn.reproduction.requests import Paths, RunRequest
    from boolattn.reproduction.runs import RunKey
    from boolattn.reproduction.systems import DatasetSpec, RunSpec
    from boolattn.training.corpus import Corpus
    from boolattn.training.settings import Preset

logger = logging.getLogger(__name__)

#: Documents of a BM25 ranking that hard negatives are drawn from.
_N_RANKED = 100
#: What a training that is not finished was begun with.
_BEGUN = "begun.json"


@dataclass
class VectorRanker:
    """Ranks a corpus by one vector a query, in the query modes of the paper's tables."""

    encoder: TorchEncoder
    corpus: Corpus
    preset: Preset
    prefix: str = ""  # Instruction before every query

    def __post_init__(self) -> None:
        towers, documents = self.encoder.towers.eval(), self.corpus.documents
        size = 1024 if towers.device.type == "cuda" else 64
        with torch.inference_mode():
            rows = range(len(documents))
            self.documents = encode(towers, documents, rows, "document", size)

    def rank(self, mode: str, queries: Sequence[Query], depth: int) -> Ranking:
        """Rank the corpus in one query mode."""
        vectors = self._encode(queries, use_labels=mode == "oracle_operators")
        found = exact_search(vectors, self.documents, depth)
        return Ranking(found.rows.astype(np.int32), found.scores)

    def _encode(self, queries: Sequence[Query], *, use_labels: bool) -> Tensor:
        labels = None
        if use_labels:
            rows = [[int(op in query.operators) for op in OPERATORS] for query in queries]
            labels = torch.tensor(rows)[:, label_columns(self.preset.plugin.operators)]
        texts = [self.prefix + query.text for query in queries]
        tokens = Tokens(self.corpus.tokenizer, texts, self.preset.model.query_length)
        with torch.inference_mode():
            every = range(len(texts))
            return encode(self.encoder.towers, tokens, every, "query", 256, labels)


def run_all(request: RunRequest, paths: Paths, progress: Callable[[str], None]) -> list[Path]:
    """Do the requested runs, after whatever can be checked; return the files of finished ones."""
    request.check_names(paper_registry())
    for cache in (open_data, open_corpus):
        cache.cache_clear()  # files may have changed since
    found, to_do = [], []
    for spec in request.specs(paper_registry()):
        preset = resolve(spec, request)
        if path := find_finished(spec, preset, request, paths.runs):
            found.append(path)
        else:
            to_do.append((spec, preset))
    check(to_do, request)
    progress(f"{len(to_do)} runs to do, {len(found)} finished")
    for spec, preset in to_do:
        cause = ""
        try:
            progress(f"{spec.key}: {_run(spec, preset, request, paths)}")
            found.append(paths.runs / spec.key.path)
        except BoolattnError as error:
            cause = str(error)
        except Exception as error:  # one run must not end the others
            logger.exception("%s", spec.key)
            cause = f"{type(error).__name__}: {error}"
        paths.note_failure(spec.key, cause)
        if cause:
            progress(f"FAILED {spec.key}: {cause}")
    return found


def _run(spec: RunSpec, preset: Preset, request: RunRequest, paths: Paths) -> str:
    start = request.start(spec)
    pretrained = None
    if spec.system.pretrain and start is None:
        pretrained = paths.pretraining(preset)
        pretrain(preset, pretrained)
    inputs = RunInputs(spec=spec, preset=preset, pretrained=pretrained, start=start)
    model, where = preset.model, request.data_place(spec, preset)
    corpus = open_corpus(model.encoder, model.document_length, where)
    try:
        return execute(inputs, corpus, paths)
    finally:
        release_memory()


def pretrain(preset: Preset, folder: Path) -> str:
    """Pretrain a plug-in, unless the folder has it; return its metrics in words."""
    path = folder / "metrics.json"
    if not path.is_file():
        # An interrupted pretraining has no metrics.
        shutil.rmtree(folder, ignore_errors=True)
        launch.pretrain(preset, launch.Launch(out=folder))
    metrics = json.loads(path.read_text("utf-8"))["summary"]
    names = ("held_out_cue_f1", "unseen_cue_f1", "unseen_scope_f1", "unseen_gate_accuracy")
    return ", ".join(f"{name} {metrics[name]:.3f}" for name in names if name in metrics)


def execute(inputs: RunInputs, corpus: Corpus, paths: Paths) -> str:
    """Train, rank, measure, write the run file; return the main results in words."""
    clock, spec, preset = Stopwatch(), inputs.spec, inputs.preset
    home = paths.work / "models" / str(spec.key).replace(" ", "-")
    own = fingerprints(spec, preset, corpus.dataset, inputs.start)
    is_begun = _begin(home, {"settings": preset.to_dict(), "inputs": own})
    details: dict[str, Any] = {}
    if spec.system.kind == "trained":
        source = inputs.pretrained / "model" if inputs.pretrained else inputs.start
        where = launch.Launch(
            out=home,
            pretrained=source,
            rankings=_bm25(corpus, preset, paths.work) if preset.train.n_bm25 else None,
            resume=is_begun,
            command=paths.command,
        )
        result = launch.train(preset, where, corpus)
        details["training"] = {"steps": result.n_steps, **result.metrics}
        clock.lap("train")
        encoder, prefix = TorchEncoder.load(result.model, device=device()), ""
    else:
        encoder = TorchEncoder(make_towers(preset).to(device()))
        prefix = spec.encoder.query_prefix
    ranker = VectorRanker(encoder, corpus, preset, prefix)
    clock.lap("encode")
    judged = judge(spec.dataset, corpus)
    rows = [
        _measured(ranker, mode, split, judgements)
        for mode in spec.system.modes(spec.seed)
        for split, judgements in judged.items()
    ]
    clock.lap("rank")
    if inputs.pretrained:
        written = (inputs.pretrained / "metrics.json").read_text("utf-8")
        details["heads"] = json.loads(written)["summary"]
    settings = preset.to_dict()
    # Not the folder of the encoder on this machine.
    settings["model"]["encoder"] = spec.encoder.source
    details |= {"seconds": clock.laps, "settings": settings, "inputs": own}
    if torch.cuda.is_available():
        details["gpu_bytes"] = torch.cuda.max_memory_allocated()
    words = write_run(spec.key, rows, details, judged, paths)
    # Other runs may start from the model, but not from what training needed.
    for part in ("checkpoints", "best") if paths.keep_models else ("",):
        shutil.rmtree(home / part, ignore_errors=True)
    (home / _BEGUN).unlink(missing_ok=True)
    return words


def _begin(home: Path, about: Mapping[str, Any]) -> bool:
    """Return whether a folder holds the same training, interrupted; else make it a new one."""
    path, text = home / _BEGUN, json.dumps(about, sort_keys=True)
    if path.is_file() and path.read_text("utf-8") == text:
        return True
    shutil.rmtree(home, ignore_errors=True)
    with atomic_file(path) as handle:
        handle.write(text)
    return False


def _bm25(corpus: Corpus, preset: Preset, work: Path) -> Path:
    """Rank the training queries by BM25, for hard negatives; return the file."""
    from boolattn.search.ranker import Bm25Ranker

    split, documents = preset.data.train, corpus.dataset.documents
    digest = data_fingerprint(corpus.dataset, split.split("+"))
    path = work / "bm25" / f"{corpus.dataset.name}-{split}-{digest}.json"
    if not path.is_file():
        queries = corpus.split(split)
        ranker = Bm25Ranker([document.text for document in documents])
        found = ranker.rank([query.text for query in queries], _N_RANKED).rows.tolist()
        ids = list(corpus.rows)
        ranked = {
            query.id: [ids[row] for row in rows if row >= 0]
            for query, rows in zip(queries, found, strict=True)
        }
        with atomic_file(path) as handle:
            handle.write(json.dumps(ranked, ensure_ascii=False))
    return path


def write_run(
    key: RunKey,
    rows: Sequence[Row],
    details: Mapping[str, Any],
    judged: Mapping[str, Judgements],
    paths: Paths,
) -> str:
    """Write a run file; return the main results of the first query mode in words."""
    save_queries(paths.runs, key.dataset, judged)
    Run(key, rows, {**details, **about(paths)}).save(paths.runs)
    names = ("r_precision", "leak", "recall@100")
    return "; ".join(
        f"{row.split}: " + ", ".join(f"{name} {mean(row.values[name]):.3f}" for name in names)
        for row in rows
        if row.query_mode == rows[0].query_mode
    )


def judge(dataset: DatasetSpec, corpus: Corpus) -> dict[str, Judgements]:
    """Return the relevant documents of each reported split."""
    return {
        split: Judgements.of(corpus.split(split), corpus.rows)
        for split in dataset.splits
        if corpus.dataset.splits.get(split)
    }


def _measured(ranker: VectorRanker, mode: str, split: str, judgements: Judgements) -> Row:
    ranking = ranker.rank(mode, judgements.queries, needed_depth(judgements, DEFAULT))
    gate = ranker.preset.plugin.gate if ranker.preset.model.use_plugin else "none"
    gate = gate.replace("label", "oracle")
    if mode == "oracle_operators" and gate != "oracle":
        gate = f"oracle, trained with {gate}"
    values = measure(ranking, judgements, DEFAULT)
    return Row(mode, split, gate, judgements.n_documents, values)


def about(paths: Paths) -> dict[str, Any]:
    """Return command, versions, revision and machine, for result files."""
    found = about_machine()
    # The kernel's version says nothing about a result.
    found["machine"]["system"] = f"{platform.system()} {platform.machine()}"
    return {"command": paths.command, **found}


class Stopwatch:
    """Seconds of each part of a run."""

    def __init__(self) -> None:
        self.laps: dict[str, float] = {}
        self._last = time.perf_counter()

    def lap(self, name: str) -> None:
        """End a part."""
        now = time.perf_counter()
        self.laps[name] = round(now - self._last, 2)
        self._last = now


def device() -> str:
    """Return the device to compute on."""
    return "cuda" if torch.cuda.is_available() else "cpu"

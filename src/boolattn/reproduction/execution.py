"""Runs: pretrain, train, rank the whole corpus, measure, and write the run file."""

from __future__ import annotations

import json
import logging
import shutil
import time
from itertools import product
from typing import TYPE_CHECKING, Any

import torch
from filelock import FileLock, Timeout

from boolattn.encoder.torch_encoder import encode_documents
from boolattn.encoder.towers import load_towers
from boolattn.errors import BoolattnError
from boolattn.evaluation.benchmark import Judgements
from boolattn.evaluation.metrics import measure, needed_depth
from boolattn.evaluation.ranking import write_run
from boolattn.evaluation.results import results_of
from boolattn.files import atomic_file
from boolattn.reproduction.requests import (
    data_fingerprint,
    encoder_fingerprint,
    find_finished,
    open_corpus,
    open_data,
)
from boolattn.reproduction.runs import Run
from boolattn.training import launch
from boolattn.training.launch import make_towers
from boolattn.training.loop import about_machine, processes
from boolattn.training.retrieval import encode_queries, rank, release_memory

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from sentence_transformers import SentenceTransformer

    from boolattn.evaluation.ranking import Ranking
    from boolattn.reproduction.requests import Paths, PlannedRun, RunRequest
    from boolattn.training.retrieval import Corpus
    from boolattn.training.settings import Preset

    #: Query mode, split, source of the operator labels, and the ranking.
    Rankings = Iterator[tuple[str, str, str, Ranking]]

logger = logging.getLogger(__name__)

#: Documents of a BM25 ranking that hard negatives are drawn from.
_N_RANKED = 100
#: What a training that is not finished was begun with.
_BEGUN = "begun.json"


def plan(request: RunRequest, paths: Paths) -> tuple[list[Path], list[PlannedRun]]:
    """Return the files of the requested runs that are finished, and the runs that are not."""
    request.check_names()
    for cache in (open_data, open_corpus, encoder_fingerprint):
        cache.cache_clear()  # files may have changed since
    finished, to_do = [], []
    for run in request.runs():
        if path := find_finished(run, (paths.runs, *request.done)):
            finished.append(path)
        else:
            to_do.append(run)
    return finished, to_do


def run_all(request: RunRequest, paths: Paths, progress: Callable[[str], None]) -> list[Path]:
    """Do the requested runs, after whatever can be checked; return the files of finished ones.

    Several processes may do the same request: none repeats what another has begun.
    """
    finished, to_do = plan(request, paths)
    for run in to_do:
        run.check()
    progress(f"{len(to_do)} runs to do, {len(finished)} finished")
    for run in to_do:
        key = run.key
        path = paths.runs / key.path
        try:
            with paths.lock(key):
                if not path.is_file():
                    progress(f"{key}: {_execute(run, paths)}")
            finished.append(path)
        except Timeout:
            progress(f"{key}: another process does it")
        except BoolattnError as error:
            progress(f"FAILED {key}: {error}")
        except Exception as error:  # one run must not end the others
            logger.exception("%s", key)
            progress(f"FAILED {key}: {type(error).__name__}: {error}")
        finally:
            release_memory()
    return finished


def pretrain(preset: Preset, folder: Path) -> Path:
    """Pretrain a plug-in, unless the folder has it; return the file of its metrics."""
    path = folder / "metrics.json"
    folder.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{folder}.lock"):
        if not path.is_file():
            # An interrupted pretraining has no metrics.
            shutil.rmtree(folder, ignore_errors=True)
            launch.pretrain(preset, launch.Launch(out=folder))
    return path


def _execute(run: PlannedRun, paths: Paths) -> str:
    """Train, rank, measure, write the run file; return the main results in words."""
    start, seconds = time.perf_counter(), dict[str, float]()
    system, preset, corpus = run.system, run.preset, run.corpus
    judged = {
        split: Judgements.of(corpus.split(split), corpus.rows)
        for split in run.dataset.splits
        if corpus.dataset.splits.get(split)
    }
    details: dict[str, Any] = {"seconds": seconds, "inputs": run.fingerprints()}
    if system.kind == "bm25":
        rankings = _bm25_rankings(corpus, judged)
    else:
        settings = preset.to_dict()
        # Not the folder of the encoder on this machine.
        settings["model"]["encoder"] = run.encoder.source
        details["settings"] = settings
        if system.kind == "trained":
            towers = _trained(run, paths, details)
            seconds["train"] = round(time.perf_counter() - start, 2)
        else:
            towers = make_towers(preset).to(processes().device)
        rankings = _tower_rankings(run, towers, judged)
    names = {"system": system.name, "dataset": run.dataset.name, "seed": run.seed}
    results = []
    for mode, split, gate, ranking in rankings:
        about = {**names, "split": split, "gate": gate, "details": {"query_mode": mode}}
        results.append(results_of(judged[split], measure(ranking, judged[split]), **about))
    seconds["rank"] = round(time.perf_counter() - start - sum(seconds.values()), 2)
    if torch.cuda.is_available():
        details["gpu_bytes"] = torch.cuda.max_memory_allocated()
    details |= {"command": paths.command, **about_machine()}
    Run(run.key, results, details).save(paths.runs)
    # Other runs may start from the model, but not from what training needed.
    home = paths.model(run.key)
    if not paths.keep_models:
        shutil.rmtree(home, ignore_errors=True)
    for name in ("checkpoint.safetensors", _BEGUN):
        (home / name).unlink(missing_ok=True)
    metrics = ("r_precision", "leak", "recall@100")
    return "; ".join(
        f"{r.split}: " + ", ".join(f"{name} {r.means[name]:.3f}" for name in metrics)
        for r in results[: len(judged)]
    )


def _trained(run: PlannedRun, paths: Paths, details: dict[str, Any]) -> SentenceTransformer:
    """Pretrain, train, note both in the details, and return the model."""
    preset, source = run.preset, run.start
    if run.system.pretrain and source is None:
        metrics = pretrain(preset, paths.pretraining(preset))
        details["heads"] = json.loads(metrics.read_text("utf-8"))["summary"]
        source = metrics.parent / "model"
    home = paths.model(run.key)
    is_begun = _begin(home, {"settings": preset.to_dict(), "inputs": details["inputs"]})
    where = launch.Launch(
        out=home,
        pretrained=source,
        rankings=_bm25(run.corpus, preset, paths.work) if preset.train.n_bm25 else None,
        resume=is_begun,
        command=paths.command,
    )
    result = launch.train(preset, where, run.corpus)
    details["training"] = {"steps": result.n_steps, **result.metrics}
    return load_towers(result.model, device=str(processes().device))


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
    from boolattn.search.systems import Bm25Ranker

    split, documents = preset.data.train, corpus.dataset.documents
    digest = data_fingerprint(corpus.dataset, split.split("+"))
    path = work / "bm25" / f"{corpus.dataset.name}-{split}-{digest}.run"
    if not path.is_file():
        queries = corpus.split(split)
        ranker = Bm25Ranker([document.text for document in documents])
        ranking = ranker.rank([query.text for query in queries], _N_RANKED)
        write_run(path, ranking, [query.id for query in queries], list(corpus.rows))
    return path


def _bm25_rankings(corpus: Corpus, judged: Mapping[str, Judgements]) -> Rankings:
    from boolattn.search.systems import Bm25Ranker

    ranker = Bm25Ranker([document.text for document in corpus.dataset.documents])
    for split, judgements in judged.items():
        ranking = ranker.rank(judgements.texts, needed_depth(judgements))
        yield "plain_text", split, "none", ranking


def _tower_rankings(
    run: PlannedRun, towers: SentenceTransformer, judged: Mapping[str, Judgements]
) -> Rankings:
    """Rank the corpus by one vector a query, in each query mode on each split."""
    system, preset = run.system, run.preset
    gate = preset.plugin.gate.replace("label", "oracle") if preset.model.use_plugin else "none"
    prefix = run.encoder.query_prefix if system.kind == "untrained" else ""
    documents = encode_documents(towers, [document.text for document in run.data.documents])
    for mode, (split, judgements) in product(system.query_modes, judged.items()):
        use_labels = mode == "oracle_operators"
        operators = preset.plugin.operators if use_labels else None
        vectors = encode_queries(towers, judgements, operators, prefix)
        is_other = use_labels and gate != "oracle"
        labels = f"oracle, trained with {gate}" if is_other else gate
        yield mode, split, labels, rank(vectors, documents, needed_depth(judgements))

"""What the demo stands on: the corpus, two models and their indexes, each made once and kept.

Everything lies under the user's cache, named after what it was made from: another model or
other data have another folder. A build that was stopped goes on where it stopped.
May import: boolattn.search, boolattn.evaluation, boolattn.composition, boolattn.encoder,
boolattn.data, boolattn.errors.
"""

from __future__ import annotations

import hashlib
import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from threading import local
from typing import TYPE_CHECKING

from boolattn.errors import ConfigError, IndexFolderError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import numpy as np
    from numpy.typing import NDArray
    from sentence_transformers import SentenceTransformer

    from boolattn.cli.demo.steps import Steps
    from boolattn.data.records import Document
    from boolattn.encoder.retriever import Retriever
    from boolattn.evaluation.benchmark import Benchmark
    from boolattn.evaluation.judgements import Judgements
    from boolattn.search import Searcher
    from boolattn.search.index.settings import Encode

#: What the plain encoder is called.
PLAIN = "all-MiniLM-L6-v2"
#: Documents between two signs of progress, and what a stopped build loses at most.
_SEGMENT = 250
#: Queries whose wordings no training saw.
SPLIT = "unseen"


@dataclass(frozen=True)
class Stage:
    """All that is needed to search and to measure.

    Attributes:
        folder: Where the corpus' indexes are kept.
        benchmark: The corpus, whose rows are those of both indexes, and its name.
        judgements: The benchmark's queries, in wordings that no training saw.
        plain: The plain encoder's index.
        boolean: The Boolean model's index.
        name: What the Boolean model is called.
    """

    folder: Path
    benchmark: Benchmark
    judgements: Judgements
    plain: Searcher
    boolean: Searcher
    name: str


def set_up(model: str, data: Path | None, n_documents: int, steps: Steps) -> Stage:
    """Build what is not there yet, and open it.

    Args:
        model: The Boolean model: ``shipped``, or a folder.
        data: A built taxa folder; left out, the cache's small one, built if need be.
        n_documents: Index about so many: all that the queries name, and others; 0 indexes all.
        steps: Told what is being done.
    """
    from boolattn.data.catalog import Options, open_dataset
    from boolattn.evaluation.benchmark import prepare

    dataset = open_dataset("taxa", Options(folder=data, size="small", tell=steps.say))
    benchmark = prepare(dataset, [SPLIT], n_documents=n_documents)
    folder = _folder(benchmark.documents)
    steps.say("opening the models")
    boolean = _index(folder, model, benchmark.documents, steps)
    plain = _index(folder, "minilm", benchmark.documents, steps)
    name = "the shipped model" if model == "shipped" else Path(model).resolve().name
    return Stage(folder, benchmark, benchmark.splits[SPLIT], plain, boolean, name)


def _folder(documents: Sequence[Document]) -> Path:
    """Return the place of the indexes of some documents."""
    from boolattn.files import cache_folder

    digest = hashlib.sha256()
    for document in documents:
        digest.update(f"{document.id}\0{document.title}\0{document.text}\0".encode())
    return cache_folder() / "demo" / f"taxa-{len(documents)}-{digest.hexdigest()[:8]}"


def _index(folder: Path, model: str, documents: Sequence[Document], steps: Steps) -> Searcher:
    """Open a model's index of the documents, or build it."""
    from boolattn.embedding.models import absolute_name
    from boolattn.search import Searcher, load_model

    retriever = load_model(model)
    stem = PLAIN if model == "minilm" else Path(absolute_name(model)).name
    where = folder / f"{stem}-{retriever.fingerprint[:8]}"
    try:
        found = Searcher.open(where, retriever)
    except IndexFolderError:
        pass
    else:
        if len(found) == len(documents):
            return found
    what = f"encoding with {PLAIN}" if model == "minilm" else f"encoding with {stem} model"
    with steps.count(what, len(documents)) as tell:
        return Searcher.build(
            where,
            documents,
            retriever,
            encode=_quick(_towers(model, retriever)),
            tell=tell,
            model=absolute_name(model),
            segment_size=_SEGMENT,
            resume=True,
        )


def _towers(model: str, retriever: Retriever) -> SentenceTransformer:
    """Return the model as two towers, if it can be one."""
    from boolattn.embedding.models import resolve
    from boolattn.encoder import build_towers

    # Mean, cosine, 256 tokens: its vectors stay what they are.
    return build_towers(resolve(model)) if model == "minilm" else retriever.towers


def _quick(towers: SentenceTransformer) -> Encode | None:
    """Return what encodes two towers on every core, if they are two: a thread has its own texts.

    Threads that share one small matrix wait for each other, and on a busy machine for others.
    """
    import torch

    from boolattn.encoder import DocumentEncoder

    try:
        DocumentEncoder(towers)
    except ConfigError:
        return None
    own, n_threads = local(), _n_cores() if towers.device.type == "cpu" else 1

    def begin() -> None:
        if n_threads > 1:
            torch.set_num_threads(1)
        # One for each thread, because a tokenizer must not be shared.
        own.encode = DocumentEncoder(towers)

    def run(batches: Iterable[list[str]], /) -> Iterator[NDArray[np.float32]]:
        before = torch.get_num_threads()
        pool = ThreadPoolExecutor(n_threads, initializer=begin)
        try:
            yield from pool.map(lambda texts: own.encode(texts).cpu().numpy(), batches)
        finally:
            # Whoever stops the demo does not wait for what nobody will take.
            pool.shutdown(cancel_futures=True)
            torch.set_num_threads(before)

    return run


def _n_cores() -> int:
    """Count the cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1

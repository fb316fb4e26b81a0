"""Corpus, models and indexes of the demo, built once in the user's cache.

The folders are named after the documents and the model. A build that was stopped is continued.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from boolattn.errors import IndexFolderError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from boolattn.data.records import Document
    from boolattn.evaluation.benchmark import Benchmark, Judgements
    from boolattn.search import Searcher
    from examples.demo.progress import Progress

#: Name of the plain encoder.
PLAIN = "all-MiniLM-L6-v2"
#: Documents of a segment: what a stopped build loses at most.
_SEGMENT = 250
#: Queries with wordings that no training data has.
SPLIT = "unseen"


@dataclass(frozen=True)
class Setup:
    """What the demo searches and measures.

    Attributes:
        folder: Folder of the indexes.
        benchmark: The corpus of both indexes.
        judgements: The benchmark's queries with unseen wordings.
        plain: The plain encoder's index.
        boolean: The Boolean model's index.
        name: Name of the Boolean model.
    """

    folder: Path
    benchmark: Benchmark
    judgements: Judgements
    plain: Searcher
    boolean: Searcher
    name: str


def set_up(model: str, data: Path | None, n_documents: int, progress: Progress) -> Setup:
    """Open both indexes; build those that are missing.

    Args:
        model: The Boolean model: ``shipped``, or a folder.
        data: A built taxa folder; default: the small one of the cache, built if needed.
        n_documents: About so many: all that the queries name, and others; 0: all.
        progress: Shows the steps.
    """
    from boolattn.data.catalog import DataOptions, open_dataset
    from boolattn.evaluation.benchmark import prepare

    dataset = open_dataset("taxa", DataOptions(folder=data, size="small", tell=progress.log))
    benchmark = prepare(dataset, [SPLIT], n_documents=n_documents)
    folder = _folder(benchmark.documents)
    progress.log("loading the models")
    boolean = _index(folder, model, benchmark.documents, progress)
    plain = _index(folder, "minilm", benchmark.documents, progress)
    name = "the shipped model" if model == "shipped" else Path(model).resolve().name
    return Setup(folder, benchmark, benchmark.splits[SPLIT], plain, boolean, name)


def _folder(documents: Sequence[Document]) -> Path:
    """Return the folder for the indexes of some documents."""
    from boolattn.files import cache_folder

    digest = hashlib.sha256()
    for document in documents:
        digest.update(f"{document.id}\0{document.title}\0{document.text}\0".encode())
    return cache_folder() / "demo" / f"taxa-{len(documents)}-{digest.hexdigest()[:8]}"


def _index(folder: Path, model: str, documents: Sequence[Document], progress: Progress) -> Searcher:
    """Open a model's index of the documents, or build it."""
    from boolattn.encoders.models import absolute_name
    from boolattn.search import Searcher, load_model

    encoder = load_model(model)
    name = PLAIN if model == "minilm" else Path(absolute_name(model)).name
    path = folder / f"{name}-{encoder.fingerprint[:8]}"
    try:
        searcher = Searcher.open(path, encoder)
        if len(searcher) == len(documents):
            return searcher
    except IndexFolderError:
        pass  # missing, or broken: it is built
    task = f"encoding with {name}" if model == "minilm" else f"encoding with {name} model"
    with progress.count(task, len(documents)) as count:
        return Searcher.build(
            path,
            documents,
            encoder,
            progress=count,
            model=absolute_name(model),
            segment_size=_SEGMENT,
            passages=0,  # the evaluation compares one vector a document
            resume=True,
        )

"""The table of many systems on the domains benchmark, in two steps.

``rank`` ranks and measures; it needs torch and sentence-transformers, and tantivy for BM25 and
hybrid search only. Vectors of documents are kept, so that a machine without a GPU can go on.
``table`` prints all results as one Markdown table, with tests of significance, and draws a figure::

    python -m experiments.domains rank --data FOLDER --out OUT --model shipped --way composed
    python -m experiments.domains table --out OUT --split test
"""

from __future__ import annotations

import argparse
import logging
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmark_data.domains import DOMAINS
from boolattn.data.built import domains as data
from boolattn.encoders.models import load_model
from boolattn.evaluation import domains, figures
from boolattn.evaluation.benchmark import prepare
from boolattn.evaluation.metrics import measure, needed_depth
from boolattn.evaluation.results import Results, compare_results, joined, results_of
from boolattn.evaluation.tables import markdown, short
from boolattn.files import atomic_file
from boolattn.query.parser import SHIPPED
from boolattn.search.ranker import WAYS, SearchRanker, open_system
from boolattn.stores.writer import titled

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from boolattn.data.records import Document
    from boolattn.encoders.base import Encoder
    from boolattn.stores.base import Array

logger = logging.getLogger(__name__)

_SPLITS = ("validation", "validation_unseen", "test", "unseen")
#: What its authors put before a query of bge.
_BGE = "Represent this sentence for searching relevant passages: "


def load(model: str, device: str | None) -> tuple[str, Encoder]:
    """Load a model of a name or folder; ``NAME=FOLDER`` with CLS pooling and bge's instruction."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Normalize, Pooling, Transformer

    from boolattn.encoder.torch_encoder import TorchEncoder

    name, _, folder = model.partition("=")
    if not folder:
        return name, load_model(name, device=device)
    words = Transformer(folder, max_seq_length=512)
    pooling = Pooling(words.get_embedding_dimension(), pooling_mode="cls")
    parts: Any = [words, pooling, Normalize()]
    towers = SentenceTransformer(modules=parts, prompts={"query": _BGE}, device=device)
    return name, TorchEncoder(towers)


def rank(options: argparse.Namespace) -> None:
    """Rank the documents of every domain for its queries, and write results."""
    dataset = data.load(options.data).dataset(options.domain)
    for model in options.model:
        measured: dict[tuple[str, str], list[Results]] = {}
        name, encoder = (model, None) if model == "bm25" else load(model, options.device)
        for domain, part in domains.by_domain(dataset, options.split):
            benchmark = prepare(part, list(part.splits))
            if encoder is None:
                systems = {"": open_system(model, benchmark)}
            else:
                documents, path = benchmark.documents, options.vectors / f"{name}-{domain}.npy"
                encode = DocumentVectors(path, encoder, documents)
                words = any(WAYS[way]["hybrid"] for way in options.way)
                ranker = SearchRanker(
                    encoder, documents, parser=options.parser, encode=encode, words=words
                )
                systems = {way: ranker.system(name, way) for way in options.way}
            for split, judged in benchmark.splits.items():
                for way, system in systems.items():
                    start = time.perf_counter()
                    ranking = system.rank(judged, needed_depth(judged, domains.METRICS))
                    values = measure(ranking, judged, domains.METRICS)
                    about: dict[str, Any] = {"dataset": benchmark.name, "split": split}
                    details = {"way": way, "is_composed": system.is_composed}
                    results = results_of(judged, values, system=name, details=details, **about)
                    measured.setdefault((split, way), []).append(results)
                    seconds = time.perf_counter() - start
                    logger.info("%s %s %s %s: %.0f s", name, domain, split, way, seconds)
        for (split, way), by_domain in measured.items():
            file = f"{split}.{name}.{(way or 'lexical').replace(',', '').replace(' ', '-')}.json"
            joined(by_domain).save(options.out / file)


class DocumentVectors:
    """Vectors of documents, from a file or encoded now and written there."""

    def __init__(self, path: Path, encoder: Encoder, documents: Sequence[Document]) -> None:
        texts = [titled(document.title, document.text) for document in documents]
        if not path.is_file():
            path.parent.mkdir(parents=True, exist_ok=True)
            vectors = encoder.encode_documents(texts)
            np.save(path, vectors.astype(np.float16))
        vectors = np.load(path, allow_pickle=False).astype(np.float32)
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        self._rows = dict(zip(texts, vectors, strict=True))

    def __call__(self, batches: Iterable[list[str]]) -> Iterator[Array]:
        """Look the vectors of texts up."""
        for texts in batches:
            yield np.stack([self._rows[text] for text in texts])


def table(options: argparse.Namespace) -> None:
    """Write the table and the figure of each split that has results."""
    lines: list[str] = []
    for split in options.split:
        files = sorted(options.out.glob(f"{split}.*.json"))
        found = [Results.load(path) for path in files]
        if not found:
            continue
        columns = ["system", *(heading for heading, _, _ in domains.COLUMNS)]
        means = [
            [domains.label(one), *map(short, domains.rows_of(one)[domains.MEAN])] for one in found
        ]
        lines += [f"\n{split}, mean of the domains\n", markdown(columns, means)]
        for one in found:
            rows = [[name, *map(short, own)] for name, own in domains.rows_of(one).items()]
            lines += [f"\n{split}, {domains.label(one)}\n", markdown(["", *columns[1:]], rows)]
        reference = next((x for x in found if domains.label(x) == options.against), found[0])
        title = f"\n{split}: differences to {domains.label(reference)}, over all queries\n"
        lines += [title, _tests(found, reference)]
        figures.save(figures.by_domain(found), options.out / f"{split}.png")
    with atomic_file(options.out / "table.md") as file:
        file.write("\n".join(lines).lstrip() + "\n")


def _tests(found: Sequence[Results], reference: Results) -> str:
    """Compare every system with one, by kind of query."""
    rows = []
    for one in found:
        for kind in one.by("kind") if one is not reference else ():
            pair = [own.only("kind", kind) for own in (reference, one)]
            for metric, own in compare_results(*pair, metrics=["r_precision", "leak"]).items():
                test = [f"{own.difference:+.3f}", f"{own.p_value:.4f}"]
                rows.append([domains.label(one), kind, metric, *test])
    return markdown(["system", "kind", "metric", "difference", "p"], rows)


def main() -> None:
    """Run one step."""
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("step", choices=["rank", "table"])
    parser.add_argument("--data", type=Path, help="built folder of the benchmark")
    parser.add_argument("--out", type=Path, required=True, help="folder of the results")
    parser.add_argument("--vectors", type=Path, help="folder of vectors; default: OUT/vectors")
    parser.add_argument("--model", action="append", default=[], help="bm25, minilm, shipped, …")
    parser.add_argument("--way", action="append", default=[], choices=[*WAYS])
    parser.add_argument("--split", action="append", default=[], choices=_SPLITS)
    parser.add_argument("--domain", action="append", default=[], choices=[*DOMAINS])
    parser.add_argument("--parser", default=SHIPPED, help="folder of another query parser")
    parser.add_argument("--store", default="", help="address of a store, without the last name")
    parser.add_argument("--device")
    parser.add_argument("--against", default="shipped, composed", help="system to compare with")
    options = parser.parse_args()
    options.split = options.split or list(_SPLITS)
    options.vectors = options.vectors or options.out / "vectors"
    {"rank": rank, "table": table}[options.step](options)


if __name__ == "__main__":
    main()

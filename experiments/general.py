"""The training data of the general model: several data sets in one BEIR folder.

``python -m experiments.general --taxa FOLDER --domains FOLDER --quest FOLDER --out FOLDER`` writes
it; the preset ``bge-small-general`` trains on it. Each data set becomes one domain, with

* its training queries,
* their operands as queries of their own, since a composed score compares operands with documents,
* title and sentence of documents as queries for them, so that plain retrieval is kept.
"""

from __future__ import annotations

import argparse
import random
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from benchmark_data.domains import DOMAINS
from boolattn.data.beir import write_beir
from boolattn.data.catalog import DataOptions, open_dataset
from boolattn.data.records import Dataset, Document, Query

_T = TypeVar("_T")
#: Sets of at most so many documents are kept whole.
_SMALL = 20
#: Of an operand.
_MEMBERS = range(2, 1000)
#: Relevant and undecided documents of a query, and excluded or partly matching ones, at most.
_MOST, _MOST_NEGATIVES = 1000, 30
_SENTENCE = re.compile(r"(?<=[.!?])\s+")
#: Words of a sentence that serves as a query.
_WORDS = range(5, 40)


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Most documents, queries, operands and pairs of each kind that a domain contributes."""

    documents: int = 50_000
    queries: int = 8_000
    operands: int = 3_000
    pairs: int = 2_000


def domain_part(
    name: str, documents: Sequence[Document], queries: Iterable[Query], limits: Limits, seed: int
) -> tuple[list[Document], list[Query]]:
    """Return the documents and training queries that a data set contributes."""
    rng = random.Random(f"{name} {seed}")
    chosen = _sample(rng, list(queries), limits.queries)
    operands = _sample(rng, list(_operands(chosen)), limits.operands)
    whole = {document for q in (*chosen, *operands) if len(q.gold) <= _SMALL for document in q.gold}
    rest = [document.id for document in documents if document.id not in whole]
    ids = whole | {*_sample(rng, rest, limits.documents - len(whole))}
    chosen_documents = [
        replace(d, id=f"{name}:{d.id}", metadata={"domain": name}) for d in documents if d.id in ids
    ]
    limited = [*_limited(rng, [*chosen, *operands], ids, name)]
    return chosen_documents, [*limited, *_pairs(rng, chosen_documents, limits.pairs, name)]


def _sample(rng: random.Random, items: list[_T], n: int) -> list[_T]:
    return rng.sample(items, n) if 0 < n < len(items) else items[: max(n, 0)]


def _operands(queries: Sequence[Query]) -> Iterator[Query]:
    """Yield each operand with known members once."""
    seen = {query.text.casefold() for query in queries}
    for query in queries:
        for index, operand in enumerate(query.operands):
            key = operand.text.casefold()
            if operand.members is None or key in seen or len(operand.members) not in _MEMBERS:
                continue
            seen.add(key)
            yield Query(
                id=f"{query.id}-operand-{index}",
                text=operand.text,
                gold=operand.members,
                undecided=query.undecided,
                template="_",
            )


def _limited(
    rng: random.Random, queries: Sequence[Query], ids: set[str], name: str
) -> Iterator[Query]:
    """Yield queries with only those documents that are kept, and of the negatives only some."""
    for query in queries:
        sets: dict[str, Any] = {
            field: frozenset(f"{name}:{document}" for document in getattr(query, field) & ids)
            for field in ("gold", "excluded", "partial", "undecided")
        }
        sets["undecided"] -= sets["gold"]
        for field in ("excluded", "partial"):
            sets[field] = frozenset(_sample(rng, sorted(sets[field]), _MOST_NEGATIVES))
        if sets["gold"] and len(sets["gold"]) + len(sets["undecided"]) <= _MOST:
            yield replace(query, id=f"{name}:{query.id}", domain=name, operands=(), **sets)


def _pairs(rng: random.Random, documents: Sequence[Document], n: int, name: str) -> Iterator[Query]:
    """Yield titles, and sentences, as queries for their documents."""
    for document in _sample(rng, list(documents), n):
        sentences = [
            text
            for text in _SENTENCE.split(document.text)
            if len(text.split()) in _WORDS and text != document.title
        ]
        texts = {"title": document.title, "sentence": rng.choice(sentences or [""])}
        for kind, text in texts.items():
            if text:
                yield Query(
                    id=f"{document.id}-{kind}",
                    text=text,
                    gold=frozenset({document.id}),
                    template="_",
                    domain=name,
                )


def _datasets(arguments: argparse.Namespace) -> Iterator[tuple[str, Dataset, tuple[str, ...]]]:
    """Yield each data set with its training splits."""
    if arguments.taxa:
        options = DataOptions(folder=arguments.taxa, size="full")
        yield "taxa", open_dataset("taxa", options), ("train",)
    if arguments.quest:
        quest = open_dataset("quest-intro", DataOptions(folder=arguments.quest))
        yield "quest-intro", quest, ("train", "generated_train")
    if arguments.domains:
        for name, row in DOMAINS.items():
            if row["role"] == "train":
                options = DataOptions(folder=arguments.domains, only=(name,), training=True)
                yield name, open_dataset("domains", options), ("train",)


def main(argv: Sequence[str] | None = None) -> None:
    """Write the folder and print what is in it."""
    parser = argparse.ArgumentParser(prog="python -m experiments.general", description=__doc__)
    for name in ("taxa", "domains", "quest"):
        parser.add_argument(f"--{name}", type=Path, help=f"Folder of {name}; left out, not used.")
    parser.add_argument("--out", type=Path, required=True, help="New BEIR folder to write.")
    parser.add_argument("--seed", type=int, default=0, help="Of all draws. [default: 0]")
    for name, value in vars(Limits()).items():
        parser.add_argument(f"--max-{name}", dest=name, type=int, default=value)
    arguments = parser.parse_args(argv)
    limits = Limits(**{name: getattr(arguments, name) for name in vars(Limits())})
    documents: list[Document] = []
    queries: list[Query] = []
    for name, dataset, splits in _datasets(arguments):
        train = [query for split in splits for query in dataset.splits[split]]
        part = domain_part(name, dataset.documents, train, limits, arguments.seed)
        documents += part[0]
        queries += part[1]
        print(f"{name}: {len(part[0])} documents, {len(part[1])} queries")
    write_beir(arguments.out, documents, {"train": queries})


if __name__ == "__main__":
    main()

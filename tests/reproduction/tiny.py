"""A data set, an encoder and a preset that train in a moment."""

from __future__ import annotations

import json
import random
import shutil
from dataclasses import asdict
from pathlib import Path

from boolattn.data.beir import write_beir
from boolattn.data.catalog import FORMATS
from boolattn.data.records import Document, Operand, Query
from boolattn.query.tree import Operator

PRESET = """
[model]
encoder = "unused"
query_length = 32
document_length = 32
[plugin]
rank = 4
use_noise = false
[data]
name = "beir"
validation = ""
[pretrain]
n_sentences = 16
batch_size = 8
max_steps = 1
n_held_out = 4
triplet_weight = 0.0
[train]
batch_size = 4
max_steps = 2
n_negatives = 2
n_logical = 1
learning_rate = 1e-3
keep = "last"
"""

QUEST_INTRO = Path(__file__).parents[1] / "data/samples/quest-intro"
KINDS = ("moths", "birds", "ferns", "films")
PLACES = ("borneo", "sumatra", "peru", "chile")


def write_files(folder, encoder, tokenizer):
    """Write the folders ``data`` and ``encoder`` and the file ``tiny.toml``."""
    encoder.save_pretrained(folder / "encoder")
    tokenizer.save_pretrained(folder / "encoder")
    (folder / "tiny.toml").write_text(PRESET)
    documents, queries = make_queries()
    write_beir(folder / "data", documents, {"train": queries[::2], "test": queries[1::2]})


def make_queries() -> tuple[list[Document], list[Query]]:
    """48 documents of four kinds in one or two places; "A not B" and "A" over them."""
    rng = random.Random(0)
    documents, members = [], {}
    for number in range(48):
        kind, places = KINDS[number % 4], rng.sample(PLACES, 1 + number % 2)
        name = f"d{number}"
        documents.append(Document(id=name, text=f"{kind} of {' and '.join(places)} {number}"))
        for place in places:
            members.setdefault((kind, place), set()).add(name)
    queries = []
    for (kind, first), names in sorted(members.items()):
        whole = f"{kind} of {first}"
        queries.append(
            Query(
                id=f"{kind}-{first}",
                text=whole,
                template="_",
                gold=frozenset(names),
                operands=(Operand(whole, ((0, len(whole)),)),),
            )
        )
        for second in PLACES:
            other = members.get((kind, second), set())
            if second == first or not names - other:
                continue
            text = f"{whole} but not {second}"
            spans = ((0, len(kind) + 4), (len(text) - len(second), len(text)))
            queries.append(
                Query(
                    id=f"{kind}-{first}-{second}",
                    text=text,
                    template="_ that are not _",
                    operators=(Operator.NOT,),
                    operands=(
                        Operand(whole, ((0, len(whole)),)),
                        Operand(f"{kind} of {second}", spans),
                    ),
                    gold=frozenset(names - other),
                    excluded=frozenset(names & other),
                )
            )
    return documents, queries


def _write_rows(path, rows):
    path.write_text("".join(json.dumps(row, default=sorted) + "\n" for row in rows))


def _read_rows(path):
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def write_taxa(folder):
    """Write a taxa benchmark of these queries."""
    documents, queries = make_queries()
    folder.mkdir()
    rows = [{"id": d.id, "title": d.id, "text": d.text, "metadata": {}} for d in documents]
    _write_rows(folder / "corpus.jsonl", rows)
    counts = {split: {"_": 1} for split in ("train", "validation", "unseen")}
    for place, split in enumerate(counts):
        _write_rows(folder / f"{split}.jsonl", [asdict(query) for query in queries[place::3]])
    manifest = {"format": FORMATS["taxa"], "size": "small", "queries": counts}
    (folder / "manifest.json").write_text(json.dumps(manifest))


def write_quest(folder):
    """Write the official files of QUEST: full coverage, and a test."""
    folder.mkdir()
    shutil.copy(QUEST_INTRO / "corpus.jsonl", folder / "documents.jsonl")
    known = {row["title"] for row in _read_rows(QUEST_INTRO / "corpus.jsonl")}
    for split, source in (("train", "train"), ("val", "val"), ("test", "val")):
        rows = [
            {**row, "docs": [title for title in row["docs"] if title in known]}
            for row in _read_rows(QUEST_INTRO / f"{source}.jsonl")
        ]
        _write_rows(folder / f"{split}.jsonl", [row for row in rows if row["docs"]])

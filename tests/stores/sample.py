"""Four documents with vectors that are known, written to any store and searched in it."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np

from boolattn.data.records import Document
from boolattn.stores.address import create_store, open_store
from boolattn.stores.filters import Filter, read_filters
from boolattn.stores.settings import StoreSettings
from boolattn.stores.writer import Entry

DIMENSION = 32  # the pgvector of the tests fails with 8 on some ARM
SETTINGS = StoreSettings(fingerprint="f", dimension=DIMENSION, model="shipped")
LONG = replace(SETTINGS, passages=4)
TEXTS = {
    "soup": "Tomato soup with garlic and basil",
    "cake": "Chocolate cake without nuts or eggs",
    "moth": "Moths of Borneo fly at night",
    "salad": "Garlic salad, garlic bread and tomato",
}
META = {
    "soup": {"year": 1990, "tags": ["vegan", "quick"], "on": "2024-03-01"},
    "cake": {"year": [1980, 2005], "tags": ["sweet"], "is_old": True},
    "moth": {"country": "Malaysia", "on": "2023-01-01T12:00:00Z"},
    "salad": {"year": 2010, "tags": ["vegan", "100%_raw"]},
}
EVERYTHING = Filter()


def vector_of(text):
    vector = np.random.default_rng(sum(map(ord, text))).standard_normal(DIMENSION)
    return (vector / np.linalg.norm(vector)).astype(np.float32)


def batch_of(texts, n_passages=1, meta=META):
    """Return a batch, and a vector for each passage."""
    batch, vectors = [], []
    for name, text in texts.items():
        spans = [*pairwise(np.linspace(0, len(text), n_passages + 1).astype(int).tolist())]
        document = Document(id=name, text=text, title=name, metadata=meta.get(name, {}))
        batch.append(Entry.of(document, spans))
        vectors += [vector_of(text[start:end]) for start, end in spans]
    return batch, np.stack(vectors)


def create(address, settings=SETTINGS, **options):
    return create_store(address, settings, **options)


def build(address, texts=TEXTS, settings=SETTINGS, n_passages=1, **options):
    with create(address, settings, **options) as draft:
        draft.write(*batch_of(texts, n_passages))
    return open_store(address)


def add(store, texts, n_passages=1, **options):
    with store.adding(**options) as draft:
        draft.write(*batch_of(texts, n_passages))


def reader_of(store):
    """Return the present state of a store."""
    with store.reading() as reader:
        return reader


def keys_of(store, names):
    keys = reader_of(store).find([*names])
    return np.array([keys[name] for name in names], np.int64)


def ids_of(store, keys):
    return [document.id for document in reader_of(store).documents(np.asarray(keys)) if document]


def nearest(store, text, n=10, where=EVERYTHING):
    [ranked] = reader_of(store).nearest(vector_of(text)[None], n, where)
    return ids_of(store, ranked.rows)


def passing(store, where=EVERYTHING):
    """Return the documents that pass a filter, by several ways to search."""
    names, reader = {*nearest(store, "x", where=where)}, reader_of(store)
    assert reader.count(where) == len(names)
    if reader.has_words:
        [ranked] = reader.words([[*TEXTS]], 10, where)  # their titles
        assert {*ids_of(store, ranked.rows)} == names & {*TEXTS}
    return names


def text_of(store, name):
    [document] = reader_of(store).documents(keys_of(store, [name]))
    return document and document.text


def conditions(store, filters):
    return tuple(map(reader_of(store).resolve, read_filters(filters)))

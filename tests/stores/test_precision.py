"""Vectors of the local store in half and in quarter precision."""

from __future__ import annotations

import numpy as np
import pytest
from safetensors.numpy import load_file

from boolattn.checksums import read_manifest, write_manifest
from boolattn.data.records import Document
from boolattn.encoders.callables import unit
from boolattn.errors import IndexFolderError
from boolattn.search import Searcher
from boolattn.stores.filters import Filter
from boolattn.stores.local.manifest import MANIFEST
from boolattn.stores.local.store import LocalStore
from boolattn.stores.settings import StoreSettings
from boolattn.stores.writer import Entry
from tests.search import word_model

N, DIMENSION, K = 5000, 384, 100
#: Bytes of a stored number.
SIZES = {"float32": 4, "float16": 2, "int8": 1}
ROUNDED = ("float16", "int8")


@pytest.fixture(scope="module")
def vectors():
    """Documents, and queries at the end."""
    generator = np.random.default_rng(0)
    return unit(generator.standard_normal((N + 50, DIMENSION)).astype(np.float32))


def batch(names):
    return [Entry.of(Document(id=str(name), text="moths"), [(0, 5)]) for name in names]


@pytest.fixture(scope="module")
def stores(vectors, tmp_path_factory):
    """The same vectors in each precision, in two segments."""
    built = {}
    for precision in SIZES:
        folder = tmp_path_factory.mktemp("precision") / precision
        settings = StoreSettings(
            fingerprint="f", dimension=DIMENSION, precision=precision, words=False
        )
        with LocalStore.create(str(folder), settings) as draft:
            draft.write(batch(range(3000)), vectors[:3000])
            draft.write(batch(range(3000, N)), vectors[3000:N])
        built[precision] = LocalStore.open(str(folder))
    return built


def nearest(store, queries, n=K):
    with store.reading() as reader:
        return [answer.rows.tolist() for answer in reader.nearest(queries, n, Filter())]


@pytest.mark.parametrize("precision", ROUNDED)
def test_rankings_are_nearly_the_same(stores, vectors, precision):
    queries = vectors[N:]
    right, rounded = (nearest(stores[name], queries) for name in ("float32", precision))
    shares = [len(set(a) & set(b)) / K for a, b in zip(right, rounded, strict=True)]
    assert np.mean(shares) >= 0.99
    assert rounded != right
    with stores[precision].reading() as reader:
        products = reader.similarities(queries, np.arange(N))
        scores = reader.scan(queries, Filter())[1]
    np.testing.assert_allclose(products, queries @ vectors[:N].T, atol=0.004)
    np.testing.assert_allclose(products, scores, atol=1e-6)


@pytest.mark.parametrize("n", [2, 8])
def test_several_threads_give_the_same_similarities(stores, vectors, monkeypatch, n):
    def scanned(store):
        with store.reading() as reader:
            return reader.scan(vectors[N : N + n], Filter())[1]

    alone = {precision: scanned(store) for precision, store in stores.items()}
    assert np.allclose(alone["float32"], vectors[N : N + n] @ vectors[:N].T, atol=1e-6)
    monkeypatch.setattr("boolattn.stores.local.snapshot._FEW_BLOCKS", 1)
    monkeypatch.setenv("BOOLATTN_THREADS", "3")
    for precision, store in stores.items():
        assert np.array_equal(scanned(store), alone[precision])


def test_files_are_a_half_and_a_quarter_of_the_size(stores):
    for precision, store in stores.items():
        with store.reading() as reader:
            vectors = [segment.vectors for segment in reader.segments]
        assert sum(array.nbytes for array in vectors) == N * DIMENSION * SIZES[precision]
        sizes = [path.stat().st_size for path in store.folder.rglob("*.safetensors")]
        rest = sum(sizes) - N * DIMENSION * SIZES[precision]
        assert len(sizes) == 2
        assert 0 < rest < 150 * N
        assert store.info()["precision"] == precision


@pytest.mark.parametrize("precision", ROUNDED)
def test_vectors_of_other_lengths_keep_theirs(precision, tmp_path):
    """Each row has a scale of its own."""
    generator = np.random.default_rng(1)
    lengths = np.array([1e-4, 0.0, 1, 300], np.float32)
    vectors = lengths[:, None] * unit(generator.standard_normal((4, 8)).astype(np.float32))
    settings = StoreSettings(
        fingerprint="f", dimension=8, similarity="dot", precision=precision, words=False
    )
    with LocalStore.create(str(tmp_path / "index"), settings) as draft:
        draft.write(batch(range(4)), vectors)
    with LocalStore.open(str(tmp_path / "index")).reading() as reader:
        restored = reader.row_vectors(np.arange(4))
    np.testing.assert_allclose(restored, vectors, rtol=0.02, atol=0.005 * lengths.max())
    np.testing.assert_allclose(np.linalg.norm(restored, axis=1), lengths, rtol=0.02, atol=1e-7)


@pytest.mark.parametrize(("precision", "vectors"), [("float16", "exact"), ("int8", "hnsw")])
def test_documents_are_added_replaced_and_deleted(precision, vectors, folder, retriever, shared):
    options = {"parser": None, "vectors": vectors, "precision": precision, "segment_size": 10}
    searcher = Searcher.build(folder, word_model.corpus(), retriever, **options)

    def ids(own, query, k=5):
        return [hit.id for hit in own.search(query, k=k).hits]

    for query in ("moths Borneo", "moths AND Borneo NOT Sumatra", "birds AND (Peru OR Kenya)"):
        assert ids(searcher, query, 2) == ids(shared, query, 2)
    [own, exact] = (one.search("moths Borneo", k=5, hybrid=False) for one in (searcher, shared))
    expected = [hit.score for hit in exact.hits]
    assert [hit.score for hit in own.hits] == pytest.approx(expected, abs=0.02)
    searcher.add([Document(id="new", text="red beetles")])
    assert ids(searcher, "red", 1) == ["new"]
    searcher.add([Document(id="new", text="large orchids")], replace_old=True)
    assert ids(searcher, "large", 1) == ["new"]
    searcher.delete(["new", "both"])
    again = Searcher.open(folder, retriever, parser=None, verify=True)
    assert again.settings.precision == precision
    assert len(again) == 24
    assert not {"new", "both"} & set(ids(again, "old moths Borneo Sumatra", 99))
    kinds = {load_file(path)["vector"].dtype for path in folder.rglob("*.safetensors")}
    assert kinds == {np.dtype(precision)}


@pytest.mark.parametrize("precision", ROUNDED)
def test_a_file_that_was_tampered_with_is_refused(precision, folder, retriever):
    options = {"parser": None, "precision": precision}
    Searcher.build(folder, word_model.corpus(), retriever, **options)
    [path] = folder.rglob("*.safetensors")
    content = path.read_bytes()
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(IndexFolderError, match="safetensors was altered: its hash differs"):
        Searcher.open(folder, retriever)
    path.write_bytes(content)
    # A manifest that states another precision, with the right hash of itself.
    for other in set(SIZES) - {precision}:
        saved = (folder / MANIFEST).read_text()
        values = read_manifest(folder / MANIFEST)
        values["settings"]["precision"] = other
        write_manifest(folder / MANIFEST, values)
        with pytest.raises(IndexFolderError, match="does not fit its manifest; build the index"):
            Searcher.open(folder, retriever)
        (folder / MANIFEST).write_text(saved)
    assert len(Searcher.open(folder, retriever, verify=True)) == 25

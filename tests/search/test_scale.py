"""The benchmark of search: vectors from a file, and the reckoning for a billion documents."""

import numpy as np
import pytest

from benchmarks.billion import Measured, Nodes, estimate, report
from benchmarks.stored_vectors import StoredVectors
from tests.search import word_model


def test_vectors_are_found_by_id_and_scaled(tmp_path, retriever):
    documents = word_model.corpus()
    vectors = retriever.encode_documents([document.text for document in documents])
    order = np.random.default_rng(0).permutation(len(documents))
    scales = np.abs(vectors).max(1) / 127
    np.savez(
        tmp_path / "v.npz",
        vectors=np.round(vectors / scales[:, None]).astype(np.int8)[order],
        scales=scales[order].astype(np.float16),
        ids=np.array([documents[row].id for row in order]),
    )
    stored = StoredVectors(tmp_path / "v.npz", documents)
    stored.check(retriever, documents)
    texts = [document.text for document in documents]
    found = np.concatenate(list(stored.encoder()([texts[:7], texts[7:]])))
    assert (found * vectors).sum(1).min() > 0.999
    np.save(tmp_path / "v.npy", vectors[::-1].astype(np.float16))
    with pytest.raises(SystemExit, match="is not of this model"):
        StoredVectors(tmp_path / "v.npy", documents).check(retriever, documents)
    np.save(tmp_path / "v.npy", vectors[:5])
    with pytest.raises(SystemExit, match="has 5 vectors for 25 documents"):
        StoredVectors(tmp_path / "v.npy", documents)


def test_a_billion_by_hand():
    measured = Measured(1_000_000, 2000, 3000, 1.0, 2.0, 4.0, 900, 3.0, 20.0)
    own = estimate(measured, Nodes(gb=64, cores=16, core_hour=0.05))
    # 48 GB of 2,000 bytes: 24 million a shard; ln(1e9 / 42) / ln(1e6) = 1.2297.
    assert own["shards"] == 42
    assert own["memory_tb"] == 2.0
    assert own["growth"] == pytest.approx(1.2294, abs=1e-3)
    assert own["plain_core_ms"] == pytest.approx(42 * own["growth"])
    assert own["composed_core_ms"] == pytest.approx(42 * 8 * own["growth"] + 3)
    assert "| shards, one per machine | 42 of 23.8 million |" in report(measured, "hnsw", Nodes())

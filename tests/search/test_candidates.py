"""The candidates of composed queries, where a store does not compare every document."""

import numpy as np

from boolattn.query.plan import plan_queries
from boolattn.query.syntax import parse
from boolattn.search import Document, Searcher, SearchOptions
from boolattn.search.candidates import Retrieval
from boolattn.stores.filters import Filter
from boolattn.stores.local.snapshot import Snapshot
from tests.parses import read_trees
from tests.search import word_model


def test_candidates_find_what_an_exhaustive_search_finds(retriever, monkeypatch):
    generator = np.random.default_rng(0)
    lengths = generator.integers(2, 12, 1500)
    texts = [" ".join(generator.choice(word_model.WORDS, length)) for length in lengths]
    documents = [Document(id=str(i), text=text) for i, text in enumerate(texts)]
    searcher = Searcher.from_texts(documents, retriever, words=False, parser=None)
    monkeypatch.setattr(Snapshot, "compares_all", False)
    queries = ["moths AND Borneo NOT Sumatra", "birds AND (Peru OR Kenya)", "orchids NOT red"]
    results = searcher.search_many(queries, 10)
    exhaustive = searcher.search_many(queries, 10, exhaustive=True)
    shares = [
        len({hit.id for hit in result.hits} & {hit.id for hit in best.hits}) / len(best.hits)
        for result, best in zip(results, exhaustive, strict=True)
    ]
    assert np.mean(shares) > 0.9


def test_a_query_has_no_more_probes_than_it_needs(retriever, shared):
    moths, borneo, birds = retriever.encode_operands(["moths", "Borneo", "birds"])
    both, joint = retriever.encode_operands(["moths and Borneo", "moths and birds"])

    def same(text, *expected):
        [plan] = plan_queries(read_trees([parse(text)], ["as it was typed"]), retriever)
        with shared.store.reading() as reader:
            options = SearchOptions(hybrid=False, strict_not=False)
            probes = Retrieval(plan, reader, options, Filter(), {}, k=5).probes()
        np.testing.assert_allclose([vector for vector, _ in probes], expected, atol=1e-6)
        assert {where for _, where in probes} == {Filter()}

    same("moths OR birds", moths, birds)
    plain = retriever.encode_queries(["as it was typed"])[0]
    same("moths AND Borneo", (both + plain) / 2)
    same("moths AND birds NOT Borneo", joint, joint - borneo / 2)
    same("moths NOT Borneo", moths, moths - borneo / 2)
    same("moths AND (Borneo OR birds)", both, joint)

"""What every store does alike: a folder, Postgres, Qdrant's local mode and a Milvus file."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from boolattn.data.records import Document
from boolattn.encoders.callables import CallableEncoder
from boolattn.errors import (
    ConfigError,
    DataError,
    IndexFolderError,
    IndexMismatchError,
    QueryError,
    ServerError,
)
from boolattn.stores.address import open_store
from boolattn.stores.analysis import document_terms, term_weights
from boolattn.stores.base import Claim
from boolattn.stores.filters import Filter
from tests.stores.databases import close_folders
from tests.stores.kinds import check_kinds
from tests.stores.sample import (
    DIMENSION,
    EVERYTHING,
    LONG,
    META,
    SETTINGS,
    TEXTS,
    add,
    batch_of,
    build,
    conditions,
    create,
    ids_of,
    keys_of,
    nearest,
    passing,
    reader_of,
    text_of,
    vector_of,
)

KINDS = ("local", "postgres", "qdrant", "milvus")


@pytest.fixture(scope="module")
def addresses(postgres, tmp_path_factory):
    """Return where a store of some kind and name may be."""
    folder = tmp_path_factory.mktemp("stores")

    def address(kind, name):
        return {
            "local": f"{folder}/{name}",
            "postgres": f"{postgres.get_uri()}&table={name[-39:]}",
            "qdrant": f"qdrant:{folder}/qdrant/{name}",
            "milvus": f"milvus:{folder}/notes.db/{name}",
        }[kind]

    yield address
    close_folders()


@pytest.fixture(params=KINDS)
def address(request, addresses):
    """The address of a store that is not there yet."""
    return addresses(request.param, "".join(c if c.isalnum() else "_" for c in request.node.name))


@pytest.fixture(scope="module", params=KINDS)
def store(request, addresses):
    """A store that no test changes."""
    return build(addresses(request.param, "contract"))


def is_local(store):
    return not hasattr(store, "nearest")


def test_a_store_holds_everything(store):
    assert store.settings == SETTINGS
    assert (store.n_documents, reader_of(store).count(EVERYTHING)) == (4, 4)
    assert nearest(store, TEXTS["soup"])[0] == "soup"
    assert len(nearest(store, "x")) == 4
    reader = reader_of(store)
    keys = reader.find([*TEXTS, "none"])
    assert keys.keys() == TEXTS.keys()
    [document] = reader.documents(np.array([keys["soup"]]))
    assert document == Document(id="soup", text=TEXTS["soup"], title="soup", metadata=META["soup"])
    vectors = reader.vectors(["soup", "none"])
    np.testing.assert_allclose(vectors["soup"], vector_of(TEXTS["soup"]), rtol=1e-6)
    assert [*vectors] == ["soup"]
    fields = reader.fields()
    assert fields.keys() == {"year", "tags", "on", "country", "is_old"}
    assert fields["year"].numbers == (1980, 2010)
    assert fields["on"].dates == (1672574400, 1709251200)
    assert fields["country"] == (None, None)
    assert reader.sample(2) == reader_of(open_store(store.address)).sample(2)
    assert (len(reader.sample(2)), len(reader.sample(9))) == (2, 4)
    assert {
        "documents": 4,
        "passages": 4,
        "model": "shipped",
        "dimension": DIMENSION,
        "similarity": "cosine",
        "vectors": "exact",
        "words": True,
        "precision": "float32",
    }.items() <= store.info().items()
    assert not store.refresh()


def test_similarities_are_inner_products(store):
    reader = reader_of(store)
    keys = keys_of(store, (*TEXTS, "soup"))
    vectors = np.stack([vector_of("a"), vector_of("b")])
    rows = np.stack([vector_of(text) for text in (*TEXTS.values(), TEXTS["soup"])])
    np.testing.assert_allclose(reader.similarities(vectors, keys), vectors @ rows.T, atol=1e-6)
    assert reader.similarities(vectors, keys[:0]).shape == (2, 0)
    assert reader.best_passages(vectors[0], keys[:2]) == [None, None]
    for vector, ranked in zip(vectors, reader.nearest(vectors, 3, EVERYTHING), strict=True):
        order = np.argsort(-(rows[:4] @ vector))[:3]
        assert ids_of(store, ranked.rows) == [[*TEXTS][row] for row in order]
        np.testing.assert_allclose(ranked.scores, (rows @ vector)[order], atol=1e-6)


@pytest.mark.parametrize("store", KINDS[1:], indirect=True)  # an open folder stays as it was
def test_a_document_that_is_gone_is_none_and_like_nothing(store):
    vectors = np.stack([vector_of("a"), vector_of("b")])
    assert store.documents(np.array([7])) == [None]
    assert not store.similarities(vectors, np.array([7])).any()
    assert store.claims(["garlic"], np.array([7])).tolist() == [Claim.ABSENT]


def test_many_vectors_are_searched_at_once(store):
    vectors = np.stack([vector_of(text) for text in TEXTS.values()] * 20)
    rankings = reader_of(store).nearest(vectors, 1, EVERYTHING)
    assert ids_of(store, [ranked.rows[0] for ranked in rankings]) == [*TEXTS] * 20


def expected_scores(terms, documents):
    """Compute BM25+ from its formula."""
    counts = {document.id: document_terms(document, None).counts for document in documents}
    mean = np.mean([words.total() for words in counts.values()])
    scores = {}
    for name, words in counts.items():
        weights = term_weights(words, mean)
        for term in words.keys() & {*terms}:
            df = sum(term in other for other in counts.values())
            idf = math.log(1 + (len(counts) - df + 0.5) / (df + 0.5))
            scores[name] = scores.get(name, 0) + idf * weights[term]
    return scores


def test_words_are_scored_by_bm25(store):
    reader, documents = reader_of(store), [entry.document for entry in batch_of(TEXTS)[0]]
    for terms in (["garlic", "tomato"], ["moth"], ["soup", "garlic", "nut"]):
        [ranked] = reader.words([terms], 10, EVERYTHING)
        scores = dict(zip(ids_of(store, ranked.rows), ranked.scores.tolist(), strict=True))
        assert scores == pytest.approx(expected_scores(terms, documents), rel=1e-3)
        assert (np.diff(ranked.scores) <= 0).all()
    some, none, unknown = reader.words([["garlic"], [], ["zzz"]], 1, EVERYTHING)
    assert (len(some.rows), len(none.rows), len(unknown.rows)) == (1, 0, 0)
    assert reader.frequencies(["garlic", "nut", "zzz", "nut"]) == [2, 1, 0, 1]
    values = ["=vegan", "=malaysia", "=old", "=quick vegan", "=garlic"]
    assert reader.frequencies(values) == [2, 1, 1, 0, 0]
    [vegan] = reader.words([["=vegan"]], 10, EVERYTHING)
    assert {*ids_of(store, vegan.rows)} == {"soup", "salad"}
    assert reader.has_title("Soup")
    assert not reader.has_title("nothing of the kind")


def test_claims_are_asserted_denied_or_absent(store):
    reader, keys = reader_of(store), keys_of(store, TEXTS)
    absent, denied, asserted = Claim.ABSENT, Claim.DENIED, Claim.ASSERTED
    assert reader.claims(["nut"], keys).tolist() == [absent, denied, absent, absent]
    assert reader.claims(["chocol", "nut"], keys).tolist() == [absent, denied, absent, absent]
    assert reader.claims(["garlic"], keys).tolist() == [asserted, absent, absent, asserted]
    assert reader.claims([], keys).tolist() == [absent] * 4
    assert reader.claims(["nut"], keys[:0]).tolist() == []


FILTERS = (
    ({"country": "Malaysia"}, {"moth"}),
    ({"tags": ["vegan", "sweet"]}, {"soup", "cake", "salad"}),
    ({"tags": {"not": "vegan"}}, {"cake", "moth"}),
    ({"year": {"gte": 2005}}, {"cake", "salad"}),
    ({"year": {"gt": 1990, "lt": 2010}}, {"cake"}),
    ({"year": {"lte": 1985}}, {"cake"}),
    ({"year": {"exists": False}}, {"moth"}),
    ({"year": {"exists": True}}, {"soup", "cake", "salad"}),
    ({"on": {"gte": "2024"}}, {"soup"}),
    ({"on": {"gte": "2024-03", "lt": "2024-04"}}, {"soup"}),
    ({"on": {"lte": "2023"}}, {"moth"}),
    ({"on": "2024-03-01"}, {"soup"}),
    ({"is_old": True}, {"cake"}),
    ({"country": []}, set()),
    ({"country": {"contains": "LAYS"}}, {"moth"}),
    ({"tags": {"contains": "%_r"}}, {"salad"}),
)


@pytest.mark.parametrize(("filters", "expected"), FILTERS)
def test_filters_mean_the_same(store, filters, expected):
    if ":" in store.address and "contains" in str(filters):
        with pytest.raises(QueryError, match="cannot filter by contains; use ="):
            conditions(store, filters)
        return
    reader, keys = reader_of(store), keys_of(store, TEXTS)
    required, malaysia = conditions(store, filters), conditions(store, {"country": "Malaysia"})
    assert passing(store, Filter(required)) == expected
    for condition in required:
        negated = replace(condition, is_negated=True)
        both = reader.matching(condition, keys).astype(int) + reader.matching(negated, keys)
        assert both.tolist() == [1] * 4
    assert passing(store, Filter(alternatives=(required, malaysia))) == expected | {"moth"}
    if len(required) == 1:
        [condition] = required
        is_right = [name in expected for name in TEXTS]
        assert reader.matching(condition, keys).tolist() == is_right
        negated = replace(condition, is_negated=True)
        assert passing(store, Filter((negated,))) == {*TEXTS} - expected


def test_conditions_are_combined(store):
    [recent] = conditions(store, {"year": {"gt": 2000}})
    vegan, malaysia = (
        conditions(store, filters) for filters in ({"tags": "vegan"}, {"country": "Malaysia"})
    )
    assert passing(store, Filter((recent,), (vegan, malaysia))) == {"salad"}
    assert passing(store, Filter((recent,), ((*vegan, recent), malaysia))) == {"salad"}
    assert reader_of(store).matching(recent, keys_of(store, ())).tolist() == []


def test_what_is_left_out(store):
    [soup] = keys_of(store, ["soup"]).tolist()
    without = Filter(without=(soup,), lacking=(("garlic",), ("nut",), ()))
    assert passing(store, without) == {"cake", "moth"}  # the cake has no nuts
    [ranked] = reader_of(store).words([["garlic"]], 5, Filter(without=(soup,)))
    assert ids_of(store, ranked.rows) == ["salad"]
    assert "salad" in passing(store, Filter(lacking=(("garlic", "basil"),)))


def test_what_cannot_be_asked_is_one_line(store):
    with pytest.raises(IndexMismatchError, match="vectors of length 32, and a query's has 3"):
        reader_of(store).nearest(np.zeros((1, 3), np.float32), 1, EVERYTHING)
    with pytest.raises(QueryError, match="like:x: no document has the id 'x'"):
        reader_of(store).known_vectors(["x"])


def test_a_store_without_words(address):
    store = build(address, settings=replace(SETTINGS, words=False))
    reader = reader_of(store)
    assert not reader.has_words
    with pytest.raises(ConfigError, match="has no words; leave out hybrid, or index words"):
        reader.words([["garlic"]], 1, EVERYTHING)
    assert reader.claims(["nut"], keys_of(store, ["cake"])).tolist() == [Claim.DENIED]
    if not is_local(store):
        assert reader.count(Filter(lacking=(("garlic",),))) == 2
        assert {*nearest(store, "x", where=Filter(lacking=(("garlic",),)))} == {"cake", "moth"}


def test_things_of_a_negated_kind_are_left_out(address):
    check_kinds(address, CallableEncoder(lambda texts: np.stack([*map(vector_of, texts)])))


def test_passages(address):
    store = build(address, settings=LONG, n_passages=3)
    assert store.n_documents == 4
    assert store.info()["passages"] == 12
    text, reader = TEXTS["moth"], reader_of(store)
    cut = [text[start:end] for start, end in batch_of({"m": text}, 3)[0][0].spans]
    for passage in cut:
        [ranked] = reader.nearest(vector_of(passage)[None], 4, EVERYTHING)
        assert ids_of(store, ranked.rows)[0] == "moth"
        assert len({*ranked.rows.tolist()}) == 4
        assert ranked.scores[0] == pytest.approx(1, abs=1e-5)
        keys = ranked.rows[:1]
        [[similarity]] = reader.similarities(vector_of(passage)[None], keys)
        assert similarity == pytest.approx(1, abs=1e-5)
        [(start, end)] = reader.best_passages(vector_of(passage), keys)
        assert text[start:end] == passage
    mean = np.mean([vector_of(passage) for passage in cut], axis=0)
    mean /= np.linalg.norm(mean)
    np.testing.assert_allclose(reader.vectors(["moth"])["moth"], mean, atol=1e-5)
    [moth] = keys_of(store, ["moth"]).tolist()
    assert passing(store, Filter(without=(moth,), lacking=(("garlic",),))) == {"cake"}
    add(store, {"moth": "Moths of Sumatra"}, n_passages=2)
    assert store.info()["passages"] == 11
    assert store.n_documents == 4
    assert nearest(store, "Moths of")[0] == "moth"
    store.delete(["moth"])
    assert store.info()["passages"] == 9


def test_documents_are_added_replaced_and_deleted(address):
    store = build(address)
    with store.adding() as draft:
        assert draft.known(["soup", "new"]) == {"soup"}
        draft.write(*batch_of({"new": "Rice with peas"}, 1, {"new": {"year": 3000, "size": 4}}))
    assert reader_of(store).fields()["year"].numbers == (1980, 3000)
    assert reader_of(store).fields()["size"].numbers == (4, 4)
    with pytest.raises(DataError, match=r"no document 'none' in .*; nothing was deleted"):
        store.delete(["new", "none"])
    assert passing(store) == {*TEXTS, "new"}
    add(store, {"moth": "Beetles of Java"})
    assert text_of(store, "moth") == "Beetles of Java"
    assert passing(store) == {*TEXTS, "new"}
    [ranked] = reader_of(store).words([["java", "borneo"]], 5, EVERYTHING)
    assert ids_of(store, ranked.rows) == ["moth"]
    store.delete(["soup", "new", "new"])
    store.delete([])
    assert reader_of(store).find(["soup", "new"]) == {}
    assert passing(store) == passing(open_store(address)) == {*TEXTS} - {"soup"}


def test_an_index_is_replaced_when_the_new_one_is_complete(address):
    store = build(address)
    with pytest.raises(IndexFolderError, match="holds an index: add to it with boolattn add"):
        build(address)
    with create(address, replace=True) as draft:
        assert not draft.known(["soup"])
        draft.write(*batch_of({"new": "Rice"}))
        assert passing(store) == passing(open_store(address)) == {*TEXTS}
    assert store.refresh()
    assert nearest(store, "x") == nearest(open_store(address), "x") == ["new"]
    wide = replace(SETTINGS, fingerprint="g", dimension=DIMENSION + 1)
    with create(address, wide, replace=True) as draft:
        draft.write(batch_of({"new": "Rice"})[0], np.ones((1, DIMENSION + 1), np.float32))
    assert store.refresh()
    assert store.settings == wide
    with store.adding() as draft:
        draft.write(batch_of({"newer": "Peas"})[0], np.ones((1, DIMENSION + 1), np.float32))
    assert store.n_documents == 2


def stop_a_build(address, *batches, settings=SETTINGS, **options):
    def write():
        with create(address, settings, **options) as draft:
            for texts in batches:
                draft.write(*batch_of(texts))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write()


def test_a_stopped_build_goes_on(address):
    first, second = dict([*TEXTS.items()][:2]), dict([*TEXTS.items()][2:])
    stop_a_build(address, first, settings=LONG)
    with pytest.raises(IndexFolderError, match=r"there is no index at .*; make one|never finished"):
        open_store(address)
    with pytest.raises(IndexFolderError, match=r"a build was stopped in .* go on with --resume"):
        build(address)
    with create(address, LONG, resume=True) as draft:
        assert draft.known([*first]) == set()
        assert draft.has(batch_of(first)[0])
        assert not draft.has(batch_of({**first, "cake": "Another cake"})[0])
        assert not draft.has(batch_of(second)[0])
        draft.write(*batch_of(second, 2))
    store = open_store(address)
    assert passing(store) == {*TEXTS}
    assert store.info()["passages"] == 6
    stop_a_build(address, {"new": "Rice"}, replace=True)
    assert passing(store) == passing(open_store(address)) == {*TEXTS}


def test_a_stopped_build_of_more_documents(address):
    stop_a_build(address, TEXTS, {"stale": "not in the corpus any more"})
    if ":" in address:
        with pytest.raises(ServerError, match="has 5 of 4 documents: some were left out since"):
            build(address, resume=True)
        build(address, replace=True)
    else:
        build(address, resume=True)
    assert passing(open_store(address)) == {*TEXTS}


def test_a_stopped_build_has_its_settings(address):
    stop_a_build(address, TEXTS, settings=LONG)
    if ":" in address:
        with pytest.raises(IndexMismatchError, match="has other settings or another model; begin"):
            build(address, resume=True)
    else:  # nothing of the other model is used
        with create(address, replace(LONG, fingerprint="g"), resume=True) as draft:
            assert not draft.has(batch_of(TEXTS)[0])
            draft.write(*batch_of(TEXTS))


def test_a_build_that_wrote_nothing_leaves_nothing(address):
    stop_a_build(address)
    with pytest.raises(IndexFolderError, match="there is no index at"):
        open_store(address)
    store = build(address)
    empty = pytest.raises(DataError, match="the corpus holds no documents")
    with empty, create(address, replace=True):
        pass
    assert passing(store) == passing(open_store(address)) == {*TEXTS}


def test_a_store_whose_documents_were_deleted_is_searched(address):
    store = build(address)
    store.delete([*TEXTS])
    assert (store.n_documents, reader_of(store).sample(3), nearest(store, "x")) == (0, [], [])
    [ranked] = reader_of(store).words([["moth"]], 3, EVERYTHING)
    assert len(ranked.rows) == 0
    add(store, TEXTS)
    assert passing(store) == {*TEXTS}


def test_ways_to_search_and_types_of_vectors(address):
    store = build(address, settings=replace(SETTINGS, vectors=""))
    assert store.settings.vectors == ("exact" if is_local(store) else "hnsw")
    assert nearest(store, TEXTS["moth"])[0] == "moth"
    for name, value in (("vectors", "ivf"), ("precision", "int2")):
        with pytest.raises(ConfigError, match=rf"{name} must be one of \w+.*, got '{value}'"):
            build(address, settings=replace(SETTINGS, **{name: value}), replace=True)
    assert passing(store) == {*TEXTS}

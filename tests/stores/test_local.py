"""The local store, whatever the way it searches neighbours."""

from __future__ import annotations

import json

import numpy as np
import pytest

from boolattn.checksums import write_manifest
from boolattn.errors import ConfigError, IndexFolderError, IndexMismatchError
from boolattn.search import Document, Searcher
from boolattn.stores.analysis import terms_of
from boolattn.stores.base import Claim
from boolattn.stores.filters import Filter, read_filters
from boolattn.stores.settings import VECTORS
from tests.search import word_model

N = 160
QUERIES = ("moths Borneo", "moths AND Borneo NOT Sumatra", "birds AND (Peru OR Kenya)")
FILTERS = (
    {"place": "Peru"},
    {"place": ["Peru", "Kenya"], "year": {"gt": 1980, "lte": 2005.0}},
    {"place": {"not": ["Peru", "Java"]}},
    {"year": {"not": 1985}, "is_old": True},
    {"is_old": 1},
    {"place": []},
    {"place": {"not": []}},
    {"place": {"contains": "er"}, "year": {"exists": True}},
    {"year": {"exists": False}},
)


def texts(n, seed):
    """Documents of a few words."""
    generator = np.random.default_rng(seed)
    lengths = generator.integers(2, 12, n)
    return [" ".join(generator.choice(word_model.WORDS, length)) for length in lengths]


def documents():
    """A small corpus whose right answers are plain, among others of a few words."""
    more = [Document(id=str(i), text=text) for i, text in enumerate(texts(N - 25, seed=0))]
    return [*word_model.corpus(), *more]


def ids(result):
    return [hit.id for hit in result.hits]


def scores(result):
    return [hit.score for hit in result.hits]


@pytest.fixture(scope="module", params=VECTORS)
def build(request, retriever):
    """Build an index that searches neighbours in one of the ways."""

    def build_so(folder, documents, **settings):
        settings = {"vectors": request.param, "segment_size": 70, "parser": None} | settings
        return Searcher.build(folder, documents, retriever, **settings)

    return build_so


@pytest.fixture(scope="module")
def exact(retriever, tmp_path_factory):
    folder = tmp_path_factory.mktemp("exact") / "index"
    return Searcher.build(folder, documents(), retriever, parser=None)


@pytest.fixture(scope="module")
def built(build, tmp_path_factory):
    return build(tmp_path_factory.mktemp("built") / "index", documents())


@pytest.fixture(scope="module")
def reader(built):
    with built.store.reading() as snapshot:
        yield snapshot


@pytest.fixture(scope="module")
def scan(exact):
    with exact.store.reading() as snapshot:
        yield snapshot


def where(reader, filters):
    return Filter(tuple(reader.resolve(condition) for condition in read_filters(filters)))


def test_nearest_is_what_exhaustive_search_finds(built, reader, scan, retriever):
    queries = retriever.encode_documents(texts(40, seed=1))
    is_exact = reader.settings.vectors == "exact"
    for n in (1, 10, N, 2 * N):
        answers, right = (own.nearest(queries, n, Filter()) for own in (reader, scan))
        for answer in answers:
            assert len(answer.rows) == len(set(answer.rows.tolist())) == min(n, N)
            assert (np.diff(answer.scores) <= 0).all()
        pairs = zip(answers, right, strict=True)
        share = np.mean([np.mean(own.scores >= best.scores[-1] - 1e-5) for own, best in pairs])
        assert share == 1 if is_exact else share > 0.95
    recall = built.store.manifest.graph.get("recall")
    assert recall is None if is_exact else recall["10"] > 0.9


def test_similarities_of_given_documents(reader, scan, retriever):
    queries = retriever.encode_documents(texts(3, seed=2))
    keys = np.array([7, N - 1, 0, 150])
    right = queries @ scan.row_vectors(keys).T
    np.testing.assert_allclose(reader.similarities(queries, keys), right, atol=1e-6)
    # Those that a search reports are the same.
    [nearest] = reader.nearest(queries[:1], 5, Filter())
    again = reader.similarities(queries[:1], nearest.rows)[0]
    np.testing.assert_allclose(nearest.scores, again, atol=1e-5)


def test_filters_and_composed_queries_answer_as_the_exact_store_does(
    built, exact, reader, scan, retriever
):
    query = retriever.encode_operands(["moths"])
    for filters in (None, *FILTERS):
        chosen = where(scan, filters)
        [answer] = reader.nearest(query, N, where(reader, filters))
        [right] = scan.nearest(query, N, chosen)
        assert set(answer.rows.tolist()) == set(right.rows.tolist()), filters
        assert len(answer.rows) == (N if filters is None else scan.count(chosen))
    for text in (*QUERIES, "everything NOT moths"):
        for filters in (None, *FILTERS[:3]):
            own = built.search(text, k=8, filters=filters)
            right = exact.search(text, k=8, filters=filters)
            assert scores(own) == pytest.approx(scores(right), abs=1e-4)
            assert (own.total, own.n_compared) == (right.total, right.n_compared)
    own = built.search("moths AND year>=1990 NOT like:both", k=5)
    assert ids(own) == ids(exact.search("moths AND year>=1990 NOT like:both", k=5))


def test_documents_come_and_go(build, retriever, folder):
    searcher = build(folder, word_model.corpus())
    odd = {"quote\"'s.%s": 'a "b"', "n": -1.5, "x" * 300: "long", "nul\0": 1, "año": 7, "Ö": "é"}
    searcher.add([Document(id="new", text="red birds", metadata=odd)])
    assert ids(searcher.search("red", k=1, filters={"quote\"'s.%s": 'a "b"'})) == ["new"]
    assert ids(searcher.search("red", k=1, filters={"n": {"lt": 0}, "x" * 300: "long"})) == ["new"]
    assert ids(searcher.search("red", k=1, filters={"nul\0": {"gte": 1}})) == ["new"]
    assert ids(searcher.search("red", k=1, filters={"año": {"gt": 6}, "Ö": "é"})) == ["new"]
    searcher.add([Document(id="new", text="old birds")], replace_old=True)
    searcher.delete(["both", "moths-java"])
    found = ids(searcher.search("moths old Borneo", k=100))
    assert len(found) == len(set(found)) == len(searcher) == 24
    assert not {"both", "moths-java"} & set(found)
    again = Searcher.open(folder, retriever, parser=None)
    assert ids(again.search("moths old Borneo", k=100)) == found
    build(folder, word_model.corpus()[:2], replace=True)
    rebuilt = build(folder, word_model.corpus()[:1], replace=True)
    assert ids(rebuilt.search("moths NOT birds", k=100)) == ["moths-borneo"]
    assert ids(rebuilt.search("moths", k=100, hybrid=False)) == ["moths-borneo"]


def test_what_a_killed_writer_left_is_neither_found_nor_counted(build, retriever, folder):
    searcher = build(folder, word_model.corpus())
    before = (folder / "manifest.json").read_bytes()
    searcher.add([Document(id="lost", text="red birds")])
    # As if the writer had been killed before the manifest was replaced.
    (folder / "manifest.json").write_bytes(before)
    again = Searcher.open(folder, retriever, parser=None)
    assert "lost" not in ids(again.search("red birds", k=100))
    assert len(ids(again.search("red birds", k=100))) == len(again) == 25
    again.add([Document(id="kept", text="red birds")])
    assert ids(again.search("red", k=1)) == ["kept"]
    assert "lost" not in ids(again.search("red birds", k=100))


def test_vectors_of_another_length_are_one_line(reader):
    short = np.zeros((1, 3), np.float32)
    for ask in (
        lambda: reader.nearest(short, 5, Filter()),
        lambda: reader.similarities(short, np.array([0])),
        lambda: reader.scan(short, Filter()),
    ):
        with pytest.raises(IndexMismatchError, match=r"of length 32, and .* has 3") as caught:
            ask()
        assert "\n" not in str(caught.value)


def test_vectors_that_are_gone_are_one_line(build, retriever, folder):
    names = build(folder, word_model.corpus()).store.manifest.files
    (folder / next(name for name in names if name.endswith(("faiss", "safetensors")))).unlink()
    with pytest.raises(IndexFolderError, match="is missing; build the index again") as caught:
        Searcher.open(folder, retriever)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("graph", {}),
        ("graph", {"file": "nowhere"}),
        ("graph", {"file": "manifest.json"}),
        ("dimension", 9),
        ("precision", "moths"),
    ],
)
def test_a_manifest_that_states_another_index_is_one_line(folder, retriever, name, value):
    """Its hash is right, so whatever it says is used."""
    Searcher.build(folder, word_model.corpus(), retriever, vectors="hnsw")
    manifest = json.loads((folder / "manifest.json").read_text())
    (manifest if name in manifest else manifest["settings"])[name] = value
    del manifest["checksum"]
    write_manifest(folder / "manifest.json", manifest)
    with pytest.raises(IndexFolderError) as caught:
        Searcher.open(folder, retriever)
    assert "\n" not in str(caught.value)


# What a document says of terms, and which documents a filter leaves.

JOBS = {
    "driver": ("Driver", "A driving licence is required."),
    "picker": ("Picker", "Warehouse work, no driving licence needed."),
    "both": ("Courier", "No driving licence needed. Later a driving licence is required."),
    "titled": ("Driving licence", "An office job."),
    "half": ("Instructor", "Teaches driving."),
    "cook": ("Cook", "Cooks soup without nuts."),
}
METADATA = {"driver": {"pay": 12, "town": "Leeds"}, "picker": {"pay": 11}, "cook": {"town": "York"}}
TERMS = terms_of("driving licence")


@pytest.fixture(scope="module", params=[True, False], ids=["words", "no words"])
def jobs(request, retriever, tmp_path_factory):
    """A store of texts that negate some of their words, with words and without."""
    listed = [
        Document(id=name, title=title, text=text, metadata=METADATA.get(name, {}))
        for name, (title, text) in JOBS.items()
    ]
    folder = tmp_path_factory.mktemp("jobs") / "index"
    options = {"parser": None, "words": request.param, "segment_size": 4}
    searcher = Searcher.build(folder, listed[:3], retriever, **options)
    searcher.add(listed[3:])
    with searcher.store.reading() as snapshot:
        yield snapshot


def named(reader, keys):
    return [document.id for document in reader.documents(np.asarray(keys, np.int64))]


def test_a_document_asserts_denies_or_lacks_terms(jobs):
    names = [*JOBS, "driver"]  # in any order, one of them twice
    numbers = jobs.find(names)
    keys = np.array([numbers[name] for name in names])[::-1]
    claims = dict(zip(names[::-1], jobs.claims(TERMS, keys).tolist(), strict=True))
    assert claims == {
        "driver": Claim.ASSERTED,
        "picker": Claim.DENIED,
        "both": Claim.ASSERTED,
        "titled": Claim.ASSERTED,
        "half": Claim.ABSENT,
        "cook": Claim.ABSENT,
    }
    cook = np.array([numbers["cook"]])
    assert jobs.claims(["soup"], cook).tolist() == [Claim.ASSERTED]
    assert jobs.claims(["nut"], cook).tolist() == [Claim.DENIED]
    # One that is denied is enough.
    assert jobs.claims(["soup", "nut"], cook).tolist() == [Claim.DENIED]
    assert jobs.claims(["soup", "whale"], cook).tolist() == [Claim.ABSENT]
    assert jobs.claims([], cook).tolist() == [Claim.ABSENT]
    assert jobs.claims(TERMS, cook[:0]).tolist() == []


def test_fields_are_assigned_once_all_are_known(jobs, monkeypatch):
    """Several threads may ask while the first one is counting."""
    n_known, extremes = [], type(jobs).extremes
    monkeypatch.setattr(jobs, "_fields", {})

    def counted(self, name):
        n_known.append(len(self._fields))
        return extremes(self, name)

    monkeypatch.setattr(type(jobs), "extremes", counted)
    assert set(jobs.fields()) == {"pay", "town"}
    assert len(n_known) > 2
    assert not any(n_known)


def test_documents_that_assert_every_term_of_a_group_are_left_out(jobs):
    vector, groups = np.eye(1, word_model.DIMENSION, dtype=np.float32), (tuple(TERMS), ("nut",))
    if not jobs.has_words:
        with pytest.raises(ConfigError, match="has no words; leave out hybrid, or index words"):
            jobs.nearest(vector, 10, Filter(lacking=groups))
        return
    for lacking, expected in (
        (groups[:1], {"picker", "half", "cook"}),
        (groups, {"picker", "half", "cook"}),  # the cook's soup has no nuts
        ((("drive",),), {"picker", "cook"}),
        ((("soup",), ("teach",)), {"driver", "picker", "both", "titled"}),
        ((("whale", "soup"),), set(JOBS)),
    ):
        chosen = Filter(lacking=lacking)
        [nearest] = jobs.nearest(vector, 10, chosen)
        assert set(named(jobs, nearest.rows)) == expected
        assert jobs.count(chosen) == len(expected)
        assert set(named(jobs, jobs.scan(vector, chosen)[0])) == expected
        [worded] = jobs.words([["licenc", "soup"]], 10, chosen)
        assert set(named(jobs, worded.rows)) == expected - {"half"}


def test_one_alternative_of_a_filter_is_enough(jobs):
    conditions = read_filters({"pay": {"gte": 12}, "town": "Leeds"})
    paid, leeds = (jobs.resolve(condition) for condition in conditions)
    not_paid, not_leeds = (_negated(condition) for condition in (paid, leeds))
    keys = jobs.find(list(JOBS))
    for chosen, expected in (
        (Filter(alternatives=((paid,), (leeds,))), {"driver"}),
        (Filter(alternatives=((paid, not_leeds),)), set()),
        # A document without a value passes a condition that must not hold.
        (Filter(alternatives=((not_paid,),)), set(JOBS) - {"driver"}),
        (Filter((not_leeds,), alternatives=((paid,), (not_paid,))), set(JOBS) - {"driver"}),
        (Filter(alternatives=((leeds,), (not_paid, not_leeds))), set(JOBS)),
        (Filter((leeds,), alternatives=((not_paid,),)), set()),
        (Filter(without=(keys["driver"], keys["cook"])), set(JOBS) - {"driver", "cook"}),
        (Filter(alternatives=((leeds,),), without=(keys["driver"],)), set()),
    ):
        vector = np.eye(1, word_model.DIMENSION, dtype=np.float32)
        assert set(named(jobs, jobs.nearest(vector, 10, chosen)[0].rows)) == expected
        assert jobs.count(chosen) == len(expected)
    every = np.array(list(keys.values()))
    assert set(named(jobs, every[jobs.matching(paid, every)])) == {"driver"}
    assert set(named(jobs, every[jobs.matching(not_leeds, every)])) == set(JOBS) - {"driver"}


def _negated(condition):
    return type(condition)(**(vars(condition) | {"is_negated": True}))


def test_the_vocabulary_counts_documents(jobs):
    if not jobs.has_words:
        with pytest.raises(ConfigError, match="has no words"):
            jobs.frequencies(["soup"])
        return
    held = [set(terms_of(f"{title} {text}")) for title, text in JOBS.values()]
    terms = [*sorted(set().union(*held)), "whale"]
    expected = [sum(term in words for words in held) for term in terms]
    assert jobs.frequencies(terms) == expected
    assert max(expected) == 5
    assert expected[-1] == 0
    assert jobs.frequencies([]) == []


def test_an_open_store_stays_as_it_was_while_another_writes(build, retriever, folder):
    searcher = build(folder, word_model.corpus())
    with searcher.store.reading() as before:
        Searcher.open(folder, retriever).delete(["both"])
        assert before.count(Filter()) == 25
        assert before.find(["both"])
    assert searcher.refresh()
    with searcher.store.reading() as after:
        assert after.count(Filter()) == 24
        assert not after.find(["both"])
        assert (
            len(
                named(
                    after, after.nearest(retriever.encode_operands(["moths"]), 99, Filter())[0].rows
                )
            )
            == 24
        )

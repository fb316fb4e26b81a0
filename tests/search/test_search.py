"""Search: composition, exclusion in every branch, filters, refused queries."""

import json
import zlib
from dataclasses import fields
from datetime import UTC, date, datetime

import numpy as np
import pytest

from boolattn.errors import ConfigError, QueryError, QuerySyntaxError
from boolattn.query.parsed_query import ParserOutput
from boolattn.query.plan import plan_queries
from boolattn.query.reading import QueryReader
from boolattn.query.syntax import parse
from boolattn.query.tree import Atom, is_contradiction
from boolattn.scoring.fitted import Fitted, fit
from boolattn.search import Document, Searcher, candidates, pipeline
from boolattn.search.result import judge
from boolattn.stores.base import similarities as inner_products
from boolattn.stores.filters import parse_filters
from boolattn.stores.writer import titled
from tests.parses import read_trees
from tests.search import word_model


def ids(result):
    return [hit.id for hit in result.hits]


@pytest.mark.parametrize("hybrid", [False, True])
@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("moths AND Borneo", {"moths-borneo", "both"}),
        ("moths AND Borneo NOT Sumatra", {"moths-borneo"}),
        ("birds AND (Peru OR Kenya)", {"birds-peru", "birds-kenya"}),
        ("Java NOT (moths OR beetles OR orchids)", {"birds-java"}),
        ("moths -Borneo -Peru -Kenya", {"moths-sumatra", "moths-java", "moths-ecuador"}),
        ("(moths AND Peru) OR (birds AND Kenya)", {"moths-peru", "birds-kenya"}),
    ],
)
def test_operators_select_the_right_documents(shared, query, expected, hybrid):
    result = shared.search(query, k=len(expected), hybrid=hybrid)
    assert set(ids(result)) == expected
    assert result.is_composed
    assert result.tree == parse(query)
    exhaustive = shared.search(query, k=len(expected), hybrid=hybrid, exhaustive=True)
    assert ids(exhaustive) == ids(result)


def test_a_plain_query_is_scored_by_its_one_vector(shared, retriever):
    result = shared.search("moths Borneo", k=3, hybrid=False)
    [plan] = plan_queries([QueryReader(None).read("moths Borneo")], retriever)
    vector = plan.vectors[0]
    by_hand = {
        d.id: float(retriever.encode_documents([titled(d.title, d.text)])[0] @ vector)
        for d in word_model.corpus()
    }
    assert ids(result)[:2] == sorted(by_hand, key=by_hand.get, reverse=True)[:2]
    for hit in result.hits:
        assert hit.score == pytest.approx(by_hand[hit.id], abs=1e-6)
        assert (hit.ranks, hit.verdict) == ((), "kept")
    assert not result.is_composed
    assert (result.tree, result.tree_text) == (Atom("moths Borneo"), "moths Borneo")


def test_composed_scores_are_the_composition_of_exact_similarities(shared, retriever):
    query = "moths AND Borneo NOT Sumatra"
    result = shared.search(query, k=25, hybrid=False, strict_not=False)
    [plan] = plan_queries(read_trees([parse(query)]), retriever)
    documents = word_model.corpus()
    vectors = retriever.encode_documents([titled(d.title, d.text) for d in documents])
    similarities = inner_products(plan.vectors, vectors)
    scores = fit(plan.tree, similarities).score(similarities)
    rounding = np.finfo(np.float32).eps
    ranks = 1 + (similarities[:3, None] > similarities[:3, :, None] + rounding).sum(-1)
    rows = {document.id: row for row, document in enumerate(documents)}
    for found in result.hits:
        row = rows[found.id]
        assert found.score == pytest.approx(float(scores[row]), abs=1e-4)
        expected = np.minimum(ranks[:, row], 11)  # of 25 documents 10 are told apart
        np.testing.assert_array_equal(found.ranks, expected)
    assert result.n_compared == len(documents)
    verdicts = {found.id: (found.verdict, found.why) for found in result.hits}
    assert verdicts["moths-borneo"] == ("kept", "")
    assert verdicts["both"][0] == "doubtful"
    assert "'Sumatra'" in verdicts["both"][1]


def test_without_composition_negated_operands_attract(shared):
    query = "moths AND Borneo NOT Sumatra"
    plain = shared.search(query, k=3, compose=False)
    assert not plain.is_composed
    assert "both" in ids(plain)
    assert ids(plain)[0] != "moths-borneo"


def test_without_composition_nothing_is_parsed(shared, monkeypatch):
    parsed = []

    class Watched:
        threshold = 0.5

        def parse(self, texts):
            parsed.append(texts)
            return [ParserOutput() for _ in texts]

        def is_word(self, _text):
            return True

    monkeypatch.setattr(shared, "parser", Watched())
    assert shared.search("moths of Borneo", k=1, compose=False).hits
    assert parsed == []
    assert shared.search("moths of Borneo", k=1).hits
    assert parsed == [["moths of Borneo"]]


def test_not_ranks_lower_what_one_vector_finds(shared):
    result = shared.search("moths NOT Ecuador", k=4, strict_not=False)
    assert "moths-ecuador" not in ids(result)
    assert "moths-ecuador" in ids(shared.search("moths NOT Ecuador", k=4, compose=False))
    back = json.loads(json.dumps(result.to_dict()))
    assert back["operands"] == ["moths", "Ecuador"]
    assert back["is_negated"] == [False, True]
    assert list(back) == [field.name for field in fields(result)]
    assert [result.query[slice(*span)] for [span] in result.spans] == ["moths", "Ecuador"]


def test_many_queries_at_once_are_answered_as_each_alone(shared):
    queries = ["moths", "moths NOT Borneo", "birds AND (Peru OR Kenya)", "飞蛾", "orchids Java"]
    for options in ({}, {"hybrid": True}, {"filters": {"year": {"lt": 2000}}}):
        together = shared.search_many(queries, k=4, **options)
        for query, result in zip(queries, together, strict=True):
            alone = shared.search(query, k=4, **options)
            assert result.query == query
            assert [h.score for h in result.hits] == pytest.approx(
                [h.score for h in alone.hits], abs=1e-5
            )
    assert shared.search_many([]) == []


def test_strict_not_excludes_by_words_what_vectors_miss(retriever, folder):
    # To this encoder all unknown words are one, to tantivy each is a word.
    vague = Document(id="vague", text="moths " * 40 + "sphinx")
    others = [Document(id=word, text="moths " * 39 + word) for word in ("plume", "tiger", "ghost")]
    searcher = Searcher.build(folder, [*word_model.corpus(), vague, *others], retriever)
    dense = searcher.search("moths NOT sphinx", k=15, hybrid=False, strict_not=False)
    assert "vague" in ids(dense)
    strict = searcher.search("moths NOT sphinx", k=20, hybrid=True, strict_not=True)
    assert "vague" not in ids(strict)
    assert (strict.hybrid, strict.strict_not) == (True, True)
    # This is the default.
    assert searcher.search("moths NOT sphinx", k=20).hits == strict.hits
    by_vector = searcher.search("moths NOT sphinx", k=20, hybrid=False)
    assert "vague" not in ids(by_vector)
    assert (by_vector.hybrid, by_vector.strict_not) == (False, True)
    assert not searcher.search("moths", compose=False).hybrid
    # Only distinguishing words exclude: all of these are moths.
    result = searcher.search("moths NOT moths sphinx", k=5, strict_not=True)
    assert "vague" not in ids(result)
    assert ids(result)
    # A document that another branch of an OR matches is not excluded.
    found = searcher.search("(moths NOT sphinx) OR sphinx", k=20, strict_not=True)
    assert "vague" in ids(found)


def test_a_verdict_says_what_was_measured():
    names = ("moths", "Borneo", "Sumatra")
    assert judge(names, (0, 0, 0), fits=True) == ""
    assert judge(names, (0, 0, 0.79), fits=True) == ""
    why = judge(names, (0, 0, 0.97), fits=True)
    assert why.startswith("matches the negated operand 'Sumatra' more than 97% of t")
    assert judge(names, (0, 0, 0), fits=False).startswith("fits the positive part")


def test_strict_not_warns_where_it_leaves_fewer_results(shared, monkeypatch):
    result = shared.search("moths NOT Borneo", k=25, strict_not=True)
    assert (
        len(result.hits) == 25 - sum("borneo" in hit.id for hit in shared.search("x", 25).hits) - 1
    )
    # Every document was looked at: there are no more.
    assert result.warnings == ()
    monkeypatch.setattr(pipeline, "_MORE", -20)
    result = shared.search("moths NOT Borneo", k=22, strict_not=True)
    [warning] = result.to_dict()["warnings"]
    assert f"NOT leaves {len(result.hits)} results of 22: of the 24 best" in warning
    assert shared.search("moths NOT Borneo", k=5, strict_not=True).warnings == ()
    [warning] = shared.search("moths", strict_not=True).warnings
    assert "excludes nothing" in warning


def test_words_that_vectors_miss_count_in_hybrid_search(retriever, folder):
    # To this encoder all unknown words are one, to tantivy each is a word.
    more = [
        Document(id=word, text=f"moths moths {word}", metadata={"group": "moths"})
        for word in ("plume", "tiger", "ghost")
    ]
    searcher = Searcher.build(folder, [*word_model.corpus(), *more], retriever)
    assert ids(searcher.search("tiger", k=1, hybrid=True)) == ["tiger"]
    both = searcher.search("moths AND ghost", k=1, hybrid=True)
    assert ids(both) == ["ghost"]
    without = ids(searcher.search("moths NOT moths plume", k=100, strict_not=False))
    assert without.index("plume") > max(without.index("tiger"), without.index("ghost"))
    # The evidence is of both.
    [found] = both.hits
    assert found.ranks[1] == 1


def test_filters_hold_in_every_branch(shared):
    cases = [
        ({"place": "Peru"}, lambda m: m["place"] == "Peru"),
        ({"place": ["Peru", "Kenya"]}, lambda m: m["place"] in ("Peru", "Kenya")),
        ({"place": {"not": "Peru"}}, lambda m: m["place"] != "Peru"),
        ({"year": {"gte": 1985, "lt": 2000}}, lambda m: 1985 <= m.get("year", 0) < 2000),
        ({"year": 1985.0}, lambda m: m.get("year") == 1985),
        ({"is_old": True, "group": "birds"}, lambda m: m.get("is_old") and m["group"] == "birds"),
        ({"is_old": 1}, lambda m: False),
        ({"group": {"not": ["birds"]}}, lambda m: m.get("group") != "birds"),
    ]
    for filters, holds in cases:
        expected = {d.id for d in word_model.corpus() if holds(d.metadata)}
        for query in ("moths Borneo", "moths NOT Borneo"):
            for hybrid in (False, True):
                found = shared.search(query, k=100, filters=filters, hybrid=hybrid)
                assert set(ids(found)) <= expected
                assert bool(found.hits) == bool(expected)
        assert set(ids(shared.search("moths", k=100, filters=filters))) == expected


def test_lists_dates_and_nested_values_are_filtered(retriever, folder):
    rows = {
        "a": {"tags": ["Vegan", "quick"], "on": date(2024, 3, 1), "open": True, "by": {"n": "Li"}},
        "b": {"tags": "quick", "on": "2024-03-31 23:00:00", "open": "True", "stars": [1, 5]},
        "c": {"tags": [], "on": datetime(2023, 12, 31, tzinfo=UTC), "open": "false", "stars": 3},
        "d": {"tags": None, "on": "2024-03-01T01:00:00+02:00", "open": False},
    }
    first = [Document(id=name, text="moths", metadata=rows[name]) for name in "ab"]
    searcher = Searcher.build(folder, first, retriever)
    # A second segment, without some columns of the first.
    searcher.add(Document(id=name, text="moths", metadata=rows[name]) for name in "cd")
    cases = {
        "ab": [{"tags": "quick"}, {"tags": {"exists": True}}, {"open": True}, {"open": "true"}],
        "a": [{"tags": "Vegan"}, {"tags": {"contains": "vega"}}, {"on": date(2024, 3, 1)}],
        "cd": [{"tags": {"not": ["quick"]}}, {"tags": {"exists": False}}, {"open": "False"}],
        "": [{"tags": []}, {"tags": {"contains": "meat"}}, {"on": {"gt": "2024-03"}}],
        "abd": [{"on": {"gte": 2024}}, {"on": {"gte": "2024-02-29"}}, {"on": {"gt": "2023"}}],
        "acd": [{"on": {"lte": "2024-03-01"}}, {"on": {"lt": "2024-03-31T23:00:00Z"}}],
        "b": [{"stars": {"gt": 4}}, {"stars": {"lte": 1}}, {"stars": {"gte": 4, "lt": 2}}],
        "bc": [{"stars": {"gte": 3}}, {"stars": {"exists": True}}],
        "abcd": [{"on": {"lte": "2024-03"}}],
        "d": [{"on": "2024-02-29T23:00:00Z"}],
    }
    for expected, filters in cases.items():
        for one in filters:
            assert sorted(ids(searcher.search("moths", filters=one))) == list(expected), one
    assert ids(searcher.search("moths", filters=parse_filters(["by.n=Li", "on<2024-04"]))) == ["a"]
    texts = ["tags~QUICK", "stars!=*", "open=TRUE", "on>=2024"]
    assert ids(searcher.search("moths", filters=parse_filters(texts))) == ["a"]
    assert searcher.search("moths", filters={"by.n": "Li"}).hits[0].metadata["on"] == "2024-03-01"


@pytest.mark.parametrize(
    ("filters", "message"),
    [
        ({"plaec": "Peru"}, r"'plaec'; there are: group, is_old, .*; did you mean 'place'\?"),
        ({"year": {"above": 3}}, "has no 'above'; there are in, not, contains"),
        ({"year": {"gt": "x"}}, "gt takes one number"),
        ({"year": {"gt": [1, 2]}}, "gt takes one number"),
        ({"group": {"gt": 3}}, "the field holds no numbers or dates that gt could compare"),
        ({"year": {"gt": "2024-03"}}, "the field holds no dates that gt"),
        ({"year": {"gt": "2024-13"}}, "gt takes one number, or one date"),
        ({"year": {"exists": "yes"}}, "exists takes true or false, not 'yes'"),
        ({"place": {"contains": ["a", "b"]}}, "contains takes one text, not 2 values"),
        ({"year": {"gte": float("nan")}}, "the number is too large to compare, or none"),
        ({"year": {"lt": float("inf")}}, "the number is too large to compare, or none"),
        ({"year": {"gte": 2**53 + 1}}, "gte takes whole numbers up to 9,007,199,254,740,992"),
        ({"year": None}, "a value is text, a number or true or false, not None"),
    ],
)
def test_invalid_filters_are_refused(shared, filters, message):
    with pytest.raises(QueryError, match=message):
        shared.search("moths", filters=filters)


@pytest.mark.parametrize(
    ("query", "options", "kind", "message"),
    [
        ("", {}, QueryError, "the query is empty"),
        ("  \n", {}, QueryError, "the query is empty"),
        ("moths AND (Borneo", {}, QuerySyntaxError, "column 11: this parenthesis is never"),
        ("AND OR NOT", {}, QuerySyntaxError, "column 1: an operand is expected before 'AND'"),
        ("moths \ud800", {}, QueryError, "column 7: the query holds half a character"),
        ("moths", {"k": 0}, QueryError, "k must be at least 1, got 0"),
        (
            "moths",
            {"mode": "loud"},
            ConfigError,
            "mode must be one of auto, plain, explicit; got 'loud'",
        ),
        ("moths", {"hybird": True}, ConfigError, "hybird"),
    ],
)
def test_invalid_queries_are_refused_with_a_reason(shared, query, options, kind, message):
    with pytest.raises(kind, match=message) as caught:
        shared.search(query, **options)
    assert "\n" not in str(caught.value)


def test_a_contradiction_finds_nothing_and_warns(shared):
    for hybrid in (False, True):
        result = shared.search("moths NOT moths", hybrid=hybrid)
        assert result.hits == ()
        assert result.warnings == ("the query contradicts itself: nothing can satisfy it",)
    together = shared.search_many(["moths NOT Moths", "moths NOT Borneo"], k=2)
    assert [len(result.hits) for result in together] == [0, 2]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("a NOT A", True),
        ("a AND b NOT (a OR b)", True),
        ("a AND b NOT (a AND b)", True),
        ("(a NOT a) OR b", False),
        ("a NOT (a AND b)", False),
        ("a NOT b", False),
        ("(a OR b) NOT a", False),
    ],
)
def test_contradictions_are_recognised(query, expected):
    assert is_contradiction(parse(query)) is expected


def test_a_hundred_operands_and_a_hundred_thousand_results(shared):
    query = " OR ".join(["moths", *(f"thing {i}" for i in range(99))])
    result = shared.search(query, k=7)
    assert len(result.operands) == 100
    assert {hit.id.split("-")[0] for hit in result.hits} <= {"moths", "both"}
    assert len(shared.search("moths " * 100 + "AND Peru", k=3).hits) == 3
    for hybrid in (False, True):
        assert len(shared.search("moths", k=100_000, hybrid=hybrid).hits) == len(shared)
        found = shared.search("moths NOT Peru", k=100_000, hybrid=hybrid, strict_not=False)
        assert len(found.hits) == len(shared)


def test_other_scripts_are_searched_by_vector_and_by_word(retriever, folder):
    documents = [
        Document(id="zh", text="婆罗洲的飞蛾"),
        Document(id="ja", text="ジャワの蛾"),
        Document(id="ru", text="мотылёк Суматры"),
        Document(id="ar", text="عث بورنيو"),
    ]
    searcher = Searcher.build(folder, [*word_model.corpus(), *documents], retriever)
    assert ids(searcher.search("мотылёк", k=1)) == ["ru"]
    for query, expected in [
        ("飞蛾 AND 婆罗洲", "zh"),
        ("بورنيو AND عث", "ar"),
        ("ジャワ AND 蛾", "ja"),
    ]:
        result = searcher.search(query, k=3, hybrid=True)
        assert ids(result)[0] == expected


def test_hybrid_needs_words(folder, retriever):
    searcher = Searcher.build(folder, word_model.corpus(), retriever, words=False)
    assert not searcher.settings.words
    with pytest.raises(ConfigError, match="has no words; leave out hybrid, or index words"):
        searcher.search("moths", hybrid=True)


def test_a_cue_word_that_becomes_no_operator_is_reported(shared):
    def warnings(query, **options):
        return shared.search(query, k=1, **options).warnings

    assert warnings("moths not Java AND Borneo") == (
        "'not' is no operator here: in explicit syntax only AND, OR and NOT in capitals are",
    )
    assert warnings('"Trinidad and Tobago" AND moths') == ()
    assert warnings("moths or birds but not Java", compose=False) == (
        "'or', 'but not' are no operators here: composition is off; the query is searched as one "
        "text",
    )
    # This model has no parser.
    assert "the model has no query parser" in warnings("moths but not Java")[0]
    assert warnings("moths Java") == ()
    plain, composed = shared.search("moths"), shared.search("moths NOT Java")
    assert plain.why_one_vector == "the model has no query parser"
    assert plain.to_dict()["why_one_vector"] == plain.why_one_vector
    assert composed.why_one_vector == ""


def many_texts(n, seed):
    """Texts of two to nine words of a vocabulary in which few words are frequent."""
    generator = np.random.default_rng(seed)
    share = 1 / np.arange(1, len(word_model.WORDS) + 1)
    lengths = generator.integers(2, 10, n)
    words = [generator.choice(word_model.WORDS, size, p=share / share.sum()) for size in lengths]
    return [f"{' '.join(listed)} {number}" for number, listed in enumerate(words)]


@pytest.fixture(scope="module")
def unequal(retriever):
    """Many documents; no two similarities are equal, of which any may be on a shortlist."""
    noises = np.random.default_rng(1).standard_normal((997, retriever.dimension)) / 100

    def embed(texts):
        numbers = [zlib.crc32(text.encode()) for text in texts]
        noise = [noises[n % 997] + noises[n // 997 % 997] for n in numbers]
        return retriever.encode_documents(texts) + np.array(noise, np.float32)

    return Searcher.from_texts(many_texts(4000, seed=0), embed, parser=None)


@pytest.mark.parametrize("hybrid", [False, True])
def test_documents_that_are_passed_over_change_nothing(unequal, monkeypatch, hybrid):
    first, second, third, fourth = word_model.WORDS[3:7]
    queries = [
        f"{first} AND {second}",
        f"{first} NOT {second}",
        f"{third} AND {second} NOT {first}",
        f"({first} AND {third}) OR {fourth}",
        f"NOT {first}",
        f"{first} AND {second}^2",
    ]
    proofs = []

    def is_complete(fitted, *values):
        proofs.append(proved(fitted, *values))
        return proofs[-1]

    proved = Fitted.is_complete
    monkeypatch.setattr(Fitted, "is_complete", is_complete)
    options = {"k": 20, "hybrid": hybrid, "mode": "explicit"}
    right = unequal.search_many(queries, **options)
    assert proofs == []
    monkeypatch.setattr(candidates, "_MANY", 1000)
    for n_near in (150, 1500):
        monkeypatch.setattr(candidates, "_NEAR", n_near)
        results = unequal.search_many(queries, **options)
        for result, expected in zip(results, right, strict=True):
            scores = [hit.score for hit in expected.hits]
            assert [hit.score for hit in result.hits] == pytest.approx(scores, abs=1e-3), (
                result.query
            )
            assert result.n_compared == expected.n_compared
            verdicts = [hit.verdict for hit in expected.hits]
            assert [hit.verdict for hit in result.hits] == verdicts
    # Without words some are not proved, and then every document is composed.
    assert True in proofs
    assert (False in proofs) is not hybrid

"""Lists of operands, documents as operands, weights, and conditions inside the tree."""

import numpy as np
import pytest
from fastapi.testclient import TestClient

from boolattn.errors import ConfigError, QueryError, QuerySyntaxError
from boolattn.query.syntax import parse
from boolattn.query.tree import atoms, clauses, conjunctions
from boolattn.scoring.fitted import fit
from boolattn.search import Document, Searcher
from boolattn.service.app import create_app
from tests.search import word_model


def ids(result):
    return [hit.id for hit in result.hits]


def scores(result):
    return {hit.id: hit.score for hit in result.hits}


def same_scores(result):
    """Up to rounding, by which the order of equal ones may differ."""
    return pytest.approx(scores(result), abs=1e-5)


@pytest.mark.parametrize("hybrid", [False, True])
def test_lists_are_operands_of_the_tree(shared, hybrid):
    given = shared.search("moths AND Borneo NOT Sumatra", k=5, hybrid=hybrid)
    lists = {"positive": ["Borneo"], "negative": ["Sumatra"], "k": 5, "hybrid": hybrid}
    assert scores(shared.search("moths", **lists, mode="explicit")) == same_scores(given)
    alone = shared.search(k=5, hybrid=hybrid, positive=["moths", "Borneo"], negative=["Sumatra"])
    assert scores(alone) == same_scores(given)
    assert alone.tree_text == given.tree_text == "moths AND Borneo NOT Sumatra"
    plain = shared.search("moths", **lists)
    assert ids(plain)[0] == "moths-borneo"
    assert plain.tree_text == given.tree_text
    assert plain.spans == (((0, 5),), (), ())
    assert ids(shared.search("moths", k=1, positive=["Borneo"], compose=False)) == ["moths-borneo"]


def test_an_entry_of_a_list_is_one_operand_or_uses_the_syntax(shared):
    def tree(*entries):
        return shared.search("moths", negative=entries).tree_text

    assert tree("rock (music)") == 'moths NOT "rock (music)"'
    assert tree("Borneo OR Java") == "moths NOT (Borneo OR Java)"
    assert tree("-Borneo") == "moths AND Borneo"
    assert tree('"a AND b"') == 'moths NOT "a AND b"'
    assert tree("year>=1990", "Java^2") == "moths NOT year>=1990 NOT Java^2"
    with pytest.raises(QueryError, match="an entry of positive or negative is empty"):
        tree(" ")
    with pytest.raises(ConfigError, match=r"positive must be .*, got 'Java'"):
        shared.search("moths", positive="Java")
    assert shared.search(negative=["moths"]).tree_text == "everything NOT moths"
    with pytest.raises(QueryError, match="the query is empty"):
        shared.search("")


def test_a_document_is_an_operand(shared):
    like = shared.search("like:moths-borneo", k=5)
    assert (like.is_composed, like.operands) == (False, ("like:moths-borneo",))
    # "both" has both words; the document itself is left out.
    assert ids(like)[0] == "both"
    assert "moths-borneo" not in ids(shared.search("like:moths-borneo", k=100))
    assert like.total == len(shared) - 1
    without = shared.search("like:moths-borneo NOT Sumatra", k=3)
    assert "both" not in ids(without)
    fewer = shared.search("moths", k=6, negative=["like:moths-java"])
    assert "moths-java" not in ids(fewer)
    assert fewer.hits[0].id.startswith("moths")
    assert ids(shared.search("birds AND like:moths-kenya", k=1)) == ["birds-kenya"]
    for hybrid in (False, True):
        either = shared.search("like:moths-peru OR like:birds-kenya", k=30, hybrid=hybrid)
        assert not {"moths-peru", "birds-kenya"} & set(ids(either))
    assert shared.search("like:both", k=1).highlights(like.hits[0]) == []


def test_an_unknown_document_is_refused(shared):
    with pytest.raises(QueryError, match=r"^like:nobody: no document has the id 'nobody'$"):
        shared.search("moths NOT like:nobody")


def test_ids_may_hold_anything(retriever, folder):
    names = ["a b", 'say "so"', "x^2", "(1)", "NOT"]
    documents = [Document(id=name, text=f"moths {place}")
                 for name, place in zip(names, word_model.PLACES, strict=False)]  # fmt: skip
    searcher = Searcher.build(folder, documents, retriever)
    for name in names:
        escaped = name.replace('"', '\\"')
        result = searcher.search(f'like:"{escaped}" NOT Peru')
        assert result.operands[0] == f"like:{name}"
        assert name not in ids(result)
        assert parse(result.tree_text) == result.tree


def test_a_long_document_counts_as_the_mean_of_its_passages(retriever, folder):
    long = Document(id="long", text="moths Borneo. " * 20 + "birds Kenya. " * 20)
    searcher = Searcher.build(folder, [long, *word_model.corpus()], retriever, passages=16)
    with searcher.store.reading() as reader:
        vector = reader.vectors(["long"])["long"]
    assert np.linalg.norm(vector) == pytest.approx(1, abs=1e-5)
    found = ids(searcher.search("like:long", k=4))
    assert {"moths-borneo", "birds-kenya"} & set(found)
    assert "long" not in found


@pytest.mark.parametrize(
    ("condition", "filters"),
    [
        ("year>=1990", {"year": {"gte": 1990}}),
        ("year:1990..2000", {"year": {"gte": 1990, "lte": 2000}}),
        ("year:..1990", {"year": {"lte": 1990}}),
        ("place:Java", {"place": "Java"}),
        ('place = "Java"', {"place": "Java"}),
        ("place!=Java", {"place": {"not": "Java"}}),
        ("NOT place=Java", {"place": {"not": "Java"}}),
        ("place~AV", {"place": {"contains": "av"}}),
        ("year=*", {"year": {"exists": True}}),
    ],
)
def test_a_condition_under_and_is_a_filter(shared, condition, filters):
    for query in ("moths AND (Borneo OR Java)", "moths AND Borneo"):
        by_tree = shared.search(f"{query} AND {condition}", k=25)
        by_filter = shared.search(query, k=25, filters=filters)
        assert scores(by_tree) == same_scores(by_filter)
        assert by_tree.total == by_filter.total
    # One vector is filtered too; documents without "moths" are all alike.
    expected = shared.search("moths", k=25, filters=filters)
    n_moths = sum(hit.score > 0.1 for hit in expected.hits)
    for compose in (True, False):
        one = shared.search(f"moths AND {condition}", k=25, compose=compose)
        assert ids(one)[:n_moths] == ids(expected)[:n_moths]
        assert set(ids(one)) == set(ids(expected))


@pytest.mark.parametrize("vectors", ["exact", "hnsw"])
def test_each_alternative_has_its_own_conditions(retriever, tmp_path, vectors):
    searcher = Searcher.build(tmp_path / "i", word_model.corpus(), retriever, vectors=vectors)
    result = searcher.search("(moths AND year>=1990) OR (birds AND year<1990)", k=25)
    found = [(hit.id.partition("-")[0], hit.metadata["year"]) for hit in result.hits]
    # Every document meets one of the conditions; moths are ranked by the first alone.
    assert set(found[:6]) == {("moths", y) for y in (1990, 1995, 2000, 2005)} | {
        ("birds", y) for y in (1980, 1985)
    }
    mixed = searcher.search('(moths AND year>=1990) OR place="Borneo"', k=25)
    assert all(hit.metadata["year"] >= 1990 or hit.metadata["place"] == "Borneo"
               for hit in mixed.hits if "year" in hit.metadata)  # fmt: skip
    assert len(mixed.hits) == mixed.total == 4 * 4 + 4 + 1
    assert mixed.operands == ("moths", "year>=1990", "place=Borneo")
    old = searcher.search("moths AND NOT year>=1990", k=25)
    assert {hit.metadata.get("year", 0) < 1990 for hit in old.hits} == {True}
    assert len(old.hits) == 4 * 2 + 1  # and the one without a year
    unless = searcher.search("place=Java NOT moths", k=25, strict_not=False)
    assert ids(unless)[-1] == "moths-java"
    assert len(unless.hits) == 4


def test_conditions_that_cannot_be_met_are_told(shared):
    result = shared.search("moths AND year>2000 AND year<1990")
    assert (result.hits, result.total) == ((), 0)
    assert result.warnings == ("no document meets the conditions: year>2000, year<1990",)
    result = shared.search("moths AND year>=1990 NOT year>=1990")
    assert (result.hits, len(result.warnings)) == ((), 1 + 1)
    both = shared.search("moths", negative=["Moths"])
    assert both.hits == ()
    assert both.warnings == ("the query contradicts itself: nothing can satisfy it",)
    with pytest.raises(
        QueryError, match=r"^no document has the field 'colour'; there are: group, "
    ):
        shared.search("moths AND colour=red")
    with pytest.raises(QueryError, match="'old' is neither a number nor a date"):
        shared.search("moths AND year>=old")


@pytest.mark.parametrize(
    ("query", "tree"),
    [
        ("year>=1990", "everything AND year>=1990"),
        ("place=Java AND year>=1990", "everything AND place=Java AND year>=1990"),
        ("NOT place=Java", "everything NOT place=Java"),
    ],
)
def test_conditions_alone_find_all_that_meet_them(shared, query, tree):
    result = shared.search(query, k=25)
    filters = {"year": {"gte": 1990}} if "year" in query else {}
    filters |= {"place": {"not": "Java"} if "NOT" in query else "Java"} if "Java" in query else {}
    assert result.tree_text == tree
    assert set(ids(result)) == set(ids(shared.search("moths", k=25, filters=filters)))
    assert result.total == len(result.hits) > 0


def test_pages_of_equal_scores_are_parts_of_one_list(shared):
    pages = [shared.search("year>=1990", k=4, offset=offset) for offset in (0, 4, 8, 12)]
    assert len({name for page in pages for name in ids(page)}) == pages[0].total == 16


def test_conditions_are_words_in_plain_language(shared):
    for text in ("C++ >= 11", "moths^ of Java", "town:Java", "place: Java"):
        result = shared.search(text)
        assert (result.operands, result.total) == ((text,), len(shared))
    # One of a known field is a condition, unless plain language is asked for.
    assert shared.search("place:Java").tree_text == "everything AND place=Java"
    assert shared.search("place:Java", mode="plain").total == len(shared)
    assert shared.search("place:Java without moths").total == len(shared)


def test_a_number_that_is_compared_is_a_condition(shared):
    result = shared.search("moths year>=1990")
    assert result.operands == ("moths", "year>=1990")
    assert result.total == 16
    with pytest.raises(QueryError, match=r"no document has the field 'size'.*between quotes"):
        shared.search("moths size>=1990")


def test_queries_of_one_batch_keep_their_own_conditions(shared):
    queries = ["moths AND year>=1990", "moths", "moths AND year<1990", "like:both", "birds -Kenya"]
    together = shared.search_many(queries, k=25)
    for query, result in zip(queries, together, strict=True):
        alone = shared.search(query, k=25)
        assert ids(result)[:4] == ids(alone)[:4]
        assert (set(ids(result)), result.total) == (set(ids(alone)), alone.total)


# Weights


def composed(text, similarities):
    return fit(parse(text), similarities).score(similarities)


def random(text, seed, n=60):
    tree = parse(text)
    n_vectors = len(list(atoms(tree))) + len(conjunctions(clauses(tree)))
    return np.random.default_rng(seed).normal(size=(n_vectors, n)).astype(np.float32)


@pytest.mark.parametrize("shape", ["{} AND b", "{} OR b", "a NOT {}", "(a AND {}) OR b NOT c"])
def test_weight_one_changes_nothing_and_another_does(shape):
    similarities = random(shape.format("x"), 0)
    plain = composed(shape.format("x"), similarities)
    np.testing.assert_array_equal(composed(shape.format("x^1.0"), similarities), plain)
    for weight in ("0.5", "2"):
        assert not np.array_equal(composed(shape.format(f"x^{weight}"), similarities), plain)


@pytest.mark.parametrize("seed", range(5))
def test_a_larger_weight_never_lowers_the_best_document_of_its_operand(seed):
    for shape in ("x^{} AND b", "x^{} AND b AND c", "x^{} OR b"):
        similarities = random(shape.format(1), seed)
        best = similarities[0].argmax()
        ranks = []
        for weight in (0.1, 0.5, 1, 2, 5, 50):
            own = composed(shape.format(weight), similarities)
            ranks.append(int((own > own[best]).sum()))
        assert ranks == sorted(ranks, reverse=True)
    assert ranks[0] > ranks[-1] or ranks[-1] == 0


@pytest.mark.parametrize("seed", range(5))
def test_a_larger_weight_of_not_excludes_more(seed):
    similarities = random("a NOT b", seed, n=200)
    excluded = similarities[1] > np.quantile(similarities[1], 0.7)
    leaks = []
    for weight in (0.05, 0.3, 1, 3, 30):
        first = np.argsort(-composed(f"a NOT b^{weight}", similarities))[:20]
        leaks.append(int(excluded[first].sum()))
    assert leaks == sorted(leaks, reverse=True)
    assert leaks[0] > leaks[-1]


def test_a_weight_moves_results(shared):
    even = shared.search("moths AND Peru", k=12)
    for weighted, other in (("moths^5 AND Peru", "moths"), ("moths AND Peru^5", "peru")):
        found = ids(shared.search(weighted, k=7))
        assert found[0] == ids(even)[0] == "moths-peru"
        assert sum(other in name for name in found) > 3
    assert shared.search("moths^2 AND Peru").tree_text == "moths^2 AND Peru"


@pytest.mark.parametrize("weight", ["0", "-1", "nan", "1e999", "inf", "101"])
def test_bad_weights_are_refused(weight):
    for text in (f"moths^{weight} AND Borneo", f'"hawk moths"^{weight} AND a', f"like:3^{weight}"):
        with pytest.raises(QuerySyntaxError, match=f"above 0 and at most 100, not {weight}; "):
            parse(text)


# HTTP


@pytest.fixture(scope="module")
def client(shared):
    with TestClient(create_app(shared)) as client:
        yield client


def test_lists_documents_and_weights_by_http(client):
    body = {"query": "moths^2 AND year>=1990", "positive": ["like:both"], "negative": ["Java"]}
    reply = client.post("/search", json=body).json()
    assert reply["tree"] == "moths^2 AND year>=1990 AND like:both NOT Java"
    assert [(o["kind"], o["weight"], o["is_negated"]) for o in reply["operands"]] == [
        ("words", 2, False),
        ("condition", 1, False),
        ("document", 1, False),
        ("words", 1, True),
    ]
    assert all(hit["metadata"]["year"] >= 1990 for hit in reply["hits"])
    address = {"q": body["query"], "positive": "like:both", "negative": "Java"}
    by_address = client.get("/search", params=address).json()
    assert [hit["id"] for hit in by_address["hits"]] == [hit["id"] for hit in reply["hits"]]
    address = {"q": "moths", "negative": ["Java", "like:both"]}
    found = client.get("/search", params=address).json()
    assert found["tree"] == "moths NOT Java NOT like:both"
    alone = client.post("/search", json={"positive": ["like:moths-java"]}).json()
    assert "moths-java" not in {hit["id"] for hit in alone["hits"]}
    others = client.post("/search", json={"negative": ["moths"]}).json()
    assert (others["tree"], others["total"]) == ("everything NOT moths", 25)
    for body, message in (
        ({"query": "moths", "negative": ["like:x"]}, "like:x: no document has the id 'x'"),
        ({}, "the query is empty"),
        ({"query": "moths AND x>=1"}, "no document has the field 'x'"),
        ({"query": "moths^0 AND Java"}, "column 7: a weight is above 0"),
    ):
        refused = client.post("/search", json=body)
        assert refused.status_code == 400
        assert refused.json()["error"]["message"].startswith(message)

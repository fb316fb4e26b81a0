"""Long documents: one result each, found by their best passage."""

from itertools import pairwise

import numpy as np
import pytest

from boolattn.search import Document, Searcher
from boolattn.stores.analysis import cut
from tests.search import word_model

#: So long that each is a passage; the other documents are shorter.
N_TOKENS = 64
PARTS = tuple(
    " ".join([first] * 16 + [second] * 20 + [third] * 12) + "."
    for first, second, third in (
        ("red", "moths", "Java"),
        ("old", "Borneo", "Kenya"),
        ("large", "birds", "old"),
    )
)
LONG = Document(id="long", title="hawk", text="\n".join(PARTS), metadata={"place": "Borneo"})


@pytest.mark.parametrize("n_tokens", [1, 5, 12, 100])
def test_passages_are_the_whole_text_in_order(n_tokens):
    text = 'One two. "Three four," he said. 飞蛾飞蛾飞蛾。Abracadabraabracadabra\n\n' * 5
    spans = cut(text, n_tokens)
    assert "".join("".join(text[a:b].split()) for a, b in spans) == "".join(text.split())
    assert all(a < b <= c for (a, b), (c, _) in pairwise(spans))
    assert len(spans) > 1
    assert cut(text, 0) == [(0, len(text))]
    assert cut("short", n_tokens)[0][0] == 0


@pytest.fixture(params=["exact", "hnsw"])
def searcher(request, folder, retriever):
    documents = [*word_model.corpus(), LONG]
    return Searcher.build(
        folder, documents, retriever, vectors=request.param, passages=N_TOKENS, segment_size=10
    )


def reader_of(searcher):
    with searcher.store.reading() as reader:
        return reader


def test_a_document_is_one_result_and_shows_its_best_passage(searcher):
    corpus = {d.id for d in word_model.corpus()} | {"long"}
    assert len(searcher) == len(corpus)
    assert searcher.store.info()["passages"] == len(corpus) + 2
    for query, part in (("red", 0), ("old Borneo", 1), ("large", 2), ("red NOT Peru", 0)):
        for hybrid in (False, True):
            result = searcher.search(query, k=100, hybrid=hybrid, strict_not=False)
            assert sorted(hit.id for hit in result.hits) == sorted(corpus)
            [hit] = [hit for hit in result.hits if hit.id == "long"]
            assert hit.text[slice(*hit.passage)] == PARTS[part]
            marked = [hit.text[a:b] for a, b in result.highlights(hit)]
            assert set(marked) <= set(query.split())
            assert marked
    assert searcher.search("red", k=1).hits[0].id == "long"
    assert len(searcher.search("birds", k=3).hits) == 3
    short = Document(id="s", text="moths")
    searcher.add([short])
    assert searcher.search("moths", k=100, filters=None).total == len(corpus) + 1


def test_an_operand_matches_a_document_as_its_best_passage_does(searcher, retriever):
    number = reader_of(searcher).find(["long"])["long"]
    # All passages are encoded with the title before them.
    texts = [f"hawk. {part}" for part in PARTS]
    vectors = retriever.encode_documents(texts)
    vectors[1:] += 0.3 * vectors[0]  # later passages hold what the text is about
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    expected = retriever.encode_operands(["red", "Borneo"]) @ vectors.T
    with searcher.store.reading() as reader:
        found = reader.similarities(
            retriever.encode_operands(["red", "Borneo"]), np.array([0, number])
        )
    np.testing.assert_allclose(found[:, 1], expected.max(1), atol=1e-5)
    # One passage is enough for a NOT.
    ranked = [hit.id for hit in searcher.search("moths NOT large", k=100, strict_not=False).hits]
    assert ranked.index("long") > ranked.index("moths-peru")


def test_all_passages_are_filtered_replaced_and_deleted(searcher, folder, retriever):
    found = searcher.search("red", k=100, filters={"place": "Borneo"})
    assert found.hits[0].id == "long"
    assert found.total == len(found.hits) == 6
    assert searcher.search("red", k=100, filters={"place": "Peru"}).total == 4
    n_rows = searcher.store.info()["passages"]
    searcher.add([Document(id="long", text="red moths")], replace_old=True)
    assert searcher.store.info()["passages"] == n_rows - 2
    again = Searcher.open(folder, retriever)
    assert again.search("large birds", k=1).hits[0].id != "long"
    # The setting of the index holds for what is added.
    again.add([Document(id="more", text=LONG.text)])
    rows = reader_of(again)
    assert len(rows.spans(rows.find(["more"])["more"])) == 3
    again.delete(["more", "long"])
    ids = [hit.id for hit in again.search("red moths", k=100).hits]
    assert len(ids) == len(again) == 25
    assert not {"more", "long"} & set(ids)


def test_pages_are_parts_of_one_list(searcher):
    for query in ("moths", "moths NOT Peru"):
        for options in ({}, {"hybrid": True}, {"filters": {"group": "moths"}}):
            whole = searcher.search(query, k=6, **options)
            pages = [searcher.search(query, k=3, offset=n, **options) for n in (0, 3)]
            assert [h.id for page in pages for h in page.hits] == [h.id for h in whole.hits]
            assert pages[1].offset == 3
            assert pages[1].total == whole.total == (6 if "filters" in options else 26)
    assert searcher.search("moths", k=3, offset=1000).hits == ()

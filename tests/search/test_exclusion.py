import pytest

from boolattn import Document, Searcher
from boolattn.stores.analysis import asserted_terms, document_terms, terms_of
from tests.search import word_model


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Warehouse work, no driving licence needed.", "driving licence"),
        ("Nut-free brownies", "nut"),
        ("Made without coconut milk, with cream.", "coconut"),
        ("This job doesn't require a degree.", "degree"),
        ("You don’t need a car", "car"),
        ("A degree is not required", "degree"),
        ("Driving licence: not needed", "driving"),
        ("Contains no nuts, gluten or dairy.", "nut gluten dairy"),
        ("A non-alcoholic punch", "alcoholic"),
        ("Free from gluten and with seeds", "gluten"),
        ("Found in all of Asia except Borneo", "Borneo"),
        ("Held up by beams of air instead of poles.", "poles"),
        ("Strong muscles make an operation unnecessary.", "operation"),
    ],
)
def test_words_that_a_document_negates_are_not_asserted(text, words):
    assert asserted_terms(text).isdisjoint(terms_of(words))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Not sweet, with coconut milk", "coconut"),
        ("No nuts but coconut", "coconut"),
        ("Without meat and with coconut", "coconut"),
        ("Nut-free. The topping may contain nuts.", "nuts"),
        ("Driving licence required, no experience needed", "driving licence required"),
        ("Not only in Borneo but also in Sumatra", "Borneo Sumatra"),
        ("A sugar-free coconut curry, free delivery", "coconut curry delivery"),
        ("This cake is not nut-free, nor is it without milk.", "nut"),
        ("It isn't free of nuts. There is no shortage of eggs.", "nuts eggs"),
        ("We cannot guarantee that it is nut-free. Don't forget the salt.", "nut salt"),
        ("Why not add nuts? It is never non-alcoholic.", "nuts alcoholic"),
        ("", ""),
    ],
)
def test_other_words_are(text, words):
    assert asserted_terms(text).issuperset(terms_of(words))


FILL = "A sentence about charts and axes. " * 60  # about 2,000 characters


@pytest.mark.parametrize(
    ("text", "is_asserted"),
    [
        (f"Charts for the web. {FILL * 4}", True),  # its beginning says so
        (f"Charts. {FILL * 3} It also runs on the web. {FILL * 2}", False),  # in passing
        (f"Charts. {f'{FILL} For the web.' * 5}", True),  # all over it
        (f"Charts. {FILL} It also runs on the web.", True),  # a short text
    ],
)
def test_a_long_text_does_not_assert_what_it_mentions_in_passing(text, is_asserted):
    terms = document_terms(Document(id="1", text=text), None)
    assert ("web" in terms.asserted) == is_asserted
    assert ("web" in terms.denied) != is_asserted
    assert {"chart", "axe"} <= {*terms.asserted}


def test_a_long_document_that_mentions_the_excluded_thing_in_passing_stays():
    passing = Document(
        id="passing", text=f"Charts. {FILL * 3} With butter, says a user. {FILL * 2}"
    )
    about = Document(id="about", text=f"Charts of dairy, of butter above all. {FILL * 5}")
    searcher = Searcher.from_texts(
        [passing, about, Document(id="other", text=f"Charts. {FILL * 5}")],
        word_model.retriever(),
    )
    for query in ("charts NOT butter", "charts NOT dairy"):
        result = searcher.search(query)
        assert {hit.id for hit in result} == {"passing", "other"}
        assert [row.id for row in result.left_out] == ["about"]


def test_not_free_of_leaves_out_what_says_that_it_is_free():
    texts = {
        "plain": "Chocolate cake with butter.",
        "said": "A gluten-free cake of almonds.",
        "other": "A cake without gluten.",
        "not": "This cake is not gluten-free.",
        "pan": "Non-stick frying pan.",
        "steel": "Frying pan of steel.",
    }
    searcher = Searcher.from_texts([Document(id=name, text=text) for name, text in texts.items()])
    for query, expected in {
        "cakes that are not gluten free": {"plain", "not"},
        "cake NOT gluten-free": {"plain", "not"},
        "gluten-free cake": {"said", "other"},
        "frying pan, but not non-stick": {"steel"},
    }.items():
        result = searcher.search(query)
        assert {hit.id for hit in result.hits[: len(expected)]} == expected
        assert "operator" not in " ".join(result.warnings)
    [left] = searcher.search("frying pan NOT non-stick").left_out
    assert (left.id, left.why) == ("pan", "it is non-stick")

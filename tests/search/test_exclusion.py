import pytest

from boolattn.stores.analysis import asserted_terms, terms_of


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
        ("", ""),
    ],
)
def test_other_words_are(text, words):
    assert asserted_terms(text).issuperset(terms_of(words))

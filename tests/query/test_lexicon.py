from boolattn.attention import config as attention_config
from boolattn.query.tokens import CUES, NOT_CUES, find_cues, unused_cues
from boolattn.query.tree import OPERATORS, Operator
from tests.conftest import cue_labels


def found(text: str) -> list[tuple[str, str]]:
    return [(cue.operator.value, cue.text) for cue in find_cues(text)]


def test_attention_and_logic_name_the_operators_alike():
    assert tuple(operator.value for operator in OPERATORS) == attention_config.OPERATORS


def test_no_phrase_belongs_to_two_operators():
    phrases = [*NOT_CUES, *(phrase for operator in OPERATORS for phrase in CUES[operator])]
    assert len(phrases) == len(set(phrases))
    assert all(phrase == phrase.lower() for phrase in phrases)


def test_several_word_cues_are_one_cue():
    assert found("birds as well as bats") == [("and", "as well as")]
    assert found("fish other than sharks") == [("not", "other than")]
    assert found("all, except for owls") == [("not", "except for")]
    assert found("neither owls nor bats") == [("not", "neither"), ("not", "nor")]


def test_the_longest_cue_wins_its_words():
    assert found("moths and not bees") == [("not", "and not")]
    assert found("not only moths") == [("and", "not only")]
    assert found("moths, but  NOT bees") == [("not", "but  NOT")]
    assert found("birds but not only owls") == [("and", "but not only")]
    assert found("birds, not including owls") == [("not", "not including")]
    assert found("not just owls and not just bats") == [
        ("and", "not just"),
        ("and", "and not just"),
    ]
    assert found("owls and / or bats") == [("or", "and / or")]


def test_cues_of_two_operators_share_a_word_in_known_cases_only():
    owner = {phrase: operator.value for operator in OPERATORS for phrase in CUES[operator]}
    owner |= dict.fromkeys(NOT_CUES, "none")
    split = {phrase: phrase.split() for phrase in owner}
    shared = {
        (first, second)
        for first, a in split.items()
        for second, b in split.items()
        for k in range(1, min(len(a), len(b)))
        if a[-k:] == b[:k] and owner[first] != owner[second]
        if " ".join(a + b[k:]) not in owner
    }
    # Plain text gives the shared word to the first, so the second is none; the gate keeps both.
    assert shared == {
        ("along with", "with the exception of"),
        ("together with", "with the exception of"),
        ("in addition to", "to the exclusion of"),
        ("also known as", "as well"),
        ("also known as", "as well as"),
        ("are also known as", "as well"),
        ("are also known as", "as well as"),
    }


def test_a_phrase_can_hold_a_cue_word_and_announce_nothing():
    assert found("Non-fiction books, more or less non fiction") == []
    assert found("owls that are also known as ghosts") == []
    assert found("non-fictional and non-human") == [("not", "non"), ("and", "and"), ("not", "non")]
    assert found("no longer living") == [("not", "no")]


def test_an_ampersand_is_no_cue():
    assert found("R&B, Q & A, Mason & Hamlin") == []


def test_contractions_negate():
    texts = ["didn't", "wasn't", "weren't", "hasn't", "haven't", "can't", "couldn't", "won't"]
    assert found(" ".join(texts)) == [("not", text) for text in texts]
    assert found("cants, wont, wasn'ts") == []


def test_letters_of_other_languages_have_no_case_here():
    assert found("E\u0130THER, m\u0131nus, a\u017f well a\u017f") == []
    assert found("owls but\u00a0not bats") == [("not", "but\u00a0not")]


def test_a_cue_inside_a_word_is_none():
    assert found("knots, bandits, oregano, nothing, andes") == []


def test_a_curly_apostrophe_keeps_the_spans_true():
    text = "Plays that don\u2019t rhyme"
    [cue] = find_cues(text)
    assert cue.operator is Operator.NOT
    assert text[cue.start : cue.end] == "don\u2019t"


def test_every_operator_is_found():
    found = {cue.operator for cue in find_cues("no owls, and bats or moths")}
    assert found == set(OPERATORS)
    assert find_cues("plain text") == ()


def test_cue_labels_follow_any_fast_tokenizer(any_tokenizer):
    text = "Moths of Borneo but not Sumatra or knots"
    encoded = any_tokenizer(text, return_offsets_mapping=True)
    rows = cue_labels(text, encoded["offset_mapping"])
    for row, cues in zip(rows, ([], ["or"], ["but not"]), strict=True):
        spans = [
            text[start:end]
            for (start, end), is_cue in zip(encoded["offset_mapping"], row, strict=True)
            if is_cue
        ]
        assert "".join(spans).replace(" ", "") == "".join(cues).replace(" ", "")


def test_cues_that_became_no_operator():
    text = "bread and butter pudding but not raisins"
    operands = [[(0, 24)], [(33, 40)]]
    [(cue, operand)] = unused_cues(text, operands, [False, True])
    assert (cue.text, operand) == ("and", 0)
    # Nothing is negated, so the NOT was not obeyed.
    unused = unused_cues(text, operands, [False, False])
    assert [(cue.text, operand) for cue, operand in unused] == [("and", 0), ("but not", None)]
    assert unused_cues("bread or butter", [[(0, 5)], [(9, 15)]], [False, False]) == ()

from boolattn.attention import config as attention_config
from boolattn.logic.labels import cue_labels, operator_labels
from boolattn.logic.lexicon import CUES, find_cues, operators_in
from boolattn.logic.operators import OPERATORS, Operator


def found(text: str) -> list[tuple[str, str]]:
    return [(cue.operator.value, cue.text) for cue in find_cues(text)]


def test_attention_and_logic_name_the_operators_alike():
    assert tuple(operator.value for operator in OPERATORS) == attention_config.OPERATORS


def test_no_phrase_belongs_to_two_operators():
    phrases = [phrase for operator in OPERATORS for phrase in CUES[operator]]
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


def test_a_cue_inside_a_word_is_none():
    assert found("knots, bandits, oregano, nothing, andes") == []


def test_a_curly_apostrophe_keeps_the_spans_true():
    text = "Plays that don\u2019t rhyme"
    [cue] = find_cues(text)
    assert cue.operator is Operator.NOT
    assert text[cue.start : cue.end] == "don\u2019t"


def test_operators_come_in_the_fixed_order():
    assert operators_in("no owls, and bats or moths") == OPERATORS
    assert operator_labels("plain text") == [False, False, False]


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

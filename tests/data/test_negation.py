"""CD-SCO and SFU on samples in their form."""

from __future__ import annotations

from pathlib import Path

import pytest

from boolattn.data.negation import READERS, read_cd_sco, read_sfu
from boolattn.errors import DataError

SAMPLES = Path(__file__).parent / "samples" / "negation"


def marked(record, mask):
    return [token for token, is_marked in zip(record.tokens, mask, strict=True) if is_marked]


def test_cd_sco_gives_one_record_for_each_negation():
    plain, outer, inner, split = read_cd_sco(SAMPLES / "cd-sco.txt")
    assert not plain.has_negation
    assert plain.tokens == ("The", "kettle", "sang", ".")
    assert outer.tokens == inner.tokens
    assert marked(outer, outer.cue) == ["not"]
    assert marked(outer, outer.scope) == ["It", "was", "unlikely", "to", "boil"]
    assert split.cue == (True, False, True, False, False)
    assert split.source.endswith("cd-sco.txt:14")


def test_cd_sco_cue_may_be_a_part_of_its_token():
    inner = list(read_cd_sco(SAMPLES / "cd-sco.txt"))[2]
    assert marked(inner, inner.cue) == ["unlikely"]
    assert [cue for cue in inner.cue_text if cue] == ["un"]
    assert marked(inner, inner.scope) == ["unlikely", "to", "boil"]


def test_sfu():
    plain, negated = READERS["sfu"](SAMPLES / "sfu.conll")
    assert plain.tokens == ("The", "#", "is", "large", ".")
    assert not plain.has_negation
    assert not any(plain.scope)
    assert marked(negated, negated.cue) == ["does", "n't", "nor"]
    assert marked(negated, negated.scope) == ["boil", "whistle"]
    assert negated.cue_text[1:3] == ("does", "n't")


@pytest.mark.parametrize(
    ("sample", "reader", "old", "new", "message"),
    [
        ("cd-sco.txt", read_cd_sco, "sang\tX\t*\t***", "sang\tX\t*", r":3: .* expected, got 7"),
        ("cd-sco.txt", read_cd_sco, "\tun\tlikely\tlikely", "\tun\tlikely", r":9: .*got 12"),
        ("cd-sco.txt", read_cd_sco, "\tun\tlikely\tlikely", "", r":9: 10 col.* began with 13"),
        ("sfu.conll", read_sfu, "large\tO\tI_spec", "large\tO", r":6: three columns .* are 2"),
        ("sfu.conll", read_sfu, "B_negcue", "B_cue", r":12: unknown tag 'B_cue'; known: O, B_neg"),
    ],
)
def test_damage_names_file_and_line(tmp_path, sample, reader, old, new, message):
    text = (SAMPLES / sample).read_text(encoding="utf-8")
    path = tmp_path / "damaged"
    path.write_text(text.replace(old.replace(" ", "\t"), new, 1), encoding="utf-8")
    with pytest.raises(DataError, match="damaged" + message):
        list(reader(path))

"""The shipped parser, brought back to torch."""

from __future__ import annotations

import pytest

from boolattn.encoder.export.folder import check_parser
from boolattn.encoder.export.graphs import TEXTS
from boolattn.encoder.parser import ParserModel
from boolattn.errors import DataError
from boolattn.query.parser import load_parser
from experiments.parsing import restore as module


def test_the_restored_parser_parses_as_the_shipped_one(tmp_path):
    module.restore(tmp_path / "parser")
    check_parser(ParserModel.load(tmp_path / "parser"), load_parser("shipped"), TEXTS)


@pytest.mark.slow
def test_weights_in_a_wrong_place_are_refused(tmp_path, monkeypatch):
    query, key, value, *rest = module._OF_LAYER
    monkeypatch.setattr(module, "_OF_LAYER", (value, query, key, *rest))
    with pytest.raises(DataError, match="otherwise than torch"):
        module.restore(tmp_path / "parser")
    assert not (tmp_path / "parser").exists()

"""The shipped parser, brought back to torch."""

from __future__ import annotations

import torch

from boolattn.encoder.export.parser import LEAST_AGREEMENT, TEXTS
from boolattn.encoder.parser import ParserModel
from boolattn.parsing.decoding import decode, mark_operators
from boolattn.parsing.parser import load_parser
from boolattn.parsing.runtime import open_tokenizer
from experiments.parsing.restore import restore


def test_the_restored_parser_parses_as_the_shipped_one(tmp_path):
    restore(tmp_path / "parser")
    model, parser = ParserModel.load(tmp_path / "parser"), load_parser("shipped")
    tokenizer = open_tokenizer(tmp_path / "parser" / "tokenizer.json", parser.manifest.max_tokens)
    n_same = 0
    for text, wanted in zip(TEXTS, parser.parse(TEXTS), strict=True):
        encoding = tokenizer.encode(mark_operators(text))
        ids = torch.tensor([encoding.ids])
        with torch.no_grad():
            found = decode(model(ids, torch.ones_like(ids)), text, encoding.offsets, 0)
        assert found.parsed.structure == wanted.parsed.structure
        n_same += found.parsed == wanted.parsed
    # onnxruntime rounds what the matrices are multiplied by, too.
    assert n_same >= LEAST_AGREEMENT * len(TEXTS)

"""Offline fixtures: random encoders of two layers and tokenizers made on the spot."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["ORT_DISABLE_TELEMETRY"] = "1"
# Tensors are tiny, and several tests may run at the same time.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import pytest
from tokenizers import (
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)

from boolattn.query.parsed_query import span_labels
from boolattn.query.tokens import CUES, find_cues
from boolattn.query.tree import OPERATORS

# Imported where they are used: the process that hands out the tests needs neither.
if TYPE_CHECKING:
    import torch
    from torch import nn
    from transformers import PreTrainedModel, PreTrainedTokenizerFast

with suppress(ImportError):  # GPU tests run without it
    from hypothesis import settings

    # The same examples at every run; `--hypothesis-profile=default` draws others.
    settings.register_profile("fixed", derandomize=True, database=None)
    settings.load_profile("fixed")

FAMILIES = ("bert", "roberta", "xlm-roberta", "electra", "distilbert", "modernbert", "mpnet")
VOCABULARY = 220
TEXTS = (
    "moths of Borneo but not Sumatra",
    "animals found in Brazil as well as Mexico, except for birds",
    "knots and notation, neither nothofagus nor orchids",
    "Not only films; don't show notes other than plays (and/or books)",
)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if "slow" not in config.getoption("-m"):
        for item in items:
            if "slow" in item.keywords:
                item.add_marker(pytest.mark.skip(reason="slow; make test-slow"))
    if gpu_items := [item for item in items if "gpu" in item.keywords]:
        import torch

        if not torch.cuda.is_available():
            for item in gpu_items:
                item.add_marker(pytest.mark.skip(reason="no CUDA device"))


@pytest.fixture
def tiny_encoder():
    """Build a two-layer random encoder of the asked family; nothing is downloaded."""
    import torch
    from transformers import AutoConfig, AutoModel

    def build(family: str = "bert", attention: str = "", **changes: object) -> PreTrainedModel:
        # torch.manual_seed also seeds devices, and notes the whole stack for each: milliseconds.
        torch.default_generator.manual_seed(0)
        values: dict[str, object] = {
            "vocab_size": VOCABULARY,
            "hidden_size": 32,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "intermediate_size": 48,
            "max_position_embeddings": 600,
        }
        if family == "distilbert":
            values = {"vocab_size": VOCABULARY, "dim": 32, "n_layers": 2, "n_heads": 4}
            values |= {"hidden_dim": 48, "max_position_embeddings": 600}
        if family == "electra":
            values["embedding_size"] = 16
        if family == "modernbert":
            special = ("pad_token_id", "bos_token_id", "eos_token_id", "cls_token_id")
            values |= dict.fromkeys(special, 1) | {"sep_token_id": 1, "local_attention": 6}
        config = AutoConfig.for_model(family, **(values | changes))
        attention = attention or ("eager" if family == "mpnet" else "sdpa")
        return AutoModel.from_config(config, attn_implementation=attention).eval()

    return build


@pytest.fixture
def batch() -> dict[str, torch.Tensor]:
    """Three texts of 11, 7 and 4 tokens."""
    import torch

    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(5, VOCABULARY, (3, 11), generator=generator)
    mask = torch.ones_like(ids)
    mask[1, 7:] = 0
    mask[2, 4:] = 0
    return {"input_ids": ids, "attention_mask": mask}


@pytest.fixture
def plain_kernels(monkeypatch):
    """Let folded weights be used on a CPU, by plain torch in the place of the GPU's kernels."""
    from tests.plugin import plain_kernels as module

    monkeypatch.setattr("boolattn.attention.boolattn.kernels", lambda _device: module)


def trained(model: nn.Module) -> nn.Module:
    """Set all factors to 1; at 0, where training begins, a plug-in changes nothing."""
    import torch

    from boolattn.attention.layer import BoolAttnLayer

    with torch.no_grad():
        for part in model.modules():
            if isinstance(part, BoolAttnLayer) and part.factor is not None:
                part.factor.fill_(1.0)
    return model


def attach_trained(encoder: PreTrainedModel, *args: object, **options: object) -> nn.Module:
    """Attach a plug-in that has an effect."""
    from boolattn import attach

    return trained(attach(encoder, *args, **options))


def cue_labels(text: str, offsets: list[tuple[int, int]]) -> list[list[bool]]:
    """Label every token as a cue or not: rows in the order AND, OR, NOT; columns are tokens."""
    cues = find_cues(text)
    return [
        span_labels([(c.start, c.end) for c in cues if c.operator is operator], offsets, text)
        for operator in OPERATORS
    ]


def _words() -> list[str]:
    cues = {word for phrases in CUES.values() for phrase in phrases for word in phrase.split()}
    texts = {word for text in TEXTS for word in text.lower().replace(",", "").split()}
    return sorted(cues | texts)


def _fast(backend: Tokenizer, **options: object) -> PreTrainedTokenizerFast:
    from transformers import PreTrainedTokenizerFast

    return PreTrainedTokenizerFast(tokenizer_object=backend, **options)


def _wordpiece() -> PreTrainedTokenizerFast:
    pieces = [*"abcdefghijklmnopqrstuvwxyz&/'.,;()-", "not", "and", "or", "no", "also", "other"]
    pieces += ["than", "but", "except", "for", "as", "well", "neither", "nor", "only", "don"]
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *dict.fromkeys(pieces)]
    vocabulary += [f"##{letter}" for letter in "abcdefghijklmnopqrstuvwxyz"]
    backend = Tokenizer(
        models.WordPiece({word: i for i, word in enumerate(vocabulary)}, unk_token="[UNK]")
    )
    backend.normalizer = normalizers.BertNormalizer(lowercase=True)
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    return _fast(
        backend,
        pad_token="[PAD]",
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        mask_token="[MASK]",
        model_max_length=512,
    )


def _byte_level() -> PreTrainedTokenizerFast:
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=420,
        special_tokens=["<pad>", "<s>", "</s>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    backend.train_from_iterator([" ".join(_words()), *TEXTS] * 5, trainer)
    return _fast(backend, pad_token="<pad>", bos_token="<s>", eos_token="</s>")


def _metaspace() -> PreTrainedTokenizerFast:
    backend = Tokenizer(models.Unigram())
    backend.pre_tokenizer = pre_tokenizers.Metaspace()
    trainer = trainers.UnigramTrainer(
        vocab_size=200,
        special_tokens=["<pad>", "<unk>", "<s>", "</s>"],
        unk_token="<unk>",
        show_progress=False,
        initial_alphabet=list("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ&/'.,;()-▁"),
    )
    backend.train_from_iterator([" ".join(_words()), *TEXTS] * 5, trainer)
    return _fast(backend, pad_token="<pad>", unk_token="<unk>", bos_token="<s>")


@pytest.fixture(scope="session", params=["wordpiece", "byte_level", "metaspace"])
def any_tokenizer(request) -> PreTrainedTokenizerFast:
    """The three ways vocabularies mark words."""
    return {"wordpiece": _wordpiece, "byte_level": _byte_level, "metaspace": _metaspace}[
        request.param
    ]()


@pytest.fixture(scope="session")
def tokenizer() -> PreTrainedTokenizerFast:
    """A WordPiece tokenizer, as BERT has."""
    return _wordpiece()

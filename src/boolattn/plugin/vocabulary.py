"""The cue lexicon in a tokenizer's own ids, for the gate that reads them inside the model.

May import: boolattn.attention, boolattn.logic, boolattn.errors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from boolattn.attention.gate import LexiconGate
from boolattn.errors import ConfigError
from boolattn.logic.lexicon import CUES
from boolattn.logic.operators import OPERATORS

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from boolattn.attention.config import BoolAttnConfig

#: A token that goes on with the word before it, and a token that can be gone on with.
GOES_ON, CAN_GO_ON = 1, 2


def lexicon_gate(
    config: BoolAttnConfig, tokenizer: PreTrainedTokenizerBase, n_ids: int = 0
) -> LexiconGate:
    """Compile the lexicon for one tokenizer.

    Args:
        config: The plug-in's settings.
        tokenizer: A fast tokenizer.
        n_ids: How many ids the encoder knows, which can be more than the tokenizer makes.
    """
    if not getattr(tokenizer, "is_fast", False):
        raise ConfigError(
            f"the lexicon gate needs a fast tokenizer, got {type(tokenizer).__name__}; "
            "load it with AutoTokenizer"
        )
    owner_of: dict[tuple[int, ...], int] = {}
    for owner, operator in enumerate(OPERATORS):
        for phrase in CUES[operator]:
            for ids in _spellings(phrase, tokenizer):
                owner_of[ids] = owner
    longest = max(map(len, owner_of))
    rows = sorted(owner_of)
    cues = torch.tensor([[*ids, *[-1] * (longest - len(ids))] for ids in rows])
    owners = torch.tensor([owner_of[ids] for ids in rows])
    flags = _word_flags(tokenizer)
    flags = torch.nn.functional.pad(flags, (0, max(0, n_ids - len(flags))))
    return LexiconGate(config, cues, owners, flags)


def _spellings(phrase: str, tokenizer: PreTrainedTokenizerBase) -> set[tuple[int, ...]]:
    """Return a phrase's ids as they come out inside and at the start of a text, in every case."""
    unknown = tokenizer.unk_token_id
    found = set()
    for text in (phrase, phrase.capitalize(), phrase.upper(), phrase.title()):
        for quote in ("'", "\u2019"):
            # Some vocabularies write the space before a word into its first token.
            for lead in ("", "a ", "("):
                found.add(_ids_after(lead, text.replace("'", quote), tokenizer))
    return {ids for ids in found if ids and unknown not in ids}


def _ids_after(lead: str, text: str, tokenizer: PreTrainedTokenizerBase) -> tuple[int, ...]:
    """Return the ids a text has behind a lead; none where a token lies across both."""
    encoded = tokenizer(lead + text, add_special_tokens=False, return_offsets_mapping=True)
    pairs = zip(encoded["input_ids"], encoded["offset_mapping"], strict=True)
    kept = [(index, start) for index, (start, end) in pairs if end > len(lead)]
    is_clean = bool(kept) and kept[0][1] >= len(lead.rstrip())
    return tuple(index for index, _ in kept) if is_clean else ()


def _word_flags(tokenizer: PreTrainedTokenizerBase) -> torch.Tensor:
    """Say of every token whether it goes on with a word, and whether a word can go on after it.

    Vocabularies mark either a word's beginning (``Ġword``, ``▁word``) or its continuation
    (``##word``); which, shows in their tokens.
    """
    tokens = [str(t or "") for t in tokenizer.convert_ids_to_tokens(list(range(len(tokenizer))))]
    marks_continuation = any(token.startswith("##") for token in tokens if token)
    special = set(tokenizer.all_special_ids)
    flags = torch.zeros(len(tokens), dtype=torch.uint8)
    for index, token in enumerate(tokens):
        if index in special or not token:
            continue
        if marks_continuation:
            goes_on, ends_open = token.startswith("##"), True
        else:
            goes_on, ends_open = _in_word(token[0]), _in_word(token[-1])
        flags[index] = GOES_ON * goes_on + CAN_GO_ON * ends_open
    return flags


def _in_word(letter: str) -> bool:
    """Whether a letter is part of a word; the signs that stand for white space are not."""
    return letter not in "ĠĊĉ▁" and (letter.isalnum() or letter == "_")

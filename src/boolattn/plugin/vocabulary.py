"""The cue lexicon in a tokenizer's own ids, for the gate that reads them inside the model.

May import: boolattn.attention, boolattn.logic, boolattn.errors.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import product
from typing import TYPE_CHECKING

import torch

from boolattn.attention.gate import NO_OWNER, LexiconGate
from boolattn.errors import ConfigError
from boolattn.logic.lexicon import CUES, NOT_CUES, cue_words
from boolattn.logic.operators import OPERATORS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from transformers import PreTrainedTokenizerBase

    from boolattn.attention.config import BoolAttnConfig

#: A token that goes on with the word before it, and a token that can be gone on with.
GOES_ON, CAN_GO_ON = 1, 2


def lexicon_gate(
    config: BoolAttnConfig, tokenizer: PreTrainedTokenizerBase, n_ids: int = 0
) -> LexiconGate:
    """Compile the lexicon for one tokenizer.

    The gate sees what the ids keep of a text, so it differs from the lexicon on plain text where
    they keep less or more: an uncased vocabulary drops accents ("Nō plays" opens NOT), WordPiece
    drops where spaces stood ("not_only", "isn 't") and joins symbols that are no punctuation to
    the word ("€not"), a cased vocabulary knows the usual cases of a word only (not "nOt"), and
    one that gives white space a token knows single spaces only ("and  not" opens AND as well).
    Of two cues that share a word each keeps the words of its own here, while plain text gives the
    second none: "along with the exception of" opens NOT as well.

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
        owner_of |= dict.fromkeys(_spellings(CUES[operator], tokenizer), owner)
    owner_of |= dict.fromkeys(_spellings(NOT_CUES, tokenizer), NO_OWNER)
    longest = max(map(len, owner_of))
    rows = sorted(owner_of)
    cues = torch.tensor([[*ids, *[-1] * (longest - len(ids))] for ids in rows])
    owners = torch.tensor([owner_of[ids] for ids in rows])
    flags = _word_flags(tokenizer)
    flags = torch.nn.functional.pad(flags, (0, max(0, n_ids - len(flags))))
    return LexiconGate(config, cues, owners, flags)


def _spellings(phrases: Iterable[str], tokenizer: PreTrainedTokenizerBase) -> set[tuple[int, ...]]:
    """Return the phrases' ids as they come out inside and at the start of a text, in every case."""
    texts = {
        text.replace("'", quote)
        for phrase in phrases
        for text in _cases(phrase)
        for quote in ("'", "\u2019")
    }
    # Some vocabularies write the space before a word into its first token.
    pairs = [(lead, text) for text in sorted(texts) for lead in ("", "a ", "(")]
    encoded = tokenizer(
        [lead + text for lead, text in pairs],
        add_special_tokens=False,
        return_offsets_mapping=True,
    )
    found = set()
    for (lead, _), ids, offsets in zip(
        pairs, encoded["input_ids"], encoded["offset_mapping"], strict=True
    ):
        kept = [k for k, (_, end) in enumerate(offsets) if end > len(lead)]
        # None where a token lies across both.
        if kept and offsets[kept[0]][0] >= len(lead.rstrip()):
            found.add(tuple(ids[k] for k in kept))
    return {ids for ids in found if tokenizer.unk_token_id not in ids}


def _cases(phrase: str) -> set[str]:
    """Write a phrase in the usual cases; up to three words each in a case of its own."""
    words = cue_words(phrase)
    if len(words) > 3:
        return {phrase, phrase.capitalize(), phrase.upper(), phrase.title()}
    forms = [{word, word.capitalize(), word.upper(), word.title()} for word in words]
    return {" ".join(choice) for choice in product(*forms)}


def _word_flags(tokenizer: PreTrainedTokenizerBase) -> torch.Tensor:
    """Say of every token whether it goes on with a word, and whether a word can go on after it.

    Vocabularies mark either a word's beginning (``Ġword``, ``▁word``) or its continuation
    (``##word``). Which, the tokenizer's model says: ``##`` is a plain token of many.
    """
    backend = tokenizer.backend_tokenizer
    continuation = getattr(backend.model, "continuing_subword_prefix", None)
    is_byte_level = "ByteLevel" in f"{backend.pre_tokenizer!r} {backend.decoder!r}"
    tokens = [str(t or "") for t in tokenizer.convert_ids_to_tokens(list(range(len(tokenizer))))]
    special = set(tokenizer.all_special_ids)
    flags = torch.zeros(len(tokens), dtype=torch.uint8)
    for index, token in enumerate(tokens):
        if index in special or not token:
            continue
        if continuation:
            goes_on, ends_open = token.startswith(continuation), True
        else:
            goes_on, ends_open = map(_in_word, _edges(_bytes(token, is_byte_level)))
        flags[index] = GOES_ON * goes_on + CAN_GO_ON * ends_open
    return flags


@lru_cache(maxsize=1)
def _byte_alphabet() -> Mapping[str, int]:
    """Return the byte behind each letter of a byte-level vocabulary: GPT-2's alphabet."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(0x100) if byte not in printable]
    shown = {chr(byte): byte for byte in printable}
    return shown | {chr(0x100 + k): byte for k, byte in enumerate(others)}


def _bytes(token: str, is_byte_level: bool) -> bytes:
    """Return what a token stands for; added tokens are written plainly in any vocabulary."""
    alphabet = _byte_alphabet()
    if is_byte_level and all(letter in alphabet for letter in token):
        return bytes(alphabet[letter] for letter in token)
    return token.encode(errors="surrogatepass")


def _edges(data: bytes) -> tuple[bytes, bytes]:
    """Return bytes that begin with a token's first letter, and such that begin with its last."""
    # Bytes 80 to BF go on with a letter that an earlier byte began.
    return data, data[len(data.rstrip(bytes(range(0x80, 0xC0)))) - 1 :]


def _in_word(data: bytes) -> bool:
    """Whether the first letter is part of a word; the sign ``▁`` for a space is not.

    Of a letter cut off by the token's end the first byte tells: C2 and E2 begin signs, as do EE
    and above. One whose first byte is in the token before is taken for a sign: vocabularies
    hold the letters of their languages whole sooner than every dash and quote.
    """
    letter = data.decode(errors="surrogateescape")[0]
    if "\udc80" <= letter <= "\udcff":
        lead = ord(letter) - 0xDC00
        return 0xC3 <= lead <= 0xED and lead != 0xE2
    return letter.isalnum() or letter == "_"

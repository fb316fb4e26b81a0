"""The cue lexicon compiled to the token ids of a tokenizer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import product
from typing import TYPE_CHECKING

import torch
from torch.nn.utils.rnn import pad_sequence
from transformers.convert_slow_tokenizer import bytes_to_unicode

from boolattn.attention.gate import NO_OWNER, LexiconGate
from boolattn.errors import ConfigError
from boolattn.query.tokens import CUES, NOT_CUES
from boolattn.query.tree import OPERATORS

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


def lexicon_gate(tokenizer: PreTrainedTokenizerBase, n_ids: int = 0) -> LexiconGate:
    """Compile the lexicon for one tokenizer.

    The gate works on token ids, so it can differ from the lexicon on plain text: an uncased
    vocabulary drops accents ("Nō plays" opens NOT); WordPiece drops spaces ("not_only",
    "isn 't") and joins symbols to words ("€not"); a cased vocabulary has only the usual cases of
    a word (not "nOt"); a vocabulary with tokens for white space has only single spaces ("and  not"
    opens AND as well). Of two cues that share a word both count here, only the first in plain
    text: "along with the exception of" opens NOT as well.

    ``n_ids`` is the vocabulary size of the encoder, which can be larger than the tokenizer's.
    """
    if not getattr(tokenizer, "is_fast", False):
        problem = f"the lexicon gate needs a fast tokenizer, got {type(tokenizer).__name__}"
        raise ConfigError(f"{problem}; load it with AutoTokenizer")
    owner_of: dict[tuple[int, ...], int] = {}
    for owner, operator in enumerate(OPERATORS):
        owner_of |= dict.fromkeys(_spellings(CUES[operator], tokenizer), owner)
    owner_of |= dict.fromkeys(_spellings(NOT_CUES, tokenizer), NO_OWNER)
    rows, owners = zip(*sorted(owner_of.items()), strict=True)
    cues = pad_sequence([torch.tensor(ids) for ids in rows], batch_first=True, padding_value=-1)
    return LexiconGate(cues, torch.tensor(owners), _word_flags(tokenizer, n_ids))


def _spellings(phrases: Iterable[str], tokenizer: PreTrainedTokenizerBase) -> set[tuple[int, ...]]:
    """Return the ids of phrases in every case, at the start of a text and inside it."""
    cased = {text for phrase in phrases for text in _cases(phrase)}
    texts = sorted({text.replace("'", quote) for text in cased for quote in ("'", "\u2019")})
    # Some vocabularies include the space before a word in its first token.
    pairs = [(lead, text) for text in texts for lead in ("", "a ", "(")]
    joined = [lead + text for lead, text in pairs]
    encoded = tokenizer(joined, add_special_tokens=False, return_offsets_mapping=True)
    rows = zip(pairs, encoded["input_ids"], encoded["offset_mapping"], strict=True)
    spellings = set()
    for (lead, _), ids, offsets in rows:
        phrase_tokens = [k for k, (_, end) in enumerate(offsets) if end > len(lead)]
        # Not if a token covers both the lead and the phrase.
        if phrase_tokens and offsets[phrase_tokens[0]][0] >= len(lead.rstrip()):
            spellings.add(tuple(ids[k] for k in phrase_tokens))
    return {ids for ids in spellings if tokenizer.unk_token_id not in ids}


def _cases(phrase: str) -> set[str]:
    """Return a phrase in the usual cases; up to three words in every combination."""
    units = phrase.split() if phrase.count(" ") < 3 else [phrase]
    forms = [{unit, unit.capitalize(), unit.upper(), unit.title()} for unit in units]
    return {" ".join(choice) for choice in product(*forms)}


def _word_flags(tokenizer: PreTrainedTokenizerBase, n_ids: int) -> torch.Tensor:
    """Return the flags of every token for a :class:`LexiconGate`, and of ids without one.

    Vocabularies mark either the start of a word (``Ġword``, ``▁word``) or its continuation
    (``##word``). The tokenizer's model tells which; ``##`` is an ordinary token in many.
    """
    backend = tokenizer.backend_tokenizer
    prefix = getattr(backend.model, "continuing_subword_prefix", None)
    alphabet: dict[str, int] = {}
    if "ByteLevel" in f"{backend.pre_tokenizer!r} {backend.decoder!r}":
        alphabet = {letter: byte for byte, letter in bytes_to_unicode().items()}
    tokens = [str(t or "") for t in tokenizer.convert_ids_to_tokens(list(range(len(tokenizer))))]
    special = set(tokenizer.all_special_ids)
    flags = torch.zeros(max(len(tokens), n_ids), dtype=torch.uint8)
    for index, token in enumerate(tokens):
        if index in special or not token:
            continue
        if prefix:
            continues, can_continue = token.startswith(prefix), True
        else:
            continues, can_continue = map(_in_word, _edges(token, alphabet))
        flags[index] = continues + 2 * can_continue
    return flags


def _edges(token: str, alphabet: Mapping[str, int]) -> tuple[bytes, bytes]:
    """Return a token's bytes from its first letter on, and from its last letter on."""
    data = token.encode(errors="surrogatepass")  # added tokens are plain text in any vocabulary
    if alphabet and all(letter in alphabet for letter in token):
        data = bytes(alphabet[letter] for letter in token)
    # Bytes 80 to BF continue a letter.
    return data, data[len(data.rstrip(bytes(range(0x80, 0xC0)))) - 1 :]


def _in_word(data: bytes) -> bool:
    """Whether the first letter is part of a word; ``▁``, the sign for a space, is not.

    A letter cut off by the token's end is classified by its first byte: C2, E2, EE and above
    begin symbols. A letter that begins in the token before counts as a symbol, because
    vocabularies split letters of their languages less often than dashes and quotes.
    """
    letter = data.decode(errors="surrogateescape")[0]
    if "\udc80" <= letter <= "\udcff":
        lead = ord(letter) - 0xDC00
        return 0xC3 <= lead <= 0xED and lead != 0xE2
    return letter.isalnum() or letter == "_"

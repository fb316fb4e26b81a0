"""Fast encoding of many documents, with the vectors of ``encode_document``.

A thread tokenises the next texts while the device works; batches have a number of tokens, not of
texts; a GPU computes in half precision; and vectors stay on the device until the end.
"""

from __future__ import annotations

import copy
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
from tokenizers import Tokenizer
from torch.nn.utils.rnn import pad_sequence

from boolattn.encoder.towers import DOCUMENT, settings_of, tower_of
from boolattn.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray
    from sentence_transformers import SentenceTransformer
    from torch import Tensor

    Integers = NDArray[np.int64]
    #: Positions of texts in the caller's list, and what their tower takes.
    Batch = tuple[Tensor, dict[str, Tensor]]

#: Tokens in a batch. A GPU needs much work in each call; on a CPU it should fit the caches.
TOKENS = {"cuda": 65_536, "cpu": 2048}
#: Characters tokenised at once.
_CHARACTERS = 1_000_000


class DocumentEncoder:
    """Encodes documents with the document tower, which has no plug-in.

    On a CPU the vectors are those of ``encode_document`` to 1e-6, on a GPU, in half precision, to
    1e-3.

    ``dtype`` is by default float16 on a GPU, else the model's own. Fewer ``n_tokens`` in a batch
    need less memory.
    """

    def __init__(
        self,
        towers: SentenceTransformer,
        *,
        dtype: torch.dtype | None = None,
        n_tokens: int | None = None,
    ) -> None:
        self.towers = towers
        self.device = towers.device
        tower = tower_of(towers, DOCUMENT)
        if dtype is None:
            dtype = torch.float16 if self.device.type == "cuda" else tower.model.dtype
        self.dtype = dtype
        self.n_tokens = n_tokens or TOKENS.get(self.device.type, TOKENS["cpu"])
        if self.n_tokens < 1:
            raise ConfigError(f"n_tokens must be at least 1, got {n_tokens}")
        self._tokenize = _tokenizer(towers)
        self._prompt = document_prompt(towers)
        self._pad_id = int(cast("Any", tower.tokenizer).pad_token_id or 0)
        first: Any = tower
        if dtype != tower.model.dtype:
            # Without its tokenizer, which takes longer to copy than the weights.
            shared = [tower.tokenizer, getattr(tower, "processor", None)]
            first = copy.deepcopy(tower, {id(part): part for part in shared}).to(dtype)
        # Without the router, which only chooses the tower.
        self._modules = [first, *list(towers.children())[1:]]

    def __call__(self, texts: Sequence[str]) -> Tensor:
        """Encode texts. Shape ``(texts, dim)``, float32, on the model's device."""
        if isinstance(texts, str):
            raise ConfigError("texts must be a list of texts, got one text")
        dim = self.towers.truncate_dim or self.towers.get_embedding_dimension() or 0
        # Made outside inference mode, so that the caller can compute gradients. The vector of a
        # text without any token is zero.
        vectors = torch.zeros(len(texts), dim, device=self.device)
        for part in self._modules:
            part.eval()
        with torch.inference_mode():
            for rows, features in self._batches(texts):
                vectors[rows.to(self.device)] = self._encode(features)
        return self._without_overflow(vectors, texts)

    def _encode(self, tensors: dict[str, Tensor]) -> Tensor:
        features: dict[str, Any] = {
            name: value.to(self.device, non_blocking=True) for name, value in tensors.items()
        }
        features["task"] = DOCUMENT
        for part in self._modules:
            features = part(features)
        vectors: Tensor = features["sentence_embedding"]
        return vectors[:, : self.towers.truncate_dim].float()

    def _batches(self, texts: Sequence[str]) -> Iterator[Batch]:
        """Tokenise the next part in a thread; the tokenizer releases the interpreter's lock."""
        ahead: Future[list[Batch]] | None = None
        with ThreadPoolExecutor(1, thread_name_prefix="boolattn-tokens") as pool:
            for rows in _tokenizer_shares(texts):
                before, ahead = ahead, pool.submit(self._prepare, texts, rows)
                yield from before.result() if before else ()
            yield from ahead.result() if ahead else ()

    def _prepare(self, texts: Sequence[str], rows: Integers) -> list[Batch]:
        """Tokenise a part of the texts and put it into batches; runs in the thread."""
        ids = self._tokenize([self._prompt + texts[row] for row in rows])
        lengths = np.array([len(text) for text in ids], dtype=np.int64)
        batches = []
        for chosen in group(lengths, self.n_tokens):
            unpadded = [torch.from_numpy(np.array(ids[index], np.int64)) for index in chosen]
            padded = pad_sequence(unpadded, batch_first=True, padding_value=self._pad_id)
            tensors = {"input_ids": padded}
            if lengths[chosen].min() < padded.shape[1]:
                counts = torch.from_numpy(lengths[chosen])
                tensors["attention_mask"] = (torch.arange(padded.shape[1]) < counts[:, None]).long()
            if padded.numel():
                if self.device.type == "cuda":
                    tensors = {name: tensor.pin_memory() for name, tensor in tensors.items()}
                batches.append((torch.from_numpy(rows[chosen]), tensors))
        return batches

    def _without_overflow(self, vectors: Tensor, texts: Sequence[str]) -> Tensor:
        """Encode texts that overflow in half precision again, in the model's own."""
        dtype = tower_of(self.towers, DOCUMENT).model.dtype
        if dtype == self.dtype or bool((is_finite := vectors.isfinite().all(-1)).all()):
            return vectors
        bad = (~is_finite).nonzero()[:, 0]
        again = DocumentEncoder(self.towers, dtype=dtype, n_tokens=self.n_tokens)
        vectors[bad] = again([texts[row] for row in bad.tolist()])
        return vectors


def document_encoder(
    model: SentenceTransformer, *, batch_size: int | None = None
) -> Callable[[Sequence[str]], Tensor]:
    """Return the fastest document encoder for any sentence-transformers model.

    Two towers are encoded by :class:`DocumentEncoder`, others by ``encode_document``. It returns
    vectors of the shape ``(texts, dim)``, on the model's device. ``batch_size`` counts documents
    of full length; by default it is chosen for the device.
    """
    try:
        n_tokens = batch_size * settings_of(model).document_length if batch_size else None
        return DocumentEncoder(model, n_tokens=n_tokens)
    except ConfigError:
        # Not two towers, or towers that are no transformers.
        return lambda texts: model.encode_document(
            list(texts),
            batch_size=batch_size or 32,
            convert_to_tensor=True,
            show_progress_bar=False,
        )


def document_prompt(towers: SentenceTransformer) -> str:
    """Return what is put before a document, by the names of sentence-transformers."""
    names = (DOCUMENT, "passage", "corpus")
    return next((towers.prompts[name] for name in names if name in towers.prompts), "") or ""


def group(lengths: Integers, n_tokens: int) -> Iterator[Integers]:
    """Put texts into batches of at most ``n_tokens`` tokens, with padding; a longer text is alone.

    The longest come first, so texts of a batch have similar lengths.

    >>> [batch.tolist() for batch in group(np.array([8, 1, 8, 2, 8]), 24)]
    [[0, 2, 4], [3, 1]]
    """
    rows = np.argsort(-lengths, kind="stable")
    while len(rows):
        size = max(1, n_tokens // max(1, int(lengths[rows[0]])))
        yield rows[:size]
        rows = rows[size:]


def _tokenizer_shares(texts: Sequence[str]) -> list[Integers]:
    """Cut the texts, longest first, into parts of similar work for the tokenizer."""
    sizes = np.array([len(text) for text in texts], dtype=np.int64)
    order = np.argsort(-sizes, kind="stable")
    work = np.cumsum(sizes[order] + 16)  # an empty text has a cost, too
    return np.split(order, np.flatnonzero(np.diff(work // _CHARACTERS)) + 1)


def _tokenizer(towers: SentenceTransformer) -> Callable[[list[str]], Sequence[Sequence[int]]]:
    """Return a function from texts to token ids."""
    tokenizer: Any = tower_of(towers, DOCUMENT).tokenizer
    length = settings_of(towers).document_length or tokenizer.model_max_length
    if not getattr(tokenizer, "is_fast", False):
        return lambda texts: tokenizer(texts, truncation=True, max_length=length)["input_ids"]
    # A copy: its settings are changed, and another thread may use the original.
    fast = cast("Any", Tokenizer.from_str(tokenizer.backend_tokenizer.to_str()))
    fast.no_padding()
    fast.enable_truncation(length, direction=tokenizer.truncation_side)
    return lambda texts: [encoding.ids for encoding in fast.encode_batch_fast(texts)]

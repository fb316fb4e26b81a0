"""Encoding many documents: the same vectors as ``encode_document``, with the device kept busy.

``SentenceTransformer.encode`` tokenises, encodes and fetches one batch after the other. Here a
thread tokenises the next texts while the device works, batches hold a number of tokens rather than
of texts, texts of equal length run without padding and mask, a GPU computes in half precision, and
vectors stay on the device until the end. May import: boolattn.encoder, boolattn.errors.
"""

from __future__ import annotations

import copy
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
from tokenizers import Tokenizer

from boolattn.encoder.towers import DOCUMENT, document_tower, settings_of
from boolattn.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray
    from sentence_transformers import SentenceTransformer
    from torch import Tensor, nn

#: Tokens encoded at once. A GPU wants much work a call; a CPU wants it to fit its caches.
TOKENS = {"cuda": 65_536, "cpu": 2048}
#: Characters tokenised at once; the first parts are small, so that the device starts early.
_CHARACTERS = 1_000_000
_FIRST_CHARACTERS = 125_000
#: Parts tokenised ahead of the device.
_AHEAD = 3
#: Texts of one length make a batch of their own from this share of the tokens of a batch.
_OWN_BATCH = 8
#: Names of a document's prompt, in the order sentence-transformers looks for them.
_PROMPTS = (DOCUMENT, "passage", "corpus")


@dataclass(frozen=True)
class _Batch:
    """Texts to encode at once.

    Attributes:
        rows: Place of each text in the caller's list.
        ids: Token ids. Shape ``(texts, tokens)``.
        mask: 1 for tokens, 0 for padding; ``None`` where nothing is padding. Same shape.
    """

    rows: NDArray[np.int64]
    ids: Tensor
    mask: Tensor | None


class DocumentEncoder:
    """Encodes documents with the document tower, which runs bare.

    Args:
        towers: The model; it is left as it is.
        dtype: What the device computes in. Left out: float16 on a GPU, else the model's own.
        n_tokens: Tokens encoded at once, padding included.
        compile_options: Given, the encoder is compiled with them (``{}`` for none): minutes, for
            millions of documents.
    """

    def __init__(
        self,
        towers: SentenceTransformer,
        *,
        dtype: torch.dtype | None = None,
        n_tokens: int | None = None,
        compile_options: dict[str, Any] | None = None,
    ) -> None:
        self.towers = towers
        self.device = towers.device
        tower = document_tower(towers)
        if dtype is None:
            dtype = torch.float16 if self.device.type == "cuda" else tower.model.dtype
        self.dtype = dtype
        self.n_tokens = n_tokens or TOKENS.get(self.device.type, TOKENS["cpu"])
        if self.n_tokens < 1:
            raise ConfigError(f"n_tokens must be at least 1, got {n_tokens}")
        self._read = _Reader(
            _tokenizer(towers),
            prompt=next((towers.prompts[n] for n in _PROMPTS if n in towers.prompts), "") or "",
            pad=int(cast("Any", tower.tokenizer).pad_token_id or 0),
            n_tokens=self.n_tokens,
            is_pinned=self.device.type == "cuda",
        )
        first = tower
        if dtype != tower.model.dtype or compile_options is not None:
            first = _copied(tower).to(dtype)
        if compile_options is not None:
            first.model.compile(**{"dynamic": True, **compile_options})
        # The router only chooses the tower, and that is chosen.
        self._parts = [first, *list(towers.children())[1:]]

    def __call__(self, texts: Sequence[str]) -> Tensor:
        """Encode texts. Shape ``(texts, dim)``, float32, on the model's device."""
        if isinstance(texts, str):
            raise ConfigError("texts must be a list of texts, got one text")
        dim = self.towers.truncate_dim or self.towers.get_embedding_dimension() or 0
        if not len(texts):
            return torch.zeros(0, dim, device=self.device)
        for part in self._parts:
            part.eval()
        rows, vectors = [], []
        with torch.inference_mode():
            for batch in self._batches(texts):
                rows.append(batch.rows)
                vectors.append(self._encode(batch))
        # Made outside inference mode, so that the caller may do with it as with any tensor. A text
        # without any token, where a vocabulary marks no ends, stays zero.
        found = torch.zeros(len(texts), dim, device=self.device)
        if rows:
            places = torch.from_numpy(np.concatenate(rows)).to(self.device)
            found[places] = torch.cat(vectors).float()
        return self._repaired(found, texts)

    def _encode(self, batch: _Batch) -> Tensor:
        features: dict[str, Any] = {"input_ids": self._moved(batch.ids), "task": DOCUMENT}
        if batch.mask is not None:
            features["attention_mask"] = self._moved(batch.mask)
        for part in self._parts:
            features = part(features)
        vectors: Tensor = features["sentence_embedding"]
        return vectors[:, : self.towers.truncate_dim]

    def _moved(self, tensor: Tensor) -> Tensor:
        return tensor.to(self.device, non_blocking=True)

    def _batches(self, texts: Sequence[str]) -> Iterator[_Batch]:
        """Read ahead in a thread; the tokenizer gives the interpreter free while it works."""
        parts = iter(_parts(texts))
        ahead: deque[Future[list[_Batch]]] = deque()
        with ThreadPoolExecutor(1, thread_name_prefix="boolattn-tokens") as pool:
            try:
                while True:
                    while len(ahead) < _AHEAD and (rows := next(parts, None)) is not None:
                        ahead.append(pool.submit(self._read, texts, rows))
                    if not ahead:
                        return
                    yield from ahead.popleft().result()
            finally:
                for waiting in ahead:
                    waiting.cancel()

    def _repaired(self, vectors: Tensor, texts: Sequence[str]) -> Tensor:
        """Encode in the model's own precision what half precision could not hold."""
        own = document_tower(self.towers).model.dtype
        if own == self.dtype or bool((is_good := vectors.isfinite().all(-1)).all()):
            return vectors
        bad = (~is_good).nonzero()[:, 0]
        again = DocumentEncoder(self.towers, dtype=own, n_tokens=self.n_tokens)
        vectors[bad] = again([texts[row] for row in bad.tolist()])
        return vectors


def encode_documents(
    towers: SentenceTransformer,
    texts: Sequence[str],
    *,
    dtype: torch.dtype | None = None,
    n_tokens: int | None = None,
) -> Tensor:
    """Encode documents as ``towers.encode_document`` does, faster.

    On a CPU the vectors are the same to 1e-6, on a GPU, in half precision, to 1e-3.

    Args:
        towers: The model.
        texts: The documents.
        dtype: What the device computes in. Left out: float16 on a GPU, else the model's own.
        n_tokens: Tokens encoded at once; less where memory is short.

    Returns:
        Shape ``(texts, dim)``, float32, on the CPU.
    """
    return DocumentEncoder(towers, dtype=dtype, n_tokens=n_tokens)(texts).cpu()


def document_encoder(
    model: SentenceTransformer, *, batch_size: int | None = None
) -> Callable[[Sequence[str]], Tensor]:
    """Return the fastest encoder of documents for any sentence-transformers model.

    Args:
        model: Two towers are encoded by :class:`DocumentEncoder`, others by ``encode_document``.
        batch_size: Documents of full length encoded at once; left out, chosen for the device.

    Returns:
        From texts to vectors of shape ``(texts, dim)``, on the model's device.
    """
    try:
        n_tokens = batch_size * settings_of(model).document_length if batch_size else None
        return DocumentEncoder(model, n_tokens=n_tokens)
    except ConfigError:
        # No towers, or towers that are no transformers.
        return lambda texts: model.encode_document(
            list(texts),
            batch_size=batch_size or 32,
            convert_to_tensor=True,
            show_progress_bar=False,
        )


@dataclass(frozen=True)
class _Reader:
    """Turns a part of the texts into batches; runs in the thread."""

    texts_to_ids: Callable[[list[str]], tuple[NDArray[np.int64], NDArray[np.int64]]]
    prompt: str
    pad: int
    n_tokens: int
    is_pinned: bool

    def __call__(self, texts: Sequence[str], rows: NDArray[np.int64]) -> list[_Batch]:
        flat, lengths = self.texts_to_ids([self.prompt + texts[row] for row in rows])
        starts = np.concatenate([[0], np.cumsum(lengths)[:-1]])
        batches = []
        for chosen in group(lengths, self.n_tokens):
            if not lengths[chosen[0]]:
                continue
            ids, mask = _padded(flat, starts[chosen], lengths[chosen], self.pad)
            batches.append(_Batch(rows[chosen], self._tensor(ids), self._tensor(mask)))
        return batches

    def _tensor(self, values: NDArray[np.int64] | None) -> Any:  # noqa: ANN401 - Tensor or None
        if values is None:
            return None
        tensor = torch.from_numpy(values)
        return tensor.pin_memory() if self.is_pinned else tensor


def group(lengths: NDArray[np.int64], n_tokens: int) -> list[NDArray[np.int64]]:
    """Put texts into batches of at most ``n_tokens`` tokens, padding included.

    Lengths that many texts have get batches of their own, which need no padding and no mask; the
    others are put together with their neighbours. The longest come first.

    >>> [batch.tolist() for batch in group(np.array([8, 1, 8, 2, 8]), 24)]
    [[0, 2, 4], [3, 1]]

    Args:
        lengths: Tokens of each text.
        n_tokens: Tokens of a batch; a longer text is a batch by itself.

    Returns:
        Places in ``lengths``, each once.
    """
    order = np.argsort(-lengths, kind="stable")
    values, counts = np.unique(-lengths, return_counts=True)
    batches: list[NDArray[np.int64]] = []
    mixed: list[NDArray[np.int64]] = []
    for group_, length in zip(np.split(order, np.cumsum(counts)[:-1]), -values, strict=True):
        if len(group_) * length >= n_tokens / _OWN_BATCH:
            batches += _cut(group_, max(1, n_tokens // max(1, int(length))))
        else:
            mixed.append(group_)
    rest = np.concatenate(mixed) if mixed else order[:0]
    while len(rest):
        size = max(1, n_tokens // max(1, int(lengths[rest[0]])))
        batches.append(rest[:size])
        rest = rest[size:]
    return batches


def _cut(rows: NDArray[np.int64], size: int) -> list[NDArray[np.int64]]:
    return [rows[start : start + size] for start in range(0, len(rows), size)]


def _padded(
    flat: NDArray[np.int64], starts: NDArray[np.int64], lengths: NDArray[np.int64], pad: int
) -> tuple[NDArray[np.int64], NDArray[np.int64] | None]:
    """Lay texts side by side. Ids and mask of the shape ``(texts, tokens)``."""
    at = np.arange(lengths.max())
    if (lengths == len(at)).all():
        return flat[starts[:, None] + at], None
    is_token = at < lengths[:, None]
    ids = np.full(is_token.shape, pad, dtype=np.int64)
    ids[is_token] = flat[(starts[:, None] + at)[is_token]]
    return ids, is_token.astype(np.int64)


def _parts(texts: Sequence[str]) -> Iterator[NDArray[np.int64]]:
    """Cut the texts, longest first, into parts of like work for the tokenizer."""
    sizes = np.array([len(text) for text in texts], dtype=np.int64)
    order = np.argsort(-sizes, kind="stable")
    # A text costs something even if it is empty.
    work = np.cumsum(sizes[order] + 16)
    start, size = 0, _FIRST_CHARACTERS
    while start < len(order):
        done = int(work[start - 1]) if start else 0
        end = max(start + 1, int(np.searchsorted(work, done + size)))
        yield order[start:end]
        start, size = end, min(2 * size, _CHARACTERS)


def _tokenizer(
    towers: SentenceTransformer,
) -> Callable[[list[str]], tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Make a function from texts to their ids, laid end to end, and their lengths."""
    own: Any = document_tower(towers).tokenizer
    length = settings_of(towers).document_length or own.model_max_length
    if not getattr(own, "is_fast", False):
        return lambda texts: _flat(own(texts, truncation=True, max_length=length)["input_ids"])
    # A copy: the caller's is not to be changed, and another thread may be using it.
    fast = cast("Any", Tokenizer.from_str(own.backend_tokenizer.to_str()))
    fast.no_padding()
    fast.enable_truncation(length, direction=own.truncation_side)
    return lambda texts: _flat([found.ids for found in fast.encode_batch_fast(texts)])


def _flat(ids: Sequence[Sequence[int]]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    lengths = np.fromiter(map(len, ids), dtype=np.int64, count=len(ids))
    total = int(lengths.sum())
    return np.fromiter(chain.from_iterable(ids), dtype=np.int64, count=total), lengths


def _copied(tower: Any) -> Any:  # noqa: ANN401 - sentence-transformers' Transformer
    """Copy a tower, but not its tokenizer: that takes longer than the weights."""
    kept: list[nn.Module | object] = [tower.tokenizer, getattr(tower, "processor", None)]
    return copy.deepcopy(tower, {id(part): part for part in kept if part is not None})

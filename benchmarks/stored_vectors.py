"""Document vectors from a file, for the search benchmark: encoded on a GPU machine, for example.

A ``.npy`` file has the vectors, float16 or float32, in the order of the corpus. A ``.npz`` file has
``vectors`` (also int8, with ``scales``, one value a row) and may have ``ids`` of the documents, in
any order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from boolattn.data.records import Document
    from boolattn.encoder.retriever import Retriever

    Array = NDArray[np.float32]

#: Documents that are encoded again, to check that the vectors are of this model.
N_CHECKED = 16
#: Lowest cosine of a vector that was rounded to half precision or int8.
MIN_COSINE = 0.99


class StoredVectors:
    """Vectors of documents, in corpus order."""

    def __init__(self, path: Path, documents: Sequence[Document]) -> None:
        loaded = np.load(path, mmap_mode="r", allow_pickle=False)
        if path.suffix == ".npz":
            self._vectors, ids = loaded["vectors"], loaded.get("ids")
            self._scales = loaded.get("scales")
        else:
            self._vectors, self._scales, ids = loaded, None, None
        if (self._vectors.dtype == np.int8) != (self._scales is not None):
            raise SystemExit(f"{path}: int8 vectors need scales, others must not have them")
        self._rows = _rows(path, len(self._vectors), ids, documents)

    def __getitem__(self, chosen: slice) -> Array:
        rows = self._rows[chosen]
        vectors = np.asarray(self._vectors[rows], np.float32)
        if self._scales is not None:
            vectors *= np.asarray(self._scales[rows], np.float32).reshape(-1, 1)
        vectors /= np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
        return vectors

    def check(self, model: Retriever, documents: Sequence[Document]) -> None:
        """Refuse vectors of another model or of other texts."""
        step = max(1, len(documents) // N_CHECKED)
        for row in range(0, len(documents), step):
            [own] = model.encode_documents([documents[row].text])
            cosine = float(own @ self[row : row + 1][0])
            if cosine < MIN_COSINE:
                raise SystemExit(
                    f"the vector of document {documents[row].id!r} is not of this model: "
                    f"its cosine with the model's own is {cosine:.3f}"
                )

    def encoder(self) -> Callable[[Iterable[list[str]]], Iterator[Array]]:
        """Return an encoder for ``Searcher.build`` that yields the stored vectors."""

        def encode(batches: Iterable[list[str]], /) -> Iterator[Array]:
            start = 0
            for texts in batches:
                yield self[start : start + len(texts)]
                start += len(texts)

        return encode


def _rows(
    path: Path, n: int, ids: NDArray[np.str_] | None, documents: Sequence[Document]
) -> NDArray[np.int64]:
    if ids is None:
        if n < len(documents):
            raise SystemExit(f"{path} has {n} vectors for {len(documents)} documents")
        return np.arange(len(documents))
    rows = {str(name): row for row, name in enumerate(ids.tolist())}
    missing = [document.id for document in documents if document.id not in rows]
    if missing:
        raise SystemExit(f"{path} has no vector of document {missing[0]!r}")
    return np.array([rows[document.id] for document in documents], np.int64)

"""A data set that is tokenized once and memory-mapped by many processes.

Reading and tokenizing 219,002 documents takes longer than a short training.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast, overload

import numpy as np

from boolattn.data.records import Dataset, Document, Operand, Query
from boolattn.errors import ConfigError, DataError
from boolattn.files import atomic_folder
from boolattn.query.tree import Operator
from boolattn.training.batches.tokens import Tokens
from boolattn.training.corpus import Corpus
from experiments.corpus_folder import CORPUS_FORMAT

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from numpy.typing import NDArray
    from transformers import PreTrainedTokenizerBase

_BATCH = 8192
_SETS = ("gold", "excluded", "partial")


class SavedTokens(Tokens):
    """Token ids of all texts in one memory-mapped array.

    Args:
        tokenizer: The tokenizer they were made with.
        ids: Ids of all texts, concatenated.
        starts: Start of each text, and the end of the last.
    """

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        ids: NDArray[np.int32],
        starts: NDArray[np.int64],
    ) -> None:
        super().__init__(tokenizer, (), 0)
        self._flat, self._starts = ids, starts

    def __len__(self) -> int:
        return len(self._starts) - 1

    def fill(self, rows: Sequence[int] | range | None = None) -> None:
        """Do nothing: all texts are tokenized."""

    def _get(self, rows: Sequence[int]) -> list[NDArray[np.int32]]:
        starts = self._starts
        return [np.array(self._flat[starts[row] : starts[row + 1]]) for row in rows]


class SavedDocuments(Sequence[Document]):
    """Documents whose texts are read from a file on access."""

    def __init__(self, ids: list[str], texts: NDArray[np.uint8], starts: NDArray[np.int64]) -> None:
        self.ids = ids
        self._texts, self._starts = texts, starts

    def __len__(self) -> int:
        return len(self.ids)

    def __iter__(self) -> Iterator[Document]:
        # One read instead of one for each document.
        raw, starts = self._texts.tobytes(), self._starts.tolist()
        for name, start, end in zip(self.ids, starts, starts[1:], strict=False):
            yield Document(id=name, text=raw[start:end].decode())

    @overload
    def __getitem__(self, index: int) -> Document: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Document]: ...
    def __getitem__(self, index: int | slice) -> Document | Sequence[Document]:
        if isinstance(index, slice):
            return [self[row] for row in range(*index.indices(len(self)))]
        name = self.ids[index]
        raw = self._texts[self._starts[index] : self._starts[index + 1]]
        return Document(id=name, text=raw.tobytes().decode())


class SavedCorpus(Corpus):
    """A tokenized corpus to train and rank with."""

    def __init__(
        self, dataset: Dataset, tokenizer: PreTrainedTokenizerBase, documents: SavedTokens
    ) -> None:
        self.dataset = dataset
        self.tokenizer = tokenizer
        ids = cast("SavedDocuments", dataset.documents).ids
        self.rows = {name: row for row, name in enumerate(ids)}
        self.documents = documents


@dataclass(frozen=True)
class TokenizedCorpus:
    """The folder of a tokenized data set."""

    folder: Path

    @property
    def exists(self) -> bool:
        """Whether the folder is complete."""
        return (self.folder / "manifest.json").is_file()

    def write(self, dataset: Dataset, tokenizer: PreTrainedTokenizerBase, length: int) -> None:
        """Tokenize and write a data set, atomically."""
        with atomic_folder(self.folder) as draft:
            _write_texts(draft, dataset.documents)
            _write_tokens(draft, (d.text for d in dataset.documents), tokenizer, length)
            rows = {document.id: row for row, document in enumerate(dataset.documents)}
            _dump(draft / "ids.json", list(rows))
            _dump(
                draft / "splits.json",
                {
                    split: [_plain(query, rows) for query in queries]
                    for split, queries in dataset.splits.items()
                },
            )
            manifest = {
                "format": CORPUS_FORMAT,
                "name": dataset.name,
                "length": length,
                "vocabulary": vocabulary_hash(tokenizer),
            }
            _dump(draft / "manifest.json", manifest)

    def open(self, tokenizer: PreTrainedTokenizerBase, length: int) -> SavedCorpus:
        """Map the folder; the tokenizer must have the vocabulary it was written with."""
        manifest = _load(self.folder / "manifest.json")
        if manifest.get("format") != CORPUS_FORMAT:
            raise DataError(
                f"{self.folder} has format {manifest.get('format')!r}, not {CORPUS_FORMAT}"
            )
        own = {"length": length, "vocabulary": vocabulary_hash(tokenizer)}
        for name, value in own.items():
            if manifest[name] != value:
                raise ConfigError(
                    f"{self.folder} was tokenized with another {name}: {manifest[name]}, not "
                    f"{value}; remove it to tokenize again"
                )
        ids: list[str] = _load(self.folder / "ids.json")
        splits = {
            split: tuple(_query(row, ids) for row in rows)
            for split, rows in _load(self.folder / "splits.json").items()
        }
        documents = SavedDocuments(ids, self._array("texts"), self._array("text_starts"))
        dataset = Dataset(name=manifest["name"], documents=documents, splits=splits)
        tokens = SavedTokens(tokenizer, self._array("tokens"), np.asarray(self._array("starts")))
        return SavedCorpus(dataset, tokenizer, tokens)

    def _array(self, name: str) -> Any:  # noqa: ANN401 - arrays of three types
        return np.load(self.folder / f"{name}.npy", mmap_mode="r", allow_pickle=False)


def vocabulary_hash(tokenizer: PreTrainedTokenizerBase) -> str:
    """Hash a vocabulary, so that token ids of another are refused."""
    pairs = sorted(tokenizer.get_vocab().items())
    return hashlib.sha256(json.dumps(pairs).encode()).hexdigest()[:16]


def _write_texts(draft: Path, documents: Iterable[Document]) -> None:
    encoded = [document.text.encode() for document in documents]
    starts = np.zeros(len(encoded) + 1, dtype=np.int64)
    np.cumsum([len(text) for text in encoded], out=starts[1:])
    np.save(draft / "texts.npy", np.frombuffer(b"".join(encoded), dtype=np.uint8))
    np.save(draft / "text_starts.npy", starts)


def _write_tokens(
    draft: Path, texts: Iterable[str], tokenizer: PreTrainedTokenizerBase, length: int
) -> None:
    listed = list(texts)
    parts: list[NDArray[np.int32]] = []
    lengths: list[int] = []
    for start in range(0, len(listed), _BATCH):
        encoded = tokenizer(
            listed[start : start + _BATCH],
            truncation=True,
            max_length=length,
            return_attention_mask=False,
            return_token_type_ids=False,
        )["input_ids"]
        lengths += map(len, encoded)
        parts.append(np.fromiter((i for ids in encoded for i in ids), dtype=np.int32))
    starts = np.zeros(len(lengths) + 1, dtype=np.int64)
    np.cumsum(lengths, out=starts[1:])
    np.save(draft / "tokens.npy", np.concatenate(parts))
    np.save(draft / "starts.npy", starts)


def _plain(query: Query, rows: dict[str, int]) -> dict[str, Any]:
    plain: dict[str, Any] = {
        "id": query.id,
        "text": query.text,
        "template": query.template,
        "operators": [operator.value for operator in query.operators],
        "operands": [
            [one.text, one.spans, None if one.members is None else _rows(one.members, rows)]
            for one in query.operands
        ],
        "domain": query.domain,
        "wording": query.wording,
    }
    for name in _SETS:
        plain[name] = _rows(getattr(query, name), rows)
    return plain


def _rows(names: Iterable[str], rows: dict[str, int]) -> list[int | str]:
    # Documents outside the corpus keep their ids: the coverage of a query depends on them.
    return [rows.get(one, one) for one in sorted(names)]


def _named(rows: Iterable[int | str], ids: list[str]) -> frozenset[str]:
    return frozenset(ids[one] if isinstance(one, int) else one for one in rows)


def _query(plain: dict[str, Any], ids: list[str]) -> Query:
    sets = {name: _named(plain[name], ids) for name in _SETS}
    return Query(
        id=plain["id"],
        text=plain["text"],
        template=plain["template"],
        operators=tuple(Operator(name) for name in plain["operators"]),
        operands=tuple(
            Operand(
                text,
                tuple((start, end) for start, end in spans),
                None if members is None else _named(members, ids),
            )
            # Older folders lack the documents of single operands.
            for text, spans, members in ((*part, None)[:3] for part in plain["operands"])
        ),
        domain=plain["domain"],
        wording=plain["wording"],
        **sets,
    )


def _dump(path: Path, value: object) -> None:
    path.write_text(json.dumps(value, ensure_ascii=False, separators=(",", ":")), "utf-8")


def _load(path: Path) -> Any:  # noqa: ANN401 - any JSON value
    try:
        return json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise DataError(f"{path} cannot be read ({error}); remove its folder") from error

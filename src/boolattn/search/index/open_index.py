"""An index opened for searching: its rows, its engine, its words, as of one manifest."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from boolattn.errors import QueryError
from boolattn.query.tree import Like, atoms
from boolattn.search.engines.base import Selection
from boolattn.search.engines.flat import Flat
from boolattn.search.engines.registry import find_engine
from boolattn.search.filters import (
    allowed_documents,
    met_conditions,
    possible_documents,
    read_filters,
    required_conditions,
    resolve,
)
from boolattn.search.index.overview import find_examples, find_facets
from boolattn.search.lexical import Lexical, terms_of
from boolattn.search.storage.manifest import read_stamps
from boolattn.search.storage.segments import Rows

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from boolattn.data.records import Document
    from boolattn.query.tree import QueryTree
    from boolattn.search.engines.base import Engine
    from boolattn.search.index.overview import Example, Facet
    from boolattn.search.storage.manifest import Manifest
    from boolattn.search.storage.segments import Array, Mask, RowNumbers

#: Documents of highest BM25 score among which a title is looked for.
_TITLES = 20
_TINY = 1e-9


@dataclass(frozen=True)
class OpenIndex:
    """An index opened for searching."""

    manifest: Manifest
    rows: Rows
    engine: Engine
    exact: Flat  # which every index has
    lexical: Lexical | None
    stamps: dict[str, tuple[int, int, int]]  # of mapped files, when they were opened

    @classmethod
    def open(cls, folder: Path, manifest: Manifest) -> OpenIndex:
        """Open everything that a manifest names."""
        stamps = read_stamps(folder, manifest)
        rows = Rows.open(folder, manifest)
        engine = find_engine(manifest.engine).open(folder, manifest, rows)
        lexical = None
        if manifest.lexical:
            lexical = Lexical(folder / manifest.lexical, is_copied=manifest.is_small)
        return cls(manifest, rows, engine, Flat(rows), lexical, stamps)

    def changed_files(self, folder: Path) -> set[str]:
        """Return which mapped files were changed in place or replaced since they were opened."""
        now = read_stamps(folder, self.manifest)
        return {name for name, stamp in now.items() if stamp != self.stamps.get(name)}

    @cached_property
    def facets(self) -> tuple[Facet, ...]:
        """Fields of the metadata with few different values."""
        return find_facets(self.rows)

    @cached_property
    def examples(self) -> tuple[Example, ...]:
        """Queries that fit the documents."""
        return find_examples(self.rows, self.facets)

    def has_title(self, text: str) -> bool:
        """Whether a document has this title, whatever the case and the spaces.

        Without a lexical index it is not known.
        """
        wanted = _title(text)
        if self.lexical is None or not wanted:
            return False
        found = self.lexical.search(terms_of(text), _TITLES).rows
        return any(_title(self.rows.document(row).title) == wanted for row in found.tolist())

    def count(self, selection: Selection) -> int:
        """Return how many documents are selected."""
        allowed = selection.documents
        return self.rows.n_documents if allowed is None else int(allowed.sum())

    def documents(self, rows: RowNumbers) -> Iterator[Document]:
        """Read documents, one by one."""
        return map(self.rows.document, rows.tolist())

    def selection(self, filters: Mapping[str, Any] | None) -> Selection:
        """Return which documents pass some filters, and their rows."""
        conditions = resolve(read_filters(filters), self.rows)
        documents = allowed_documents(conditions, self.rows)
        return Selection(self._row_mask(documents), conditions, documents)

    def narrowed(self, selection: Selection, tree: QueryTree) -> Selection:
        """Return a selection for a tree: by its conditions, and without its documents."""
        likes = [atom.text for atom in atoms(tree) if isinstance(atom, Like)]
        met = met_conditions(tree, self.rows)
        if not likes and not met:
            return selection
        documents = possible_documents(tree, met) if met else np.ones(self.rows.n_documents, bool)
        documents[list(self.rows.find(likes).values())] = False
        if selection.documents is not None:
            documents &= selection.documents
        required = required_conditions(tree, self.rows)
        conditions = (*selection.conditions, *(required or ()))
        return Selection(self._row_mask(documents), conditions, documents, met, required is None)

    def document_vectors(self, ids: Sequence[str]) -> dict[str, Array]:
        """Return the vectors of documents; of one with several passages, their mean."""
        found, vectors = self.rows.find(ids), {}
        for name in ids:
            if name not in found:
                raise QueryError(f"like:{name}: no document has the id {name!r}")
            rows, _ = self.rows.of_documents(np.array([found[name]]))
            own = self.rows.vectors(rows)
            mean = own.mean(0)
            # As long as its passages are: 1, for a model that is compared by cosine.
            length = np.linalg.norm(own, axis=1).mean() / max(np.linalg.norm(mean), _TINY)
            vectors[name] = mean * np.float32(length) if len(own) > 1 else mean
        return vectors

    def _row_mask(self, documents: Mask | None) -> Mask | None:
        if documents is None or not self.rows.has_passages:
            return documents
        return np.repeat(documents, np.diff(self.rows.first_rows))


def _title(text: str) -> str:
    return " ".join(text.casefold().split()).strip(" \"'.?!")

"""An index opened for searching: its rows, its engine, its words, as of one manifest."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from boolattn.search.engines.base import Selection
from boolattn.search.engines.flat import Flat
from boolattn.search.engines.registry import find_engine
from boolattn.search.filters import allowed_documents, read_filters, resolve
from boolattn.search.lexical import Lexical, terms_of
from boolattn.search.storage.segments import Rows

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from boolattn.search.engines.base import Engine
    from boolattn.search.storage.manifest import Manifest

#: Documents of highest BM25 score among which a title is looked for.
_TITLES = 20


@dataclass(frozen=True)
class OpenIndex:
    """An index opened for searching."""

    manifest: Manifest
    rows: Rows
    engine: Engine
    flat: Flat  # the exact engine, which every index has
    lexical: Lexical | None

    @classmethod
    def open(cls, folder: Path, manifest: Manifest) -> OpenIndex:
        """Open everything that a manifest names."""
        rows = Rows.open(folder, manifest)
        engine = find_engine(manifest.engine).open(folder, manifest, rows)
        lexical = Lexical(folder / manifest.lexical) if manifest.lexical else None
        return cls(manifest, rows, engine, Flat(rows), lexical)

    def has_title(self, text: str) -> bool:
        """Whether a document has this title, whatever the case and the spaces.

        Without a lexical index it is not known.
        """
        wanted = _title(text)
        if self.lexical is None or not wanted:
            return False
        found = self.lexical.search(terms_of(text), _TITLES).rows
        return any(_title(self.rows.document(row).title) == wanted for row in found.tolist())

    def selection(self, filters: Mapping[str, Any] | None) -> Selection:
        """Return which documents pass some filters, and their rows."""
        conditions = resolve(read_filters(filters), self.rows)
        documents = allowed_documents(conditions, self.rows)
        mask = documents
        if documents is not None and self.rows.has_passages:
            mask = np.repeat(documents, np.diff(self.rows.first_rows))
        return Selection(mask, conditions, documents)


def _title(text: str) -> str:
    return " ".join(text.casefold().split()).strip(" \"'.?!")

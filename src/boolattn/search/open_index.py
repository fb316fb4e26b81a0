"""An index opened for searching: its rows, its engine, its words, as of one manifest."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from boolattn.errors import DataError, IndexFolderError
from boolattn.search.engines.base import Selection
from boolattn.search.engines.flat import Flat
from boolattn.search.engines.registry import find_engine
from boolattn.search.filters import allowed_rows, read_filters
from boolattn.search.index.segments import live_rows, open_rows
from boolattn.search.lexical import Lexical

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray

    from boolattn.data.records import Document
    from boolattn.search.engines.base import Engine
    from boolattn.search.index.manifest import Manifest
    from boolattn.search.index.segments import Rows


@dataclass(frozen=True)
class OpenIndex:
    """An index opened for searching.

    Attributes:
        folder: Of the index.
        manifest: As it was read.
        rows: Of all documents, the deleted ones too.
        live: Which rows are not deleted; ``None``: all.
        engine: Finds the nearest vectors.
        flat: The exact engine, which every index has.
        lexical: Finds words, if they are indexed.
    """

    folder: Path
    manifest: Manifest
    rows: Rows
    live: NDArray[np.bool_] | None
    engine: Engine
    flat: Flat
    lexical: Lexical | None

    @classmethod
    def open(cls, folder: Path, manifest: Manifest) -> OpenIndex:
        """Open everything that a manifest names."""
        rows = open_rows(folder, manifest)
        try:
            live = live_rows(folder, manifest)
        except (OSError, ValueError) as error:
            raise IndexFolderError(f"{folder} cannot be read: {error}") from error
        engine = find_engine(manifest.engine).open_engine(folder, manifest, rows)
        lexical = Lexical(folder / manifest.lexical) if manifest.lexical else None
        return cls(folder, manifest, rows, live, engine, Flat(rows), lexical)

    def selection(self, filters: Mapping[str, Any] | None) -> Selection:
        """Return which rows pass some filters."""
        conditions = read_filters(filters)
        return Selection(allowed_rows(conditions, self.rows, self.live), conditions)

    def document(self, name: str) -> Document:
        """Return a document by its id."""
        for row in self.rows.find([name]).get(name, []):
            if self.live is None or self.live[row]:
                return self.rows.document(row)
        raise DataError(f"no document {name!r} in {self.folder}")

"""Definitions of the Gene Ontology with the more general terms that they name."""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING

from benchmark_data.domains.items import Item
from benchmark_data.domains.sources import read_member
from boolattn.files import scratch_folder

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

_MEMBER = "./usr/lib/R/site-library/GO.db/extdata/GO.sqlite"
_MAX_NAME = 4


def read(files: Sequence[Path], size: str) -> Iterator[Item]:
    """Read the terms; a label is a more general term of a few words."""
    with scratch_folder() as folder:
        path = folder / "go.sqlite"
        path.write_bytes(read_member(files[0], _MEMBER))
        database = sqlite3.connect(path)
        terms = database.execute("SELECT _id, go_id, term, definition FROM go_term").fetchall()
        names = {row[0]: row[2] for row in terms}
        above: dict[int, set[str]] = {}
        for part in ("bp", "mf", "cc"):
            # The table's name is one of three constants.
            rows = database.execute(f"SELECT _id, _offspring_id FROM go_{part}_offspring")  # nosec B608
            for ancestor, term in rows:
                if len(names[ancestor].split()) <= _MAX_NAME:
                    above.setdefault(term, set()).add(names[ancestor])
        database.close()
    for number, name, title, text in terms:
        if text and title != "all":
            yield Item(name, title, text, {"process": above.get(number, set())})

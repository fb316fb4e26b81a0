"""Does a store with one flipped bit give another answer without an error?

    python -m benchmarks.flipped_bits [--flips 400] [--documents 2000]

Beside the folder, an SQLite database holds the same documents: a table with a checksum in every
row, which is compared when the row is read, and an indexed table of their fields. In each round
one random bit of one random file is flipped; then documents are read by id and selected by field.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import sqlite3
import tempfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.stores import TopicEncoder, documents
from boolattn.search import Document, Searcher

STEP = 7


def write_sqlite(folder: Path, rows: list[Document]) -> None:
    """Write documents with their checksums, and their fields."""
    with sqlite3.connect(folder / "documents.db") as database:
        database.executescript(
            "create table documents (number integer primary key, id text unique, row, sum);"
            "create table fields (number integer, year integer);"
            "create index by_year on fields (year, number)"
        )
        for number, row in enumerate(rows):
            text = json.dumps([row.id, row.text])
            database.execute(
                "insert into documents values (?, ?, ?, ?)",
                (number, row.id, text, zlib.crc32(f"{number} {row.id} {text}".encode())),
            )
            database.execute("insert into fields values (?, ?)", (number, row.metadata["year"]))
    database.close()


def read_sqlite(folder: Path, rows: list[Document]) -> list[Any]:
    """Read documents by id, and the numbers of documents by year."""
    database = sqlite3.connect(f"file:{folder / 'documents.db'}?mode=ro", uri=True)
    try:
        database.execute("pragma cell_size_check = on")
        answers: list[Any] = []
        for row in rows[::STEP]:
            query = "select number, id, row, sum from documents where id = ?"
            if (values := database.execute(query, (row.id,)).fetchone()) is not None:
                number, name, text, total = values
                if zlib.crc32(f"{number} {name} {text}".encode()) != total:
                    raise ValueError("a row was altered")
            answers.append(values)
        for year in range(1900, 2020, STEP):
            query = "select number from fields where year = ?"
            answers.append(database.execute(query, (year,)).fetchall())
        return answers
    finally:
        database.close()


def read_folder(folder: Path, rows: list[Document]) -> list[Any]:
    """Read documents by id, and search by year."""
    searcher = Searcher.open(folder / "index", TopicEncoder(), parser=None)
    answers: list[Any] = [searcher.document(row.id) for row in rows[::STEP]]
    for year in range(1900, 2020, STEP):
        result = searcher.search("topic1 NOT topic2", 5, mode="explicit", filters={"year": year})
        answers.append([(hit.id, hit.score) for hit in result.hits])
    return answers


def flip(
    folder: Path, read: Callable[[Path, list[Document]], list[Any]], rows: list[Document], n: int
) -> dict[str, int]:
    """Flip bits one by one, each in a fresh copy."""
    generator, expected = random.Random(0), read(folder, rows)
    counts = {"refused": 0, "same answer": 0, "other answer": 0}
    for _ in range(n):
        with tempfile.TemporaryDirectory() as name:
            copy = Path(shutil.copytree(folder, Path(name) / "copy"))
            files = [path for path in copy.rglob("*") if path.is_file() and path.stat().st_size]
            sizes = [path.stat().st_size for path in files]
            [path] = generator.choices(files, sizes)
            content = bytearray(path.read_bytes())
            content[generator.randrange(len(content))] ^= 1 << generator.randrange(8)
            path.write_bytes(content)
            try:
                outcome = "same answer" if read(copy, rows) == expected else "other answer"
            except Exception:  # noqa: BLE001 - whatever a damaged file raises
                outcome = "refused"
            counts[outcome] += 1
    return counts


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--flips", type=int, default=400)
    parser.add_argument("--documents", type=int, default=2000)
    options = parser.parse_args()
    rows = list(documents(options.documents))
    with tempfile.TemporaryDirectory() as name:
        for label, read in (("folder", read_folder), ("SQLite", read_sqlite)):
            folder = Path(name) / label
            folder.mkdir()
            if read is read_folder:
                Searcher.build(folder / "index", rows, TopicEncoder(), parser=None)
            else:
                write_sqlite(folder, rows)
            print(label, flip(folder, read, rows, options.flips), flush=True)


if __name__ == "__main__":
    main()

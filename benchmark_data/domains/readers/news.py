"""Reuters news of 1987 with topics and places. Research only: never trained on."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

from benchmark_data.domains.items import Item
from benchmark_data.domains.sources import read_member
from boolattn.data.tables import package_table

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

_MIN_WORDS = 25


def read(files: Sequence[Path], size: str) -> Iterator[Item]:
    """Read the articles with a body; topics and places get readable names."""
    tables = package_table("benchmark_data.domains", "domains.toml")["news"]["names"]
    content = read_member(files[0], "package/data/fullFileStream/full.str").decode()
    for line in content.splitlines():
        row = json.loads(line)
        text = re.sub(r"\s+Reuter\s*$", "", row.get("body") or "")
        if len(text.split()) < _MIN_WORDS or not row.get("topics"):
            continue
        labels = {
            "topic": [tables[one] for one in row["topics"] if one in tables],
            "place": [tables.get(one) or _title(one) for one in row.get("places") or ()],
        }
        yield Item(row["id"], (row.get("title") or "").capitalize(), text, labels)


def _title(code: str) -> str:
    return " ".join(word.capitalize() for word in code.split("-"))

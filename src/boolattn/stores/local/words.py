"""Words of the local store: a tantivy index."""

from __future__ import annotations

import math
import os
import re
import shutil
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from boolattn.errors import IndexFolderError
from boolattn.files import scratch_folder
from boolattn.kinds.lexicon import is_tag
from boolattn.scoring.exact import Ranked
from boolattn.stores.analysis import (
    DELTA,
    analyzer,
    spaced,
    tantivy_module,
    terms_of,
)
from boolattn.stores.base import Claim
from boolattn.stores.batches import document_terms, indexed_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from boolattn.data.records import Document
    from boolattn.kinds.lexicon import Kinds
    from boolattn.stores.base import Claims, Keys, Mask

    TantivyIndex = Any
    TantivySchema = Any

ANALYZER = "boolattn"
#: Words of a document; kinds of the things it names; those that it only negates; its number.
_BODY, _KINDS, _DENIED, _ROW = "body", "kinds", "denied", "row"
_HEAP = 64_000_000
_SIMILAR = 50  # documents in which a similar word is looked for


def write_words(
    target: Path,
    documents: Iterable[tuple[int, Document]],
    kinds: Kinds | None,
    base: Path | None = None,
) -> None:
    """Write documents, each with its row, to a new folder.

    The files of a base, an index to add to, are shared: tantivy never changes a file.
    """
    tantivy = tantivy_module()
    target.mkdir()
    for path in _index_files(base) if base is not None else ():
        try:
            os.link(path, target / path.name)
        except OSError:  # not every file system has links
            shutil.copyfile(path, target / path.name)
    try:
        index = tantivy.Index(_schema(), path=str(target))
        index.register_tokenizer(ANALYZER, analyzer())
        _add(index, documents, kinds)
    except ValueError as error:
        # tantivy reports a full or read-only disk as a ValueError.
        shutil.rmtree(target, ignore_errors=True)
        raise IndexFolderError(f"cannot write {target}: {_plain(error)}") from error
    os.umask(umask := os.umask(0o022))
    for path in target.iterdir():
        if path.name.endswith(".lock"):
            path.unlink()
        elif path.stat().st_nlink == 1:
            # tantivy makes some files private; the rest of the index is as the umask says.
            path.chmod(0o666 & ~umask)


def _schema() -> TantivySchema:
    schema = tantivy_module().SchemaBuilder()
    schema.add_unsigned_field(_ROW, fast=True, indexed=True)
    schema.add_text_field(_BODY, tokenizer_name=ANALYZER, index_option="freq")
    for name in (_DENIED, _KINDS):
        schema.add_text_field(name, tokenizer_name="raw", index_option="basic")
    return schema.build()


def _add(
    index: TantivyIndex, documents: Iterable[tuple[int, Document]], kinds: Kinds | None
) -> None:
    tantivy = tantivy_module()
    # One thread, so that documents are in the order of their rows.
    writer = index.writer(heap_size=_HEAP, num_threads=1)
    for row, document in documents:
        terms = document_terms(document, kinds)
        entry = tantivy.Document()
        entry.add_unsigned(_ROW, row)
        entry.add_text(_BODY, spaced(indexed_text(document)))
        for term in terms.denied:
            entry.add_text(_DENIED, term)
        for term in filter(is_tag, terms.counts):
            entry.add_text(_KINDS, term)
        writer.add_document(entry)
    writer.commit()
    writer.wait_merging_threads()


class Words:
    """An index of words opened for reading."""

    def __init__(self, folder: Path, *, is_copied: bool = False) -> None:
        tantivy = tantivy_module()
        # tantivy writes a lock beside what it opens, and the index may be read-only. The lock may
        # appear while the links are removed, which is no failure.
        with _blaming(folder), scratch_folder(is_brief=not is_copied) as links:
            for path in _index_files(folder):
                if is_copied:
                    shutil.copyfile(path, links / path.name)
                else:
                    (links / path.name).symlink_to(path.resolve())
            index = tantivy.Index.open(str(links))
            index.config_reader("manual")
            self._searcher = index.searcher()
        self._schema = index.schema
        self._tantivy, self._folder = tantivy, folder

    def search(self, terms: Iterable[str], n: int, allowed: Mask | None = None) -> Ranked:
        """Return the ``n`` documents of highest BM25+ score, of those that have one of the terms.

        BM25+ adds to the BM25 score ``DELTA`` times the inverse document frequency of each term
        that the document has. The terms are those of :func:`terms_of`. Only allowed documents, if
        that is given.
        """
        make, any_of = self._tantivy.Query, self._tantivy.Occur.Should
        total = self._searcher.num_docs
        clauses = []
        for term in terms:
            query, n_with = self._term(term), self.frequency(term)
            rarity = math.log1p((total - n_with + 0.5) / (n_with + 0.5))
            if not is_tag(term):
                clauses.append((any_of, query))
            clauses.append((any_of, make.const_score_query(query, DELTA * rarity)))
        limit = min(n, total)
        if not clauses or not total:
            return Ranked(np.zeros(0, np.int64), np.zeros(0, np.float32))
        while True:
            rows, scores = self._search(make.boolean_query(clauses), limit)
            n_hits = len(rows)
            if allowed is not None:
                rows, scores = rows[allowed[rows]], scores[allowed[rows]]
            if len(rows) >= n or n_hits < limit or limit >= total:
                return Ranked(rows[:n], scores[:n])
            limit = min(4 * limit, total)

    def frequency(self, term: str) -> int:
        """Return the number of documents with a term, deleted ones counted too."""
        return int(self._searcher.doc_freq(_KINDS if is_tag(term) else _BODY, term))

    def similar(self, word: str, n_errors: int) -> Keys:
        """Return some documents with a word of at most so many other letters."""
        terms = {*terms_of(word), word, re.sub("y$", "i", word)}  # the stemmer writes "spici"
        make, any_of = self._tantivy.Query, self._tantivy.Occur.Should
        queries = [make.fuzzy_term_query(self._schema, _BODY, t, n_errors) for t in terms]
        limit = min(_SIMILAR, self._searcher.num_docs)
        if not limit:
            return np.zeros(0, np.int64)
        return self._search(make.boolean_query([(any_of, query) for query in queries]), limit).rows

    def claims(self, terms: Sequence[str], rows: Keys) -> Claims:
        """Return what documents say of some terms, as values of ``Claim``."""
        claims = np.zeros(len(rows), np.int8)
        if not len(rows) or not terms:
            return claims
        occur = self._tantivy.Occur
        has_all = self._among(rows, [(occur.Must, self._term(term)) for term in terms])
        claims[np.isin(rows, has_all)] = Claim.ASSERTED
        if len(has_all):
            denied = [(occur.Should, self._term(term, _DENIED)) for term in terms]
            claims[np.isin(rows, self._among(has_all, denied))] = Claim.DENIED
        return claims

    def asserting(self, terms: Sequence[str]) -> Keys:
        """Return all documents that assert every one of some terms."""
        occur, total = self._tantivy.Occur, self._searcher.num_docs
        if not terms or not total:
            return np.zeros(0, np.int64)
        make = self._tantivy.Query
        has_all = make.boolean_query([(occur.Must, self._term(term)) for term in terms])
        denied = make.boolean_query([(occur.Should, self._term(term, _DENIED)) for term in terms])
        query = make.boolean_query([(occur.Must, has_all), (occur.MustNot, denied)])
        return self._search(query, total).rows

    def _term(self, term: str, field: str = "") -> Any:  # noqa: ANN401 - a query of tantivy's
        field = field or (_KINDS if is_tag(term) else _BODY)
        return self._tantivy.Query.term_query(self._schema, field, term)

    def _among(self, rows: Keys, clauses: list[tuple[Any, Any]]) -> Keys:
        """Return which of some documents a query of tantivy's finds."""
        make, must = self._tantivy.Query, self._tantivy.Occur.Must
        these = make.term_set_query(self._schema, _ROW, rows.tolist())
        query = make.boolean_query([(must, these), (must, make.boolean_query(clauses))])
        return self._search(query, len(rows)).rows

    def _search(self, query: Any, n: int) -> Ranked:  # noqa: ANN401 - a query of tantivy's
        with _blaming(self._folder):
            hits = self._searcher.search(query, n, count=False).hits
            addresses = [address for _, address in hits]
            rows = self._searcher.fast_field_values(_ROW, addresses)
        scores = np.array([score for score, _ in hits], np.float32)
        return Ranked(np.array(rows, np.int64), scores)


@contextmanager
def _blaming(folder: Path) -> Iterator[None]:
    """Report files that cannot be read; tantivy's panics are not Exceptions."""
    try:
        yield
    except BaseException as error:
        if (
            not isinstance(error, OSError | TypeError | ValueError)
            and type(error).__name__ != "PanicException"
        ):
            raise
        raise IndexFolderError(f"cannot read {folder}: {_plain(error)}") from error


def _index_files(folder: Path) -> list[Path]:
    return [path for path in folder.iterdir() if not path.name.endswith(".lock")]


def _plain(error: BaseException) -> str:
    return " ".join(str(error).split())

"""Words of the local store: a tantivy index."""

from __future__ import annotations

import math
import os
import re
import shutil
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import tantivy
from tantivy import Occur, Query

from boolattn.errors import IndexFolderError
from boolattn.files import scratch_folder
from boolattn.kinds.lexicon import is_tag
from boolattn.scoring.exact import Ranked
from boolattn.stores.analysis import DELTA, analyzer, document_terms, indexed_text, spaced, terms_of
from boolattn.stores.base import Claim, Claims, Keys, Mask
from boolattn.stores.local.manifest import PART, WORDS, Manifest

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from boolattn.data.records import Document

ANALYZER = "boolattn"
#: Words of a document; kinds of the things it names; those that it only negates; its number.
_BODY, _KINDS, _DENIED, _ROW = "body", "kinds", "denied", "row"
_HEAP = 64_000_000
_SIMILAR = 50  # documents in which a similar word is looked for
_FEW = 4096  # documents below which a query for each is faster than one for their set


def write_words(
    folder: Path, manifest: Manifest, documents: Iterable[tuple[int, Document]]
) -> Manifest:
    """Write documents, each with its number, beside those of the manifest; return the new one.

    The files of the words before are shared: tantivy never changes a file.
    """
    target = folder / f"{WORDS}{manifest.generation}"
    part = target.with_name(target.name + PART)
    part.mkdir()
    for path in _index_files(folder / manifest.words) if manifest.words else ():
        try:
            os.link(path, part / path.name)
        except OSError:  # not every file system has links
            shutil.copyfile(path, part / path.name)
    schema = tantivy.SchemaBuilder()
    schema.add_unsigned_field(_ROW, fast=True, indexed=True)
    schema.add_text_field(_BODY, tokenizer_name=ANALYZER, index_option="freq")
    for name in (_DENIED, _KINDS):
        schema.add_text_field(name, tokenizer_name="raw", index_option="basic")
    try:
        index = tantivy.Index(schema.build(), path=str(part))
        index.register_tokenizer(ANALYZER, analyzer())
        # One thread, so that documents are in the order of their rows.
        writer = index.writer(heap_size=_HEAP, num_threads=1)
        for row, document in documents:
            terms = document_terms(document, manifest.settings.known_kinds)
            values = {
                _ROW: row,
                _BODY: spaced(indexed_text(document)),
                _DENIED: terms.denied,
                _KINDS: [*filter(is_tag, terms.counts)],
            }
            writer.add_document(tantivy.Document.from_dict(values, index.schema))
        writer.commit()
        writer.wait_merging_threads()
    except ValueError as error:
        # tantivy reports a full or read-only disk as a ValueError.
        shutil.rmtree(part, ignore_errors=True)
        raise IndexFolderError(f"cannot write {part}: {error}") from error
    for path in part.iterdir():
        if path.name.endswith(".lock"):
            path.unlink()
        elif path.stat().st_nlink == 1:  # new; tantivy makes some files private
            path.chmod(part.stat().st_mode & 0o666)
    part.rename(target)
    return replace(manifest.with_files(folder, WORDS, sorted(target.iterdir())), words=target.name)


class Words:
    """An index of words opened for reading."""

    def __init__(self, folder: Path, *, is_copied: bool = False) -> None:
        # tantivy writes a lock beside what it opens, and the index may be read-only. The lock may
        # appear while the links are removed, which is no failure.
        with _blaming(folder), scratch_folder() as links:
            for path in _index_files(folder):
                (shutil.copyfile if is_copied else os.symlink)(path.resolve(), links / path.name)
            index = tantivy.Index.open(str(links))
            index.config_reader("manual")
            self._searcher = index.searcher()
        self._schema, self._folder = index.schema, folder

    def search(self, terms: Iterable[str], n: int, allowed: Mask | None = None) -> Ranked:
        """Return the ``n`` documents of highest BM25+ score, of those that have one of the terms.

        BM25+ adds to the BM25 score ``DELTA`` times the inverse document frequency of each term
        that the document has.
        """
        queries, total = [], self._searcher.num_docs
        for term in terms:
            query, n_with = self._term(term), self.frequency(term)
            rarity = math.log1p((total - n_with + 0.5) / (n_with + 0.5))
            queries += [] if is_tag(term) else [query]
            queries.append(Query.const_score_query(query, DELTA * rarity))
        limit = min(n, total)
        while True:
            rows, scores = self._search(_any_of(queries), limit)
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
        queries = [Query.fuzzy_term_query(self._schema, _BODY, t, n_errors) for t in terms]
        return self._search(_any_of(queries), _SIMILAR).rows

    def claims(self, terms: Sequence[str], rows: Keys) -> Claims:
        """Return what documents say of some terms, as values of ``Claim``."""
        claims = np.zeros(len(rows), np.int8)
        if len(rows) and terms:
            if len(rows) < _FEW:
                these = _any_of(Query.term_query(self._schema, _ROW, row) for row in rows.tolist())
            else:
                these = Query.term_set_query(self._schema, _ROW, rows.tolist())
            # Only denied terms have a score.
            all_terms = Query.const_score_query(self._all_of(terms, (Occur.Must, these)), 0)
            denied = Query.const_score_query(self._denying(terms), 1)
            query = Query.boolean_query([(Occur.Must, all_terms), (Occur.Should, denied)])
            keys, scores = self._search(query, len(rows))
            claims[np.isin(rows, keys)] = Claim.ASSERTED
            claims[np.isin(rows, keys[scores > 0])] = Claim.DENIED
        return claims

    def asserting(self, terms: Sequence[str]) -> Keys:
        """Return all documents that assert every one of some terms; none, if there is no term."""
        if not terms:
            return np.zeros(0, np.int64)
        query = self._all_of(terms, (Occur.MustNot, self._denying(terms)))
        return self._search(query, self._searcher.num_docs).rows

    def _all_of(self, terms: Sequence[str], *clauses: tuple[Occur, Query]) -> Query:
        return Query.boolean_query([*((Occur.Must, self._term(t)) for t in terms), *clauses])

    def _denying(self, terms: Sequence[str]) -> Query:
        return _any_of([self._term(term, _DENIED) for term in terms])

    def _term(self, term: str, field: str = "") -> Query:
        field = field or (_KINDS if is_tag(term) else _BODY)
        return Query.term_query(self._schema, field, term)

    def _search(self, query: Query, n: int) -> Ranked:
        n = max(1, min(n, self._searcher.num_docs))
        with _blaming(self._folder):
            hits = self._searcher.search(query, n, count=False).hits
            rows = self._searcher.fast_field_values(_ROW, [address for _, address in hits])
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
        raise IndexFolderError(f"cannot read {folder}: {error}") from error


def _any_of(queries: Iterable[Query]) -> Query:
    return Query.boolean_query([(Occur.Should, query) for query in queries])


def _index_files(folder: Path) -> list[Path]:
    return [path for path in folder.iterdir() if not path.name.endswith(".lock")]

"""Lexical search: a tantivy index of words."""

from __future__ import annotations

import math
import os
import re
import shutil
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from boolattn.errors import IndexFolderError, MissingDataError
from boolattn.evaluation.ranking import PADDING, Ranking
from boolattn.files import scratch_folder
from boolattn.scoring.exact import Ranked
from boolattn.settings import checked

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence, Set
    from pathlib import Path

    from boolattn.data.records import Document
    from boolattn.search.storage.segments import Mask, RowNumbers

    Analyzer = Any
    TantivyIndex = Any
    TantivySchema = Any

ANALYZER = "boolattn"
_BODY, _ROW = "body", "row"
_HEAP = 64_000_000
_WORD = re.compile(r"[^\W_]+")
#: Scripts written without spaces: each character becomes a word.
_UNSPACED = re.compile("([\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff])")


def tantivy_module() -> Any:  # noqa: ANN401 - a module
    """Import tantivy."""
    try:
        import tantivy
    except ImportError as error:
        raise MissingDataError(
            "lexical search and BM25 need tantivy; pip install tantivy"
        ) from error
    return tantivy


@cache
def _analyzer() -> Analyzer:
    tantivy = tantivy_module()
    builder = tantivy.TextAnalyzerBuilder(tantivy.Tokenizer.simple())
    own = tantivy.Filter
    for step in (own.remove_long(100), own.lowercase(), own.ascii_fold()):
        builder = builder.filter(step)
    return builder.filter(own.stopword("english")).filter(own.stemmer("english")).build()


def terms_of(text: str) -> list[str]:
    """Return the words of a text as they are indexed, each once.

    >>> terms_of("the Moths of Borneo, moths of 婆罗洲")
    ['moth', 'borneo', '婆', '罗', '洲']
    """
    return list(dict.fromkeys(_analyzer().analyze(_spaced(text))))


def matched_words(text: str, terms: Set[str], start: int, end: int) -> list[tuple[int, int]]:
    """Return the spans of the words between two places that are indexed as one of some terms.

    >>> matched_words("A moth, and the Moths of Java.", {"moth"}, 0, 30)
    [(2, 6), (16, 21)]
    """
    words = _WORD.finditer(text, start, end)
    return [word.span() for word in words if not terms.isdisjoint(terms_of(word[0]))]


def write_lexical(
    target: Path, documents: Iterable[tuple[int, Document]], base: Path | None = None
) -> None:
    """Write documents, each with its row, to a new folder.

    The files of a base, an index to add to, are shared: tantivy never changes a file.
    """
    tantivy = tantivy_module()
    target.mkdir()
    for path in _parts(base) if base is not None else ():
        try:
            os.link(path, target / path.name)
        except OSError:  # not every file system has links
            shutil.copyfile(path, target / path.name)
    try:
        index = tantivy.Index(_schema(ANALYZER), path=str(target))
        index.register_tokenizer(ANALYZER, _analyzer())
        _add(index, ((row, _spaced(f"{d.title}\n{d.text}")) for row, d in documents))
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


def _schema(tokenizer: str, index_option: str = "position") -> TantivySchema:
    schema = tantivy_module().SchemaBuilder()
    schema.add_unsigned_field(_ROW, fast=True)
    schema.add_text_field(_BODY, tokenizer_name=tokenizer, index_option=index_option)
    return schema.build()


def _add(index: TantivyIndex, texts: Iterable[tuple[int, str]]) -> None:
    """Add texts to an index, each with its row."""
    tantivy = tantivy_module()
    # One thread, so that documents are in the order of their rows.
    writer = index.writer(heap_size=_HEAP, num_threads=1)
    for row, text in texts:
        entry = tantivy.Document()
        entry.add_unsigned(_ROW, row)
        entry.add_text(_BODY, text)
        writer.add_document(entry)
    writer.commit()
    writer.wait_merging_threads()


class Bm25Ranker:
    """Ranks by BM25 over stemmed English words, as a baseline: operators are words like others.

    The documents' texts are indexed in memory on construction.
    """

    @checked
    def __init__(self, documents: Sequence[str]) -> None:
        self._index = tantivy_module().Index(_schema("en_stem", "freq"))
        _add(self._index, enumerate(documents))
        self._index.reload()
        self._searcher = self._index.searcher()

    def rank(self, texts: Sequence[str], depth: int) -> Ranking:
        """Rank the documents that have a word of the query; the others are not returned."""
        depth = min(depth, self._searcher.num_docs)
        rows = np.full((len(texts), depth), PADDING, dtype=np.int32)
        scores = np.full((len(texts), depth), -np.inf, dtype=np.float32)
        for place, text in enumerate(texts):
            # In lower case nothing is an operator of tantivy's query language.
            words = " ".join(re.findall(r"[^\W_]+", text.lower()))
            if not words or not depth:
                continue
            query = self._index.parse_query(words, [_BODY])
            hits = self._searcher.search(query, depth, count=False).hits
            found = _rows(self._searcher, hits)
            own = np.array([score for score, _ in hits], dtype=np.float32)
            order = np.lexsort((found, -own))
            rows[place, : len(hits)], scores[place, : len(hits)] = found[order], own[order]
        return Ranking(rows, scores)


class Lexical:
    """A lexical index opened for reading."""

    def __init__(self, folder: Path, *, is_copied: bool = False) -> None:
        tantivy = tantivy_module()
        # tantivy writes a lock beside what it opens, and the index may be read-only. The lock may
        # appear while the links are removed, which is no failure.
        with _blaming(folder), scratch_folder() as links:
            for path in _parts(folder):
                if is_copied:
                    shutil.copyfile(path, links / path.name)
                else:
                    (links / path.name).symlink_to(path.resolve())
            index = tantivy.Index.open(str(links))
            index.config_reader("manual")
            self._searcher = index.searcher()
        self._schema = index.schema
        self._tantivy, self._folder = tantivy, folder

    def search(
        self, terms: Iterable[str], n: int, allowed: Mask | None = None, *, delta: float = 0.0
    ) -> Ranked:
        """Return the ``n`` documents of highest BM25+ score, of those that have one of the terms.

        BM25+ adds to the BM25 score ``delta`` times the inverse document frequency of each term
        that the document has. The terms are those of :func:`terms_of`. Only allowed documents, if
        that is given.
        """
        make, any_of = self._tantivy.Query, self._tantivy.Occur.Should
        total = self._searcher.num_docs
        words = []
        for term in terms:
            query = make.term_query(self._schema, _BODY, term)
            words.append((any_of, query))
            if delta:
                n_with = self._searcher.doc_freq(_BODY, term)
                rarity = math.log1p((total - n_with + 0.5) / (n_with + 0.5))
                words.append((any_of, make.const_score_query(query, delta * rarity)))
        limit = min(n, total)
        if not words or not total:
            return Ranked(np.zeros(0, np.int64), np.zeros(0, np.float32))
        while True:
            with _blaming(self._folder):
                hits = self._searcher.search(make.boolean_query(words), limit, count=False).hits
                rows = _rows(self._searcher, hits)
            scores = np.array([score for score, _ in hits], np.float32)
            if allowed is not None:
                rows, scores = rows[allowed[rows]], scores[allowed[rows]]
            if len(rows) >= n or len(hits) < limit or limit >= total:
                return Ranked(rows[:n], scores[:n])
            limit = min(4 * limit, total)


@contextmanager
def _blaming(folder: Path) -> Iterator[None]:
    """Report that files cannot be read; tantivy panics over some, which is no Exception."""
    try:
        yield
    except BaseException as error:
        if (
            not isinstance(error, OSError | TypeError | ValueError)
            and type(error).__name__ != "PanicException"
        ):
            raise
        raise IndexFolderError(f"cannot read {folder}: {_plain(error)}") from error


def _rows(searcher: TantivyIndex, hits: Sequence[tuple[float, object]]) -> RowNumbers:
    """Return the rows of the documents that were found."""
    return np.array(searcher.fast_field_values(_ROW, [address for _, address in hits]), np.int64)


def _parts(folder: Path) -> list[Path]:
    return [path for path in folder.iterdir() if not path.name.endswith(".lock")]


def _spaced(text: str) -> str:
    return _UNSPACED.sub(r" \1 ", text)


def _plain(error: BaseException) -> str:
    return " ".join(str(error).split())

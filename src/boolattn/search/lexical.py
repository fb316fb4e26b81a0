"""The lexical half: a tantivy index of the words, asked with the query's own tree.

An operand holds where all its words stand, whatever their order; NOT excludes such documents. A
query that is not composed is an ordinary BM25 query, where any word counts.
May import: boolattn.logic, boolattn.errors.
"""

from __future__ import annotations

import os
import re
import shutil
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np

from boolattn.errors import IndexFolderError, MissingDataError
from boolattn.evaluation.ranking import PADDING, Ranking
from boolattn.logic.tree import And, Atom, Not, Or

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from boolattn.data.records import Document
    from boolattn.logic.tree import QueryTree

    # What tantivy builds and takes.
    Analyzer = Any
    TantivyQuery = Any
    TantivyIndex = Any

ANALYZER = "boolattn"
_BODY, _ROW = "body", "row"
_HEAP = 64_000_000
#: Scripts written without spaces: each sign becomes a word, and an operand wants them all.
_UNSPACED = re.compile("([\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff])")


def tantivy_module() -> Any:  # noqa: ANN401 - a module
    """Import tantivy, or say how to get it."""
    try:
        import tantivy
    except ImportError as error:
        raise MissingDataError(
            "lexical search and BM25 need tantivy; pip install 'boolattn[search]'"
        ) from error
    return tantivy


@cache
def _analyzer() -> Analyzer:
    tantivy = tantivy_module()
    builder = tantivy.TextAnalyzerBuilder(tantivy.Tokenizer.simple())
    filters = tantivy.Filter
    for step in (
        filters.remove_long(100),
        filters.lowercase(),
        filters.ascii_fold(),
        filters.stopword("english"),
        filters.stemmer("english"),
    ):
        builder = builder.filter(step)
    return builder.build()


def terms_of(text: str) -> list[str]:
    """Return the words of a text as they are looked up, each once.

    >>> terms_of("the Moths of Borneo, moths of 婆罗洲")
    ['moth', 'borneo', '婆', '罗', '洲']
    """
    return list(dict.fromkeys(_analyzer().analyze(_spaced(text))))


def write_lexical(
    target: Path, documents: Iterable[tuple[int, Document]], base: Path | None = None
) -> None:
    """Write a lexical index.

    Args:
        target: Its folder, not there yet.
        documents: What to add, each with its row.
        base: An index to add to. It is left as it is: tantivy replaces files and changes none,
            so the new folder shares the old one's.
    """
    tantivy = tantivy_module()
    target.mkdir()
    if base is not None:
        for path in _parts(base):
            _share(path, target / path.name)
    schema = tantivy.SchemaBuilder()
    schema.add_unsigned_field(_ROW, fast=True)
    schema.add_text_field(_BODY, tokenizer_name=ANALYZER)
    try:
        index = tantivy.Index(schema.build(), path=str(target))
        index.register_tokenizer(ANALYZER, _analyzer())
        _add(index, ((row, _spaced(f"{d.title}\n{d.text}")) for row, d in documents))
    except ValueError as error:
        # What tantivy calls a value error is the disk's: full, or not to be written.
        shutil.rmtree(target, ignore_errors=True)
        raise IndexFolderError(f"cannot write {target}: {_plain(error)}") from error
    for path in target.iterdir():
        if path.name.endswith(".lock"):
            path.unlink()
        elif path.stat().st_nlink == 1:
            # tantivy makes some files for their owner only; the rest of the index is as the
            # umask says.
            path.chmod(0o666 & ~_umask())


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

    Args:
        documents: Texts of the corpus, indexed in memory on construction.
    """

    def __init__(self, documents: Sequence[str]) -> None:
        tantivy = tantivy_module()
        schema = tantivy.SchemaBuilder()
        schema.add_unsigned_field(_ROW, fast=True)
        schema.add_text_field(_BODY, tokenizer_name="en_stem", index_option="freq")
        self._index = tantivy.Index(schema.build())
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

    def __init__(self, folder: Path) -> None:
        tantivy = tantivy_module()
        try:
            # tantivy writes a lock beside what it opens, and the index may be read-only.
            # Now and then its lock appears while the links are cleaned up, which is no failure.
            with TemporaryDirectory(prefix="boolattn-", ignore_cleanup_errors=True) as links:
                for path in _parts(folder):
                    (Path(links) / path.name).symlink_to(path.resolve())
                index = tantivy.Index.open(links)
                index.config_reader("manual")
                self._searcher = index.searcher()
        except (OSError, ValueError) as error:
            raise IndexFolderError(f"cannot open {folder}: {_plain(error)}") from error
        self._schema = index.schema
        self._tantivy = tantivy

    def search(
        self, tree: QueryTree, n: int, allowed: NDArray[np.bool_] | None = None
    ) -> NDArray[np.int64]:
        """Return the rows of the best documents, best first, at most ``n``.

        Args:
            tree: One operand is a plain query, any word of which counts.
            n: How many.
            allowed: Which rows may be found.
        """
        query = self._any_word(tree) if isinstance(tree, Atom) else self._query(tree)
        total = self._searcher.num_docs
        if query is None or not total:
            return np.zeros(0, np.int64)
        limit = min(n, total)
        while True:
            hits = self._searcher.search(query, limit, count=False).hits
            rows = _rows(self._searcher, hits)
            kept = rows if allowed is None else rows[allowed[rows]]
            if len(kept) >= n or len(hits) < limit or limit >= total:
                return kept[:n]
            limit = min(4 * limit, total)

    def _any_word(self, atom: Atom) -> TantivyQuery:
        terms = [(self._tantivy.Occur.Should, self._term(word)) for word in terms_of(atom.text)]
        return self._tantivy.Query.boolean_query(terms) if terms else None

    def _query(self, tree: QueryTree) -> TantivyQuery:
        """Build tantivy's query; ``None`` where a part has no word to look up."""
        occur, make = self._tantivy.Occur, self._tantivy.Query
        match tree:
            case Atom(text):
                parts = [(occur.Must, self._term(word)) for word in terms_of(text)]
            case Or(parts=branches):
                parts = [(occur.Should, q) for q in map(self._query, branches) if q is not None]
            case Not(part):
                excluded = self._query(part)
                parts = [] if excluded is None else [(occur.MustNot, excluded)]
            case And(parts=all_of):
                found = [
                    (occur.MustNot, self._query(part.part))
                    if isinstance(part, Not)
                    else (occur.Must, self._query(part))
                    for part in all_of
                ]
                parts = [(sign, query) for sign, query in found if query is not None]
        if not parts:
            return None
        if all(sign == occur.MustNot for sign, _ in parts):
            parts.append((occur.Must, make.const_score_query(make.all_query(), 0.0)))
        return make.boolean_query(parts)

    def _term(self, word: str) -> TantivyQuery:
        return self._tantivy.Query.term_query(self._schema, _BODY, word)


def _rows(searcher: TantivyIndex, hits: Sequence[tuple[float, object]]) -> NDArray[np.int64]:
    """Return the rows of the documents that were found."""
    return np.array(searcher.fast_field_values(_ROW, [address for _, address in hits]), np.int64)


def _share(path: Path, target: Path) -> None:
    try:
        os.link(path, target)
    except OSError:
        # Not every file system has links.
        shutil.copyfile(path, target)


def _parts(folder: Path) -> list[Path]:
    return [path for path in folder.iterdir() if not path.name.endswith(".lock")]


def _spaced(text: str) -> str:
    return _UNSPACED.sub(r" \1 ", text)


def _plain(error: Exception) -> str:
    return " ".join(str(error).split())


def _umask() -> int:
    current = os.umask(0o022)
    os.umask(current)
    return current

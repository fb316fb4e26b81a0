"""The searcher: an index, its model, and the way from a query to results.

May import: boolattn.search, boolattn.composition, boolattn.data, boolattn.settings,
boolattn.errors.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from boolattn.embedding.models import load_model
from boolattn.encoder.retriever import Retriever
from boolattn.errors import ConfigError, DataError, IndexFolderError, QueryError
from boolattn.search.answering import Answering, SearchOptions
from boolattn.search.engines.base import Flat, Selection
from boolattn.search.engines.registry import find_engine
from boolattn.search.filters import allowed_rows, read_filters
from boolattn.search.index.manifest import check_files, read_manifest
from boolattn.search.index.opening import check_model, live_rows, open_rows
from boolattn.search.index.settings import IndexSettings
from boolattn.search.index.writer import Writer
from boolattn.search.lexical import Lexical
from boolattn.settings import build

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from sentence_transformers import SentenceTransformer

    from boolattn.data.records import Document
    from boolattn.search.engines.base import Engine
    from boolattn.search.index.manifest import Manifest
    from boolattn.search.index.settings import Encode
    from boolattn.search.result import SearchResult


class Searcher:
    """An open index. Many processes may have the same one open; one may change it."""

    def __init__(self, folder: Path, manifest: Manifest, retriever: Retriever) -> None:
        check_model(folder, manifest, retriever)
        self.folder, self.retriever = folder, retriever
        self._open(manifest)

    def _open(self, manifest: Manifest) -> None:
        # Everything is opened before anything is taken up: what fails leaves the old index open.
        rows = open_rows(self.folder, manifest)
        try:
            live = live_rows(self.folder, manifest)
        except (OSError, ValueError) as error:
            raise IndexFolderError(f"{self.folder} cannot be read: {error}") from error
        engine = find_engine(manifest.engine).open(self.folder, manifest, rows)
        lexical = Lexical(self.folder / manifest.lexical) if manifest.lexical else None
        self.rows, self._live, self.flat = rows, live, Flat(rows)
        self.engine: Engine = engine
        self.lexical, self.manifest = lexical, manifest

    @classmethod
    def open(
        cls,
        folder: str | Path,
        retriever: Retriever | SentenceTransformer | None = None,
        *,
        verify: bool = False,
    ) -> Searcher:
        """Open an index for reading.

        Args:
            folder: Of the index.
            retriever: The model that made it; left out, the one that the index names.
            verify: Whether every byte is compared with its hash, also of a large index.
        """
        folder = Path(folder)
        for attempt in (1, 2):
            manifest = read_manifest(folder)
            try:
                check_files(folder, manifest, verify=verify)
                if retriever is None:
                    retriever = _named(folder, manifest)
                return cls(folder, manifest, _retriever(retriever))
            except IndexFolderError:
                # A writer may have replaced the index and cleaned up since the manifest was read.
                if attempt == 2 or read_manifest(folder) == manifest:
                    raise
        raise IndexFolderError(f"{folder} changes too fast to be opened")

    @classmethod
    def build(
        cls,
        folder: str | Path,
        documents: Iterable[Document],
        retriever: Retriever | SentenceTransformer,
        *,
        encode: Encode | None = None,
        tell: Callable[[int], None] = lambda _: None,
        **settings: Any,
    ) -> Searcher:
        """Index documents.

        Args:
            folder: Where to; the index appears when it is whole.
            documents: Each with its own id.
            retriever: The model.
            encode: Encodes lists of texts, on a cluster say; left out, the model does, here.
            tell: Called with the number of documents done, now and then.
            **settings: Values of :class:`IndexSettings`.
        """
        own = build(IndexSettings, settings, source="Searcher.build")
        model = _retriever(retriever)
        manifest = Writer(Path(folder), model, own, encode, tell).build(documents)
        return cls(Path(folder), manifest, model)

    def __len__(self) -> int:
        """Return the number of documents that can be found."""
        return self.manifest.n_documents

    @property
    def has_lexical(self) -> bool:
        """Whether hybrid search can be asked for."""
        return self.lexical is not None

    def add(
        self,
        documents: Iterable[Document],
        *,
        replace_old: bool = False,
        encode: Encode | None = None,
        tell: Callable[[int], None] = lambda _: None,
    ) -> None:
        """Add documents; one whose id is there is refused, or takes its place.

        Args:
            documents: To add.
            replace_old: Whether a document whose id is there takes its place.
            encode: As in :meth:`build`.
            tell: As in :meth:`build`.
        """
        writer = Writer(self.folder, self.retriever, IndexSettings(), encode, tell)
        self._open(writer.add(documents, replace_old=replace_old))

    def delete(self, ids: Iterable[str]) -> None:
        """Remove documents by id."""
        self._open(Writer(self.folder, self.retriever).delete(ids))

    def refresh(self) -> bool:
        """Take up what another process changed; say whether something was."""
        manifest = read_manifest(self.folder)
        if manifest == self.manifest:
            return False
        check_files(self.folder, manifest)
        check_model(self.folder, manifest, self.retriever)
        self._open(manifest)
        return True

    def document(self, name: str) -> Document:
        """Return a document by its id."""
        for row in self.rows.find([name]).get(name, []):
            if self._live is None or self._live[row]:
                return self.rows.document(row)
        raise DataError(f"no document {name!r} in {self.folder}")

    def search(self, query: str, k: int = 10, **options: Any) -> SearchResult:
        """Search one query.

        Args:
            query: Plain language or explicit syntax.
            k: How many results.
            **options: Values of :class:`SearchOptions`.
        """
        return self.search_many([query], k, **options)[0]

    def search_many(
        self, queries: Sequence[str], k: int = 10, **options: Any
    ) -> list[SearchResult]:
        """Search several queries, encoded and compared in one batch; see :meth:`search`."""
        asked = build(SearchOptions, options, source="search")
        if k < 1:
            raise QueryError(f"k must be at least 1, got {k}")
        if asked.hybrid and self.lexical is None:
            raise ConfigError(
                f"{self.folder} has no lexical index; index again without --no-lexical"
            )
        if self.engine.limit is not None and k > self.engine.limit:
            raise QueryError(
                f"{self.manifest.engine} gives at most {self.engine.limit} results, and {k} were "
                "asked for"
            )
        if not queries:
            return []
        return Answering(self, asked, min(k, max(1, len(self)))).run(queries)

    def selection(self, filters: Mapping[str, Any] | None) -> Selection:
        """Return which rows may be found under some filters."""
        conditions = read_filters(filters)
        return Selection(allowed_rows(conditions, self.rows, self._live), conditions)


def _retriever(model: Retriever | SentenceTransformer) -> Retriever:
    found = model if isinstance(model, Retriever) else Retriever(model)
    if found.similarity not in ("cosine", "dot"):
        raise ConfigError(
            f"vectors are compared by cosine or dot product, and this model asks for "
            f"{found.similarity!r}"
        )
    return found


def _named(folder: Path, manifest: Manifest) -> Retriever:
    if not manifest.model:
        raise ConfigError(f"{folder} does not say which model made it; name it with --model")
    return load_model(manifest.model)

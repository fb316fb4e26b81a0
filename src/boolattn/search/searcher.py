"""The searcher: an index and its model."""

from __future__ import annotations

import logging
import weakref
from collections.abc import Iterable, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from numbers import Integral
from pathlib import Path
from typing import TYPE_CHECKING, Any

from boolattn.data.records import Document
from boolattn.encoders.models import SHIPPED, as_retriever, load_model
from boolattn.errors import (
    BoolattnError,
    ConfigError,
    DataError,
    IndexFolderError,
)
from boolattn.files import scratch_folder
from boolattn.search.index.open_index import OpenIndex
from boolattn.search.index.writer import IndexSettings, Writer, delete_documents
from boolattn.search.pipeline import Pipeline, read_options
from boolattn.search.queries import check_queries
from boolattn.search.storage.manifest import check_files, check_model, read_manifest
from boolattn.settings import build, checked

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from sentence_transformers import SentenceTransformer

    from boolattn.encoders.base import BaseRetriever
    from boolattn.search.engines.base import Engine
    from boolattn.search.index.overview import Example, Facet
    from boolattn.search.index.writer import Encode
    from boolattn.search.result import SearchResult
    from boolattn.search.storage.manifest import Manifest


logger = logging.getLogger(__name__)


class Searcher:
    """An open index. Many processes may read an index while one writes to it."""

    def __init__(self, folder: Path, manifest: Manifest, retriever: BaseRetriever) -> None:
        check_model(folder, manifest, retriever)
        own, now = (parts.get("parser") for parts in (manifest.parts, retriever.parts))
        if own and now and own != now:
            logger.warning("%s was indexed with another query parser; results may differ", folder)
        self.folder, self.retriever = folder, retriever
        self._index = OpenIndex.open(folder, manifest)

    @classmethod
    @checked
    def open(
        cls,
        folder: str | Path,
        retriever: BaseRetriever | SentenceTransformer | None = None,
        *,
        verify: bool = False,
    ) -> Searcher:
        """Open an index for reading.

        Args:
            folder: Of the index.
            retriever: The model that built it; left out, the one that the index names.
            verify: Whether every byte is compared with its hash, also of a large index.
        """
        folder = Path(folder)
        for attempt in (1, 2):
            manifest = read_manifest(folder)
            try:
                check_files(folder, manifest, verify=verify)
                if retriever is None and not manifest.model:
                    raise ConfigError(
                        f"{folder} does not say which model built it; name it with --model"
                    )
                retriever = load_model(manifest.model) if retriever is None else retriever
                return cls(folder, manifest, as_retriever(retriever, None))
            except IndexFolderError:
                # A writer may have replaced the index and cleaned up since the manifest was read.
                if attempt == 2 or read_manifest(folder) == manifest:
                    raise
        raise IndexFolderError(f"{folder} changes too fast to be opened")

    @classmethod
    @checked
    def build(
        cls,
        folder: str | Path,
        documents: Iterable[Document],
        retriever: BaseRetriever | SentenceTransformer,
        *,
        encode: Encode | None = None,
        progress: Callable[[int], None] = lambda _: None,
        **settings: Any,
    ) -> Searcher:
        """Index documents.

        Args:
            folder: Of the index, which appears when it is complete.
            documents: Each with its own id.
            retriever: The model.
            encode: Encodes lists of texts, on a cluster for example; left out, the model does.
            progress: Called with the number of documents just encoded.
            **settings: Values of :class:`IndexSettings`.
        """
        own = build(IndexSettings, settings, source="Searcher.build")
        model = as_retriever(retriever, None)
        manifest = Writer(Path(folder), model, own, encode, progress).build(documents)
        return cls(Path(folder), manifest, model)

    @classmethod
    def from_texts(
        cls,
        documents: Iterable[str | Mapping[str, Any] | Document],
        model: Any = SHIPPED,  # noqa: ANN401 - see as_retriever
        **settings: Any,
    ) -> Searcher:
        """Search texts without naming a folder: theirs is temporary, and goes with the searcher.

        Args:
            documents: Texts, whose ids are their places; or documents; or mappings with ``text``
                and, if there are any, ``id``, ``title`` and metadata.
            model: What encodes them: see :func:`~boolattn.encoders.models.as_retriever`.
            **settings: Values of :class:`IndexSettings`.
        """
        if isinstance(documents, str | bytes | Mapping) or not isinstance(documents, Iterable):
            raise DataError(f"documents are a list of texts, not {type(documents).__name__}")
        with ExitStack() as stack:
            folder = stack.enter_context(scratch_folder())
            own = (_document(place, given) for place, given in enumerate(documents))
            found = cls.build(folder, own, as_retriever(model), **settings)
            weakref.finalize(found, stack.pop_all().close)
        return found

    def __len__(self) -> int:
        """Return the number of documents, without the deleted ones."""
        return self.manifest.n_documents

    @property
    def manifest(self) -> Manifest:
        """The manifest of the open index."""
        return self._index.manifest

    @property
    def engine(self) -> Engine:
        """What finds the nearest vectors."""
        return self._index.engine

    @property
    def fields(self) -> list[str]:
        """Names of the metadata."""
        return self._index.rows.names()

    @property
    def facets(self) -> tuple[Facet, ...]:
        """Fields of the metadata with few values, and their documents; counted once."""
        with self._reading():
            return self._index.facets

    @property
    def examples(self) -> tuple[Example, ...]:
        """Queries that fit the documents; found once."""
        with self._reading():
            return self._index.examples

    @property
    def has_lexical(self) -> bool:
        """Whether hybrid search is possible."""
        return self._index.lexical is not None

    @checked
    def add(
        self,
        documents: Iterable[Document],
        *,
        replace_old: bool = False,
        encode: Encode | None = None,
        progress: Callable[[int], None] = lambda _: None,
    ) -> None:
        """Add documents; other arguments as in :meth:`build`.

        With ``replace_old`` a document replaces one with the same id, which is else an error.
        """
        writer = Writer(self.folder, self.retriever, IndexSettings(), encode, progress)
        self._index = OpenIndex.open(self.folder, writer.add(documents, replace_old=replace_old))

    def delete(self, ids: Iterable[str]) -> None:
        """Remove documents by id."""
        self._index = OpenIndex.open(self.folder, delete_documents(self.folder, ids))

    def refresh(self) -> bool:
        """Open the index again if another process changed it; return whether it did."""
        manifest = read_manifest(self.folder)
        if manifest == self.manifest:
            return False
        check_files(self.folder, manifest)
        check_model(self.folder, manifest, self.retriever)
        self._index = OpenIndex.open(self.folder, manifest)
        return True

    def _check_changes(self) -> None:
        """Raise if a mapped file was altered; open the index again if it only looks so."""
        if changed := self._index.changed_files(self.folder):
            check_files(self.folder, self.manifest, names=changed, verify=True)
            self._index = OpenIndex.open(self.folder, self.manifest)

    @contextmanager
    def _reading(self) -> Iterator[None]:
        """Answer nothing from files that were altered before or meanwhile, and blame them."""
        self._check_changes()
        try:
            yield
        except BoolattnError:
            raise
        except Exception:
            # The largest files of a large index were never hashed.
            check_files(self.folder, self.manifest, verify=True)
            raise
        finally:
            self._check_changes()

    def document(self, name: str) -> Document:
        """Return a document by its id."""
        with self._reading():
            row = self._index.rows.find([name]).get(name) if isinstance(name, str) else None
            if row is None:
                raise DataError(f"no document {name!r} in {self.folder}")
            return self._index.rows.document(row)

    def search(self, query: str = "", k: int = 10, **options: Any) -> SearchResult:
        """Search one query for ``k`` results; options are those of ``SearchOptions``.

        With ``positive`` operands among them the query may be left out.
        """
        return self.search_many([query], k, **options)[0]

    def search_many(
        self, queries: Sequence[str], k: int = 10, **options: Any
    ) -> list[SearchResult]:
        """Search several queries, encoded and compared in one batch; see :meth:`search`."""
        check_queries(queries)
        how = read_options(options, k, self.engine.limit, self.manifest.engine)
        if how.hybrid is None:
            how = replace(how, hybrid=self.has_lexical and how.compose)
        elif how.hybrid and not self.has_lexical:
            raise ConfigError(
                f"{self.folder} has no lexical index; index again without --no-lexical"
            )
        if not queries:
            return []
        k = min(k + how.offset, max(1, len(self)))
        with self._reading():
            return Pipeline(self._index, self.retriever, how, k).run(list(queries))


def _document(place: int, given: str | Mapping[str, Any] | Document) -> Document:
    if isinstance(given, Document):
        return given
    values = dict(given) if isinstance(given, Mapping) else {"text": given}
    if not isinstance(values.get("text"), str):
        raise DataError(f"document {place} has no text; give texts, or mappings with 'text'")
    name: Any
    name, title, text = values.pop("id", place), values.pop("title", ""), values.pop("text")
    name = str(name) if isinstance(name, Integral) else name
    return Document(id=name, text=text, title="" if title is None else title, metadata=values)

"""The searcher: a store, its encoder and a query parser."""

from __future__ import annotations

import shutil
import weakref
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from contextvars import copy_context
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from boolattn.encoders.callables import CallableEncoder
from boolattn.encoders.models import SHIPPED, absolute_name, as_encoder, load_model
from boolattn.encoders.onnx_encoder import OnnxEncoder
from boolattn.errors import ConfigError, DataError, QueryError
from boolattn.files import atomic_folder, scratch_folder
from boolattn.kinds.lexicon import Kinds
from boolattn.query.parser import SHIPPED as SHIPPED_PARSER
from boolattn.query.parser import Parser, default_threads, load_parser
from boolattn.search.inputs import (
    DocumentLike,
    IndexSettings,
    SearchOptions,
    as_documents,
    read_options,
)
from boolattn.search.overview import Example, Facet, find_examples, find_facets
from boolattn.search.pipeline import search_store
from boolattn.search.result import SearchResult, as_reranker, rerank
from boolattn.settings import build, checked
from boolattn.stores.address import create_store, open_store
from boolattn.stores.base import Store
from boolattn.stores.filters import Filter
from boolattn.stores.foreign import ForeignStore
from boolattn.stores.local.store import LocalStore
from boolattn.stores.settings import StoreSettings, check_model
from boolattn.stores.writer import Encode, Writer, encode_from

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from boolattn.data.records import Document
    from boolattn.stores.base import Reader

T = TypeVar("T")


class Searcher:
    """Searches a store with an encoder and a query parser.

    Args:
        store: An open store, or an external collection.
        encoder: Of the store's vectors: an encoder, a model's name or folder, the address of an
            embedding endpoint, a sentence-transformers model, or any function from texts to
            vectors.
        parser: Of plain text: a parser, the name of one, or ``None`` for explicit syntax only.
        reranker: Sorts the first results anew: a sentence-transformers ``CrossEncoder``, or any
            function from pairs of a positive operand and a text to scores.

    >>> texts = ["A moth found in Borneo.", "A moth found in Borneo and Sumatra."]
    >>> searcher = Searcher.from_texts(texts)
    >>> [hit.text for hit in searcher.search("moths of Borneo but not Sumatra")]
    ['A moth found in Borneo.']
    >>> searcher.add([{"id": "ant", "text": "An ant."}])
    >>> searcher.update([{"id": "ant", "text": "An ant of Java.", "year": 1898}])
    >>> searcher.delete(["1"])
    >>> [result[0].id for result in searcher.search_many(["moths", "ants before 1900"], 1)]
    ['0', 'ant']
    >>> searcher.document("ant").text, searcher.fields, len(searcher), searcher.refresh()
    ('An ant of Java.', ['year'], 2, False)
    """

    @checked
    def __init__(
        self,
        store: Any,  # noqa: ANN401 - a Store or a Collection
        encoder: Any,  # noqa: ANN401 - see as_encoder
        parser: Parser | str | None = SHIPPED_PARSER,
        *,
        reranker: Any = None,  # noqa: ANN401 - see as_reranker
    ) -> None:
        self.store: Store = store if isinstance(store, Store) else ForeignStore(store)
        self.encoder = as_encoder(encoder)
        self.parser = load_parser(parser) if isinstance(parser, str) else parser
        self.reranker = as_reranker(reranker)
        self._check_model()
        if (self.settings.similarity, self.encoder.similarity) == ("cosine", "dot"):
            # An external collection, which is compared by cosine.
            queries, operands = self.encoder.encode_queries, self.encoder.encode_operands
            self.encoder = CallableEncoder(queries, embed_operands=operands)
        self._n_changes, self._overviews = 0, dict[Any, tuple[Any, Any]]()

    @classmethod
    @checked
    def open(
        cls,
        address: str | Path,
        encoder: Any = None,  # noqa: ANN401 - see as_encoder
        *,
        parser: Parser | str | None = SHIPPED_PARSER,
        verify: bool = False,
        reranker: Any = None,  # noqa: ANN401 - see as_reranker
    ) -> Searcher:
        """Open the store at an address: a folder, or one on a server.

        The encoder is the model that made it; left out, the one that the store names. With
        ``verify`` every byte is compared with its hash, also of a large local store.
        """
        store = open_store(address, verify=verify)
        if encoder is None:
            if not store.settings.model:
                raise ConfigError(
                    f"{store.label} does not say which model built it; name it with --model"
                )
            encoder = load_model(store.settings.model)
        return cls(store, encoder, parser, reranker=reranker)

    @classmethod
    @checked
    def build(
        cls,
        address: str | Path,
        documents: Iterable[DocumentLike],
        encoder: Any = SHIPPED,  # noqa: ANN401 - see as_encoder
        *,
        parser: Parser | str | None = SHIPPED_PARSER,
        encode: Any = None,  # noqa: ANN401 - see below
        progress: Callable[[int], None] = lambda _: None,
        **settings: Any,
    ) -> Searcher:
        """Index documents at an address, where the store appears when it is complete.

        Documents are texts, whose ids are their positions; or documents; or mappings with ``text``
        and, if there are any, ``id``, ``title`` and metadata. The store remembers the model's name.
        ``encode`` encodes lists of texts in the model's place, on a cluster for example; or it is
        an array of the documents' vectors, in their order, where these are known.
        ``progress`` is called with the number of documents just encoded. ``settings`` are values
        of :class:`IndexSettings`.
        """
        is_name = isinstance(encoder, str | Path) and "://" not in str(encoder)
        named = {"model": absolute_name(str(encoder))} if is_name else {}
        chosen = build(IndexSettings, named | settings, source="Searcher.build")
        model, kinds = as_encoder(encoder), Kinds(chosen.kinds)
        passages = model.max_tokens if chosen.passages is None else chosen.passages
        if is_known := encode is not None and not callable(encode):
            if chosen.resume or chosen.passages:
                raise ConfigError("known vectors are of whole documents, and cannot be resumed")
            encode, passages = encode_from(encode), 0
        of_model = ("fingerprint", "dimension", "similarity", "digests")
        store_settings = StoreSettings(
            **{name: getattr(model, name) for name in of_model},
            **{name: getattr(chosen, name) for name in ("model", "words", "vectors", "precision")},
            passages=passages,
            kinds=kinds.members,
            lexicon=kinds.digest,
        )
        writer = Writer(
            encoder=model,
            passages=passages,
            batch_size=chosen.batch_size,
            encode=encode,
            progress=progress,
            reuses=not is_known,
        )
        with create_store(
            address, store_settings, replace=chosen.replace, resume=chosen.resume
        ) as draft:
            writer.write(draft, as_documents(documents), size=chosen.segment_size)
        return cls(open_store(address), model, parser)

    @classmethod
    def from_texts(
        cls,
        documents: Iterable[DocumentLike],
        encoder: Any = SHIPPED,  # noqa: ANN401 - see as_encoder
        **settings: Any,
    ) -> Searcher:
        """Search texts in a temporary folder, which goes with the searcher; as :meth:`build`."""
        with ExitStack() as stack:
            folder = stack.enter_context(scratch_folder())
            searcher = cls.build(folder, documents, encoder, **settings)
            weakref.finalize(searcher, stack.pop_all().close)
        return searcher

    def __len__(self) -> int:
        """Return the number of documents; 0 for an external collection."""
        return self.store.n_documents

    @property
    def settings(self) -> StoreSettings:
        """How the store was made."""
        return self.store.settings

    @property
    def fields(self) -> list[str]:
        """Names of the metadata."""
        with self.store.reading() as reader:
            return sorted(reader.fields())

    @property
    def facets(self) -> tuple[Facet, ...]:
        """Fields of the metadata with few values, and their documents."""
        return self._overview(find_facets)

    @property
    def examples(self) -> tuple[Example, ...]:
        """Queries that fit the documents."""
        return self._overview(find_examples)

    def _overview(self, find: Callable[[Reader], T]) -> T:
        """Find something once for each state of the store."""
        with self.store.reading() as reader:
            # The reader of a server is always the same; that of an old state may hold much memory.
            state = (weakref.ref(reader), reader.count(Filter()), self._n_changes)
            if self._overviews.get(find, (None,))[0] != state:
                self._overviews[find] = state, find(reader)
            overview: T = self._overviews[find][1]
            return overview

    def _check_model(self) -> None:
        """Refuse another model than the store's, if that is known."""
        if self.settings.fingerprint:
            model = self.encoder
            check_model(self.store.label, self.settings, model.fingerprint, model.digests)

    @checked
    def add(
        self,
        documents: Iterable[DocumentLike],
        *,
        replace_old: bool = False,
        encode: Encode | None = None,
        progress: Callable[[int], None] = lambda _: None,
    ) -> None:
        """Add documents, all or none; other arguments as in :meth:`build`.

        With ``replace_old`` a document replaces one with the same id, which is else an error.
        """
        self._check_model()
        writer = Writer(
            encoder=self.encoder, passages=self.settings.passages, encode=encode, progress=progress
        )
        with self.store.adding() as draft:
            records = as_documents(documents, lambda name: bool(draft.known([name])))
            writer.write(draft, records, replace_old=replace_old)
        self._n_changes += 1

    def update(self, documents: Iterable[DocumentLike], **options: Any) -> None:
        """Add documents as :meth:`add` does; one with an id that is there replaces it."""
        self.add(documents, replace_old=True, **options)

    @checked
    def save(self, folder: str | Path) -> None:
        """Copy a local store, also a temporary one, to a new folder that can be opened.

        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     Searcher.build(f"{folder}/first", ["moths", "ants"]).save(f"{folder}/second")
        ...     len(Searcher.open(f"{folder}/second"))
        2
        """
        if not isinstance(self.store, LocalStore):
            raise ConfigError(f"{self.store.label} is no folder; index its documents into one")
        with atomic_folder(Path(folder), finish=open_store) as draft:
            shutil.copytree(self.store.folder, draft, dirs_exist_ok=True)

    def delete(self, ids: Iterable[str]) -> None:
        """Remove documents by id; with an unknown id nothing is removed."""
        self.store.delete(ids)
        self._n_changes += 1

    def refresh(self) -> bool:
        """Read what another process changed; return whether anything did."""
        if is_changed := self.store.refresh():
            self._check_model()
        return is_changed

    def document(self, name: str) -> Document:
        """Return a document by its id."""
        with self.store.reading() as reader:
            key = reader.find([name]).get(name) if isinstance(name, str) else None
            [document] = reader.documents(np.array([key])) if key is not None else [None]
        if document is None:
            raise DataError(f"no document {name!r} in {self.store.label}")
        return document

    def search(self, query: str = "", k: int = 10, **options: Any) -> SearchResult:
        """Search one query for ``k`` results; options are those of ``SearchOptions``.

        With ``positive`` operands among them the query may be left out.
        """
        return self.search_many([query], k, **options)[0]

    def search_many(
        self, queries: Sequence[str], k: int = 10, **options: Any
    ) -> list[SearchResult]:
        """Search several queries together, in their order; see :meth:`search`."""
        if isinstance(queries, Iterable) and not isinstance(queries, str):
            queries = [*queries]
        chosen = read_options(queries, options, k)
        if not queries:
            return []
        with self.store.reading() as reader:
            if chosen.hybrid is None:
                chosen = replace(chosen, hybrid=reader.has_words and chosen.compose)
            elif chosen.hybrid and not reader.has_words:
                raise reader.no_words()
            n, offset = k + chosen.offset, chosen.offset
            if reader.limit is not None and n > reader.limit:
                most = f"{reader.label} gives at most {reader.limit} results"
                raise QueryError(f"{most}, and {n} were asked for")
            reranker = self.reranker if chosen.rerank else None
            if reranker is not None:
                chosen = replace(chosen, offset=0)
                n = max(n, min(chosen.rerank, reader.limit or chosen.rerank))
            if reader.counts:
                n = min(n, max(1, reader.count(Filter())))
            results = self._search_at_once(queries, reader, chosen, n)
        if reranker is not None:
            return [rerank(r, reranker, k, offset, chosen.rerank) for r in results]
        return results

    def _search_at_once(
        self, queries: Sequence[str], reader: Reader, options: SearchOptions, n: int
    ) -> list[SearchResult]:
        """Search parts of the queries in threads, where store and encoder can be shared."""
        can_share = isinstance(self.store, LocalStore) and isinstance(self.encoder, OnnxEncoder)
        n_threads = min(default_threads(), len(queries)) if can_share else 1
        common: tuple[Any, ...] = (reader, self.encoder, self.parser, options, n)
        if n_threads == 1:
            return search_store(queries, *common)
        batches = (queries[start::n_threads] for start in range(n_threads))
        with ThreadPoolExecutor(n_threads) as pool:
            jobs = [pool.submit(copy_context().run, search_store, b, *common) for b in batches]
        answers = [iter(job.result()) for job in jobs]
        return [next(answers[number % n_threads]) for number in range(len(queries))]

"""The searcher: an index, its model, and the way from a query to results.

May import: boolattn.search, boolattn.composition, boolattn.data, boolattn.settings,
boolattn.errors.
"""

from __future__ import annotations

import time
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from boolattn.composition.retriever import Retriever
from boolattn.errors import ConfigError, DataError, IndexFolderError, QueryError
from boolattn.logic.syntax import unparse
from boolattn.search.engines import Flat, Selection
from boolattn.search.exclusion import is_kept_by_words, keeps_by_vectors
from boolattn.search.filters import allowed_rows, read_filters
from boolattn.search.lexical import Lexical
from boolattn.search.manifest import check_files, read_manifest
from boolattn.search.models import load_model
from boolattn.search.ranking import Ranked, fuse, probes, rank, rank_exhaustively
from boolattn.search.reading import read_queries
from boolattn.search.result import Hit, SearchResult, judge
from boolattn.search.writing import (
    IndexSettings,
    Writer,
    check_model,
    live_rows,
    open_rows,
    unit,
)
from boolattn.settings import build

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray
    from sentence_transformers import SentenceTransformer

    from boolattn.composition.retriever import Plan
    from boolattn.data.records import Document
    from boolattn.search.engines import Engine
    from boolattn.search.manifest import Manifest
    from boolattn.search.reading import Question
    from boolattn.search.writing import Encode

#: Results of a branch that are joined in hybrid search, at least.
_BRANCH = 100


@dataclass(frozen=True, kw_only=True)
class SearchOptions:
    """How to search.

    Attributes:
        mode: ``plain`` language, ``explicit`` syntax, or ``auto``.
        filters: Conditions on metadata; see ``boolattn.search.filters``.
        hybrid: Whether the words count beside the vectors.
        compose: Whether operands are scored apart; if not, by the query's one vector.
        strict_not: Whether a document that holds the distinguishing words of an excluded operand
            is left out, whatever its vector says.
        exhaustive: Whether every document is composed, instead of candidates.
        explain: Whether to show what composing put down.
    """

    mode: str = "auto"
    filters: Mapping[str, Any] | None = None
    hybrid: bool = False
    compose: bool = True
    strict_not: bool = False
    exhaustive: bool = False
    explain: bool = False


class Searcher:
    """An open index. Many processes may have the same one open; one may change it."""

    def __init__(self, folder: Path, manifest: Manifest, retriever: Retriever) -> None:
        check_model(folder, manifest, retriever)
        self.folder, self.retriever = folder, retriever
        self._open(manifest)

    def _open(self, manifest: Manifest) -> None:
        self.manifest = manifest
        self.rows = open_rows(self.folder, manifest)
        self._live = live_rows(self.folder, manifest)
        self.flat = Flat(self.rows)
        self.engine: Engine = self.flat
        lexical = manifest.lexical
        self.lexical = Lexical(self.folder / lexical) if lexical else None

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
        if not queries:
            return []
        return _Search(self, asked, min(k, max(1, len(self)))).run(queries)

    def selection(self, filters: Mapping[str, Any] | None) -> Selection:
        """Return which rows may be found under some filters."""
        conditions = read_filters(filters)
        return Selection(allowed_rows(conditions, self.rows, self._live), conditions)


@dataclass
class _Search:
    """One call of ``search_many``, step by step."""

    searcher: Searcher
    options: SearchOptions
    k: int

    def __post_init__(self) -> None:
        self.took: dict[str, float] = {}

    def run(self, queries: Sequence[str]) -> list[SearchResult]:
        start = time.perf_counter()
        with self._timed("read"):
            questions = [
                self._unit(question)
                for question in read_queries(
                    self.searcher.retriever,
                    queries,
                    self.options.mode,
                    compose=self.options.compose,
                )
            ]
        with self._timed("filter"):
            self.selection = self.searcher.selection(self.options.filters)
        with self._timed("vectors"):
            ranked = self._rank(questions)
        results = [
            self._result(question, own) for question, own in zip(questions, ranked, strict=True)
        ]
        took = {name: round(value, 3) for name, value in self.took.items()}
        took["total"] = round(1000 * (time.perf_counter() - start), 3)
        return [replace(result, took=took) for result in results]

    def _unit(self, question: Question) -> Question:
        """Make a query's vectors as long as the documents'."""
        plan = question.plan
        if self.searcher.manifest.similarity != "cosine":
            return question
        plain = None if plan.plain is None else unit(plan.plain[None])[0]
        return replace(question, plan=replace(plan, vectors=unit(plan.vectors), plain=plain))

    @property
    def depth(self) -> int:
        """Results that are needed of the vectors before others are dropped or joined."""
        depth = max(2 * self.k, _BRANCH) if self.options.hybrid else self.k
        return 2 * depth + _BRANCH if self.options.strict_not else depth

    def _rank(self, questions: Sequence[Question]) -> list[Ranked]:
        searcher = self.searcher
        nothing = Ranked(np.zeros(0, np.int64), np.zeros(0, np.float32))
        if not len(searcher):
            return [nothing] * len(questions)
        plans = [question.plan for question in questions if not question.is_empty]
        if self.options.exhaustive:
            found = [
                rank_exhaustively(
                    searcher.flat, searcher.retriever, plan, self.depth, self.selection
                )
                for plan in plans
            ]
        else:
            found = rank(searcher.engine, searcher.retriever, plans, self.depth, self.selection)
        rest = iter(found)
        return [nothing if question.is_empty else next(rest) for question in questions]

    def _result(self, question: Question, dense: Ranked) -> SearchResult:
        plan = question.plan
        branches: dict[str, NDArray[np.int64]] = {}
        ranked = dense
        if self.options.hybrid and not question.is_empty:
            with self._timed("words"):
                branches = {"dense": dense.rows, "lexical": self._words(plan)}
                ranked = fuse(list(branches.values()), self.depth)
        with self._timed("documents"):
            if self.options.strict_not:
                ranked = self._strict(plan, ranked)
            rows, scores = ranked.rows[: self.k], ranked.scores[: self.k]
            hits = tuple(self._hits(plan, rows, scores, branches))
            put_down = self._put_down(plan, rows) if self.options.explain else ()
        return SearchResult(
            query=question.text,
            tree=unparse(plan.tree),
            operands=plan.atoms,
            excluded=plan.is_excluded,
            spans=plan.spans,
            confidence=float(plan.confidence),
            is_composed=plan.is_composed,
            reading=unparse(plan.reading),
            hits=hits,
            put_down=put_down,
            warnings=question.warnings,
        )

    def _words(self, plan: Plan) -> NDArray[np.int64]:
        """Return the lexical branch; what the vectors say is excluded stays out of it too."""
        lexical = self.searcher.lexical
        rows = (
            np.zeros(0, np.int64)
            if lexical is None
            else lexical.search(plan.tree, self.depth, self.selection.mask)
        )
        if not plan.is_composed or not any(plan.is_excluded) or not len(rows):
            return rows
        return rows[keeps_by_vectors(plan.tree, self._probabilities(plan, rows))]

    def _strict(self, plan: Plan, ranked: Ranked) -> Ranked:
        if not plan.is_composed or not any(plan.is_excluded):
            return ranked
        kept: list[int] = []
        for place, row in enumerate(ranked.rows.tolist()):
            if len(kept) == self.k:
                break
            if is_kept_by_words(plan.tree, self.searcher.rows.document(row)):
                kept.append(place)
        return Ranked(ranked.rows[kept], ranked.scores[kept])

    def _hits(
        self,
        plan: Plan,
        rows: NDArray[np.int64],
        scores: NDArray[np.float32],
        branches: Mapping[str, NDArray[np.int64]],
    ) -> Iterator[Hit]:
        probabilities = self._probabilities(plan, rows)
        places = {
            name: {row: place for place, row in enumerate(own.tolist(), start=1)}
            for name, own in branches.items()
        }
        for place, (row, score) in enumerate(zip(rows.tolist(), scores.tolist(), strict=True)):
            document = self.searcher.rows.document(row)
            own = tuple(probabilities[:, place].tolist()) if plan.is_composed else ()
            verdict, why = judge(plan.tree, own) if own else ("kept", "")
            yield Hit(
                id=document.id,
                title=document.title,
                text=document.text,
                metadata=document.metadata,
                score=score,
                probabilities=own,
                verdict=verdict,
                why=why,
                branches={name: own[row] for name, own in places.items() if row in own},
            )

    def _probabilities(self, plan: Plan, rows: NDArray[np.int64]) -> NDArray[np.float32]:
        if not plan.is_composed or not len(rows):
            return np.zeros((len(plan.atoms), len(rows)), np.float32)
        similarities = plan.vectors @ self.searcher.engine.vectors(rows).T
        return self.searcher.retriever.probabilities(plan, similarities)

    def _put_down(self, plan: Plan, shown: NDArray[np.int64]) -> tuple[Hit, ...]:
        """Return what one vector would have found among the first, and the result does not show."""
        if not plan.is_composed or not len(shown):
            return ()
        one = probes(plan)[-1:]
        rows = self.searcher.engine.search(one, self.k, self.selection).rows[0]
        rows = rows[(rows >= 0) & ~np.isin(rows, shown)]
        if not len(rows):
            return ()
        similarities = plan.vectors @ self.searcher.engine.vectors(rows).T
        scores = self.searcher.retriever.score(plan, similarities)
        return tuple(self._hits(plan, rows, scores, {}))

    @contextmanager
    def _timed(self, name: str) -> Iterator[None]:
        start = time.perf_counter()
        yield
        self.took[name] = self.took.get(name, 0.0) + 1000 * (time.perf_counter() - start)


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

"""A word-overlap searcher with the interface of the real one; it can be slow and fail."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from starlette.testclient import TestClient

from boolattn.errors import DataError
from boolattn.query.syntax import parse_with_spans
from boolattn.query.tokens import is_explicit
from boolattn.query.tree import And, Atom, Not, Or, atoms, signed_atoms
from boolattn.search import Hit, SearchOptions, SearchResult
from boolattn.search.result import judge
from boolattn.service.app import create_app
from boolattn.service.settings import ServiceSettings
from tests.service.browser import chromium

DOCUMENTS = {
    "b": ("Borneo moth", "A moth found in Borneo.", {"place": "Borneo"}),
    "bs": ("Sunda moth", "A moth found in Borneo and Sumatra.", {"place": "Borneo, Sumatra"}),
    "s": ("Sumatra moth", "A moth found in Sumatra.", {"place": "Sumatra"}),
    "x/y z": (
        "<script>alert(1)</script>",
        '<img src=x onerror="document.title=1"> A beetle of Java & "friends".',
        {"<b>place</b>": "<i>Java</i>"},
    ),
    "long": ("Long", "wing " * 2000, {}),
    "ru": ("Бабочка", "Бабочка острова Борнео 蛾 عثة", {}),
}


class WordSearcher:
    """Scores by shared words; parses "but not" and "or" as a model would."""

    settings = SimpleNamespace(words=True)
    facets = ()
    examples = ()

    def __init__(self) -> None:
        self.delay = 0.0
        self.least = 0.0
        self.calls: list[list[str]] = []
        self.threads: set[str] = set()

    def __len__(self) -> int:
        return len(DOCUMENTS)

    def refresh(self) -> bool:
        return False

    def document(self, name: str) -> Any:
        if name not in DOCUMENTS:
            raise DataError("no such document")
        title, text, metadata = DOCUMENTS[name]
        return SimpleNamespace(id=name, title=title, text=text, metadata=metadata)

    def search_many(self, queries: list[str], k: int, **options: Any) -> list[Any]:
        self.calls.append(list(queries))
        self.threads.add(threading.current_thread().name)
        time.sleep(self.delay)
        asked = SearchOptions(**options)
        return [self._search(query, k, asked) for query in queries]

    def _search(self, query: str, k: int, options: SearchOptions) -> Any:
        mode, filters, compose = options.mode, options.filters, options.compose
        if "crash" in query:
            raise ZeroDivisionError("secret /etc/passwd")
        tree, spans = _parse(query, mode) if compose else (Atom(query), ())
        operands = tuple(atom.text for atom in atoms(tree))
        is_composed = len(operands) > 1
        hits = []
        for name, (title, text, metadata) in DOCUMENTS.items():
            if filters and any(metadata.get(key) != value for key, value in filters.items()):
                continue
            own = tuple(_overlap(operand, f"{title} {text}") for operand in operands)
            score = _score(tree, iter(own)) if is_composed else own[0]
            score = score if score > 0.03 else self.least
            hit = Hit(name, title, text, metadata, score)
            if is_composed:
                signs = [sign for _, sign in signed_atoms(tree)]
                exceeds = tuple(one * (sign < 0) for one, sign in zip(own, signs, strict=True))
                ranks = tuple(round(1 + 100 * (1 - one)) for one in own)
                why = judge(operands, exceeds, fits=True)
                verdict = "doubtful" if why else "kept"
                hit = replace(hit, ranks=ranks, exceeds=exceeds, verdict=verdict, why=why)
            hits.append(hit)
        hits.sort(key=lambda hit: -hit.score)
        return SearchResult(
            query=query,
            tree=tree,
            parsed=tree,
            operands=operands,
            is_negated=tuple(sign < 0 for _, sign in signed_atoms(tree)),
            spans=spans,
            confidence=0.9,
            is_composed=is_composed,
            why_one_vector="" if is_composed else "no and / or / not found",
            hits=tuple(hits[options.offset :][:k]),
            total=len(hits),
            offset=options.offset,
            took={"encode": 1.5},
        )


def _parse(query: str, mode: str) -> Any:
    if mode == "explicit" or (mode == "auto" and is_explicit(query)):
        tree, spans = parse_with_spans(query)
        return tree, tuple((span,) for span in spans)
    for joint, build in ((" but not ", lambda a, b: And((a, Not(b)))), (" or ", _either)):
        before, found, after = query.partition(joint)
        if found:
            start = len(before) + len(joint)
            return build(Atom(before), Atom(after)), (((0, len(before)),), ((start, len(query)),))
    return Atom(query), ()


def _either(a: Atom, b: Atom) -> Or:
    return Or((a, b))


def _overlap(operand: str, text: str) -> float:
    words = [word for word in operand.lower().split() if word not in ("of", "in", "a")]
    words = [word.removesuffix("s") for word in words]
    return 0.02 + 0.96 * sum(word in text.lower() for word in words) / max(1, len(words))


def _score(tree: Any, own: Any) -> float:
    match tree:
        case Atom():
            return next(own)
        case Not(part):
            return 1 - _score(part, own)
        case And(parts):
            return min([_score(part, own) for part in parts])
        case Or(parts):
            return max([_score(part, own) for part in parts])


@pytest.fixture
def searcher() -> WordSearcher:
    return WordSearcher()


@pytest.fixture
def serve(searcher):
    """Make a client of an app with the given settings; it is closed at the end."""
    clients = []

    def start(**settings: Any) -> TestClient:
        app = create_app(searcher, ServiceSettings(**settings))
        client = TestClient(app, raise_server_exceptions=False)
        clients.append(client.__enter__())
        return client

    yield start
    for client in clients:
        client.__exit__(None, None, None)


@pytest.fixture(scope="module")
def browser():
    with chromium() as started:
        yield started


@pytest.fixture
def tab(browser):
    """Open tabs; a script error or a foreign request fails the test."""
    errors: list[str] = []
    opened = []

    def open_tab(url: str, **options):
        page = browser.new_page(**({"viewport": {"width": 1280, "height": 900}} | options))
        page.set_default_timeout(60_000)
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.on(
            "console",
            lambda said: errors.append(said.text) if "Content Security" in said.text else None,
        )
        page.on(
            "request",
            lambda asked: (
                None if asked.url.startswith("http://127.0.0.1") else errors.append(asked.url)
            ),
        )
        page.goto(url)
        opened.append(page)
        return page

    yield open_tab
    for page in opened:
        page.close()
    assert errors == []

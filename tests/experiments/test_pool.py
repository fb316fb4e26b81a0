"""The pool: order, requirements, three kinds of failure, and the deadline."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from boolattn.reproduction.requests import Paths
from experiments.pool import Pool, Task
from tests.experiments.jobs import Fail, OutOfMemory, Sleep, Write


@pytest.fixture
def paths(tmp_path):
    (tmp_path / "runs").mkdir()
    return Paths(runs=tmp_path / "runs", work=tmp_path / "work")


def test_each_kind_of_result(paths):
    lines: list[str] = []
    tasks = [
        Task(name="first", kind="write", job=Write("first")),
        Task(name="after", kind="write", job=Write("after"), needs=("first", "late")),
        Task(name="dead", kind="fail", job=Fail("die")),
        Task(name="wrong", kind="fail", job=Fail("error")),
        Task(name="broken", kind="fail", job=Fail("raise")),
        Task(name="orphan", kind="write", job=Write("orphan"), needs=("dead",)),
        Task(name="late", kind="write", job=Write("late")),
    ]
    outcome = Pool(paths, 2, n_threads=1, progress=lines.append).run(tasks)
    assert set(outcome.done) == {"first", "late", "after"}
    assert outcome.failed == {
        "dead": "its process ended by itself (exit code 3)",
        "wrong": "no such file",
        "broken": "ValueError: two",
        "orphan": "dead, which it needs, failed",
    }
    assert not outcome.not_run
    assert list(outcome.done).index("after") > list(outcome.done).index("late")
    assert sum("FAILED" in line for line in lines) == 3
    assert "two\nlines" in "".join(p.read_text() for p in (paths.work / "logs").iterdir())


def test_tasks_beyond_the_deadline_are_not_run(paths):
    tasks = [
        Task(name="long", kind="fail", job=Fail("sleep")),
        Task(name="never", kind="write", job=Write("never")),
    ]
    outcome = Pool(paths, 1, deadline=time.monotonic() + 6).run(tasks)
    assert outcome.not_run == ["long", "never"]
    assert not outcome.done
    assert not outcome.failed


def test_a_job_out_of_memory_is_repeated_alone(paths):
    lines: list[str] = []
    tasks = [
        Task(name="large", kind="sleep", job=Sleep("large", 2.0)),
        Task(name="small", kind="memory", job=OutOfMemory("large", is_small=True)),
        Task(name="huge", kind="memory", job=OutOfMemory("large", is_small=False)),
        Task(name="after", kind="write", job=Write("after"), needs=("small",)),
    ]
    outcome = Pool(paths, 3, n_threads=1, progress=lines.append).run(tasks)
    assert outcome.done == {"large": "large", "small": "alone", "after": "after"}
    # It is repeated only once.
    assert outcome.failed == {"huge": "OutOfMemoryError: no memory at all"}
    assert sum("REPEAT ALONE" in line for line in lines) == 2
    assert not outcome.not_run


RUN = """
import sys
from pathlib import Path
from boolattn.reproduction.requests import Paths
from experiments.pool import Pool, Task
from tests.experiments.jobs import Sleep

if __name__ == "__main__":
    home = Path(sys.argv[1])
    paths = Paths(runs=home / "runs", work=home / "work")
    Pool(paths, 1, n_threads=1).run([Task(name="a", kind="a", job=Sleep("started", 60.0))])
"""


@pytest.mark.skipif(sys.platform == "win32", reason="processes there have no parent")
def test_workers_end_with_a_killed_parent(paths, tmp_path):
    (tmp_path / "run.py").write_text(RUN)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    run = subprocess.Popen([sys.executable, tmp_path / "run.py", tmp_path], env=environment)
    pid = _await(lambda: int((paths.runs / "started").read_text() or 0))
    run.kill()
    run.wait()
    assert _await(lambda: not _is_running(pid))


def _await(look, seconds=30.0):
    """Poll until there is a value."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            if found := look():
                return found
        except OSError:
            pass
        time.sleep(0.1)
    return None


def _is_running(pid):
    """Whether a process runs; one that has ended may be a zombie."""
    try:
        os.kill(pid, 0)
        return ") Z " not in Path(f"/proc/{pid}/stat").read_text()
    except ProcessLookupError:
        return False
    except FileNotFoundError:
        # No /proc on this machine, or ended in between.
        return True

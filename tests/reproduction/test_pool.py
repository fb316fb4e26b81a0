"""The pool: order, needs, failures of three kinds, and the end of the time."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from boolattn.reproduction.places import Places
from boolattn.reproduction.pool import Pool, Task
from tests.reproduction.jobs import Crowd, Fail, Hold, Say


@pytest.fixture
def places(tmp_path):
    (tmp_path / "runs").mkdir()
    return Places(runs=tmp_path / "runs", work=tmp_path / "work", made=tmp_path / "made")


def test_one_job_of_each_fate(places):
    told: list[str] = []
    tasks = [
        Task(name="first", like="say", work=Say("first")),
        Task(name="after", like="say", work=Say("after"), needs=("first", "late")),
        Task(name="dead", like="fail", work=Fail("die")),
        Task(name="wrong", like="fail", work=Fail("complain")),
        Task(name="broken", like="fail", work=Fail("raise")),
        Task(name="orphan", like="say", work=Say("orphan"), needs=("dead",)),
        Task(name="late", like="say", work=Say("late")),
    ]
    outcome = Pool(places, 2, n_threads=1, tell=told.append).run(tasks)
    assert set(outcome.done) == {"first", "late", "after"}
    assert outcome.failed == {
        "dead": "its process ended by itself (exit code 3)",
        "wrong": "no such file",
        "broken": "ValueError: two",
        "orphan": "it needs dead, which failed",
    }
    assert not outcome.left
    assert list(outcome.done).index("after") > list(outcome.done).index("late")
    assert sum("FAILED" in line for line in told) == 3
    assert "two\nlines" in "".join(p.read_text() for p in (places.work / "logs").iterdir())


def test_what_does_not_fit_into_the_time_is_left(places):
    tasks = [
        Task(name="long", like="fail", work=Fail("sleep")),
        Task(name="never", like="say", work=Say("never")),
    ]
    outcome = Pool(places, 1, deadline=time.monotonic() + 6).run(tasks)
    assert outcome.left == ["long", "never"]
    assert not outcome.done
    assert not outcome.failed


def test_a_job_without_room_beside_others_is_done_again_alone(places):
    told: list[str] = []
    tasks = [
        Task(name="large", like="hold", work=Hold("large", 2.0)),
        Task(name="small", like="crowd", work=Crowd("large", is_small=True)),
        Task(name="huge", like="crowd", work=Crowd("large", is_small=False)),
        Task(name="after", like="say", work=Say("after"), needs=("small",)),
    ]
    outcome = Pool(places, 3, n_threads=1, tell=told.append).run(tasks)
    assert outcome.done == {"large": "large", "small": "alone", "after": "after"}
    # Not for ever: what finds no room alone has failed.
    assert outcome.failed == {"huge": "OutOfMemoryError: no room at all"}
    assert sum("AGAIN, ALONE" in line for line in told) == 2
    assert not outcome.left


RUN = """
import sys
from pathlib import Path
from boolattn.reproduction.places import Places
from boolattn.reproduction.pool import Pool, Task
from tests.reproduction.jobs import Hold

if __name__ == "__main__":
    home = Path(sys.argv[1])
    places = Places(runs=home / "runs", work=home / "work", made=home / "made")
    Pool(places, 1, n_threads=1).run([Task(name="a", like="a", work=Hold("begun", 60.0))])
"""


@pytest.mark.skipif(sys.platform == "win32", reason="a process there has no parent to look at")
def test_workers_end_with_a_run_that_is_killed(places, tmp_path):
    (tmp_path / "run.py").write_text(RUN)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    run = subprocess.Popen([sys.executable, tmp_path / "run.py", tmp_path], env=environment)
    pid = _await(lambda: int((places.runs / "begun").read_text() or 0))
    run.kill()
    run.wait()
    assert _await(lambda: not _is_there(pid))


def _await(look, seconds=30.0):
    """Look again and again until there is something to see."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            if found := look():
                return found
        except OSError:
            pass
        time.sleep(0.1)
    return None


def _is_there(pid):
    """Whether a process runs; one that has ended may wait for somebody to notice."""
    try:
        os.kill(pid, 0)
        return ") Z " not in Path(f"/proc/{pid}/stat").read_text()
    except ProcessLookupError:
        return False
    except FileNotFoundError:
        # No such folder on this machine, or ended in between: the next look will tell.
        return True

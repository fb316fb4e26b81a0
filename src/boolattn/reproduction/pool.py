"""Many jobs on few workers: in order, each after what it needs, until the time is up.

A worker is a process of its own with a pipe to the parent. One that dies takes its job with it and
is replaced; whatever else happens to a job, the others go on. A job that finds the memory full is
done again once, when it is alone. May import: boolattn.reproduction, boolattn.errors.
"""

from __future__ import annotations

import gc
import logging
import multiprocessing
import os
import sys
import time
import traceback
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from threading import Thread
from typing import TYPE_CHECKING

from boolattn.errors import BoolattnError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from multiprocessing.context import SpawnProcess
    from pathlib import Path

    from boolattn.reproduction.jobs import Work
    from boolattn.reproduction.places import Places

logger = logging.getLogger(__name__)

_SPAWN = multiprocessing.get_context("spawn")
#: Seconds kept back to write what is left to write.
_MARGIN = 5.0
_THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")
#: Seconds between two looks at whether the parent is there.
_LOOK = 1.0
#: Name of torch's error.
_CROWDED = "OutOfMemoryError:"


@dataclass(frozen=True, kw_only=True)
class Task:
    """One job.

    Attributes:
        name: Names it, in messages and in what others need.
        like: Jobs of one kind take about as long.
        needs: Names of jobs that must have been done before.
        work: What is to be done.
    """

    name: str
    like: str
    work: Work
    needs: tuple[str, ...] = ()


@dataclass
class Outcome:
    """What became of the tasks: done with a line of words, failed with a reason, or not begun."""

    done: dict[str, str] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    left: list[str] = field(default_factory=list)


@dataclass
class _Worker:
    process: SpawnProcess
    pipe: Connection
    task: Task | None = None
    since: float = 0.0


class Pool:
    """Runs tasks.

    Args:
        places: Where everything is.
        n_workers: How many processes.
        n_threads: CPU threads of each.
        deadline: ``time.monotonic()`` at which everything must have ended; ``None``: never.
        tell: Called with a line whenever a task ends.
    """

    def __init__(
        self,
        places: Places,
        n_workers: int,
        *,
        n_threads: int = 2,
        deadline: float | None = None,
        tell: Callable[[str], None] = logger.info,
    ) -> None:
        self.places = places
        self.n_workers = n_workers
        self.n_threads = n_threads
        self.deadline = deadline
        self.tell = tell
        self._workers: list[_Worker] = []
        self._longest: dict[str, float] = {}
        self._alone: set[str] = set()
        self._begun = time.monotonic()

    def run(self, tasks: Sequence[Task]) -> Outcome:
        """Do the tasks, the first first."""
        outcome = Outcome()
        pending = list(tasks)
        try:
            while pending or any(worker.task for worker in self._workers):
                pending = self._start(pending, outcome)
                if not any(worker.task for worker in self._workers):
                    break
                pending += self._collect(outcome)
                if self.deadline is not None and time.monotonic() > self.deadline - _MARGIN:
                    break
        finally:
            running = [worker.task.name for worker in self._workers if worker.task]
            self._stop()
        outcome.left = running + [task.name for task in pending]
        return outcome

    def _start(self, pending: list[Task], outcome: Outcome) -> list[Task]:
        """Give idle workers what they can do; return what still waits."""
        waiting: list[Task] = []
        for task in pending:
            if broken := [name for name in task.needs if name in outcome.failed]:
                outcome.failed[task.name] = f"it needs {broken[0]}, which failed"
            elif all(name in outcome.done for name in task.needs) and self._may_start(task):
                worker = self._idle()
                if worker is None or not self._give(worker, task):
                    waiting.append(task)
            else:
                waiting.append(task)
        return waiting

    def _may_start(self, task: Task) -> bool:
        """Whether a task like those before would end in time, and has the room that it needs."""
        # What is to be alone comes behind all that can start, so that nothing starts beside it.
        if task.name in self._alone and any(worker.task for worker in self._workers):
            return False
        if self.deadline is None:
            return True
        ends = time.monotonic() + self._longest.get(task.like, 0.0)
        return ends < self.deadline - _MARGIN

    def _idle(self) -> _Worker | None:
        for worker in self._workers:
            if worker.task is None:
                return worker
        if len(self._workers) < self.n_workers:
            self._workers.append(self._spawn())
            return self._workers[-1]
        return None

    def _give(self, worker: _Worker, task: Task) -> bool:
        try:
            worker.pipe.send(task.work)
        except (BrokenPipeError, OSError):
            self._drop(worker)
            return False
        worker.task, worker.since = task, time.monotonic()
        return True

    def _collect(self, outcome: Outcome) -> list[Task]:
        """Wait for a word from a worker; return what must be done again."""
        again: list[Task] = []
        pipes = {worker.pipe: worker for worker in self._workers}
        for ready in wait(list(pipes), timeout=1.0):
            worker = pipes[ready]  # type: ignore[index]
            task = worker.task
            try:
                is_done, words, is_fit = worker.pipe.recv()
            except (EOFError, OSError):
                worker.process.join(timeout=5)
                is_done, is_fit = False, False
                words = f"its process ended by itself (exit code {worker.process.exitcode})"
            if not is_fit:
                self._drop(worker)
            worker.task = None
            if task is None:
                continue
            took = time.monotonic() - worker.since
            state = ""
            if is_done:
                outcome.done[task.name] = words
                self._longest[task.like] = max(took, self._longest.get(task.like, 0.0))
            elif words.startswith(_CROWDED) and task.name not in self._alone:
                self._alone.add(task.name)
                again.append(task)
                state = "AGAIN, ALONE "
            else:
                outcome.failed[task.name] = words
                state = "FAILED "
            at = time.monotonic() - self._begun
            self.tell(f"[{at:5.0f} s] {state}{task.name} ({took:.0f} s): {words}")
        return again

    def _spawn(self) -> _Worker:
        here, there = _SPAWN.Pipe()
        # Read when a child first loads its libraries.
        os.environ |= {name: str(self.n_threads) for name in _THREADS}
        process = _SPAWN.Process(
            target=serve, args=(there, self.places, len(self._workers)), daemon=True
        )
        process.start()
        there.close()
        return _Worker(process, here)

    def _drop(self, worker: _Worker) -> None:
        """Forget a worker that is dead or not to be trusted any more."""
        worker.pipe.close()
        if worker.task is None:
            # An idle one sees that its pipe is closed, and goes by itself.
            worker.process.join(timeout=5)
        if worker.process.is_alive():
            worker.process.terminate()
        worker.process.join(timeout=10)
        if worker in self._workers:
            self._workers.remove(worker)

    def _stop(self) -> None:
        for worker in list(self._workers):
            self._drop(worker)


def serve(pipe: Connection, places: Places, number: int) -> None:
    """Do jobs as they come through a pipe. Answers: done or not, words, fit for another job."""
    Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
    _log_to(places.work / "logs" / f"worker-{number}.log")
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    os.environ["TQDM_DISABLE"] = "1"
    while True:
        try:
            work: Work = pipe.recv()
        except EOFError:
            return
        try:
            answer = (True, work.do(places), True)
        except BoolattnError as error:
            answer = (False, str(error), True)
        except Exception as error:  # noqa: BLE001 - one job must not end the others
            logger.error("%s", traceback.format_exc())
            [line, *_] = str(error).splitlines() or [""]
            # After an error of CUDA's a process computes nothing any more.
            answer = (False, f"{type(error).__name__}: {line}", False)
        _clean()
        pipe.send(answer)


def _end_with(parent: int) -> None:
    """End this process when its parent is gone: a killed run must not go on training unseen."""
    while os.getppid() == parent:
        time.sleep(_LOOK)
    os._exit(1)


def _clean() -> None:
    """Give back what a job held."""
    gc.collect()
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available():
        try:
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
        except RuntimeError as error:
            # A broken device cannot; its process is replaced anyway.
            logger.error("%s", error)


def _log_to(path: Path) -> None:
    """Write a worker's own words to a file, so that the parent's lines stay readable."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle = path.open("a", encoding="utf-8", buffering=1)
    sys.stdout = sys.stderr = handle
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=handle, force=True)
    for name in ("httpx", "sentence_transformers", "transformers", "accelerate"):
        logging.getLogger(name).setLevel(logging.WARNING)

"""Runs jobs on worker processes: each after the jobs it needs, until the time is up.

A worker that dies fails its job and is replaced; a failed job never ends the others. A job that
runs out of memory is repeated once, alone.
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
from typing import TYPE_CHECKING, Protocol

from boolattn.errors import BoolattnError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from multiprocessing.context import SpawnProcess
    from pathlib import Path

    from boolattn.reproduction.requests import Paths

logger = logging.getLogger(__name__)

_SPAWN = multiprocessing.get_context("spawn")
#: Seconds before the deadline that are kept for writing.
_MARGIN = 5.0
_THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")
#: Seconds between two checks that the parent process is alive.
_PARENT_CHECK = 1.0
#: Name of torch's error.
_OUT_OF_MEMORY = "OutOfMemoryError:"


class Job(Protocol):
    """What a worker does; must be picklable."""

    def run(self, paths: Paths) -> str:
        """Do it; return a line for the log."""
        ...


@dataclass(frozen=True, kw_only=True)
class Task:
    """A job with its requirements.

    Attributes:
        name: Unique name.
        kind: Jobs of one kind take about as long.
        job: What to do.
        needs: Names of tasks that must be done before.
    """

    name: str
    kind: str
    job: Job
    needs: tuple[str, ...] = ()


@dataclass
class Outcome:
    """Results of tasks: done with a message, failed with a cause, or not started in time."""

    done: dict[str, str] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    not_run: list[str] = field(default_factory=list)


@dataclass
class _Worker:
    process: SpawnProcess
    pipe: Connection
    task: Task | None = None
    since: float = 0.0


class Pool:
    """Runs tasks on worker processes.

    Args:
        paths: Folders, passed to every job.
        n_workers: Number of processes.
        n_threads: CPU threads of each.
        deadline: ``time.monotonic()`` at which to stop; ``None``: never.
        progress: Called with a line whenever a task ends.
    """

    def __init__(
        self,
        paths: Paths,
        n_workers: int,
        *,
        n_threads: int = 2,
        deadline: float | None = None,
        progress: Callable[[str], None] = logger.info,
    ) -> None:
        self.paths = paths
        self.n_workers = n_workers
        self.n_threads = n_threads
        self.deadline = deadline
        self.progress = progress
        self._workers: list[_Worker] = []
        self._longest: dict[str, float] = {}
        self._alone: set[str] = set()
        self._started = time.monotonic()

    def run(self, tasks: Sequence[Task]) -> Outcome:
        """Run tasks in order."""
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
        outcome.not_run = running + [task.name for task in pending]
        return outcome

    def _start(self, pending: list[Task], outcome: Outcome) -> list[Task]:
        """Send tasks that can start to idle workers; return the others."""
        waiting: list[Task] = []
        for task in pending:
            if broken := [name for name in task.needs if name in outcome.failed]:
                outcome.failed[task.name] = f"{broken[0]}, which it needs, failed"
            elif all(name in outcome.done for name in task.needs) and self._may_start(task):
                worker = self._idle()
                if worker is None or not self._send(worker, task):
                    waiting.append(task)
            else:
                waiting.append(task)
        return waiting

    def _may_start(self, task: Task) -> bool:
        """Whether a task would end in time, and may run beside the others."""
        # A task that must run alone is last in the queue, so nothing starts beside it.
        if task.name in self._alone and any(worker.task for worker in self._workers):
            return False
        if self.deadline is None:
            return True
        ends = time.monotonic() + self._longest.get(task.kind, 0.0)
        return ends < self.deadline - _MARGIN

    def _idle(self) -> _Worker | None:
        for worker in self._workers:
            if worker.task is None:
                return worker
        if len(self._workers) < self.n_workers:
            self._workers.append(self._spawn())
            return self._workers[-1]
        return None

    def _send(self, worker: _Worker, task: Task) -> bool:
        try:
            worker.pipe.send(task.job)
        except (BrokenPipeError, OSError):
            self._drop(worker)
            return False
        worker.task, worker.since = task, time.monotonic()
        return True

    def _collect(self, outcome: Outcome) -> list[Task]:
        """Wait for a result of a worker; return tasks that must be repeated."""
        again: list[Task] = []
        pipes = {worker.pipe: worker for worker in self._workers}
        for ready in wait(list(pipes), timeout=1.0):
            worker = pipes[ready]  # type: ignore[index]
            task = worker.task
            try:
                is_done, message, is_usable = worker.pipe.recv()
            except (EOFError, OSError):
                worker.process.join(timeout=5)
                is_done, is_usable = False, False
                message = f"its process ended by itself (exit code {worker.process.exitcode})"
            if not is_usable:
                self._drop(worker)
            worker.task = None
            if task is None:
                continue
            took = time.monotonic() - worker.since
            state = ""
            if is_done:
                outcome.done[task.name] = message
                self._longest[task.kind] = max(took, self._longest.get(task.kind, 0.0))
            elif message.startswith(_OUT_OF_MEMORY) and task.name not in self._alone:
                self._alone.add(task.name)
                again.append(task)
                state = "REPEAT ALONE "
            else:
                outcome.failed[task.name] = message
                state = "FAILED "
            at = time.monotonic() - self._started
            self.progress(f"[{at:5.0f} s] {state}{task.name} ({took:.0f} s): {message}")
        return again

    def _spawn(self) -> _Worker:
        here, there = _SPAWN.Pipe()
        # Libraries read these when a child process loads them.
        os.environ |= {name: str(self.n_threads) for name in _THREADS}
        process = _SPAWN.Process(
            target=serve, args=(there, self.paths, len(self._workers)), daemon=True
        )
        process.start()
        there.close()
        return _Worker(process, here)

    def _drop(self, worker: _Worker) -> None:
        """Remove a worker that is dead or no longer usable."""
        worker.pipe.close()
        if worker.task is None:
            # An idle worker ends when its pipe is closed.
            worker.process.join(timeout=5)
        if worker.process.is_alive():
            worker.process.terminate()
        worker.process.join(timeout=10)
        if worker in self._workers:
            self._workers.remove(worker)

    def _stop(self) -> None:
        for worker in list(self._workers):
            self._drop(worker)


def serve(pipe: Connection, paths: Paths, number: int) -> None:
    """Run jobs from a pipe; answer whether it is done, a message, whether the worker is usable."""
    Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
    _log_to(paths.work / "logs" / f"worker-{number}.log")
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    os.environ["TQDM_DISABLE"] = "1"
    while True:
        try:
            job: Job = pipe.recv()
        except EOFError:
            return
        try:
            answer = (True, job.run(paths), True)
        except BoolattnError as error:
            answer = (False, str(error), True)
        except Exception as error:  # noqa: BLE001 - one job must not end the others
            logger.error("%s", traceback.format_exc())
            [line, *_] = str(error).splitlines() or [""]
            # After a CUDA error a process cannot compute any more.
            answer = (False, f"{type(error).__name__}: {line}", False)
        _release_memory()
        pipe.send(answer)


def _end_with(parent: int) -> None:
    """End this process with its parent, so that a killed run does not go on training."""
    while os.getppid() == parent:
        time.sleep(_PARENT_CHECK)
    os._exit(1)


def _release_memory() -> None:
    """Free the memory of a finished job."""
    gc.collect()
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available():
        try:
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
        except RuntimeError as error:
            # The device is broken; the worker is replaced anyway.
            logger.error("%s", error)


def _log_to(path: Path) -> None:
    """Write the output of a worker to a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle = path.open("a", encoding="utf-8", buffering=1)
    sys.stdout = sys.stderr = handle
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=handle, force=True)
    for name in ("httpx", "sentence_transformers", "transformers", "accelerate"):
        logging.getLogger(name).setLevel(logging.WARNING)

"""Runs jobs on worker processes and returns a table of the requested runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from boolattn.reproduction.runs import Run
from experiments.negation.experiment import negation_table, results_folder
from experiments.plan import make_plan
from experiments.pool import Outcome, Pool
from experiments.tables import overview

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from boolattn.reproduction.requests import Paths, RunRequest
    from experiments.negation.experiment import NegationRequest
    from experiments.pool import Task

    Progress = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class Resources:
    """Processes, threads of each, and ``time.monotonic()`` of the deadline."""

    n_workers: int = 1
    n_threads: int = 2
    deadline: float | None = None


def run(request: RunRequest, paths: Paths, resources: Resources, progress: Progress) -> str:
    """Do the requested runs that are not finished; return a table in Markdown."""
    plan = make_plan(request, paths)
    n_runs = len(plan.keys) - len(plan.finished)
    progress(f"{n_runs} runs to do, {len(plan.finished)} finished, {len(plan.tasks)} jobs in all")
    outcome = _run_tasks(plan.tasks, paths, resources, progress)
    found = []
    for name, key in plan.keys.items():
        if name in outcome.failed or name in outcome.done:
            paths.note_failure(key, outcome.failed.get(name, ""))
        path = plan.finished.get(key, paths.runs / key.path)
        if path.is_file():
            found.append(Run.load(path))
    return overview(found)


def run_negation(
    request: NegationRequest, paths: Paths, resources: Resources, progress: Progress
) -> str:
    """Do the requested trainings on annotated negation; return a table in Markdown."""
    folder = results_folder(paths)
    _run_tasks(list(request.tasks(folder)), paths, resources, progress)
    return negation_table(folder)


def _run_tasks(
    tasks: Sequence[Task], paths: Paths, resources: Resources, progress: Progress
) -> Outcome:
    if not tasks:
        return Outcome()
    pool = Pool(
        paths,
        min(resources.n_workers, len(tasks)),
        n_threads=resources.n_threads,
        deadline=resources.deadline,
        progress=progress,
    )
    outcome = pool.run(tasks)
    for name in outcome.not_run:
        progress(f"not run: {name}")
    return outcome

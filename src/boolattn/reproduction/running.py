"""One call of the runner: plan, work, and a table of everything that is there.

May import: boolattn.reproduction, boolattn.errors.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from boolattn.files import atomic_file
from boolattn.reproduction.jobs import Negate, NegationSettings
from boolattn.reproduction.plan import plan
from boolattn.reproduction.pool import Pool, Task
from boolattn.reproduction.runs import Run
from boolattn.reproduction.systems import known
from boolattn.reproduction.tables import PUBLISHED, negation_table, overview

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from boolattn.reproduction.places import Places
    from boolattn.reproduction.plan import Planned, Wanted
    from boolattn.reproduction.pool import Outcome


@dataclass(frozen=True, kw_only=True)
class Limits:
    """How much of a machine, and how long."""

    n_workers: int = 1
    n_threads: int = 2
    deadline: float | None = None


def run(wanted: Wanted, places: Places, limits: Limits, tell: Callable[[str], None]) -> str:
    """Do what is not done yet, and return a table in Markdown."""
    planned = plan(wanted, places)
    n_runs = len(planned.keys) - len(planned.finished)
    tell(f"{n_runs} runs to do, {len(planned.finished)} there, {len(planned.tasks)} jobs in all")
    if planned.tasks:
        pool = Pool(
            places,
            min(limits.n_workers, len(planned.tasks)),
            n_threads=limits.n_threads,
            deadline=limits.deadline,
            tell=tell,
        )
        outcome = pool.run(planned.tasks)
        _note_failures(outcome, planned, places.runs.parent / "failed")
        for name in outcome.left:
            if name in planned.keys:
                tell(f"not run: {name}")
    return overview(finished_runs(planned, places))


@dataclass(frozen=True, kw_only=True)
class NegationWanted:
    """Which annotations, encoders and seeds.

    Attributes:
        corpora: "cd-sco", "sfu".
        data: Folder of their files; the catalogue's own place where none is given.
        encoders: Names.
        sources: Folders of encoders, by name.
        seeds: Each is one run, frozen and tuned.
        max_steps: To try it out; 0: all of the epochs.
    """

    corpora: Sequence[str] = tuple(PUBLISHED)
    data: Path | None = None
    encoders: Sequence[str] = ("minilm",)
    sources: Mapping[str, str] = field(default_factory=dict)
    seeds: Sequence[int] = (0,)
    max_steps: int = 0


def run_negation(
    wanted: NegationWanted, places: Places, limits: Limits, tell: Callable[[str], None]
) -> str:
    """Measure cue and scope of negation, and return a table in Markdown."""
    folder = places.runs.parent / "negation"
    tasks = []
    for seed in wanted.seeds:
        for name in wanted.encoders:
            encoder = known().encoder(name)
            for corpus in wanted.corpora:
                for is_frozen in (True, False):
                    settings = NegationSettings(
                        is_frozen=is_frozen, seed=seed, max_steps=wanted.max_steps
                    )
                    work = Negate(
                        corpus=corpus,
                        data=wanted.data,
                        encoder=encoder,
                        source=wanted.sources.get(name, encoder.source),
                        settings=settings,
                    )
                    if not (folder / work.path).is_file():
                        like = f"negation {corpus} {name} {is_frozen}"
                        tasks.append(Task(name=f"negation {work.path}", like=like, work=work))
    if tasks:
        pool = Pool(
            places,
            min(limits.n_workers, len(tasks)),
            n_threads=limits.n_threads,
            deadline=limits.deadline,
            tell=tell,
        )
        for name in pool.run(tasks).left:
            tell(f"not run: {name}")
    return negation_table(folder)


def finished_runs(planned: Planned, places: Places) -> list[Run]:
    """Load the runs that were asked for and are there."""
    found = []
    for key in planned.keys.values():
        path = planned.finished.get(key, places.runs / key.path)
        if path.is_file():
            found.append(Run.load(path))
    return found


def _note_failures(outcome: Outcome, planned: Planned, folder: Path) -> None:
    """Keep one line for each run that failed, until it succeeds."""
    for name, key in planned.keys.items():
        path = (folder / key.path).with_suffix("").with_suffix(".txt")
        if name in outcome.failed:
            with atomic_file(path) as handle:
                handle.write(outcome.failed[name] + "\n")
        elif name in outcome.done:
            path.unlink(missing_ok=True)

"""From requested runs to an ordered list of jobs, without those that are done."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from boolattn.reproduction.requests import RunInputs, find_finished, resolve
from experiments.corpus_folder import corpus_folder
from experiments.jobs import Bm25Job, PretrainJob, TokenizeJob, TrainJob
from experiments.pool import Task
from experiments.registry import registry

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from boolattn.reproduction.requests import Paths, RunRequest
    from boolattn.reproduction.runs import RunKey
    from boolattn.reproduction.systems import RunSpec
    from boolattn.training.settings import Preset


@dataclass(frozen=True)
class Plan:
    """Tasks, and the runs they are for."""

    tasks: list[Task]
    keys: dict[str, RunKey]  # Every requested run, by the name of its task
    finished: dict[RunKey, Path]  # Files of runs that are done


def make_plan(request: RunRequest, paths: Paths) -> Plan:
    """List the tasks of the requested runs that are not finished."""
    keys: dict[str, RunKey] = {}
    finished: dict[RunKey, Path] = {}
    tasks: dict[str, Task] = {}
    request.check_names(registry())
    for spec in request.specs(registry()):
        preset = resolve(spec, request)
        keys[str(spec.key)] = spec.key
        if path := find_finished(spec, preset, request, paths.runs):
            finished[spec.key] = path
            continue
        for task in _tasks(spec, preset, request, paths):
            tasks.setdefault(task.name, task)
    return Plan(list(tasks.values()), keys, finished)


def _tasks(spec: RunSpec, preset: Preset, request: RunRequest, paths: Paths) -> Iterator[Task]:
    data = request.data.get(spec.dataset.name)
    folder = corpus_folder(spec, preset, data, paths)
    needs = [f"tokenize {folder.name}"]
    job = TokenizeJob(folder=folder, data=data, preset=preset)
    yield Task(name=needs[0], kind="tokenize", job=job)
    if spec.system.kind == "bm25":
        bm25 = Bm25Job(spec=spec, preset=preset, corpus=folder)
        yield Task(name=str(spec.key), kind="bm25", job=bm25, needs=tuple(needs))
        return
    start = request.start(spec)
    pretrained = None
    if spec.system.pretrain and start is None:
        pretrained = paths.pretraining(preset)
        settings = preset.pretrain
        yield Task(
            name=f"pretrain {pretrained.name}",
            kind=f"pretrain {spec.encoder.name} {settings.batch_size} {settings.max_steps}",
            job=PretrainJob(folder=pretrained, preset=preset),
        )
        needs.append(f"pretrain {pretrained.name}")
    files = {"pretrained": pretrained, "start": start}
    train = TrainJob(inputs=RunInputs(spec=spec, preset=preset, **files), corpus=folder)
    kind = f"{spec.dataset.name} {spec.encoder.name} {preset.model.use_plugin}"
    yield Task(name=str(spec.key), kind=kind, job=train, needs=tuple(needs))

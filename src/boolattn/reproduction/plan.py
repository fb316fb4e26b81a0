"""From what is asked for to an ordered list of tasks, without what is done already.

May import: boolattn.reproduction, boolattn.training.settings, boolattn.errors.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING

from boolattn.errors import ConfigError
from boolattn.reproduction.jobs import LAYOUT_FORMAT, Bm25, Heads, Layout, Make, Train
from boolattn.reproduction.pool import Task
from boolattn.reproduction.runs import Run, RunKey
from boolattn.reproduction.systems import Request, known, resolve
from boolattn.training.settings import Preset

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from boolattn.reproduction.places import Places
    from boolattn.reproduction.systems import Encoder, Suite, System

NO_ENCODER = "none"
#: The paper's.
SEEDS = (0, 42, 1234)


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """What is asked for.

    Attributes:
        systems: Names, the most important first.
        datasets: Names.
        encoders: Names.
        seeds: All of the first, then all of the second.
        data: Folder of each data set; its own place where none is given.
        request: What is asked of every system alike.
        done: Folders with further finished runs, which need not be done again.
        starts: Model folders that systems go on from, by name of the system.
    """

    systems: Sequence[str]
    datasets: Sequence[str]
    encoders: Sequence[str] = ("minilm",)
    seeds: Sequence[int] = SEEDS
    data: Mapping[str, Path] = field(default_factory=dict)
    request: Request = field(default_factory=Request)
    done: Sequence[Path] = ()
    starts: Mapping[str, Path] = field(default_factory=dict)


@dataclass(frozen=True)
class Planned:
    """Tasks, and the runs they are for.

    Attributes:
        tasks: In order.
        keys: Every run that was asked for, by the name of its task.
        finished: Those that are there already.
    """

    tasks: list[Task]
    keys: dict[str, RunKey]
    finished: dict[RunKey, Path]


def plan(wanted: Wanted, places: Places) -> Planned:
    """List what is to be done."""
    planned = Planned([], {}, {})
    named: dict[str, Task] = {}
    for system, suite, encoder, seed in combinations(wanted):
        label = encoder.name if system.needs_encoder else NO_ENCODER
        key = RunKey(suite.name, label, system.name, seed)
        preset = resolve(system, suite, encoder, seed, wanted.request)
        planned.keys[str(key)] = key
        if path := _finished(key, [places.runs, *wanted.done], preset, system):
            planned.finished[key] = path
            continue
        for task in _tasks(key, (system, suite, encoder), preset, wanted, places):
            if task.name not in named:
                named[task.name] = task
                planned.tasks.append(task)
    return planned


def combinations(wanted: Wanted) -> Iterator[tuple[System, Suite, Encoder, int]]:
    """Walk over all runs: seeds outermost, so that a table is complete early."""
    found = known()
    for seed in wanted.seeds:
        for name in wanted.systems:
            system = found.system(name)
            if not system.has_seeds and seed != wanted.seeds[0]:
                continue
            for dataset in wanted.datasets:
                suite = found.suite(dataset)
                if system.on and suite.name not in system.on:
                    continue
                encoders = wanted.encoders if system.needs_encoder else wanted.encoders[:1]
                for encoder in encoders:
                    yield system, suite, found.encoder(encoder), seed


def _tasks(
    key: RunKey,
    what: tuple[System, Suite, Encoder],
    preset: Preset,
    wanted: Wanted,
    places: Places,
) -> Iterator[Task]:
    """Yield a run with everything it needs before it."""
    system, suite, encoder = what
    data = wanted.data.get(suite.name)
    layout = _layout(suite, encoder, preset, data, places)
    if not isinstance(layout.work, Layout):
        raise TypeError(layout)
    yield layout
    folder = layout.work.folder
    if system.kind == "bm25":
        bm25 = Bm25(key=key, suite=suite, encoder=encoder, preset=preset, layout=folder)
        yield Task(name=str(key), like="bm25", work=bm25, needs=(layout.name,))
        return
    needs = [layout.name]
    heads = None
    start = wanted.starts.get(system.name)
    if system.heads and start is None:
        *makes, taught = _heads(encoder, preset, places)
        yield from makes
        yield taught
        needs.append(taught.name)
        heads = taught.work.folder if isinstance(taught.work, Heads) else None
    if preset.compose.use_reader and (n_wide := preset.compose.n_wide):
        made = Make(settings=preset.pretrain, what="wide", n_wide=n_wide)
        needs.append(f"wide {n_wide} {preset.pretrain.seed}")
        yield Task(name=needs[-1], like="wide", work=made)
    train = Train(
        key=key,
        system=system,
        suite=suite,
        encoder=encoder,
        preset=preset,
        layout=folder,
        heads=heads,
        start=start,
    )
    like = f"{suite.name} {encoder.name} {preset.compose.use_reader} {preset.model.use_plugin}"
    yield Task(name=str(key), like=like, work=train, needs=tuple(needs))


def _layout(
    suite: Suite, encoder: Encoder, preset: Preset, data: Path | None, places: Places
) -> Task:
    length = preset.model.document_length
    size = preset.data.size if data is None else "given"
    # Of another format it would be in the way of a new one.
    version = LAYOUT_FORMAT.rpartition("-")[-1]
    name = f"{suite.name}-{size}-{encoder.vocabulary}-{length}-{stamp(data)}-{version}"
    work = Layout(folder=places.work / "layouts" / name, data=data, preset=preset)
    return Task(name=f"layout {name}", like="layout", work=work)


def _heads(encoder: Encoder, preset: Preset, places: Places) -> Iterator[Task]:
    """Yield the making of sentences, and last the heads of an encoder, plug-in and seed."""
    settings = preset.pretrain
    what = ["sentences", "held-out"] + (["triplets"] if settings.triplet_weight else [])
    needs = []
    for kind in what:
        count = settings.n_held_out if kind == "held-out" else settings.n_sentences
        wide = f" wide {settings.wide}" if kind == "sentences" and settings.wide else ""
        needs.append(f"{kind} {count} {settings.seed}{wide}")
        yield Task(name=needs[-1], like=kind, work=Make(settings=settings, what=kind))
    values = [asdict(preset.plugin), asdict(settings), preset.model.encoder, preset.model.pooling]
    digest = hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:10]
    name = f"{encoder.name}-{preset.plugin.variant}-{preset.plugin.gate}-{settings.seed}-{digest}"
    folder = places.work / "heads" / name
    yield Task(
        name=f"heads {name}",
        like=f"heads {encoder.name} {settings.batch_size} {settings.max_steps}",
        work=Heads(folder=folder, preset=preset),
        needs=tuple(needs),
    )


def _finished(key: RunKey, folders: Sequence[Path], preset: Preset, system: System) -> Path | None:
    """Find a finished run; one made with other settings must not pass for this one."""
    for folder in folders:
        path = folder / key.path
        if not path.is_file():
            continue
        settings = Run.load(path).details.get("settings")
        # What is not pretrained, read or attached does not differ, however it would have been done.
        used = {
            "pretrain": system.heads,
            "compose": preset.compose.use_reader,
            "plugin": preset.model.use_plugin,
        }
        unused = [table for table, is_used in used.items() if not is_used]
        if system.kind != "bm25" and (other := _differs(settings or {}, preset, unused)):
            raise ConfigError(
                f"{path} was run with {other}; name another --out, or remove it to run again"
            )
        return path
    return None


#: Settings that change no result: where an encoder lies, and what only makes a run faster.
_NO_MATTER = frozenset(
    {("model", "encoder"), ("train", "chunk"), ("train", "captured"), ("train", "n_workers")}
)


def _differs(
    found: Mapping[str, Mapping[str, object]], preset: Preset, unused: Sequence[str] = ()
) -> str:
    """Name a setting that differs, but for where an encoder lies and how fast a run goes."""
    own = json.loads(json.dumps(preset.to_dict()))
    # What a run does not name was not there yet, and what came later is off unless it is asked for.
    usual = json.loads(json.dumps(Preset(name="").to_dict()))
    for table, values in own.items():
        if not isinstance(values, dict) or table in unused:
            continue
        there = found.get(table, {})
        for name, value in values.items():
            other = there.get(name, usual[table][name])
            if (table, name) not in _NO_MATTER and other != value:
                return f"{table}.{name} = {other!r}, not {value!r}"
    return ""


def stamp(folder: Path | None) -> str:
    """Name what a folder's files hold, so that changed data is laid out again, a copy not."""
    if folder is None:
        return "own"
    digest = hashlib.sha256()
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        with path.open("rb") as handle:
            own = hashlib.file_digest(handle, "sha256").hexdigest()
        digest.update(f"{path.relative_to(folder)}\0{own}\0".encode())
    return digest.hexdigest()[:12]

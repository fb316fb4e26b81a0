"""A run's folder: settings, versions, seed, revision, data hashes, metrics, checkpoints, model.

``run.json`` describes the run, ``metrics.csv`` holds its metrics by step (step, name, value),
``metrics.json`` the same at the end. The checkpoint is one safetensors file with weights, optimizer
and random state; its metadata has the step and what was logged so far.
"""

from __future__ import annotations

import csv
import json
import logging
import platform
import subprocess
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from boolattn.errors import ConfigError, DataError
from boolattn.files import atomic_file, text_hash
from boolattn.training.loop import processes

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from torch import Tensor, nn

    from boolattn.data.records import Dataset
    from boolattn.training.settings import Preset

logger = logging.getLogger(__name__)

#: Whose versions are stored.
_PACKAGES = ("boolattn", "torch", "transformers", "accelerate", "sentence-transformers", "numpy")
_MODEL, _OPTIMIZER, _RANDOM = "model.", "optimizer.", "random."


class RunFolder:
    """The files of a run; ``model`` is the final one, or the best so far.

    Of several processes only the main one writes; ``history`` is what was logged, ``command`` what
    was typed. A run that was interrupted can be resumed.
    """

    def __init__(self, folder: Path, command: str = "", *, resume: bool = False) -> None:
        self.folder, self.is_main = folder, processes().is_main_process
        self.command, self.resume = command, resume
        self.history: list[dict[str, float]] = []
        self.checkpoint, self.model = folder / "checkpoint.safetensors", folder / "model"

    def open(self, preset: Preset, data: Mapping[str, str], *, kind: str = "train") -> None:
        """Begin a run ("pretrain" or "train"), or resume one of the same settings and data."""
        if not self.is_main:
            return
        path = self.folder / "run.json"
        run = {"kind": kind, "settings": preset.to_dict(), "data": dict(data)}
        if path.is_file():
            if not self.resume:
                raise ConfigError(
                    f"{self.folder} holds a run already; --resume it, or name another"
                )
            try:
                saved = json.loads(path.read_text("utf-8"))
                wrong = [*differences(run, {name: saved.get(name) for name in run})]
            except (OSError, ValueError, AttributeError) as error:
                raise DataError(f"{path} is damaged: {error}") from error
            if wrong:
                remedy = "resume with the same, or name another folder"
                raise ConfigError(f"{self.folder} is a run with {wrong[0]}; {remedy}")
            return
        seed = getattr(preset, kind).seed
        _write_json(path, {**run, "seed": seed, **about_machine(), "command": self.command})

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Add metrics, and write all again: a resumed run may have written later ones."""
        self.history.append({**values, "step": step})
        if not self.is_main:
            return
        words = ", ".join(f"{name} {value:.4g}" for name, value in values.items())
        logger.info("step %d: %s", step, words)
        with atomic_file(self.folder / "metrics.csv") as handle:
            writer = csv.writer(handle)
            writer.writerow(("step", "name", "value"))
            for row in self.history:
                writer.writerows((row["step"], n, float(v)) for n, v in row.items() if n != "step")

    def finish(self, summary: Mapping[str, Any]) -> None:
        """Write the final metrics."""
        if self.is_main:
            values = {"summary": summary, "history": self.history}
            _write_json(self.folder / "metrics.json", values)


def _write_json(path: Path, values: Mapping[str, Any]) -> None:
    with atomic_file(path) as handle:
        handle.write(json.dumps(values, indent=2, ensure_ascii=False) + "\n")


def data_hashes(dataset: Dataset) -> dict[str, str]:
    """Hash documents and queries of each split, whatever file they come from."""
    documents = ((document.id, document.text) for document in dataset.documents)
    hashes = {"name": dataset.name, "documents": text_hash(documents)}
    for split, queries in dataset.splits.items():
        hashes[split] = text_hash((q.id, q.text, " ".join(sorted(q.gold))) for q in queries)
    return hashes


def differences(here: Any, there: Any, name: str = "") -> Iterator[str]:  # noqa: ANN401
    """Yield the settings that differ, with both values."""
    if isinstance(here, dict) and isinstance(there, dict):
        for key in sorted(here.keys() | there.keys()):
            path = f"{name}.{key}".strip(".")
            yield from differences(here.get(key), there.get(key), path)
    elif here != there:
        yield f"{name} = {there!r}, not {here!r}"


def about_machine() -> dict[str, Any]:
    """Return package versions, commit and device, to be stored with a result."""
    versions = {"python": platform.python_version()}
    for name in _PACKAGES:
        with suppress(PackageNotFoundError):
            versions[name] = version(name)
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu"
    # The kernel's version says nothing about a result.
    system = f"{platform.system()} {platform.machine()}"
    machine = {"n_threads": torch.get_num_threads(), "system": system}
    return {"versions": versions, "revision": _revision(), "machine": {"device": device, **machine}}


def _revision() -> str:
    """Return the commit of this package's checkout, "+" where files differ from it."""
    describe = ["describe", "--always", "--abbrev=40", "--exclude=*", "--dirty=+"]
    command = ["git", "-C", str(Path(__file__).parent), *describe]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=20)
    except (OSError, subprocess.SubprocessError):
        return "unknown"
    return done.stdout.strip()


def write_checkpoint(
    path: Path,
    step: int,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    history: list[dict[str, float]],
) -> None:
    """Write the checkpoint of a step in the place of the one before, or not at all."""
    tensors = {_MODEL + name: tensor.contiguous() for name, tensor in _weights(model).items()}
    for index, moments in optimizer.state_dict()["state"].items():
        for name, value in moments.items():
            tensors[f"{_OPTIMIZER}{index}.{name}"] = torch.as_tensor(value).contiguous()
    tensors[f"{_RANDOM}cpu"] = torch.get_rng_state()
    if torch.cuda.is_available():
        tensors[f"{_RANDOM}cuda"] = torch.cuda.get_rng_state()
    draft = path.with_suffix(".part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        save_file(tensors, draft, {"step": str(step), "history": json.dumps(history)})
        draft.replace(path)
    except (OSError, SafetensorError) as error:
        draft.unlink(missing_ok=True)
        after = "the one before is complete" if path.is_file() else "there is none before it"
        raise DataError(f"cannot write {path} at step {step}: {error}; {after}") from error


def load_checkpoint(
    path: Path, model: nn.Module, optimizer: torch.optim.Optimizer
) -> tuple[int, list[dict[str, float]]]:
    """Load weights, optimizer and random state; return the step, and what was logged until then."""
    try:
        with safe_open(path, framework="pt") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            about = file.metadata()
            step, history = int(about["step"]), json.loads(about["history"])
    except (OSError, SafetensorError, KeyError, TypeError, ValueError) as error:
        raise DataError(f"{path} is damaged ({error}); remove it to begin again") from error
    saved, weights = _under(tensors, _MODEL), _weights(model)
    here, there = ({n: tuple(t.shape) for n, t in part.items()} for part in (weights, saved))
    for name in sorted(here.keys() | there.keys()):
        if here.get(name) != there.get(name):
            raise ConfigError(
                f"{path} is of another model: {name} is {there.get(name)} there and "
                f"{here.get(name)} here"
            )
        weights[name].copy_(saved[name])
    moments: dict[int, dict[str, Any]] = {}
    for name, tensor in _under(tensors, _OPTIMIZER).items():
        index, _, kind = name.partition(".")
        moments.setdefault(int(index), {})[kind] = tensor
    # The groups, with the learning rates of this step, are those of the loop.
    optimizer.load_state_dict({**optimizer.state_dict(), "state": moments})
    random = _under(tensors, _RANDOM)
    torch.set_rng_state(random["cpu"])
    if torch.cuda.is_available() and "cuda" in random:
        torch.cuda.set_rng_state(random["cuda"])
    return step, history


def _under(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {n.removeprefix(prefix): t for n, t in tensors.items() if n.startswith(prefix)}


def _weights(model: nn.Module) -> dict[str, Tensor]:
    """Return the model's tensors under one name each, though towers may share them."""
    tensors = chain(model.named_parameters(), model.named_buffers())
    return {name: tensor.detach() for name, tensor in tensors}

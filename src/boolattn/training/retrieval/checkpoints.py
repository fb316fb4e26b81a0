"""Checkpoints: everything that resuming a run needs, written atomically, without pickle.

A folder holds ``model.safetensors``, ``optimizer.safetensors``, ``random.safetensors``,
``state.json`` (schedule and optimiser settings), ``trainer_state.json`` and, written last,
``manifest.json`` with the size of each file.
"""

from __future__ import annotations

import json
import logging
import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from boolattn.errors import ConfigError, DataError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from torch import Tensor, nn

logger = logging.getLogger(__name__)

FORMAT = "boolattn-checkpoint-1"
PREFIX = "checkpoint-"
#: The file in which transformers looks for its own state.
TRAINER_STATE = "trainer_state.json"


@dataclass(frozen=True)
class State:
    """Optimiser and schedule (``state_dict()``), and random generators by name."""

    optimizer: Mapping[str, Any]
    scheduler: Mapping[str, Any]
    random: Mapping[str, Tensor]


def write_checkpoint(
    folder: Path, step: int, model: nn.Module, state: State, write_more: Callable[[Path], None]
) -> Path:
    """Write a checkpoint, shared weights once; on a failure the earlier ones stay as they are.

    ``write_more`` is called with the draft folder, for further files.
    """
    target = folder / f"{PREFIX}{step:07d}"
    draft = folder / f"{target.name}.part"
    shutil.rmtree(draft, ignore_errors=True)
    try:
        draft.mkdir(parents=True)
        save_file(_weights(model), draft / "model.safetensors")
        moments = {
            f"{index}.{name}": torch.as_tensor(value).contiguous()
            for index, parts in state.optimizer["state"].items()
            for name, value in parts.items()
        }
        save_file(moments, draft / "optimizer.safetensors")
        save_file(dict(state.random), draft / "random.safetensors")
        kept = {k: v for k, v in state.scheduler.items() if _is_plain(v)}
        text = json.dumps({"optimizer": state.optimizer["param_groups"], "scheduler": kept})
        (draft / "state.json").write_text(text, encoding="utf-8")
        write_more(draft)
        files = {path.name: path.stat().st_size for path in sorted(draft.iterdir())}
        manifest = {"format": FORMAT, "step": step, "files": files}
        (draft / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
        # A folder of the same step was left by an interrupted run, with the same weights.
        shutil.rmtree(target, ignore_errors=True)
        draft.rename(target)
    except (OSError, SafetensorError) as error:
        good = last_checkpoint(folder)
        after = f"the last complete one is {good}" if good else "there is none before it"
        reason = getattr(error, "strerror", None) or error
        raise DataError(f"cannot write checkpoint {target}: {reason}; {after}") from error
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return target


def last_checkpoint(folder: Path) -> Path | None:
    """Return the newest complete checkpoint."""
    for path in reversed(_written(folder)):
        if _is_complete(path):
            return path
        logger.warning("%s is incomplete and is skipped", path)
    return None


def drop_old(folder: Path, n_kept: int) -> None:
    """Remove all but the newest checkpoints."""
    for path in _written(folder)[:-n_kept]:
        shutil.rmtree(path, ignore_errors=True)


def _written(folder: Path) -> list[Path]:
    return sorted(path for path in folder.glob(f"{PREFIX}*") if path.suffix != ".part")


def load_weights(checkpoint: Path, model: nn.Module) -> None:
    """Load a checkpoint's weights into the model that it was made of."""
    tensors = _load(checkpoint / "model.safetensors")
    own = _weights(model)
    for name in sorted(own.keys() ^ tensors.keys()):
        where = "this model" if name in own else "the checkpoint"
        raise ConfigError(f"{checkpoint} is of another model: only {where} has {name}")
    for name, tensor in tensors.items():
        if tensor.shape != own[name].shape:
            raise ConfigError(
                f"{checkpoint} is of another model: {name} is {tuple(tensor.shape)} there and "
                f"{tuple(own[name].shape)} here"
            )
    # Into the model's own tensors: a shared one has several names and one memory.
    targets = model.state_dict()
    with torch.no_grad():
        for name, tensor in tensors.items():
            targets[name].copy_(tensor)


def load_state(checkpoint: Path) -> State:
    """Read optimiser, schedule and random generators."""
    try:
        values = json.loads((checkpoint / "state.json").read_text("utf-8"))
        groups, scheduler = values["optimizer"], values["scheduler"]
    except (OSError, ValueError, KeyError) as error:
        raise DataError(f"{checkpoint}/state.json is damaged: {error}") from error
    moments: dict[int, dict[str, Tensor]] = {}
    for name, tensor in _load(checkpoint / "optimizer.safetensors").items():
        index, _, part = name.partition(".")
        moments.setdefault(int(index), {})[part] = tensor
    for group in groups:
        # JSON has no tuples, and AdamW unpacks one.
        group["betas"] = tuple(group["betas"])
    optimizer = {"state": moments, "param_groups": groups}
    return State(optimizer, scheduler, _load(checkpoint / "random.safetensors"))


def _weights(model: nn.Module) -> dict[str, Tensor]:
    """Return the model's tensors under one name each, though towers may share them."""
    seen: set[tuple[int, int]] = set()
    weights = {}
    for name, tensor in model.state_dict().items():
        # Empty tensors have no memory to compare.
        place = (tensor.data_ptr(), tensor.numel())
        if place not in seen or not tensor.numel():
            seen.add(place)
            weights[name] = tensor.contiguous()
    return weights


def _is_plain(value: object) -> bool:
    try:
        json.dumps(value)
    except TypeError:
        return False
    return True


def _is_complete(path: Path) -> bool:
    try:
        manifest = json.loads((path / "manifest.json").read_text("utf-8"))
        sizes = {name: (path / name).stat().st_size for name in manifest["files"]}
    except (OSError, ValueError, KeyError, TypeError):
        return False
    return bool(manifest["format"] == FORMAT and sizes == manifest["files"])


def _load(path: Path) -> dict[str, Tensor]:
    try:
        return load_file(path)
    except (OSError, SafetensorError) as error:
        raise DataError(f"{path} is damaged: {error}") from error

"""Checkpoints: one safetensors file with weights, optimizer and random state, written atomically.

The metadata of the file has what was logged so far.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from boolattn.errors import ConfigError, DataError

if TYPE_CHECKING:
    from pathlib import Path

    from torch import Tensor, nn

PREFIX, ENDING = "checkpoint-", ".safetensors"
_MODEL, _OPTIMIZER, _RANDOM = "model.", "optimizer.", "random."
_N_KEPT = 2


def write_checkpoint(
    folder: Path,
    step: int,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    history: list[dict[str, float]],
) -> None:
    """Write the checkpoint of a step and remove older ones; shared weights are written once."""
    tensors = {_MODEL + name: tensor for name, tensor in _weights(model).items()}
    for index, moments in optimizer.state_dict()["state"].items():
        for name, value in moments.items():
            tensors[f"{_OPTIMIZER}{index}.{name}"] = torch.as_tensor(value).contiguous()
    tensors[f"{_RANDOM}cpu"] = torch.get_rng_state()
    if torch.cuda.is_available():
        tensors[f"{_RANDOM}cuda"] = torch.cuda.get_rng_state()
    target = folder / f"{PREFIX}{step:07d}{ENDING}"
    draft = target.with_suffix(".part")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        save_file(tensors, draft, {"history": json.dumps(history)})
        draft.replace(target)
    except (OSError, SafetensorError) as error:
        draft.unlink(missing_ok=True)
        last = last_checkpoint(folder)
        after = f"the last complete one is {last}" if last else "there is none before it"
        raise DataError(f"cannot write {target}: {error}; {after}") from error
    for path in _written(folder)[:-_N_KEPT]:
        path.unlink()


def last_checkpoint(folder: Path) -> Path | None:
    """Return the newest checkpoint."""
    return next(reversed(_written(folder)), None)


def step_of(checkpoint: Path) -> int:
    """Return the number of steps that were done."""
    return int(checkpoint.stem.removeprefix(PREFIX))


def load_checkpoint(
    path: Path, model: nn.Module, optimizer: torch.optim.Optimizer
) -> list[dict[str, float]]:
    """Load weights, optimizer and random state; return what was logged until then."""
    try:
        with safe_open(path, framework="pt") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            history: list[dict[str, float]] = json.loads(file.metadata()["history"])
    except (OSError, SafetensorError, KeyError, TypeError, ValueError) as error:
        raise DataError(f"{path} is damaged ({error}); remove it") from error
    _load_weights(path, model, _under(tensors, _MODEL))
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
    return history


def _load_weights(path: Path, model: nn.Module, tensors: dict[str, Tensor]) -> None:
    here = {name: tuple(tensor.shape) for name, tensor in _weights(model).items()}
    there = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
    for name in sorted(here.keys() | there.keys()):
        if here.get(name) != there.get(name):
            raise ConfigError(
                f"{path} is of another model: {name} is {there.get(name)} there and "
                f"{here.get(name)} here"
            )
    # Into the model's own tensors: a shared one has several names and one memory.
    targets = model.state_dict()
    with torch.no_grad():
        for name, tensor in tensors.items():
            targets[name].copy_(tensor)


def _under(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {n.removeprefix(prefix): t for n, t in tensors.items() if n.startswith(prefix)}


def _written(folder: Path) -> list[Path]:
    return sorted(folder.glob(f"{PREFIX}*{ENDING}"))


def _weights(model: nn.Module) -> dict[str, Tensor]:
    """Return the model's tensors under one name each, though towers may share them."""
    seen: set[tuple[int, int]] = set()
    weights = {}
    for name, tensor in model.state_dict().items():
        # Empty tensors have no memory to compare.
        memory = (tensor.data_ptr(), tensor.numel())
        if memory not in seen or not tensor.numel():
            seen.add(memory)
            weights[name] = tensor.contiguous()
    return weights

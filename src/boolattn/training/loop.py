"""The training loop, and the folder of a run.

AdamW, a learning rate that rises and falls linearly, clipped gradients. ``run.json`` has settings,
versions, seed, revision and data hashes, ``metrics.csv`` the metrics by step (step, name, value),
``metrics.json`` the same at the end. The checkpoint is one safetensors file with weights, optimizer
and random state; its metadata has the step and what was logged so far.
"""

from __future__ import annotations

import csv
import json
import logging
import platform
import subprocess
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib.metadata import PackageNotFoundError, version
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from accelerate import PartialState
from accelerate.utils import reduce
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn
from transformers import get_linear_schedule_with_warmup
from transformers.trainer_pt_utils import get_parameter_names

from boolattn.errors import ConfigError, DataError
from boolattn.files import atomic_file, text_hash, write_text
from boolattn.jsonl import parse_object
from boolattn.plugin.install import NAME as PLUGIN

if TYPE_CHECKING:
    from boolattn.data.records import Dataset
    from boolattn.training.settings import LoopSettings, Preset

    Log = Callable[[int, dict[str, float]], None]

logger = logging.getLogger(__name__)

#: Whose versions are stored.
_PACKAGES = ("boolattn", "torch", "transformers", "accelerate", "sentence-transformers", "numpy")
_MODEL, _OPTIMIZER, _RANDOM = "model.", "optimizer.", "random."
FINGERPRINT = 16  # Letters of a fingerprint
#: Parameters without weight decay, by the end of their own name: constants that are added, widths,
#: thresholds and factors. The name of their module says nothing: the bias predictor has weights.
_NO_DECAY_NAMES = ("bias", "sigma", "threshold", "factor")


def processes() -> PartialState:
    """Join the processes that torchrun started, if it did."""
    return PartialState(cpu=not torch.cuda.is_available())


@contextmanager
def fast_products() -> Iterator[None]:
    """Let a GPU multiply float32 matrices in TF32, several times as fast.

    Not for retrieval: TF32 has too few digits for the difference of two scores near 20.
    """
    before = torch.get_float32_matmul_precision()
    if torch.cuda.is_available():
        torch.set_float32_matmul_precision("high")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


class Loop:
    """Trains parameters, or groups of them, from step ``start`` on, which counts from 0.

    Groups may have their own learning rate. ``name`` says what is trained, for the error message;
    there are ``log_every`` steps between log entries, and the last step is logged too.
    """

    start = 0

    def __init__(
        self,
        parameters: Iterable[nn.Parameter] | Iterable[dict[str, Any]],
        settings: LoopSettings,
        name: str,
        n_steps: int,
        *,
        log_every: int = 20,
    ) -> None:
        self.name, self.settings, self.n_steps, self.log_every = name, settings, n_steps, log_every
        self.optimizer = torch.optim.AdamW(
            parameters,
            lr=settings.learning_rate,
            weight_decay=settings.weight_decay,
            fused=torch.cuda.is_available() or None,
        )
        for group in self.optimizer.param_groups:
            group["initial_lr"] = group["lr"]

    def run(
        self,
        losses_of: Callable[[int], Mapping[str, Tensor]],
        log: Log = lambda _step, _losses: None,
        after_step: Callable[[int], None] = lambda _step: None,
    ) -> None:
        """Minimise the sum of the losses of each step.

        ``log`` gets the steps so far and mean losses since its last call, ``after_step`` the steps.
        """
        steps = (self.settings.warmup_steps, self.n_steps, self.start - 1)
        schedule = get_linear_schedule_with_warmup(self.optimizer, *steps)
        since: list[dict[str, Tensor]] = []
        trained = [p for group in self.optimizer.param_groups for p in group["params"]]
        for step in range(self.start, self.n_steps):
            losses = losses_of(step)
            total = torch.stack(list(losses.values())).sum()
            since.append({name: loss.detach() for name, loss in losses.items()})
            is_logged = (step + 1) % self.log_every == 0 or step + 1 == self.n_steps
            # Reading a number makes a GPU wait, so it is read with the log alone.
            if is_logged or not total.is_cuda:
                self._check(since, step)
            total.backward()
            nn.utils.clip_grad_norm_(trained, self.settings.max_grad_norm)
            self.optimizer.step()
            schedule.step()
            self.optimizer.zero_grad()
            if is_logged:
                means = {n: torch.stack([row[n] for row in since]).mean() for n in since[-1]}
                log(step + 1, {name: reduce(mean, "mean").item() for name, mean in means.items()})
                since = []
            after_step(step + 1)

    def _check(self, since: list[dict[str, Tensor]], step: int) -> None:
        """Stop at the first loss that is not finite, and name its step."""
        for number, losses in enumerate(since, step + 2 - len(since)):
            total = torch.stack(list(losses.values())).sum()
            if not torch.isfinite(total):
                problem = f"the {self.name} loss is {total.item()} at step {number}"
                raise ConfigError(f"{problem}; lower its learning rate")


def parameter_groups(
    model: nn.Module, settings: LoopSettings, plugin_rate: float = 0.0
) -> list[dict[str, Any]]:
    """Return the trained parameters by learning rate and weight decay, for an optimizer.

    The plug-in, which begins untrained, may have its own rate.
    """
    constants = [f"{name}$" for name in _NO_DECAY_NAMES]
    decaying = {*get_parameter_names(model, [nn.LayerNorm], constants)}
    groups: dict[tuple[float, float], list[nn.Parameter]] = {}
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            decay = settings.weight_decay if name in decaying else 0.0
            key = ((plugin_rate if f"{PLUGIN}." in name else 0.0) or settings.learning_rate, decay)
            groups.setdefault(key, []).append(parameter)
    return [{"params": p, "lr": rate, "weight_decay": d} for (rate, d), p in groups.items()]


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
        if not path.is_file():
            about = {"seed": getattr(preset, kind).seed, **about_machine()}
            _write_json(path, {**run, **about, "command": self.command})
            return
        if not self.resume:
            raise ConfigError(f"{self.folder} holds a run already; --resume it, or name another")
        saved = parse_object(path.read_bytes(), str(path))
        if wrong := [*differences(run, {name: saved.get(name) for name in run})]:
            remedy = "resume with the same, or name another folder"
            raise ConfigError(f"{self.folder} is a run with {wrong[0]}; {remedy}")

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Add metrics, and write all again: a resumed run may have written later ones."""
        self.history.append({**values, "step": step})
        if not self.is_main:
            return
        words = ", ".join(f"{name} {value:.4g}" for name, value in values.items())
        logger.info("step %d: %s", step, words)
        pairs = ((row["step"], item) for row in self.history for item in row.items())
        rows = [(at, name, float(value)) for at, (name, value) in pairs if name != "step"]
        with atomic_file(self.folder / "metrics.csv") as handle:
            csv.writer(handle).writerows([("step", "name", "value"), *rows])

    def finish(self, summary: Mapping[str, Any]) -> None:
        """Write the final metrics."""
        if self.is_main:
            values = {"summary": summary, "history": self.history}
            _write_json(self.folder / "metrics.json", values)

    def write_checkpoint(
        self, step: int, model: nn.Module, optimizer: torch.optim.Optimizer
    ) -> None:
        """Write the checkpoint of a step in the place of the one before, or not at all."""
        path, weights = self.checkpoint, _weights(model)
        tensors = {_MODEL + name: tensor.contiguous() for name, tensor in weights.items()}
        for index, moments in optimizer.state_dict()["state"].items():
            named = {f"{_OPTIMIZER}{index}.{name}": value for name, value in moments.items()}
            tensors |= {name: torch.as_tensor(value).contiguous() for name, value in named.items()}
        tensors[f"{_RANDOM}cpu"] = torch.get_rng_state()
        if torch.cuda.is_available():
            tensors[f"{_RANDOM}cuda"] = torch.cuda.get_rng_state()
        draft = path.with_suffix(".part")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            save_file(tensors, draft, {"step": str(step), "history": json.dumps(self.history)})
            draft.replace(path)
        except (OSError, SafetensorError) as error:
            draft.unlink(missing_ok=True)
            after = "the one before is complete" if path.is_file() else "there is none before it"
            raise DataError(f"cannot write {path} at step {step}: {error}; {after}") from error

    def load_checkpoint(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> int:
        """Load weights, optimizer, random state and what was logged; return the step."""
        path = self.checkpoint
        try:
            with safe_open(path, framework="pt") as file:
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
                about = file.metadata()
                step, self.history = int(about["step"]), json.loads(about["history"])
        except (OSError, SafetensorError, KeyError, TypeError, ValueError) as error:
            raise DataError(f"{path} is damaged ({error}); remove it to begin again") from error
        saved, weights = _under(tensors, _MODEL), _weights(model)
        here, there = ({n: tuple(t.shape) for n, t in part.items()} for part in (weights, saved))
        if wrong := [*differences(here, there)]:
            raise ConfigError(f"{path} is of another model: the shape of {wrong[0]}")
        for name, weight in weights.items():
            weight.copy_(saved[name])
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
        return step


def _write_json(path: Path, values: Mapping[str, Any]) -> None:
    write_text(path, json.dumps(values, indent=2, ensure_ascii=False) + "\n")


def data_fingerprint(dataset: Dataset, splits: Iterable[str]) -> str:
    """Hash documents, queries and answers, whatever files they come from."""
    rows = [(document.id, document.text) for document in dataset.documents]
    pairs = ((split, query) for split in splits for query in dataset.splits.get(split, ()))
    for split, query in pairs:
        ids = "\0".join([*sorted(query.gold), *sorted(query.excluded)])
        rows.append((f"{split} {query.id}", query.text + ids))
    return text_hash(rows)[:FINGERPRINT]


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
    versions, revision = {"python": platform.python_version()}, "unknown"
    for name in _PACKAGES:
        with suppress(PackageNotFoundError):
            versions[name] = version(name)
    # The commit of this package's checkout, "+" where files differ from it.
    describe = ["describe", "--always", "--abbrev=40", "--exclude=*", "--dirty=+"]
    command = ["git", "-C", str(Path(__file__).parent), *describe]
    with suppress(OSError, subprocess.SubprocessError):
        revision = subprocess.check_output(
            command, text=True, stderr=subprocess.DEVNULL, timeout=20
        ).strip()
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu"
    # The kernel's version says nothing about a result.
    system = f"{platform.system()} {platform.machine()}"
    machine = {"device": device, "n_threads": torch.get_num_threads(), "system": system}
    return {"versions": versions, "revision": revision, "machine": machine}


def _under(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {n.removeprefix(prefix): t for n, t in tensors.items() if n.startswith(prefix)}


def _weights(model: nn.Module) -> dict[str, Tensor]:
    """Return the model's tensors under one name each, though towers may share them."""
    return {n: t.detach() for n, t in chain(model.named_parameters(), model.named_buffers())}

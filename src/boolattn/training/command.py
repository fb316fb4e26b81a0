"""The command that makes a run again, for the model's card and the run's folder.

It is built from the settings, not from what was typed: a run may be one of many that a
reproduction started, or be started from Python. Folders go by their last name, because where they
lie on one machine is of no use on another. May import: boolattn.training.settings, boolattn.errors.
"""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

from boolattn.errors import BoolattnError
from boolattn.training.preset_files import load_preset, make_preset, preset_names
from boolattn.training.settings import TABLES

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from boolattn.training.settings import Preset

#: What a pretraining reads of a preset: everything of these tables, and these single settings.
_HEADS_TABLES = ("plugin", "pretrain")
_HEADS_KEYS = ("model.encoder", "model.pooling", "train.needs_gpu")


def pretrain_command(preset: Preset, out: str = "heads") -> str:
    """Write the command of an auxiliary pretraining."""
    base, changes = difference(preset)
    chosen = [
        change
        for change in changes
        if change.startswith(tuple(f"{table}." for table in _HEADS_TABLES))
        or change.partition("=")[0] in _HEADS_KEYS
    ]
    return _line(["boolattn", "pretrain", "--preset", base, *_sets(chosen), "--out", out])


def train_command(
    preset: Preset,
    *,
    data: Path | None = None,
    pretrained: Path | None = None,
    rankings: Path | None = None,
) -> str:
    """Write the command of a training, with that of the heads it began from before it.

    Args:
        preset: Every number.
        data: Folder of the data set, where one was given.
        pretrained: What the run began from.
        rankings: File of negatives, where one was given.
    """
    base, changes = difference(preset)
    chosen = [change for change in changes if not change.startswith("pretrain.")]
    words = ["boolattn", "train", "--preset", base, *_sets(chosen)]
    if data is not None or preset.data.name == "beir":
        words += ["--data", data.name if data else "FOLDER"]
    lines = []
    if pretrained is not None:
        heads = _heads_of(preset, pretrained)
        if heads is not None:
            lines.append(pretrain_command(heads))
        words += ["--pretrained", "heads/model" if heads else _named(pretrained)]
    if rankings is not None:
        words += ["--rankings", rankings.name]
    lines.append(_line([*words, "--out", "run"]))
    return "\n".join(lines)


def finish_command(preset: Preset, pretrained: Path, *, data: Path | None = None) -> str:
    """Write the command that finishes a trained model."""
    base, changes = difference(preset)
    words = ["python", "-m", "boolattn.training", "finish", "--preset", base, *_sets(changes)]
    words += ["--data", data.name] if data else []
    return _line([*words, "--pretrained", _named(pretrained), "--out", "run"])


def difference(preset: Preset) -> tuple[str, list[str]]:
    """Find the preset of the package that a run stands on, and what it changes.

    Returns:
        The preset's name, the nearest one's where the package has none of that name; and
        ``table.key=value`` for each setting that differs.
    """
    names = preset_names()
    if preset.name in names:
        return preset.name, list(_changes(preset, load_preset(preset.name)))
    found = {name: list(_changes(preset, load_preset(name))) for name in names}
    best = min(names, key=lambda name: len(found[name]))
    return best, found[best]


def _changes(preset: Preset, base: Preset) -> Iterator[str]:
    own, usual = preset.to_dict(), base.to_dict()
    own["model"]["encoder"] = _encoder_name(preset.model.encoder)
    for table in TABLES:
        for key, value in own[table].items():
            if value != usual[table][key]:
                yield f"{table}.{key}={_written(value)}"


def _encoder_name(encoder: str) -> str:
    return Path(encoder).resolve().name if Path(encoder).is_dir() else encoder


def _written(value: Any) -> str:  # noqa: ANN401 - any setting
    """Write a value as ``--set`` reads it.

    >>> _written(None), _written(True), _written((0, 5)), _written(5e-05)
    ('none', 'true', '[0, 5]', '5e-05')
    """
    if value is None:
        return "none"
    if isinstance(value, (bool, tuple, list)):
        return json.dumps(value)
    return str(value)


def _heads_of(preset: Preset, folder: Path) -> Preset | None:
    """Return the settings of a pretraining; None where the folder holds trained towers."""
    if (folder / "modules.json").is_file():
        return None
    try:
        settings = json.loads((folder.parent / "run.json").read_text("utf-8"))["settings"]
        tables = {table: settings[table] for table in TABLES if table in settings}
        return make_preset(settings["name"], tables)
    except (OSError, ValueError, KeyError, TypeError, BoolattnError):
        # Heads that a reproduction taught have the settings of the run they were taught for.
        return preset


def _named(folder: Path) -> str:
    """Name a model's folder; "model" alone, which every run has, would say nothing."""
    folder = folder.resolve()
    return "/".join(folder.parts[-2:]) if folder.name == "model" else folder.name


def _sets(changes: Sequence[str]) -> Iterator[str]:
    for change in changes:
        yield "--set"
        yield change


def _line(words: Sequence[str]) -> str:
    return shlex.join(words)

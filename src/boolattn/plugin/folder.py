"""A model's folder on disk, replaced whole or not at all, and nothing else lost with it.

May import: boolattn.errors.
"""

from __future__ import annotations

import shutil
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from boolattn.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def whole_folder(folder: Path, *, mark: str = "") -> Iterator[Path]:
    """Give a draft folder that takes the folder's name when the block ends well.

    An older model under that name is replaced; files beside it that a person put there are kept.

    Args:
        folder: The folder's name.
        mark: A file that only such a folder holds. Given, any other folder with something in it
            is refused instead of replaced.
    """
    folder = Path(folder).resolve()
    if mark and folder.is_dir() and any(folder.iterdir()) and not (folder / mark).is_file():
        raise ConfigError(f"{folder} holds other files and no {mark}; name a new or empty folder")
    if folder.exists() and not folder.is_dir():
        raise ConfigError(f"{folder} is a file; name a folder")
    draft, old = (folder.with_name(f"{folder.name}.{part}") for part in ("part", "old"))
    shutil.rmtree(draft, ignore_errors=True)
    draft.mkdir(parents=True)
    try:
        yield draft
        if folder.exists():
            _keep_foreign(folder, draft)
            shutil.rmtree(old, ignore_errors=True)
            folder.rename(old)
        try:
            draft.rename(folder)
        except OSError:
            if old.exists():
                old.rename(folder)
            raise
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    shutil.rmtree(old, ignore_errors=True)


def _keep_foreign(folder: Path, draft: Path) -> None:
    """Carry over files that are not the older model's weights and have no successor."""
    for path in folder.iterdir():
        is_weights = path.name.endswith((".safetensors", ".safetensors.index.json"))
        if path.is_file() and not is_weights and not (draft / path.name).exists():
            shutil.copy2(path, draft / path.name)

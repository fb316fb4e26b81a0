"""The tables of the paper, and the numbers of parameters of its models."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

OURS = "ours"


@dataclass(frozen=True)
class Reported:
    """One row of a table: values by metric, and who reports them ("ours", "paper")."""

    label: str
    who: str
    values: Mapping[str, float]
    note: str = ""


@dataclass(frozen=True)
class Target:
    """A table or figure of the paper: its columns and rows, and our systems for it."""

    name: str
    title: str
    on: str
    metrics: tuple[str, ...]
    systems: tuple[str, ...]
    rows: tuple[Reported, ...]


@lru_cache(maxsize=1)
def targets() -> dict[str, Target]:
    """Read ``paper.toml``."""
    text = files("boolattn.reproduction").joinpath("paper.toml").read_text("utf-8")
    found = {}
    for name, table in tomllib.loads(text).items():
        metrics = tuple(table["metrics"])
        rows = tuple(
            Reported(row["label"], row["who"], dict(zip(metrics, row["values"], strict=True)))
            for row in table["rows"]
        )
        systems = tuple(table["systems"])
        found[name] = Target(name, table["title"], table["on"], metrics, systems, rows)
    return found


#: BERT's sizes, as transformers names them.
_SIZES: Mapping[str, Mapping[str, int]] = {
    "base": {},
    "large": {
        "hidden_size": 1024,
        "num_hidden_layers": 24,
        "num_attention_heads": 16,
        "intermediate_size": 4096,
    },
}
#: Millions of parameters; the paper says "approximately" and "around".
_STATED = {"base": 121.0, "large": 378.0}


def sizes() -> list[dict[str, Any]]:
    """Count the parameters of BERT alone, with the plug-in, and with its light form."""
    import torch
    from transformers import AutoConfig, AutoModel

    from boolattn.attention.config import BoolAttnConfig
    from boolattn.plugin import attach

    found = []
    for name, size in _SIZES.items():
        for variant, rank in (("paper", None), ("corrected", None), ("corrected", 16)):
            with torch.device("meta"):
                encoder = AutoModel.from_config(AutoConfig.for_model("bert", **size))
                alone = sum(parameter.numel() for parameter in encoder.parameters())
                attach(encoder, BoolAttnConfig(variant=variant, gate="learned", rank=rank))
            total = sum(parameter.numel() for parameter in encoder.parameters())
            found.append(
                {
                    "encoder": f"BERT-{name}",
                    "variant": variant + (f", rank {rank}" if rank else ""),
                    "encoder_millions": round(alone / 1e6, 1),
                    "total_millions": round(total / 1e6, 1),
                    "added_percent": round(100 * (total - alone) / alone, 1),
                    "paper_millions": _STATED[name] if variant == "paper" else None,
                }
            )
    return found

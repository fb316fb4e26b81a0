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


#: As transformers names them.
_SIZES = ("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size")
#: Each BERT with these sizes, and the paper's "approximately" so many millions of parameters.
_BERTS = {"base": ((768, 12, 12, 3072), 121.0), "large": ((1024, 24, 16, 4096), 378.0)}


def sizes() -> list[dict[str, Any]]:
    """Count the parameters of BERT alone, with the plug-in, and with its light form."""
    import torch
    from transformers import AutoConfig, AutoModel

    from boolattn.attention.config import BoolAttnConfig
    from boolattn.plugin import attach

    found = []
    for name, (size, stated) in _BERTS.items():
        config = AutoConfig.for_model("bert", **dict(zip(_SIZES, size, strict=True)))
        for variant, rank in (("paper", None), ("corrected", None), ("corrected", 16)):
            with torch.device("meta"):
                encoder = AutoModel.from_config(config)
                alone = encoder.num_parameters()
                attach(encoder, BoolAttnConfig(variant=variant, gate="learned", rank=rank))
            total = encoder.num_parameters()
            found.append(
                {
                    "encoder": f"BERT-{name}",
                    "variant": variant + (f", rank {rank}" if rank else ""),
                    "encoder_millions": round(alone / 1e6, 1),
                    "total_millions": round(total / 1e6, 1),
                    "added_percent": round(100 * (total - alone) / alone, 1),
                    "paper_millions": stated if variant == "paper" else None,
                }
            )
    return found

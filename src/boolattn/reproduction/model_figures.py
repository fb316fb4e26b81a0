"""Figure 1 of the paper and the sizes of its models: from a model alone, without runs."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from boolattn.evaluation import figures
from boolattn.evaluation.tables import markdown
from boolattn.files import atomic_file

if TYPE_CHECKING:
    from pathlib import Path

    from transformers import PreTrainedModel, PreTrainedTokenizerBase

#: A sentence like the paper's.
SENTENCE = "films set in Vietnam that are also comedies but not Italian action films"
#: As transformers names them.
_SIZES = ("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size")
#: Each BERT with these sizes, and the paper's "approximately" so many millions of parameters.
_BERTS = {"base": ((768, 12, 12, 3072), 121.0), "large": ((1024, 24, 16, 4096), 378.0)}


def figure1(model: Path | None, out: Path, text: str = SENTENCE) -> str:
    """Draw the effect of BoolAttn on one sentence, which the paper's Figure 1 sketches."""
    from boolattn.encoders.models import shipped_model, torch_folder
    from boolattn.plugin.explain import explain

    home = torch_folder(model) if model else shipped_model()
    found = explain(*load_query_encoder(home), text)
    write_text(out / "figure1.json", json.dumps(found.to_dict(), ensure_ascii=False))
    figures.save(found.figure(), out / "figure1.png")
    rows = []
    for row in found.rows():
        cues = [op.upper() for op, p in row["cue"].items() if p > 0.5]
        scopes = [op.upper() for op, p in row["scope"].items() if p > 0.5 and found.gate[op]]
        cells = (" ".join(operators) or "–" for operators in (cues, scopes))
        rows.append([row["token"], *cells, f"{100 * row['attention_change']:+.1f}%"])
    table = markdown(["token", "cue of", "in the scope of", "attention received"], rows)
    text = f"**Figure 1: attention changed by the operators**\n\n“{text}”\n\n{table}"
    write_text(out / "figure1.md", text)
    return text


def load_query_encoder(home: Path) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """Load the encoder with BoolAttn, and its tokenizer, from a trained model or a pretraining."""
    from transformers import AutoTokenizer

    from boolattn.encoder.tower_storage import load_towers
    from boolattn.encoder.towers import query_encoder
    from boolattn.plugin import attach, load

    is_towers = (home / "modules.json").is_file()
    encoder = query_encoder(load_towers(home)) if is_towers else load(home)
    if not hasattr(encoder.base_model, "boolattn"):
        attach(encoder, "shipped")
    return encoder, AutoTokenizer.from_pretrained(home, local_files_only=True)


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


def count_sizes(out: Path) -> str:
    """Show the numbers of parameters beside the paper's."""
    found = sizes()
    rows = []
    for row in found:
        stated = f"about {row['paper_millions']:.0f}M (paper)" if row["paper_millions"] else "–"
        sized = (f"{row['encoder_millions']}M", f"{row['total_millions']}M")
        rows.append([row["encoder"], row["variant"], *sized, f"{row['added_percent']}%", stated])
    heads = ["encoder", "BoolAttn", "encoder alone", "with BoolAttn", "added", "the paper says"]
    text = f"**Sizes**\n\n{markdown(heads, rows)}"
    write_text(out / "sizes.json", json.dumps(found, indent=1))
    write_text(out / "sizes.md", text)
    return text


def write_text(path: Path, text: str) -> None:
    """Write a text file, atomically."""
    with atomic_file(path) as handle:
        handle.write(text + "\n")

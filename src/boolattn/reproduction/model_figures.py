"""Figure 1 of the paper: from a model alone, without runs."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from boolattn.evaluation import figures
from boolattn.evaluation.tables import markdown
from boolattn.files import atomic_file

if TYPE_CHECKING:
    from pathlib import Path

    from transformers import PreTrainedModel, PreTrainedTokenizerBase

#: A sentence like the paper's.
SENTENCE = "films set in Vietnam that are also comedies but not Italian action films"


def figure1(model: Path | None, out: Path, text: str = SENTENCE) -> str:
    """Draw the effect of BoolAttn on one sentence, which the paper's Figure 1 sketches."""
    from boolattn.encoders.models import shipped_model, torch_folder
    from boolattn.plugin.explain import explain

    home = torch_folder(model) if model else shipped_model()
    explanation = explain(*load_query_encoder(home), text)
    write_text(out / "figure1.json", json.dumps(explanation.to_dict(), ensure_ascii=False))
    figures.save(explanation.figure(), out / "figure1.png")
    rows = []
    for row in explanation.rows():
        cues = [op.upper() for op, p in row["cue"].items() if p > 0.5]
        scopes = [op.upper() for op, p in row["scope"].items() if p > 0.5 and explanation.gate[op]]
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


def write_text(path: Path, text: str) -> None:
    """Write a text file, atomically."""
    with atomic_file(path) as handle:
        handle.write(text + "\n")

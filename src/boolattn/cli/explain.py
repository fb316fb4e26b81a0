"""The verb ``explain``: how a model parses a text, and what its attention does at each token."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click import option

from boolattn.cli import json_option, note, print_json, quiet_libraries
from boolattn.errors import PluginMismatchError
from boolattn.query.syntax import unparse
from boolattn.query.tree import Atom, atoms

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from boolattn.plugin.explain import Explanation

FORMATS = {"cue": ".2f", "scope": ".2f", "bias": "+.2f"}


@click.command()
@click.argument("text", help="The text.")
@option("--model", type=Path, help="Model folder; default: shipped.")
@option("--figure", type=Path, help="Write heat maps to this file.")
@json_option
def explain(text: str, model: Path | None, figure: Path | None, as_json: bool) -> None:
    """Show the parsed query, and cue, scope, bias and change of attention by token."""
    from boolattn.encoders.models import SHIPPED, require_torch, resolve, torch_folder
    from boolattn.evaluation.tables import save_figure
    from boolattn.query.parser import load_parser
    from boolattn.query.reading import QueryReader

    quiet_libraries()
    plan = QueryReader(load_parser()).read(text)
    result, is_needed = None, figure is not None
    if is_needed or find_spec("torch") is not None:
        require_torch("cue, scope and bias")
        from boolattn.plugin.explain import explain as explain_text

        source = torch_folder(model or resolve(SHIPPED))
        try:
            result = explain_text(*load_query_encoder(source), text)
        except PluginMismatchError:
            if is_needed or not (source / "modules.json").is_file():
                raise
    if as_json:
        values = {"text": text} if result is None else result.to_dict()
        parsed = {
            "tree": unparse(plan.parsed),
            "confidence": plan.confidence,
            "is_composed": plan.is_composed,
            "operands": [atom.text for atom in atoms(plan.tree)],
            "spans": plan.spans,
            "is_negated": [*plan.is_negated],
        }
        print_json(values | {"parsed": parsed})
    else:
        click.secho(f"\n{text}", bold=True)
        if isinstance(plan.parsed, Atom):
            kind = f"a request for {plan.parsed.text!r}" if plan.is_request else "one operand"
            click.echo(f"parsed as {kind}: searched as one text")
        else:
            used = "" if plan.is_composed else ", too low: searched as one text"
            confidence = f"(confidence {plan.confidence:.0%}{used})"
            click.echo(f"parsed as {unparse(plan.parsed)}   {confidence}")
        if result is not None:
            gates = [name.upper() for name, is_open in result.gate.items() if is_open]
            click.echo(f"open gates: {', '.join(gates) or 'none'}\n\n{_table(result)}")
    if result is None:
        note("cue, scope and bias by token need PyTorch and a model with BoolAttn (--model)")
    elif figure is not None:
        save_figure(result.figure(), figure)
        note(f"heat map: {figure}")


def load_query_encoder(home: Path) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """Load the encoder and its tokenizer; one without BoolAttn gets the shipped plug-in."""
    from transformers import AutoTokenizer

    from boolattn.encoder.towers import load_towers, query_encoder
    from boolattn.plugin.storage import attach, load

    encoder = query_encoder(load_towers(home)) if (home / "modules.json").is_file() else load(home)
    if not hasattr(encoder.base_model, "boolattn"):
        attach(encoder, "shipped")
    return encoder, AutoTokenizer.from_pretrained(home, local_files_only=True)


def _table(result: Explanation) -> str:
    from boolattn.evaluation.tables import aligned

    # A closed gate changes nothing, so its values are left out.
    shown = [(name, part) for name in result.operators if result.gate[name] for part in FORMATS]
    rows = []
    for row in result.rows():
        change = 100 * row["attention_change"]
        colour = "green" if change > 0.05 else "red" if change < -0.05 else None
        values = (f"{row[part][name]:{FORMATS[part]}}" for name, part in shown)
        rows.append([row["token"], *values, click.style(f"{change:+.1f}%", fg=colour)])
    heads = [f"{name.upper()} {part}" for name, part in shown]
    return aligned(["token", *heads, "attention change"], rows)

"""The verb ``explain``: what a model reads in a sentence, and does to its attention.

May import: boolattn.composition, boolattn.encoder, boolattn.plugin, boolattn.plugin.explain,
boolattn.logic, boolattn.errors.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from boolattn.errors import QueryError

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from boolattn.composition.plan import Plan
    from boolattn.encoder.retriever import Retriever
    from boolattn.plugin.explain import Explanation

FORMATS = {"cue": ".2f", "scope": ".2f", "bias": "+.2f"}


def explain(
    text: Annotated[str, typer.Argument(help="The text.")],
    model: Annotated[
        Path | None, typer.Option(help="A saved model's folder; left out, the shipped model.")
    ] = None,
    operator: Annotated[
        list[str] | None, typer.Option(help="Open this expert, whatever the gate says.")
    ] = None,
    figure: Annotated[Path | None, typer.Option(help="Draw heat maps into this file.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show the tree that is read, and cue, scope, bias and change of attention by token."""
    if not text.strip():
        raise QueryError("the text is empty; there is nothing to explain")
    from boolattn.plugin.explain import explain as explain_text

    encoder, tokenizer, retriever = _load(_shipped() if model is None else Path(model))
    result = explain_text(encoder, tokenizer, text, operators=operator)
    plan = None if retriever is None else _plan(retriever, text)
    if as_json:
        typer.echo(json.dumps(result.to_dict() | ({"reading": _reading(plan)} if plan else {})))
        if figure is not None:
            result.figure().savefig(figure, dpi=130)
    else:
        _show(result, plan, figure)


def _plan(retriever: Retriever, text: str) -> Plan:
    """Read a text as a search would: explicit syntax is parsed."""
    from boolattn.logic.syntax import is_explicit, parse_with_spans

    if not is_explicit(text):
        return retriever.plan([text])[0]
    tree, spans = parse_with_spans(text)
    return replace(retriever.plan_trees([tree])[0], spans=tuple((span,) for span in spans))


def _shipped() -> Path:
    """Return the model this package brings: all-MiniLM-L6-v2 with BoolAttn, trained on taxa."""
    from boolattn.embedding.int8_storage import shipped_model

    return shipped_model()


def _load(
    folder: Path,
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase, Retriever | None]:
    """Load an encoder with its plug-in from what ``boolattn.save`` or a training wrote.

    Returns:
        The query encoder, its tokenizer and, where the model reads operands, what reads them.
    """
    from transformers.utils.logging import disable_progress_bar

    disable_progress_bar()
    if (folder / "modules.json").is_file():
        from boolattn.encoder import query_encoder
        from boolattn.encoder.retriever import Retriever

        retriever = Retriever.load(folder)
        reads = retriever.parser is not None
        encoder = query_encoder(retriever.towers)
        return encoder, retriever.towers.tokenizer, retriever if reads else None
    from transformers import AutoTokenizer

    from boolattn.plugin import load

    return load(folder), AutoTokenizer.from_pretrained(folder, local_files_only=True), None


def _reading(plan: Plan) -> dict[str, Any]:
    """Return what was read, for JSON."""
    from boolattn.logic.syntax import unparse

    return {
        "tree": unparse(plan.parsed),
        "confidence": plan.confidence,
        "is_composed": plan.is_composed,
        "operands": list(plan.atoms),
        "spans": [[list(span) for span in spans] for spans in plan.spans],
        "excluded": list(plan.is_negated),
    }


def _show(result: Explanation, plan: Plan | None, path: Path | None) -> None:
    """Print the reading, one explanation as a table, and draw it where a path is given."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    opened = [name.upper() for name, is_open in result.gate.items() if is_open]
    console = Console()
    console.print(
        f"\n[bold]{escape(result.text)}[/bold]   gate: {', '.join(opened) or 'none open'}",
        soft_wrap=True,
    )
    if plan is not None:
        console.print(_said(plan), soft_wrap=True, markup=False, highlight=False)
    table = Table()
    table.add_column("token")
    # A closed expert changes nothing, so its numbers would only be noise.
    shown = [name for name in result.operators if result.gate[name]]
    for name in shown:
        for part in ("cue", "scope", "bias"):
            table.add_column(f"{name.upper()}\n{part}", justify="right")
    table.add_column("attention\nchange", justify="right")
    for row in result.rows():
        cells = [escape(row["token"])]
        for name in shown:
            cells += [f"{row[part][name]:{form}}" for part, form in FORMATS.items()]
        change = 100 * row["attention_change"]
        colour = "green" if change > 0.05 else "red" if change < -0.05 else "dim"
        table.add_row(*cells, f"[{colour}]{change:+.1f}%[/{colour}]")
    console.print(table)
    if path is not None:
        result.figure().savefig(path, dpi=130)
        console.print(f"heat map: {path}", soft_wrap=True, highlight=False)


def _said(plan: Plan) -> str:
    """Say what was read, and whether it is trusted."""
    from boolattn.logic.syntax import unparse
    from boolattn.logic.tree import Atom

    if isinstance(plan.parsed, Atom):
        return "read as one operand: its one vector is searched"
    trusted = "" if plan.is_composed else ", not enough: its one vector is searched"
    return f"read as {unparse(plan.parsed)}   ({plan.confidence:.0%} sure{trusted})"

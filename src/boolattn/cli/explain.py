"""The verb ``explain``: how a model parses a text, and what its attention does at each token."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from boolattn.cli.output import AsJson, console, note, print_json, quiet_libraries
from boolattn.errors import ConfigError, QueryError
from boolattn.query.syntax import unparse
from boolattn.query.tree import Atom

if TYPE_CHECKING:
    from rich.table import Table
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from boolattn.encoder.retriever import Retriever
    from boolattn.plugin.explain import Explanation
    from boolattn.query.plan import Plan

FORMATS = {"cue": ".2f", "scope": ".2f", "bias": "+.2f"}


def explain(
    text: Annotated[str, Argument(help="The text.")],
    model: Annotated[Path | None, Option(help="Model folder; default: shipped.")] = None,
    operator: Annotated[list[str] | None, Option(help="Open this gate: and, or, not.")] = None,
    figure: Annotated[Path | None, Option(help="Write heat maps to this file.")] = None,
    as_json: AsJson = False,
) -> None:
    """Show the parsed query, and cue, scope, bias and change of attention by token."""
    if not text.strip():
        raise QueryError("the text is empty; there is nothing to explain")
    from boolattn.encoders.models import SHIPPED, require_torch, resolve, torch_folder

    quiet_libraries()
    folder = resolve(SHIPPED) if model is None else Path(model)
    if find_spec("torch") is None and not (operator or figure):
        _explain_parse(folder, text, as_json=as_json)
        return
    require_torch("cue, scope and bias")
    from boolattn.plugin.explain import explain as explain_text
    from boolattn.search.queries import prepare_queries

    encoder, tokenizer, retriever = _load(torch_folder(folder))
    if retriever is not None and not retriever.gate:
        if operator or figure:
            raise ConfigError(f"{folder.name} has no BoolAttn: name a model that has it, --model")
        _explain_parse(folder, text, as_json=as_json)
        return
    result = explain_text(encoder, tokenizer, text, operators=operator)
    plan = None
    if retriever is not None:
        plan = prepare_queries(retriever, [text])[0].plan
    if as_json:
        print_json(result.to_dict() | ({"reading": _parse_values(plan)} if plan else {}))
    else:
        gates = [name.upper() for name, is_open in result.gate.items() if is_open]
        out = console()
        out.print(f"\n{text}", style="bold", soft_wrap=True)
        if plan is not None:
            out.print(_parse_line(plan), soft_wrap=True)
        out.print(f"open gates: {', '.join(gates) or 'none'}")
        out.print(_table(result))
    if figure is not None:
        result.figure().savefig(figure, dpi=130)
        note(f"heat map: {figure}")


def _explain_parse(folder: Path, text: str, *, as_json: bool) -> None:
    """Show the parsed query alone, which needs no torch."""
    from boolattn.encoders.models import load_model
    from boolattn.search.queries import prepare_queries

    plan = prepare_queries(load_model(str(folder)), [text])[0].plan
    if as_json:
        print_json({"text": text, "reading": _parse_values(plan)})
    else:
        out = console()
        out.print(f"\n{text}", style="bold", soft_wrap=True)
        out.print(_parse_line(plan), soft_wrap=True)
    note("cue, scope and bias by token need PyTorch and a model with BoolAttn (--model)")


def _load(folder: Path) -> tuple[PreTrainedModel, PreTrainedTokenizerBase, Retriever | None]:
    """Load a query encoder, its tokenizer and, if the model has a parser, the retriever."""
    if (folder / "modules.json").is_file():
        from boolattn.encoder import query_encoder
        from boolattn.encoder.retriever import Retriever

        retriever = Retriever.load(folder)
        encoder, tokenizer = query_encoder(retriever.towers), retriever.towers.tokenizer
        return encoder, tokenizer, None if retriever.parser is None else retriever
    from transformers import AutoTokenizer

    from boolattn.plugin import load

    return load(folder), AutoTokenizer.from_pretrained(folder, local_files_only=True), None


def _parse_values(plan: Plan) -> dict[str, Any]:
    """Return the parsed query for JSON."""
    return {
        "tree": unparse(plan.parsed),
        "confidence": plan.confidence,
        "is_composed": plan.is_composed,
        "operands": plan.atoms,
        "spans": plan.spans,
        "excluded": plan.is_negated,
    }


def _parse_line(plan: Plan) -> str:
    if isinstance(plan.parsed, Atom):
        what = f"a request for {plan.parsed.text!r}" if plan.is_request else "one operand"
        return f"parsed as {what}: searched with one vector"
    used = "" if plan.is_composed else ", too low: searched with one vector"
    return f"parsed as {unparse(plan.parsed)}   (confidence {plan.confidence:.0%}{used})"


def _table(result: Explanation) -> Table:
    from rich.table import Table
    from rich.text import Text

    table = Table("token")
    # A closed gate changes nothing, so its values are left out.
    shown = [name for name in result.operators if result.gate[name]]
    for name in shown:
        for part in FORMATS:
            table.add_column(f"{name.upper()}\n{part}", justify="right")
    table.add_column("attention\nchange", justify="right")
    for row in result.rows():
        cells = [row["token"]]
        for name in shown:
            cells += [f"{row[part][name]:{form}}" for part, form in FORMATS.items()]
        change = 100 * row["attention_change"]
        colour = "green" if change > 0.05 else "red" if change < -0.05 else "dim"
        table.add_row(*map(Text, cells), Text(f"{change:+.1f}%", colour))
    return table

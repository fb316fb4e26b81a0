"""The verb ``explain``: how a model parses a text, and what its attention does at each token."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from boolattn.cli.output import AsJson, console, note, print_json, quiet_libraries
from boolattn.errors import ConfigError, PluginMismatchError, QueryError
from boolattn.query.structure import operand_signs
from boolattn.query.syntax import unparse
from boolattn.query.tree import Atom, atoms

if TYPE_CHECKING:
    from rich.table import Table

    from boolattn.plugin.explain import Explanation
    from boolattn.query.plan import Plan

FORMATS = {"cue": ".2f", "scope": ".2f", "bias": "+.2f"}


def explain(
    text: Annotated[str, Argument(help="The text.")],
    model: Annotated[Path | None, Option(help="Model folder; default: shipped.")] = None,
    operator: Annotated[list[str] | None, Option(help="Open this gate: and, or, not.")] = None,
    index: Annotated[str, Option(help="Address of an index, to read the text for.")] = "",
    figure: Annotated[Path | None, Option(help="Write heat maps to this file.")] = None,
    as_json: AsJson = False,
) -> None:
    """Show the parsed query, and cue, scope, bias and change of attention by token."""
    if not text.strip():
        raise QueryError("the text is empty; there is nothing to explain")
    from boolattn.encoders.models import SHIPPED, resolve
    from boolattn.evaluation.figures import save

    quiet_libraries()
    folder = resolve(SHIPPED) if model is None else Path(model)
    [plan], notes = _read(text, index)
    result = _explained(folder, text, operator, is_needed=bool(operator or figure))
    if as_json:
        values = {"text": text} if result is None else result.to_dict()
        print_json(values | {"parsed": _parse_values(plan)})
    else:
        out = console()
        out.print(f"\n{text}", style="bold", soft_wrap=True)
        out.print("\n".join([_parse_line(plan), *notes]), soft_wrap=True)
        if result is not None:
            gates = [name.upper() for name, is_open in result.gate.items() if is_open]
            out.print(f"open gates: {', '.join(gates) or 'none'}")
            out.print(_table(result))
    if result is None:
        note("cue, scope and bias by token need PyTorch and a model with BoolAttn (--model)")
    elif figure is not None:
        save(result.figure(), figure)
        note(f"heat map: {figure}")


def _explained(
    folder: Path, text: str, operators: list[str] | None, *, is_needed: bool
) -> Explanation | None:
    """Return what the attention does; ``None`` where that is not needed and cannot be had."""
    from boolattn.encoders.models import require_torch, torch_folder

    if find_spec("torch") is None and not is_needed:
        return None
    require_torch("cue, scope and bias")
    from boolattn.plugin.explain import explain as explain_text
    from boolattn.reproduction.query_encoder import load_query_encoder

    source = torch_folder(folder)
    try:
        encoder, tokenizer = load_query_encoder(source)
    except PluginMismatchError as error:
        if not (source / "modules.json").is_file():
            raise
        if is_needed:
            raise ConfigError(f"{folder.name} has no BoolAttn, and {error}") from error
        return None
    return explain_text(encoder, tokenizer, text, operators=operators)


def _read(text: str, index: str) -> tuple[list[Plan], list[str]]:
    """Read a query, for an index as its searcher does; return also the notes on it."""
    from boolattn.query.parser import load_parser
    from boolattn.query.reading import read_queries
    from boolattn.search.options import SearchOptions
    from boolattn.search.queries import QueryReader
    from boolattn.stores.address import open_store

    if not index:
        hint = "numbers become conditions where an index has a field for them: --index ADDRESS"
        return read_queries([text], load_parser()), [hint] * any(map(str.isdigit, text))
    with open_store(index).reading() as store:
        plans = QueryReader(store, load_parser(), SearchOptions()).read([text])
        return plans, list(plans[0].notes)


def _is_composed(plan: Plan) -> bool:
    return plan.is_composed and not isinstance(plan.tree, Atom)


def _parse_values(plan: Plan) -> dict[str, Any]:
    """Return the parsed query for JSON."""
    return {
        "tree": unparse(plan.parsed),
        "confidence": plan.confidence,
        "is_composed": _is_composed(plan),
        "operands": [atom.text for atom in atoms(plan.tree)],
        "spans": plan.spans,
        "is_negated": [sign < 0 for sign in operand_signs(plan.tree)],
    }


def _parse_line(plan: Plan) -> str:
    parsed = plan.parsed
    if isinstance(parsed, Atom):
        kind = f"a request for {parsed.text!r}" if plan.is_request else "one operand"
        return f"parsed as {kind}: searched as one text"
    used = "" if _is_composed(plan) else ", too low: searched as one text"
    return f"parsed as {unparse(parsed)}   (confidence {plan.confidence:.0%}{used})"


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

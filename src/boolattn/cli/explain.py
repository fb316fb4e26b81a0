"""The verb ``explain``: how a model parses a text, and what its attention does at each token."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from boolattn.cli.output import AsJson, console, note, print_json, quiet_libraries
from boolattn.errors import ConfigError, PluginMismatchError, QueryError
from boolattn.query.syntax import unparse
from boolattn.query.tree import Atom

if TYPE_CHECKING:
    from rich.table import Table
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from boolattn.encoder.torch_encoder import TorchEncoder
    from boolattn.encoders.base import Encoder
    from boolattn.plugin.explain import Explanation
    from boolattn.query.plan import Plan
    from boolattn.query.reading import Reading

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
    from boolattn.query.plan import plan_queries

    quiet_libraries()
    folder = resolve(SHIPPED) if model is None else Path(model)
    [reading], notes = _read(text, index)
    result, encoder = _explained(folder, text, operator, is_needed=bool(operator or figure))
    plan = plan_queries([reading], encoder)[0] if encoder else None
    if as_json:
        values = {"text": text} if result is None else result.to_dict()
        print_json(values | ({"reading": _parse_values(plan)} if plan else {}))
    else:
        out = console()
        out.print(f"\n{text}", style="bold", soft_wrap=True)
        if plan is not None:
            out.print("\n".join([_parse_line(plan), *notes]), soft_wrap=True)
        if result is not None:
            gates = [name.upper() for name, is_open in result.gate.items() if is_open]
            out.print(f"open gates: {', '.join(gates) or 'none'}")
            out.print(_table(result))
    if result is None:
        note("cue, scope and bias by token need PyTorch and a model with BoolAttn (--model)")
    elif figure is not None:
        result.figure().savefig(figure, dpi=130)
        note(f"heat map: {figure}")


def _explained(
    folder: Path, text: str, operators: list[str] | None, *, is_needed: bool
) -> tuple[Explanation | None, Encoder | None]:
    """Return what the attention does, unless it is not needed and cannot be had; the model too."""
    from boolattn.encoders.models import load_model, require_torch, torch_folder

    if find_spec("torch") is None and not is_needed:
        return None, load_model(str(folder))
    require_torch("cue, scope and bias")
    from boolattn.plugin import attach
    from boolattn.plugin.explain import explain as explain_text

    query_encoder, tokenizer, encoder = _load(torch_folder(folder))
    if encoder is not None and not encoder.gate:
        try:
            attach(query_encoder, "shipped")
        except PluginMismatchError as error:
            if is_needed:
                raise ConfigError(f"{folder.name} has no BoolAttn, and {error}") from error
            return None, load_model(str(folder))
    return explain_text(query_encoder, tokenizer, text, operators=operators), encoder


def _read(text: str, index: str) -> tuple[list[Reading], list[str]]:
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
        reader = QueryReader(store, load_parser(), SearchOptions())
        readings = reader.read([text])
        return readings, reader.notes.get(readings[0].text, [])


def _load(folder: Path) -> tuple[PreTrainedModel, PreTrainedTokenizerBase, TorchEncoder | None]:
    """Load a query encoder, its tokenizer and, of a model that searches, all of it."""
    if (folder / "modules.json").is_file():
        from boolattn.encoder.torch_encoder import TorchEncoder
        from boolattn.encoder.towers import query_encoder

        encoder = TorchEncoder.load(folder)
        return query_encoder(encoder.towers), encoder.towers.tokenizer, encoder
    from transformers import AutoTokenizer

    from boolattn.plugin import load

    return load(folder), AutoTokenizer.from_pretrained(folder, local_files_only=True), None


def _parse_values(plan: Plan) -> dict[str, Any]:
    """Return the parsed query for JSON."""
    return {
        "tree": unparse(plan.reading.parsed),
        "confidence": plan.reading.confidence,
        "is_composed": plan.is_composed,
        "operands": plan.atoms,
        "spans": plan.spans,
        "excluded": plan.is_negated,
    }


def _parse_line(plan: Plan) -> str:
    parsed = plan.reading.parsed
    if isinstance(parsed, Atom):
        kind = f"a request for {parsed.text!r}" if plan.is_request else "one operand"
        return f"parsed as {kind}: searched as one text"
    used = "" if plan.is_composed else ", too low: searched as one text"
    return f"parsed as {unparse(parsed)}   (confidence {plan.reading.confidence:.0%}{used})"


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

"""The verbs ``demo`` and ``explain``: what BoolAttn sees in a sentence, on real weights.

May import: boolattn.encoder, boolattn.plugin, boolattn.explanation.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from boolattn.explanation import Explanation

FORMATS = {"cue": ".2f", "scope": ".2f", "bias": "+.2f"}
SENTENCES = (
    "moths of Borneo but not Sumatra",
    "films set in Vietnam and about the war",
    "orchids of Peru or Ecuador",
    "animals found in Brazil as well as Mexico, except for birds",
    "large beetles of the Andes",
)
DOCUMENTS = (
    "A moth found in Borneo.",
    "A moth found in Borneo and Sumatra.",
    "A moth found in Sumatra.",
)


def demo(
    out: Annotated[Path, typer.Option(help="Folder for the heat maps.")] = Path("out"),
) -> None:
    """Show what the shipped model sees in five Boolean sentences, and does to its attention."""
    encoder, tokenizer = _shipped()
    out.mkdir(parents=True, exist_ok=True)
    for number, sentence in enumerate(SENTENCES, start=1):
        path = out / f"demo-{number}.png"
        _show(_explained(encoder, tokenizer, sentence), path)
    _compare()


def _compare() -> None:
    """Print how near three documents are to a query, before and after."""
    from rich.console import Console
    from rich.table import Table
    from sentence_transformers import SentenceTransformer

    from boolattn.encoder.packed import shipped_model
    from boolattn.weights import minilm_folder

    plain, boolean = (SentenceTransformer(str(f)) for f in (minilm_folder(), shipped_model()))
    before = plain.similarity(plain.encode([SENTENCES[0]]), plain.encode(list(DOCUMENTS)))[0]
    after = boolean.similarity(
        boolean.encode_query([SENTENCES[0]]), boolean.encode_document(list(DOCUMENTS))
    )[0]
    table = Table("document", "all-MiniLM-L6-v2", "the shipped model")
    for row, document in enumerate(DOCUMENTS):
        table.add_row(document, f"{before[row]:.2f}", f"{after[row]:.2f}")
    console = Console()
    console.print(f"\n[bold]{SENTENCES[0]}[/bold]   nearness of three documents")
    console.print(table)


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
    """Show cue, scope, bias and change of attention, token by token."""
    encoder, tokenizer = _shipped() if model is None else _load(model)
    result = _explained(encoder, tokenizer, text, operator)
    if as_json:
        typer.echo(json.dumps(result.to_dict()))
        if figure is not None:
            result.figure().savefig(figure, dpi=130)
    else:
        _show(result, figure)


def _explained(
    encoder: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    text: str,
    operators: list[str] | None = None,
) -> Explanation:
    from boolattn.explanation import explain as explain_text

    return explain_text(encoder, tokenizer, text, operators=operators)


def _shipped() -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """Load the model this package brings: all-MiniLM-L6-v2 with BoolAttn, trained on taxa."""
    from boolattn.encoder.packed import shipped_model

    return _load(shipped_model())


def _load(folder: Path) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """Load an encoder with its plug-in from what ``boolattn.save`` or a training wrote."""
    from transformers import AutoModel, AutoTokenizer
    from transformers.utils.logging import disable_progress_bar

    import boolattn.encoder  # noqa: F401 - makes Bool-BERT known to transformers
    from boolattn.plugin import load

    disable_progress_bar()
    is_towers = (folder / "modules.json").is_file()
    encoder = (
        AutoModel.from_pretrained(folder, local_files_only=True) if is_towers else load(folder)
    )
    return encoder, AutoTokenizer.from_pretrained(folder, local_files_only=True)


def _show(result: Explanation, path: Path | None) -> None:
    """Print one explanation as a table, and draw it where a path is given."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    opened = [name.upper() for name, is_open in result.gate.items() if is_open]
    console = Console()
    console.print(
        f"\n[bold]{escape(result.text)}[/bold]   gate: {', '.join(opened) or 'none open'}",
        soft_wrap=True,
    )
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

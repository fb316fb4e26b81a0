"""The verb ``export``: the query tower as ONNX."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from typer import Argument

from boolattn.cli.output import quiet_libraries
from boolattn.errors import MissingDataError


def export(
    model: Annotated[Path, Argument(help="Folder of a trained two-tower model.")],
    out: Annotated[Path, Argument(help="The ONNX file to write.")] = Path("query.onnx"),
) -> None:
    """Write the query tower of a model as ONNX, including its gate."""
    if not (model / "modules.json").is_file():
        raise MissingDataError(f"{model} holds no modules.json; give the folder of a trained model")
    from sentence_transformers import SentenceTransformer

    # Registers Bool-BERT with transformers, too.
    from boolattn.encoder.export import export_query_tower

    quiet_libraries()
    towers = SentenceTransformer(str(model), device="cpu", local_files_only=True)
    typer.echo(export_query_tower(towers, out))

"""The verb ``export``: the query tower as ONNX.

May import: boolattn.encoder, boolattn.errors.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from boolattn.errors import MissingDataError


def export(
    model: Annotated[Path, typer.Argument(help="A folder with a trained two-tower model.")],
    out: Annotated[Path, typer.Argument(help="The ONNX file to write.")] = Path("query.onnx"),
) -> None:
    """Write a model's query tower as ONNX, with its gate inside."""
    if not (model / "modules.json").is_file():
        raise MissingDataError(f"{model} holds no modules.json; name a folder of a trained model")
    from sentence_transformers import SentenceTransformer
    from transformers.utils.logging import disable_progress_bar

    # Brings Bool-BERT to transformers' notice, too.
    from boolattn.encoder.export import export_query_tower

    disable_progress_bar()
    towers = SentenceTransformer(str(model), device="cpu", local_files_only=True)
    typer.echo(export_query_tower(towers, out))

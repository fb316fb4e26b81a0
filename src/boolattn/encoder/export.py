"""Export of the query tower to ONNX: gate, bias, pooling and normalisation in one graph."""

from __future__ import annotations

import inspect
import warnings
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from sentence_transformers.sentence_transformer.modules import Normalize, Pooling
from torch import Tensor, nn

from boolattn.encoder.bool_bert import BoolBertModel
from boolattn.encoder.towers import query_encoder
from boolattn.errors import ConfigError, MissingDataError, UnsupportedEncoderError

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

OUTPUT = "vectors"
_PACKAGES = ("onnx", "onnxscript")


class QueryTower(nn.Module):
    """A query tower from token ids to vectors."""

    def __init__(self, model: SentenceTransformer) -> None:
        super().__init__()
        self.encoder = query_encoder(model)
        self.tokenizer_names = tuple(model.tokenizer.model_input_names)
        self.after = nn.ModuleList(
            part for part in model.children() if isinstance(part, Pooling | Normalize)
        )

    @property
    def input_names(self) -> list[str]:
        """Inputs that both the tokenizer and the family have, in order."""
        bare = self.encoder.backbone if isinstance(self.encoder, BoolBertModel) else self.encoder
        accepted = inspect.signature(bare.forward).parameters
        rest = "token_type_ids"
        has_types = rest in accepted and rest in self.tokenizer_names
        return ["input_ids", "attention_mask", *([rest] if has_types else [])]

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor | None = None
    ) -> Tensor:
        """Encode queries. Shapes ``(batch, tokens)`` to ``(batch, dim)``."""
        options = {} if token_type_ids is None else {"token_type_ids": token_type_ids}
        hidden = self.encoder(input_ids, attention_mask=attention_mask, **options)
        features: dict[str, Tensor] = {
            "token_embeddings": hidden.last_hidden_state,
            "attention_mask": attention_mask,
        }
        for part in self.after:
            features = part(features)
        return features["sentence_embedding"]


def export_query_tower(model: SentenceTransformer, path: str | Path) -> Path:
    """Write the query tower as one ONNX file, atomically.

    Inputs: ``input_ids``, ``attention_mask`` and, if the family has them, ``token_type_ids``,
    all int64 of the shape ``(batch, tokens)``. Output: ``vectors``, float32 of the shape
    ``(batch, dim)``, of length 1 if the similarity is cosine. Operator labels are no input, so
    with ``gate="label"`` every gate is closed.
    """
    path = Path(path)
    if path.suffix != ".onnx":
        raise ConfigError(f"the file must be named *.onnx; got {path.name!r}")
    if missing := [name for name in _PACKAGES if find_spec(name) is None]:
        raise MissingDataError(f"export needs {missing[0]}; pip install 'boolattn[onnx]'")
    tower = QueryTower(model).eval()
    device = next(tower.parameters()).device
    names = tower.input_names
    example = tuple(torch.ones(2, 8, dtype=torch.int64, device=device) for _ in names)
    # The exporter finds the range of the length by itself.
    shape = dict.fromkeys((0, 1), torch.export.Dim.DYNAMIC)
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f"{path.stem}.part.onnx")
    try:
        with torch.no_grad(), warnings.catch_warnings():
            # The exporter warns about deprecated parts of its own.
            warnings.simplefilter("ignore")
            program = torch.onnx.export(
                tower,
                example,
                draft,
                input_names=names,
                output_names=[OUTPUT],
                dynamic_shapes=(shape,) * len(names),
                dynamo=True,
                external_data=False,
                verbose=False,
            )
        if program is None or _has_fixed_sizes(program):
            raise UnsupportedEncoderError(
                "the exporter made batch or length of this encoder constant"
            )
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)
    return path


def _has_fixed_sizes(program: torch.onnx.ONNXProgram) -> bool:
    """Whether a dynamic size became a constant, which the exporter does silently."""
    sizes = [size for value in program.model.graph.inputs for size in value.shape or ()]
    return any(isinstance(size, int) for size in sizes)

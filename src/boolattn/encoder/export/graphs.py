"""The towers of a model as ONNX graphs: gate, bias, pooling and normalisation."""

from __future__ import annotations

import inspect
import logging
import warnings
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, cast

import torch
from sentence_transformers.base.modules import Router
from sentence_transformers.sentence_transformer.modules import (
    Dense,
    Normalize,
    Pooling,
    Transformer,
)
from torch import Tensor, nn
from torch.nn import functional as F

from boolattn.encoder.bool_bert import BoolBertModel
from boolattn.encoders.onnx_encoder import DOCUMENT, OPERAND, QUERY, VECTORS
from boolattn.errors import UnsupportedEncoderError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from sentence_transformers import SentenceTransformer

    from boolattn.encoder.torch_encoder import TorchEncoder

#: Has attention as one operator.
OPSET = 23
#: Queries that are compared when a model is exported.
TEXTS = (
    "moths of Borneo but not Sumatra",
    "papers about asthma and smoking, but not in children",
    "recipes with garlic or leek",
    "films from the 1980s with Meg Ryan and without Tom Hanks",
    "frogs that live in trees",
    "vulnerabilities in Apache Tomcat, except denial of service",
    "neither coffee nor tea, but chocolate",
    "diseases with hearing loss, short stature or cataract",
    "the history of bread",
    "rock and roll",
)


class TowerGraph(nn.Module):
    """One tower from token ids to vectors."""

    output_names = (VECTORS,)

    def __init__(self, model: SentenceTransformer, route: str) -> None:
        super().__init__()
        first, *after = model.children()
        if isinstance(first, Router):
            first = next(iter(first.sub_modules[route].children()))
        for part in (first, *after):
            if not isinstance(part, Transformer | Pooling | Normalize | Dense):
                raise UnsupportedEncoderError(f"cannot export a {type(part).__name__} module")
        self.encoder = cast("Transformer", first).model
        self.after = nn.ModuleList(after)
        # Cosine needs unit vectors, and not every model ends with Normalize.
        self.normalises = model.similarity_fn_name == "cosine" and not any(
            isinstance(part, Normalize) for part in after
        )
        self.is_bool_bert = isinstance(self.encoder, BoolBertModel)
        bare: Any = self.encoder.backbone if self.is_bool_bert else self.encoder
        tokenizer: Any = first.tokenizer
        accepted = inspect.signature(bare.forward).parameters
        rest = "token_type_ids"
        has_types = rest in accepted and rest in tokenizer.model_input_names
        self.input_names = ["input_ids", "attention_mask", *([rest] if has_types else [])]
        self.task = route

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor | None = None
    ) -> Tensor:
        """Encode texts. Shapes ``(batch, tokens)`` to ``(batch, dim)``."""
        options: dict[str, Any] = {"task": self.task} if self.is_bool_bert else {}
        if token_type_ids is not None:
            options["token_type_ids"] = token_type_ids
        output = self.encoder(input_ids, attention_mask=attention_mask, **options)
        features: dict[str, Tensor] = {
            "token_embeddings": output.last_hidden_state,
            "attention_mask": attention_mask,
        }
        for part in self.after:
            features = part(features)
        vectors = features["sentence_embedding"]
        if self.normalises:
            vectors = F.normalize(vectors, dim=-1)
        return vectors


def tower_graphs(encoder: TorchEncoder) -> dict[str, TowerGraph]:
    """Return the graphs of a model by task; a task without one uses the document graph."""
    towers = encoder.towers
    document, query = TowerGraph(towers, DOCUMENT), TowerGraph(towers, QUERY)
    graphs = {DOCUMENT: document}
    is_shared = query.encoder is document.encoder
    if query.is_bool_bert or not is_shared:
        graphs[QUERY] = query
    if not is_shared:
        graphs[OPERAND] = TowerGraph(towers, QUERY)
        # Any task but ``query`` runs without the plug-in.
        graphs[OPERAND].task = DOCUMENT
    return graphs


@contextmanager
def quiet() -> Iterator[None]:
    """Hide what the exporter and the quantiser say of parts of their own."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


def write_graph(graph: TowerGraph, path: Path) -> None:
    """Trace a tower and write it in float32."""
    device = next(graph.parameters()).device
    names = graph.input_names
    example = tuple(torch.ones(2, 8, dtype=torch.int64, device=device) for _ in names)
    trace(graph, example, (0, 1), path)


def trace(graph: Any, example: tuple[Tensor, ...], axes: tuple[int, ...], path: Path) -> None:  # noqa: ANN401 - a module with names of inputs and outputs
    """Trace a module on an example and write it in float32; some axes are of any length."""
    graph, names = graph.eval(), list(graph.input_names)
    # The exporter finds the range of the length by itself.
    shape = dict.fromkeys(axes, torch.export.Dim.DYNAMIC)
    with torch.no_grad(), quiet():
        program = torch.onnx.export(
            graph,
            example,
            path,
            input_names=names,
            output_names=list(graph.output_names),
            dynamic_shapes=(shape,) * len(names),
            dynamo=True,
            external_data=False,
            opset_version=OPSET,
            verbose=False,
        )
    inputs = program.model.graph.inputs if program else ()
    sizes = [value.shape[axis] for value in inputs for axis in axes if value.shape]
    # The exporter does that silently.
    if program is None or any(isinstance(size, int) for size in sizes):
        raise UnsupportedEncoderError("the exporter made batch or length of this encoder constant")

"""The towers of a model as ONNX graphs: traced, rounded to 7 bits, operators fused.

Large matrices are multiplied in integers, with activations rounded at run time. Embeddings are
looked up in 7 bits, with one scale for each token. All else stays float32.
"""

from __future__ import annotations

import hashlib
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import onnx
import onnxruntime as ort
import torch
from onnx import TensorProto, helper, numpy_helper
from onnx.external_data_helper import set_external_data
from onnxruntime.quantization import QuantType, quantize_dynamic
from sentence_transformers.base.modules import Router
from sentence_transformers.sentence_transformer import modules
from torch import Tensor, nn
from torch.nn import functional as F

from boolattn.encoder.bool_bert import BoolBertModel
from boolattn.encoder.torch_encoder import TorchEncoder, must_normalise
from boolattn.encoders.int8 import Array, quantise
from boolattn.encoders.onnx_encoder import DOCUMENT, OPERAND, QUERY, VECTORS
from boolattn.errors import UnsupportedEncoderError

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

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
_EXPORTED = (modules.Transformer, modules.Pooling, modules.Normalize, modules.Dense)
#: Smaller matrices stay float32: they save nothing.
MIN_VALUES = 65_536
#: Larger tables that are looked up are rounded.
MIN_TABLE = 1_000_000
#: Smaller tensors stay in the graph's file.
MIN_BYTES = 512
_LEAST, _LAST_AXIS = "boolattn_least", "boolattn_last_axis"
#: Onnxruntime is slower with these.
_SLOW = ["SkipLayerNormFusion", "BiasGeluFusion"]


class TowerGraph(nn.Module):
    """One tower from token ids to vectors."""

    input_names = ("input_ids", "attention_mask")  # token types are the encoder's default, 0
    output_names = (VECTORS,)

    def __init__(self, model: SentenceTransformer, route: str) -> None:
        super().__init__()
        first, *after = model.children()
        if isinstance(first, Router):
            first = next(iter(first.sub_modules[route].children()))
        for part in (first, *after):
            if not isinstance(part, _EXPORTED):
                raise UnsupportedEncoderError(f"cannot export a {type(part).__name__} module")
        self.encoder = cast("modules.Transformer", first).model
        self.after = nn.ModuleList(after)
        self.normalises = must_normalise(model)
        self.is_bool_bert = isinstance(self.encoder, BoolBertModel)
        self.task = route

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """Encode texts. Shapes ``(batch, tokens)`` to ``(batch, dim)``."""
        options: dict[str, Any] = {"task": self.task} if self.is_bool_bert else {}
        output = self.encoder(input_ids, attention_mask=attention_mask, **options)
        features: dict[str, Tensor] = {"token_embeddings": output.last_hidden_state}
        features["attention_mask"] = attention_mask
        for part in self.after:
            features = part(features)
        vectors = features["sentence_embedding"]
        return F.normalize(vectors, dim=-1) if self.normalises else vectors


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
        with warnings.catch_warnings(action="ignore"):
            yield
    finally:
        logging.disable(before)


def write_graph(graph: TowerGraph, path: Path) -> None:
    """Trace a tower and write it in float32."""
    ids = torch.ones(2, 8, dtype=torch.int64, device=next(graph.parameters()).device)
    trace(graph, (ids, ids.clone()), (0, 1), path)


def trace(graph: Any, example: tuple[Tensor, ...], axes: tuple[int, ...], path: Path) -> None:  # noqa: ANN401 - a module with names of inputs and outputs
    """Trace a module on an example and write it in float32; some axes are of any length."""
    names = {"input_names": [*graph.input_names], "output_names": [*graph.output_names]}
    # The exporter finds the range of the length by itself.
    shapes = (dict.fromkeys(axes, torch.export.Dim.DYNAMIC),) * len(example)
    # Opset 23 has attention as one operator.
    options: dict[str, Any] = {"external_data": False, "opset_version": 23, "verbose": False}
    options |= {"dynamic_shapes": shapes, "dynamo": True, **names}
    with torch.no_grad(), quiet():
        program = torch.onnx.export(graph.eval(), example, path, **options)
    inputs = program.model.graph.inputs if program else ()
    sizes = [value.shape[axis] for value in inputs for axis in axes if value.shape]
    # The exporter does that silently.
    if program is None or any(isinstance(size, int) for size in sizes):
        raise UnsupportedEncoderError("the exporter made batch or length of this encoder constant")


def content(array: Array) -> str:
    """Identify a tensor by type, shape and bytes."""
    head = f"{array.dtype} {array.shape} ".encode()
    return hashlib.sha256(head + np.ascontiguousarray(array).tobytes()).hexdigest()


def finish_graph(
    traced: Path, target: Path, *, is_rounded: bool = True
) -> tuple[onnx.ModelProto, dict[str, Array], dict[str, int]]:
    """Round a traced graph to 7 bits, and let onnxruntime fuse operators, so that no start has to.

    Returns the graph, its tensors before, and the axis of the scales of each rounded tensor. A
    rounded tensor ``w`` becomes ``w_quantized``, ``w_scale`` and ``w_zero_point``.
    """
    model = onnx.load(traced)
    _join_heads(model.graph)
    del model.graph.value_info[:]  # sizes that the exporter noted, some of them wrong
    values = initialisers(model)
    axes = _quantise_graph(model, values, traced) if is_rounded else {}
    if not is_rounded:
        onnx.save(model, traced)
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    options.optimized_model_filepath = str(target)
    options.log_severity_level = 3
    ort.InferenceSession(str(traced), options, ["CPUExecutionProvider"], disabled_optimizers=_SLOW)
    return onnx.load(target), values, axes


def _join_heads(graph: onnx.GraphProto) -> None:
    """Let attention read and write the heads of a token side by side: no tensor is transposed."""
    types = {value.name: value.type.tensor_type for value in graph.value_info}
    makers = {name: node for node in graph.node for name in node.output}
    users = {name: node for node in graph.node for name in node.input}
    for node in [node for node in graph.node if node.op_type == "Attention"]:
        around = (*map(makers.get, node.input[:3]), users.get(node.output[0]))
        transposed = [other for other in around if other and other.op_type == "Transpose"]
        if len(transposed) < 4:
            continue  # positions are rotated after it, say
        split = [makers[other.input[0]] for other in transposed[:3]]
        joined = users[transposed[3].output[0]]
        if all(other.op_type == "Reshape" for other in (*split, joined)):
            n_heads = types[node.input[0]].shape.dim[1].dim_value
            names = ("q_num_heads", "kv_num_heads")
            node.attribute.extend(helper.make_attribute(name, n_heads) for name in names)
            node.input[:3], node.output[0] = [other.input[0] for other in split], joined.output[0]
            graph.node.remove(joined)
    used = {output.name for output in graph.output}
    for node in reversed([*graph.node]):
        if used.isdisjoint(node.output):
            graph.node.remove(node)
        else:
            used.update(node.input)


def initialisers(model: onnx.ModelProto) -> dict[str, Array]:
    """Return the tensors of a graph by name."""
    return {t.name: numpy_helper.to_array(t) for t in model.graph.initializer}


def _quantise_graph(model: onnx.ModelProto, values: dict[str, Array], path: Path) -> dict[str, int]:
    axes: dict[str, int] = {}
    chosen = []
    for node in list(model.graph.node):
        if node.op_type == "MatMul" and _is_large(values, node.input[1], MIN_VALUES):
            chosen.append(node.name)
            axes[node.input[1]] = 1
            if len(set(values[node.input[1]].shape)) > 1:
                _scale_rows(model, node)
        elif node.op_type == "Gather" and _is_large(values, node.input[0], MIN_TABLE):
            axes[node.input[0]] = 0
            _quantise_lookup(model, node, values[node.input[0]])
    options: Any = {"per_channel": True, "reduce_range": True, "weight_type": QuantType.QInt8}
    with quiet():
        quantize_dynamic(model, path, nodes_to_quantize=chosen, **options)
    written = onnx.load(path)
    for tensor in written.graph.initializer:
        name, _, kind = tensor.name.rpartition("_")
        # By our own formula, so that other code can make the same bytes.
        if kind in ("quantized", "scale") and axes.get(name) == 1:
            rounded, scale = quantise(values[name], 1)
            array = rounded if kind == "quantized" else scale
            tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))
    onnx.save(written, path)
    return axes


def _scale_rows(model: onnx.ModelProto, node: onnx.NodeProto) -> None:
    """Divide the rows of a product's input by their largest value, and multiply its output.

    One scale serves all rows of the rounded input, and a few tokens have values that are many
    times larger than the others'. That matters in feed-forward layers, whose matrices are not
    square; in the others it does not.
    """
    graph, source, out = model.graph, node.input[0], node.output[0]
    position = list(graph.node).index(node)
    if not any(tensor.name == _LEAST for tensor in graph.initializer):
        graph.initializer.append(numpy_helper.from_array(np.array(0.17, np.float32), _LEAST))
        graph.initializer.append(numpy_helper.from_array(np.array([-1]), _LAST_AXIS))
    if not any(f"{source}_rows" in other.output for other in graph.node):
        # Its values are above -.17, so their sizes are not needed.
        is_gelu = any(n.op_type == "Gelu" and source in n.output for n in graph.node)
        steps = (
            ("Abs", [source], f"{source}_abs"),
            ("ReduceMax", [source if is_gelu else f"{source}_abs", _LAST_AXIS], f"{source}_top"),
            ("Max", [f"{source}_top", _LEAST], f"{source}_size"),
            ("Div", [source, f"{source}_size"], f"{source}_rows"),
        )
        for at, (kind, inputs, output) in enumerate(steps[is_gelu:], position):
            graph.node.insert(at, helper.make_node(kind, inputs, [output], f"{source}_{kind}"))
    node.input[0], node.output[0] = f"{source}_rows", f"{out}_rows"
    product = helper.make_node("Mul", [f"{out}_rows", f"{source}_size"], [out], f"{out}_size")
    graph.node.insert(list(graph.node).index(node) + 1, product)


def _is_large(values: dict[str, Array], name: str, least: int) -> bool:
    return name in values and values[name].ndim == 2 and values[name].size >= least


def _quantise_lookup(model: onnx.ModelProto, node: onnx.NodeProto, table: Array) -> None:
    """Replace a lookup in a table by one in rounded values, times one in scales."""
    graph, name, ids, out = model.graph, node.input[0], node.input[1], node.output[0]
    rounded, scale = quantise(table, 0)
    graph.initializer.append(numpy_helper.from_array(rounded, f"{name}_quantized"))
    graph.initializer.append(numpy_helper.from_array(scale, f"{name}_scale"))
    position = list(graph.node).index(node)
    graph.node.remove(node)
    new = [
        helper.make_node("Gather", [f"{name}_quantized", ids], [f"{out}_int8"], axis=0),
        helper.make_node("Cast", [f"{out}_int8"], [f"{out}_float"], to=TensorProto.FLOAT),
        helper.make_node("Gather", [f"{name}_scale", ids], [f"{out}_scale"], axis=0),
        helper.make_node("Mul", [f"{out}_float", f"{out}_scale"], [out]),
    ]
    for step, added in enumerate(new):
        added.name = f"{node.name}_int8_{step}"
        graph.node.insert(position + step, added)
    if not any(name in other.input for other in graph.node):
        [old] = [tensor for tensor in graph.initializer if tensor.name == name]
        graph.initializer.remove(old)


def refer(tensor: onnx.TensorProto, location: tuple[str, int, int]) -> None:
    """Replace a tensor's values by a reference to a file, an offset and a length."""
    # Values may be in a field of their type.
    tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor), tensor.name))
    set_external_data(tensor, *location)
    tensor.ClearField("raw_data")

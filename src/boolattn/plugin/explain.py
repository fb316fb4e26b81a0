"""Explain what BoolAttn does with one text: cues, scopes, biases and change of attention."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch

from boolattn.files import require
from boolattn.plugin.backend import BACKENDS, WITHOUT_INTERFACE, family_of, recording
from boolattn.plugin.install import plugin_of
from boolattn.settings import checked

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from numpy.typing import NDArray
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    Array = NDArray[np.float32]


@dataclass(frozen=True)
class Explanation:
    """One text's cues, scopes, biases and change of attention."""

    text: str
    tokens: tuple[str, ...]
    operators: tuple[str, ...]  # the operator axis of the arrays
    gate: dict[str, bool]  # whether each operator's expert is open
    cue: Array  # probability that a token is a cue. Shape ``(operators, tokens)``.
    scope: Array  # share of heads with a token in scope. ``(layers, operators, tokens)``.
    bias: Array  # bias on a token's key, mean over heads; negative for NOT. Same shape.
    attention_change: Array  # mean over heads and queries. ``(layers, tokens)``

    def to_dict(self) -> dict[str, Any]:
        """Return plain lists and values, for JSON."""
        return {k: v.tolist() if isinstance(v, np.ndarray) else v for k, v in asdict(self).items()}

    def rows(self) -> list[dict[str, Any]]:
        """Return a row for each token, with the mean over layers."""
        means = {"cue": self.cue, "scope": self.scope.mean(0), "bias": self.bias.mean(0)}
        changes = self.attention_change.mean(0).tolist()
        columns: dict[str, Any] = {"token": self.tokens, "attention_change": changes}
        for name, values in means.items():
            columns[name] = [dict(zip(self.operators, v, strict=True)) for v in values.T.tolist()]
        return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]

    def figure(self) -> Figure:
        """Draw cue, scope, bias and change of attention as heat maps over the tokens."""
        require("a figure", ("matplotlib",), "evaluate")
        from matplotlib.figure import Figure

        width = max(6.0, 2.2 + 0.55 * len(self.tokens))
        figure = Figure(figsize=(width, 8.2), layout="constrained")
        opened = [name.upper() for name, is_open in self.gate.items() if is_open]
        figure.suptitle(f"“{self.text}”\nopen: {', '.join(opened) or 'none'}", fontsize=11)
        panels = figure.subplots(4, 1, height_ratios=(3, 3, 5, 5), sharex=True)
        names = [name.upper() for name in self.operators]
        layers = [str(i + 1) for i in range(len(self.bias))]
        _heat_map(panels[0], self.cue, names, "cue: probability")
        _heat_map(panels[1], self.scope.mean(0), names, "scope: share of heads and layers")
        _heat_map(panels[2], self.bias.sum(1), layers, "bias on the key", is_signed=True)
        _heat_map(panels[3], self.attention_change, layers, "change of attention", is_signed=True)
        panels[3].set_xticks(range(len(self.tokens)), self.tokens, rotation=45, ha="right")
        return figure


@checked
def explain(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    text: str,
    *,
    operators: Sequence[str] | None = None,
) -> Explanation:
    """Explain what BoolAttn does with a text.

    ``operators`` are oracle labels; by default the model's own gate is used.

    >>> from boolattn.plugin.storage import attach
    >>> from transformers import AutoModel, AutoTokenizer
    >>> from boolattn.encoders.models import minilm_folder
    >>> encoder = AutoModel.from_pretrained(minilm_folder())
    >>> plugin = attach(encoder, "shipped")
    >>> tokenizer = AutoTokenizer.from_pretrained(minilm_folder())
    >>> explain(encoder, tokenizer, "moths but not beetles").gate
    {'and': False, 'or': False, 'not': True}
    """
    plugin = plugin_of(model)
    model = cast("PreTrainedModel", model.base_model)  # without head or Bool-BERT
    inputs = dict(tokenizer(text, return_tensors="pt", truncation=True).to(model.device))
    options: dict[str, Any] = {} if operators is None else {"operators": [list(operators)]}
    was_training, before = model.training, model.config._attn_implementation
    model.eval()
    try:
        if family_of(model) not in WITHOUT_INTERFACE:
            model.set_attn_implementation(BACKENDS["eager"])  # the one that returns its weights
        with torch.no_grad(), recording() as record:
            attention = model(**inputs, **options, output_attentions=True).attentions
    finally:
        model.set_attn_implementation(before)
        model.train(was_training)
    ids = inputs["input_ids"][0].tolist()
    [cues] = record.cue_states
    is_open = cues.gate.open[0].bool().tolist()
    names = plugin.config.operators
    # A layer without a bias is zero.
    scope, bias = np.zeros((2, len(attention), len(names), len(ids)), np.float32)
    change = np.zeros_like(scope[:, 0])
    for index, layer in record.biases.items():
        scope[index] = _array(layer.inside[0].mean(-1).T)
        # (heads, tokens, columns); the columns after the operators are padding.
        by_key = (layer.factors.query * layer.factors.key)[0, ..., : len(names)]
        bias[index] = _array(layer.factors.scale * by_key.mean(0).T)
        moved = attention[index].double() - layer.attention_before(attention[index])
        change[index] = _array(moved[0].mean((0, 1)))
    return Explanation(
        text=text,
        tokens=tuple(str(token) for token in tokenizer.convert_ids_to_tokens(ids)),
        operators=names,
        gate=dict(zip(names, is_open, strict=True)),
        cue=_array(cues.cue[0]),
        scope=scope,
        bias=bias,
        attention_change=change,
    )


def _array(tensor: torch.Tensor) -> Array:
    return tensor.detach().to("cpu", torch.float32).numpy()


def _heat_map(
    axes: Axes, values: Array, names: list[str], title: str, *, is_signed: bool = False
) -> None:
    """Draw one heat map: shares from 0 to 1, or signed values by layer."""
    limits, colours = (0.0, 1.0), "Blues"
    if is_signed:
        reach = float(np.abs(values).max()) or 1.0
        limits, colours = (-reach, reach), "RdBu"
        axes.set_ylabel("layer", fontsize=8)
    image = axes.imshow(values, aspect="auto", vmin=limits[0], vmax=limits[1], cmap=colours)
    axes.set_yticks(range(len(names)), names, fontsize=8)
    axes.set_title(title, fontsize=9, loc="left")
    axes.figure.colorbar(image, ax=axes, pad=0.01)

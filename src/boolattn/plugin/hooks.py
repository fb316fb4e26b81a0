"""The hooks through which BoolAttn reads a batch and reaches every self-attention.

One at the model takes the label and opens the gate, one at the entrance of the layers reads the
cues, one at each self-attention computes its bias. They are objects and bound methods, not
closures, so that a copied or pickled encoder brings its own.
May import: boolattn.attention, boolattn.plugin, boolattn.errors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import torch

from boolattn.attention.gate import Gate, LearnedGate, LexiconGate
from boolattn.errors import GateError, UnsupportedEncoderError
from boolattn.plugin.backend import BACKENDS, BIAS, PASS, Applied, with_bias
from boolattn.plugin.labels import label_gate
from boolattn.plugin.recording import ForwardPass, current

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor, nn
    from torch.utils.hooks import RemovableHandle
    from transformers import PreTrainedConfig

    from boolattn.attention.boolattn import BoolAttn
    from boolattn.plugin.families import Family
    from boolattn.plugin.labels import OperatorLabels

Arguments = tuple[tuple[Any, ...], dict[str, Any]]
#: What a call without Boolean bias is: no gate, nothing read.
UNTOUCHED = ForwardPass(torch.empty(0), None)


def visible_tokens(mask: object, tokens: Tensor) -> Tensor:
    """Say which tokens are no padding, from any mask an encoder takes.

    Args:
        mask: ``None``; ``(batch, tokens)``; more axes, boolean or added to the scores, the keys
            last; or several of them by the kind of layer.
        tokens: Ids or embeddings. Shape ``(batch, tokens, ...)``.

    Returns:
        1 for tokens, 0 for padding. Shape ``(batch, tokens)``.
    """
    if isinstance(mask, dict):
        mask = mask.get("full_attention", next(iter(mask.values()), None))
    if not isinstance(mask, torch.Tensor):
        return torch.ones(tokens.shape[:2], device=tokens.device)
    if mask.dim() == 2:
        return mask
    if mask.dtype != torch.bool:
        mask = mask > torch.finfo(mask.dtype).min / 2 if mask.is_floating_point() else mask > 0
    return mask.flatten(1, -2).any(1).expand(len(tokens), -1).float()


class ModelHooks:
    """The hooks at the model and at the entrance of its layers."""

    #: Stands in for the thread's own pass while a compiler traces: it does not see through
    #: thread-local state, and would drop the bias without a word.
    traced: ForwardPass | None = None

    def __init__(self, plugin: BoolAttn, family: Family, names: tuple[str, ...]) -> None:
        self.plugin = plugin
        self.family = family
        self.names = names  # of the model's arguments, in their order

    def now(self) -> ForwardPass:
        """Return the pass under way in this thread."""
        if not torch.compiler.is_compiling():
            return current.passes.get(id(self), UNTOUCHED)
        if self.traced is None:
            raise UnsupportedEncoderError(
                "only a part of the encoder is compiled, and that part cannot see the gate; "
                "compile the whole encoder, or none of it"
            )
        return self.traced

    def _enter(self, this: ForwardPass | None) -> None:
        if torch.compiler.is_compiling():
            self.traced = this
        elif this is None:
            current.passes.pop(id(self), None)
        else:
            current.passes[id(self)] = this

    def install(self, model: nn.Module) -> Iterator[RemovableHandle]:
        """Hook a model in."""
        yield model.register_forward_pre_hook(self.before_model, with_kwargs=True)
        yield model.register_forward_hook(self.after_model, always_call=True)
        if self.family.stack:
            stack = model.get_submodule(self.family.stack)
            yield stack.register_forward_pre_hook(self.before_stack, with_kwargs=True)
        else:
            embeddings = model.get_submodule(self.family.embeddings)
            yield embeddings.register_forward_hook(self.after_embeddings)

    def before_model(
        self, _model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Arguments:
        """Take the label out of the call, and open the gate if that needs no hidden state.

        With ``is_bare=True`` nothing is read and no layer is touched: the encoder alone.
        """
        labels = kwargs.pop("operators", None)
        self._enter(UNTOUCHED)
        if kwargs.pop("is_bare", False):
            return args, kwargs
        given = dict(zip(self.names, args, strict=False)) | kwargs
        input_ids, embedded = given.get("input_ids"), given.get("inputs_embeds")
        tokens = input_ids if input_ids is not None else embedded
        if tokens is None:
            return args, kwargs  # the model itself says what is missing
        mask = visible_tokens(given.get("attention_mask"), tokens)
        gate = self._gate(labels, input_ids, mask)
        this = ForwardPass(mask, gate)
        self._enter(this)
        if self.family.carries_kwargs:
            kwargs[PASS] = this
        return args, kwargs

    def after_model(self, _model: nn.Module, _args: tuple[Any, ...], _output: object) -> None:
        """Forget the pass; its layers, if they are computed again, still hold it."""
        self._enter(None)

    def before_stack(
        self, _stack: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        """Read what enters the first layer, in a family that has a stack of layers."""
        this = kwargs.get(PASS) if self.family.carries_kwargs else self.now()
        if this is not None:
            self._read(this, args[0] if args else kwargs["hidden_states"])

    def after_embeddings(
        self, _embeddings: nn.Module, _args: tuple[Any, ...], hidden: Tensor
    ) -> None:
        """Read what enters the first layer, in a family that has none."""
        self._read(self.now(), hidden)

    def _gate(
        self, labels: OperatorLabels | None, input_ids: Tensor | None, mask: Tensor
    ) -> Gate | None:
        """Open by label, else by lexicon; ``None`` leaves it to the learned gate."""
        config, gate = self.plugin.config, self.plugin.gate
        if labels is not None:
            return label_gate(labels, config, len(mask), mask.device)
        if isinstance(gate, LearnedGate):
            return None
        if not isinstance(gate, LexiconGate):
            shut = torch.zeros(len(mask), config.n_operators, device=mask.device)
            return Gate(shut, is_open=False)
        if input_ids is None:
            raise GateError(
                "the lexicon gate reads token ids and got inputs_embeds; give operators= as well"
            )
        found: Gate = gate(input_ids, mask)
        return found

    def _read(self, this: ForwardPass, hidden: Tensor) -> None:
        record = None if torch.compiler.is_compiling() else current.record
        if this is UNTOUCHED:
            return
        if this.gate is None and isinstance(self.plugin.gate, LearnedGate):
            this.gate = self.plugin.gate(hidden, this.mask)
        is_open = this.gate is not None and _may_open(this.gate)
        if this.gate is None or not (is_open or record):
            return
        cues = self.plugin.find_cues(hidden, this.mask, this.gate)
        if is_open:
            this.cues = cues
        if record is not None:
            record.cue_states.append(cues)
            record.biases.clear()
            record.attention.clear()


def _may_open(gate: Gate) -> bool:
    """Whether any expert acts on this batch, or has to learn to.

    Where none does, the layers are left alone: that is what keeps their output to the bit.
    """
    if gate.is_open is not None:
        return gate.is_open
    if torch.compiler.is_compiling() or gate.open.requires_grad:
        return True
    if gate.open.is_cuda and torch.cuda.is_current_stream_capturing():
        return True  # a captured graph cannot look, and serves every later batch
    return bool(gate.open.any())


class LayerHook:
    """The hook at one self-attention."""

    def __init__(self, model_hooks: ModelHooks, index: int) -> None:
        self.model_hooks = model_hooks
        self.plugin = model_hooks.plugin
        self.family = model_hooks.family
        self.index = index

    def __call__(
        self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Arguments | None:
        """Compute this layer's bias and send it along."""
        carries = self.family.carries_kwargs
        this = kwargs.pop(PASS, None) if carries else self.model_hooks.now()
        if this is None or this.cues is None:
            return args, kwargs  # also a layer called outside its model
        hidden = args[0] if args else kwargs["hidden_states"]
        layer = self.plugin(self.index, hidden, this.cues)
        if not torch.compiler.is_compiling() and current.record is not None:
            current.record.biases[self.index] = layer
        if not self.family.has_interface:
            # Second argument of such a family: a mask that is added to the scores.
            bias = layer.factors.dense().to(hidden.dtype)
            if len(args) > 1:
                return (hidden, with_bias(args[1], bias), *args[2:]), kwargs
            return args, {**kwargs, "attention_mask": with_bias(kwargs["attention_mask"], bias)}
        # Switched to another attention after attach, the bias would be dropped in silence.
        config = cast("PreTrainedConfig", module.config)
        if (used := config._attn_implementation) not in BACKENDS.values():
            raise UnsupportedEncoderError(
                f"the encoder's attention was set to {used!r} after attach; set it to one of "
                f"{', '.join(BACKENDS.values())}, or detach() first"
            )
        return args, {**kwargs, BIAS: Applied(self.index, self.plugin.config.form, layer)}

"""An encoder with the plug-in: gate, cues before the first layer, a bias at each self-attention.

``install`` builds the plug-in into an encoder and takes the place of its ``forward``.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from inspect import signature
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import torch
from torch import Tensor, nn

from boolattn.attention.boolattn import BoolAttn
from boolattn.attention.config import OPERATORS, BoolAttnConfig
from boolattn.attention.gate import Gate, LearnedGate, LexiconGate
from boolattn.attention.layer import CueState, is_traced
from boolattn.errors import ConfigError, GateError, UnsupportedEncoderError
from boolattn.plugin import backend

if TYPE_CHECKING:
    from transformers import PreTrainedConfig, PreTrainedModel

#: Name of the plug-in among the encoder's modules, and so in its parameters' names.
NAME = "boolattn"
#: Operator names for each text, or 0 and 1 of the shape (batch, operators).
OperatorLabels: TypeAlias = "Sequence[Sequence[str]] | Tensor"
NO_BIAS = backend.ForwardPass(torch.empty(0), None)  # a forward pass without Boolean bias


class EncoderForward:
    """An encoder's ``forward`` with the plug-in, in the place of its own.

    With hooks at the input of the first layer, for the cues, and at each self-attention, for its
    bias. They are bound methods, not closures, so that a copied or pickled encoder has its own.
    """

    #: The pass in progress while a compiler traces, which does not support thread-local state.
    traced: backend.ForwardPass | None = None

    def __init__(
        self, model: PreTrainedModel, attentions: Sequence[nn.Module], implementation: str
    ) -> None:
        self.model = model
        self.implementation = implementation  # of attention before; "" without AttentionInterface
        self.before = vars(model).get("forward")  # of a library that has replaced it
        # sentence-transformers and trainers choose what they pass by the signature.
        self.__signature__ = signature(model.forward)
        self._names = tuple(self.__signature__.parameters)  # in order
        # Where its embeddings have another width than its layers, ELECTRA projects them.
        first = getattr(model, "embeddings_project", model.get_submodule("embeddings"))
        self.handles = [first.register_forward_hook(self.after_embeddings)]
        for index in map(int, self.plugin.layers):
            hook = partial(self.before_attention, index)
            handle = attentions[index].register_forward_pre_hook(hook, with_kwargs=True)
            self.handles.append(handle)
        vars(model)["forward"] = self

    @property
    def plugin(self) -> BoolAttn:
        """The plug-in, looked up anew: peft replaces modules that are trained whole."""
        return cast("BoolAttn", self.model.boolattn)

    def __call__(
        self,
        *args: Any,
        operators: OperatorLabels | None = None,
        is_bare: bool = False,
        **kwargs: Any,
    ) -> Any:  # noqa: ANN401 - the encoder's output
        """Run the encoder; by labels, or by the plug-in's own gate; ``is_bare``: without bias."""
        arguments = dict(zip(self._names, args, strict=False)) | kwargs
        input_ids = arguments.get("input_ids")
        tokens = arguments.get("inputs_embeds") if input_ids is None else input_ids
        this = NO_BIAS
        if tokens is not None and not is_bare:  # without tokens the model itself raises
            mask = arguments.get("attention_mask")
            if mask is None:
                mask = torch.ones(tokens.shape[:2], device=tokens.device)
            elif not isinstance(mask, Tensor) or mask.dim() != 2:
                raise ConfigError("BoolAttn needs an attention_mask of 0 and 1, (batch, tokens)")
            this = backend.ForwardPass(mask, self._gate(operators, input_ids, mask))
        if self.implementation:
            kwargs[backend.PASS] = this  # layers that are recomputed have no other reference to it
        self._set_pass(this)
        try:
            if self.before is not None:
                return self.before(*args, **kwargs)
            return type(self.model).forward(self.model, *args, **kwargs)
        finally:
            self._set_pass(None)

    def _set_pass(self, this: backend.ForwardPass | None) -> None:
        if torch.compiler.is_compiling():
            self.traced = this
        elif this is None:
            backend.current.passes.pop(id(self), None)
        else:
            backend.current.passes[id(self)] = this

    def _current_pass(self) -> backend.ForwardPass | None:
        """Return the pass in progress in this thread."""
        if not torch.compiler.is_compiling():
            return backend.current.passes.get(id(self))
        if self.traced is None:
            raise UnsupportedEncoderError(
                "only a part of the encoder is compiled, and that part has no access to the gate; "
                "compile the whole encoder, or none of it"
            )
        return self.traced

    def _gate(
        self, labels: OperatorLabels | None, input_ids: Tensor | None, mask: Tensor
    ) -> Gate | None:
        """Open by labels, else by lexicon; ``None`` for the learned gate."""
        gate = self.plugin.gate
        if labels is not None:
            return label_gate(labels, len(mask), mask.device)
        if gate is None:
            return Gate(torch.zeros(len(mask), len(OPERATORS), device=mask.device), is_open=False)
        if isinstance(gate, LearnedGate):
            return None
        if input_ids is None:
            raise GateError("the lexicon gate needs input_ids; with inputs_embeds give operators=")
        return cast("Gate", gate(input_ids, mask))

    def after_embeddings(self, _module: nn.Module, _args: tuple[Any, ...], hidden: Tensor) -> None:
        """Find cues in the input of the first layer."""
        this = self._current_pass()
        if this is None or this is NO_BIAS:
            return
        plugin = self.plugin
        if (record := backend.recorder()) is None:
            this.idle = plugin.idle_layers()
            if len(this.idle) == len(plugin.layers):
                return
        gate: Gate = this.gate or cast("LearnedGate", plugin.gate)(hidden, this.mask)
        is_open = _may_open(gate)
        if is_open or record:
            cues = plugin.find_cues(hidden, this.mask, gate, may_fold=record is None)
            this.cues = cues if is_open else None
        if record is not None:
            record.cue_states.append(cast("CueState", cues))
            record.biases.clear()

    def before_attention(
        self, index: int, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Compute the bias of layer ``index`` and pass it to the attention function."""
        this = kwargs.pop(backend.PASS, None) if self.implementation else self._current_pass()
        if this is None or this.cues is None or index in this.idle:
            return args, kwargs  # also a layer called outside its model
        hidden, plugin = args[0] if args else kwargs["hidden_states"], self.plugin
        layer = plugin(index, hidden, this.cues)
        if (record := backend.recorder()) is not None:
            record.biases[index] = layer
        if not self.implementation:
            # The second argument of such a family is an additive mask.
            return (hidden, layer.masked(args[1], hidden.dtype), *args[2:]), kwargs
        # Another attention implementation, set after attach, would ignore the bias.
        config = cast("PreTrainedConfig", module.config)
        if (used := config._attn_implementation) not in backend.BACKENDS.values():
            problem = f"the encoder's attention was set to {used!r} after attach"
            remedy = f"set it to one of {', '.join(backend.BACKENDS.values())}, or detach() first"
            raise UnsupportedEncoderError(f"{problem}; {remedy}")
        return args, {**kwargs, backend.BIAS: layer}


def _may_open(gate: Gate) -> bool:
    """Whether an expert acts on this batch or is trained; if not, no layer is changed."""
    if gate.is_open is not None:
        return gate.is_open
    if gate.open.requires_grad or is_traced(gate.open.device):
        return True  # a recorded pass serves every later batch
    return bool(gate.open.any())


def label_gate(labels: OperatorLabels, batch: int, device: torch.device) -> Gate:
    """Check labels and open the gate by them."""
    shape, known = (batch, len(OPERATORS)), ", ".join(OPERATORS)
    if not isinstance(labels, torch.Tensor):
        names_of, labels = labels, torch.zeros(shape)
        if len(names_of) != batch:
            n_lists = len(names_of)
            raise GateError(f"operators must have a list for each of {batch} texts; got {n_lists}")
        for row, names in enumerate(names_of):
            if isinstance(names, str):
                raise GateError(f"operators[{row}] must be a list of names; got the text {names!r}")
            for name in names:
                if name not in OPERATORS:
                    raise GateError(f"unknown operator {name!r}; there are {known}")
                labels[row, OPERATORS.index(name)] = 1
    if tuple(labels.shape) != shape:
        axes = f"a row for each text, a column for each of {known}; got {tuple(labels.shape)}"
        raise GateError(f"operators must have the shape {shape}: {axes}")
    is_open = None
    # Reading values would synchronise with a GPU and break a compiled graph.
    if labels.device.type == "cpu" and not torch.compiler.is_compiling():
        if not bool(((labels == 0) | (labels == 1)).all()):
            raise GateError("operators must contain only 0 and 1")
        is_open = bool(labels.any())
    return Gate(labels.to(device, torch.float32), is_open=is_open)


def install(
    encoder: PreTrainedModel, config: BoolAttnConfig, lexicon: LexiconGate | None
) -> BoolAttn:
    """Build the plug-in for an encoder and register its hooks, or say why it cannot be."""
    name = backend.family_of(encoder)
    base = cast("PreTrainedModel", encoder.base_model)
    has_interface = name not in backend.WITHOUT_INTERFACE
    n_layers: int = base.config.num_hidden_layers
    if hasattr(base, NAME):
        raise ConfigError("this encoder already has BoolAttn; detach() it first")
    if encoder is not base and not has_interface:
        raise UnsupportedEncoderError(
            f"a task head of {name!r} does not pass operators= on; attach to model.base_model"
        )
    attentions = [part for part in base.modules() if type(part).__name__ == backend.FAMILIES[name]]
    if len(attentions) != n_layers:
        raise UnsupportedEncoderError(
            f"this {name!r} has {len(attentions)} modules of the class {backend.FAMILIES[name]} "
            f"for {n_layers} layers; only transformers' own implementation is supported"
        )
    if config.layers is not None and config.layers[-1] >= n_layers:
        known = f"{n_layers}: 0 to {n_layers - 1}"
        raise ConfigError(f"layers names layer {config.layers[-1]}, but the encoder has {known}")
    # Encoders made from one config object share its setting: the first may have set ours.
    used: str = base.config._attn_implementation if has_interface else ""
    implementation = {ours: theirs for theirs, ours in backend.BACKENDS.items()}.get(used, used)
    if has_interface and implementation not in backend.BACKENDS:
        remedy = f"load the encoder with attn_implementation one of {', '.join(backend.BACKENDS)}"
        raise UnsupportedEncoderError(f"cannot attach with attention {implementation!r}; {remedy}")
    sizes = {"hidden_size": base.config.hidden_size, "n_heads": base.config.num_attention_heads}
    plugin = BoolAttn(config, n_layers=n_layers, lexicon=lexicon, **sizes)
    plugin.to(base.device, base.dtype).train(base.training)
    base.add_module(NAME, plugin)
    if implementation:
        encoder.set_attn_implementation(backend.BACKENDS[implementation])
    EncoderForward(base, attentions, implementation)
    return plugin


def detach(encoder: PreTrainedModel) -> BoolAttn:
    """Remove the plug-in and return it; the encoder is as before ``attach``.

    >>> import boolattn
    >>> from transformers import BertConfig, BertModel
    >>> encoder = BertModel(BertConfig(hidden_size=24, num_hidden_layers=1))
    >>> plugin = boolattn.attach(encoder)
    >>> boolattn.detach(encoder) is plugin
    True
    """
    plugin, forward = plugin_of(encoder), forward_of(encoder)
    if not isinstance(getattr(encoder.base_model, NAME), BoolAttn):
        raise ConfigError("peft trains this plug-in; merge_and_unload() it before detach()")
    del forward.model.forward
    if forward.before is not None:
        vars(forward.model)["forward"] = forward.before
    for handle in forward.handles:
        handle.remove()
    if forward.implementation:
        encoder.set_attn_implementation(forward.implementation)
    delattr(encoder.base_model, NAME)
    return plugin


def forward_of(encoder: PreTrainedModel) -> EncoderForward:
    """Return the forward pass of an encoder with a plug-in."""
    return cast("EncoderForward", encoder.base_model.forward)


def plugin_of(encoder: PreTrainedModel) -> BoolAttn:
    """Return the plug-in of an encoder; the one that is trained, where peft made a copy."""
    if not hasattr(encoder, "base_model"):
        raise ConfigError(f"an encoder of transformers is needed, not {type(encoder).__name__}")
    plugin: Any = getattr(encoder.base_model, NAME, None)
    if copies := getattr(plugin, "modules_to_save", None):
        plugin = copies[plugin.active_adapters[0]]
    if not isinstance(plugin, BoolAttn):
        raise ConfigError("this encoder has no BoolAttn; attach() it first")
    return plugin

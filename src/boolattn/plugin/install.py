"""Install BoolAttn in an encoder, find it there, and remove it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from boolattn.attention.boolattn import BoolAttn
from boolattn.errors import ConfigError, UnsupportedEncoderError
from boolattn.plugin.backend import BACKENDS, family_of, register
from boolattn.plugin.hooks import EncoderForward

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from boolattn.attention.config import BoolAttnConfig
    from boolattn.attention.gate import LexiconGate

#: Name of the plug-in among the encoder's modules, and so in its parameters' names.
NAME = "boolattn"

register()


def install(
    encoder: PreTrainedModel, config: BoolAttnConfig, lexicon: LexiconGate | None
) -> BoolAttn:
    """Build the plug-in for an encoder and register its hooks, or say why it cannot be."""
    family = family_of(encoder)
    base = cast("PreTrainedModel", encoder.base_model)
    name, n_layers = base.config.model_type, base.config.num_hidden_layers
    if hasattr(base, NAME):
        raise ConfigError("this encoder already has BoolAttn; detach() it first")
    if encoder is not base and not family.has_interface:
        raise UnsupportedEncoderError(
            f"a task head of {name!r} does not pass operators= on; attach to model.base_model"
        )
    attentions = [part for part in base.modules() if type(part).__name__ == family.attention]
    if len(attentions) != n_layers:
        raise UnsupportedEncoderError(
            f"this {name!r} has {len(attentions)} modules of the class {family.attention} for "
            f"{n_layers} layers; only transformers' own implementation is supported"
        )
    if config.layers is not None and config.layers[-1] >= n_layers:
        raise ConfigError(
            f"layers names layer {config.layers[-1]}, but the encoder has {n_layers}: "
            f"0 to {n_layers - 1}"
        )
    implementation = _implementation(base) if family.has_interface else ""
    plugin = BoolAttn(
        config,
        hidden_size=base.config.hidden_size,
        n_heads=base.config.num_attention_heads,
        n_layers=n_layers,
        lexicon=lexicon,
    )
    plugin.to(base.device, base.dtype).train(base.training)
    base.add_module(NAME, plugin)
    if implementation:
        encoder.set_attn_implementation(BACKENDS[implementation])
    EncoderForward(base, family, attentions, implementation)
    return plugin


def _implementation(base: PreTrainedModel) -> str:
    """Return the attention implementation of an encoder, one of those with ours beside it."""
    # Encoders made from one config object share its setting: the first may have set ours.
    originals = {ours: original for original, ours in BACKENDS.items()}
    implementation: str = base.config._attn_implementation
    implementation = originals.get(implementation, implementation)
    if implementation not in BACKENDS:
        raise UnsupportedEncoderError(
            f"cannot attach with attention {implementation!r}; load the encoder with "
            f"attn_implementation one of {', '.join(BACKENDS)}"
        )
    return implementation


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
    forward.remove()
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

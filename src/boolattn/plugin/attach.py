"""attach and detach: hooks that give every self-attention its bias, and nothing else.

May import: boolattn.attention, boolattn.plugin, boolattn.errors.
"""

from __future__ import annotations

from dataclasses import dataclass
from inspect import signature
from typing import TYPE_CHECKING, cast

from boolattn.attention.boolattn import BoolAttn
from boolattn.attention.config import BoolAttnConfig
from boolattn.errors import ConfigError, UnsupportedEncoderError
from boolattn.plugin.backend import BACKENDS, register
from boolattn.plugin.families import family_of, self_attentions
from boolattn.plugin.hooks import LayerHook, ModelHooks
from boolattn.plugin.vocabulary import lexicon_gate

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from boolattn.attention.gate import LexiconGate

#: Name of the plug-in among the encoder's modules, and so in its parameters' names.
NAME = "boolattn"

register()


def attach(
    encoder: PreTrainedModel,
    config: BoolAttnConfig | None = None,
    *,
    tokenizer: PreTrainedTokenizerBase | None = None,
) -> BoolAttn:
    """Give an encoder's self-attention layers a Boolean bias, in place.

    While no gate is open the encoder's output stays what it was, to the bit. A call of the
    encoder then also takes ``operators=``: a list of operator names for each text, or 0 and 1 in
    the shape ``(batch, operators)``; it overrules the gate.

    Args:
        encoder: A Hugging Face encoder, bare or under a task head.
        config: The plug-in's settings. Left out: the defaults, gated by lexicon where a
            tokenizer is given and by label where not.
        tokenizer: The encoder's own; the lexicon gate takes its token ids from it.

    Returns:
        The plug-in, which is now a module of the encoder.
    """
    if config is None:
        config = BoolAttnConfig(gate="label" if tokenizer is None else "lexicon")
    family_of(encoder)
    lexicon = None
    if config.gate == "lexicon":
        if tokenizer is None:
            raise ConfigError(
                "gate='lexicon' needs the encoder's tokenizer: attach(..., tokenizer=)"
            )
        lexicon = lexicon_gate(config, tokenizer, encoder.config.vocab_size)
    return install(encoder, config, lexicon)


def install(
    encoder: PreTrainedModel, config: BoolAttnConfig, lexicon: LexiconGate | None
) -> BoolAttn:
    """Build the plug-in for an encoder and hook it in."""
    family = family_of(encoder)
    base = cast("PreTrainedModel", encoder.base_model)
    if hasattr(base, NAME):
        raise ConfigError("this encoder already carries BoolAttn; detach() it first")
    if encoder is not base and not family.carries_kwargs:
        raise UnsupportedEncoderError(
            f"a task head of {base.config.model_type!r} keeps operators= to itself; attach to the "
            "bare encoder, model.base_model"
        )
    attentions = self_attentions(base, family)
    if len(attentions) != base.config.num_hidden_layers:
        raise UnsupportedEncoderError(
            f"this {base.config.model_type!r} has {len(attentions)} attention modules of the kind "
            f"{family.attention} for {base.config.num_hidden_layers} layers; it is not the one "
            "that transformers brings"
        )
    if config.layers is not None and config.layers[-1] >= len(attentions):
        raise ConfigError(
            f"layers names layer {config.layers[-1]}, but the encoder has {len(attentions)}: "
            f"0 to {len(attentions) - 1}"
        )
    # Two encoders made from one config object share its setting: the second finds ours.
    theirs = {ours: name for name, ours in BACKENDS.items()}
    implementation = base.config._attn_implementation
    implementation = theirs.get(implementation, implementation)
    if family.has_interface and implementation not in BACKENDS:
        raise UnsupportedEncoderError(
            f"cannot attach under attention {implementation!r}; load the encoder with "
            f"attn_implementation one of {', '.join(BACKENDS)}"
        )
    plugin = BoolAttn(
        config,
        hidden_size=base.config.hidden_size,
        n_heads=base.config.num_attention_heads,
        n_layers=len(attentions),
        lexicon=lexicon,
    )
    plugin.to(base.device, base.dtype).train(base.training)
    base.add_module(NAME, plugin)
    if family.has_interface:
        encoder.set_attn_implementation(BACKENDS[implementation])
    hooks = ModelHooks(plugin, family, tuple(signature(base.forward).parameters))
    handles = [*hooks.install(base)]
    for index, attention in enumerate(attentions):
        if str(index) in plugin.layers:
            hook = LayerHook(hooks, index)
            handles.append(attention.register_forward_pre_hook(hook, with_kwargs=True))
    plugin.attached = _Attached(implementation if family.has_interface else "", handles)
    return plugin


@dataclass
class _Attached:
    """What detach must take back."""

    implementation: str
    handles: list[torch.utils.hooks.RemovableHandle]


def detach(encoder: PreTrainedModel) -> BoolAttn:
    """Take the plug-in off again; the encoder is what it was before attach.

    Returns:
        The plug-in, with its weights.
    """
    plugin = plugin_of(encoder)
    for handle in plugin.attached.handles:
        handle.remove()
    if plugin.attached.implementation:
        encoder.set_attn_implementation(plugin.attached.implementation)
    delattr(encoder.base_model, NAME)
    return plugin


def plugin_of(encoder: PreTrainedModel) -> BoolAttn:
    """Return the plug-in an encoder carries."""
    plugin = getattr(encoder.base_model, NAME, None)
    if not isinstance(plugin, BoolAttn):
        raise ConfigError("this encoder carries no BoolAttn; attach() it first")
    return plugin

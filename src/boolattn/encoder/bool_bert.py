"""Bool-BERT: an encoder and its plug-in as one Hugging Face model.

``AutoModel`` builds the encoder, and the plug-in is attached to it: one class for every family.
"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor
from transformers import AutoConfig, AutoModel, PreTrainedConfig, PreTrainedModel
from transformers.modeling_outputs import BaseModelOutput  # noqa: TC002

from boolattn.attention.config import BoolAttnConfig
from boolattn.attention.gate import LexiconGate
from boolattn.errors import ConfigError, GateError
from boolattn.plugin.backend import WITHOUT_INTERFACE
from boolattn.plugin.install import OperatorLabels, install, plugin_of
from boolattn.plugin.storage import attach, refuse_adapters

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

MODEL_TYPE = "bool_bert"
QUERY = "query"  # the task with the plug-in; for any other the encoder runs without it
_SIZES = (
    *("hidden_size", "num_attention_heads", "num_hidden_layers"),
    *("max_position_embeddings", "vocab_size"),
)


class BoolBertConfig(PreTrainedConfig):
    """Settings of an encoder and its plug-in."""

    model_type = MODEL_TYPE

    encoder: dict[str, Any] | None = None  # the encoder's settings, as its own config writes them
    boolattn: dict[str, Any] | None = None  # values of :class:`BoolAttnConfig`
    lexicon_shape: list[int] | None = None  # cues, longest cue, vocabulary; of a lexicon gate

    @property
    def encoder_config(self) -> PreTrainedConfig:
        """The encoder's own config, as a new object."""
        values = dict(self.encoder or {})
        family = values.pop("model_type", None)
        if family is None:
            raise ConfigError(f"this {MODEL_TYPE} config has no encoder; load a saved model")
        return AutoConfig.for_model(family, **values)

    @property
    def boolattn_config(self) -> BoolAttnConfig:
        """The plug-in's settings."""
        return BoolAttnConfig.of_saved(self.boolattn or {}, MODEL_TYPE)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        """Return a size of the encoder."""
        # Only sizes: transformers checks for other attributes with hasattr and acts on them.
        if name in _SIZES and self.__dict__.get("encoder"):
            return getattr(self.encoder_config, name)
        raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")


class BoolBertModel(PreTrainedModel):
    """An encoder with BoolAttn, saved and loaded as one model.

    >>> from transformers import BertConfig, BertModel
    >>> encoder = BertModel(BertConfig(hidden_size=24, num_hidden_layers=1))
    >>> BoolBertModel.wrap(encoder).config.boolattn_config.operators
    ('and', 'or', 'not')
    """

    config_class = BoolBertConfig
    config: BoolBertConfig
    base_model_prefix = "backbone"
    main_input_name = "input_ids"
    supports_gradient_checkpointing = True
    _supports_sdpa = True
    _supports_attention_backend = True

    def __init__(self, config: BoolBertConfig, backbone: PreTrainedModel | None = None) -> None:
        super().__init__(config)
        self.backbone = _backbone(config) if backbone is None else backbone
        plugin = plugin_of(self.backbone)
        if not plugin.operators.is_meta:
            # The plug-in is initialised already; transformers would do it again.
            for part in plugin.modules():
                part._is_hf_initialized = True  # type: ignore[assignment]
        self.post_init()  # type: ignore[no-untyped-call]

    @classmethod
    def wrap(
        cls,
        encoder: PreTrainedModel,
        config: BoolAttnConfig | None = None,
        *,
        tokenizer: PreTrainedTokenizerBase | None = None,
    ) -> BoolBertModel:
        """Make a Bool-BERT from an encoder, with or without the plug-in, in place; or return one.

        By default the settings are those of the encoder's plug-in, or of ``attach``.
        """
        if not hasattr(encoder.base_model, "boolattn"):
            attach(encoder, config, tokenizer=tokenizer)
        plugin = plugin_of(encoder)
        if config not in (None, plugin.config):
            raise ConfigError("this encoder has BoolAttn with other settings; detach() it")
        if isinstance(encoder, cls):
            return encoder
        shape = None
        if isinstance(plugin.gate, LexiconGate):
            shape = [*plugin.gate.cues.shape, len(plugin.gate.word_flags)]
        base = cast("PreTrainedModel", encoder.base_model)
        values = base.config.to_dict() | {"_name_or_path": base_name(base)}
        joint = BoolBertConfig(encoder=values, boolattn=asdict(plugin.config), lexicon_shape=shape)
        joint.name_or_path = base.config.name_or_path
        return cls(joint, base)

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        *,
        operators: OperatorLabels | None = None,
        task: str | None = QUERY,
        **kwargs: Any,
    ) -> BaseModelOutput:
        """Encode texts.

        ``operators`` are labels that override the gate: names for each text, or 0 and 1 of the
        shape ``(batch, operators)``. ``task`` is that of sentence-transformers: the plug-in is
        used only for ``query``, not for ``document`` or ``None`` (``encode`` without a task).
        """
        if operators is not None and task != QUERY:
            raise GateError(f"operators are for the task {QUERY!r}; got the task {task!r}")
        kwargs |= {"attention_mask": attention_mask, "is_bare": task != QUERY}
        output: BaseModelOutput = self.backbone(input_ids=input_ids, operators=operators, **kwargs)
        return output

    def save_pretrained(self, *args: Any, **kwargs: Any) -> None:
        """Save as transformers does, but no adapters, which could not be loaded again."""
        refuse_adapters(self)
        super().save_pretrained(*args, **kwargs)


def base_name(encoder: PreTrainedModel) -> str:
    """Return the name of a model's initial encoder: on the hub, or of its folder."""
    if isinstance(encoder, BoolBertModel):
        return str((encoder.config.encoder or {}).get("_name_or_path", ""))
    name = str(encoder.config.name_or_path or "")
    # A full path is meaningless on another machine.
    return Path(name).name if Path(name).is_dir() or Path(name).is_absolute() else name


def _backbone(config: BoolBertConfig) -> PreTrainedModel:
    """Build the encoder with its plug-in; weights are loaded later."""
    base = config.encoder_config
    # A family without AttentionInterface has only its own attention.
    has_choice = base.model_type not in WITHOUT_INTERFACE
    attention = config._attn_implementation if has_choice else "eager"
    # The precision of the whole model, not of the encoder's original file.
    options = {"attn_implementation": attention, "dtype": torch.get_default_dtype()}
    encoder: PreTrainedModel = AutoModel.from_config(base, **options)
    settings, lexicon = config.boolattn_config, None
    if settings.gate == "lexicon":
        if config.lexicon_shape is None:
            raise ConfigError(f"this {MODEL_TYPE} config lacks lexicon_shape; save the model again")
        n_cues, longest, n_ids = config.lexicon_shape
        cues = torch.zeros(n_cues, longest, dtype=torch.int64)
        lexicon = LexiconGate(cues, cues.new_zeros(n_cues), torch.zeros(n_ids, dtype=torch.uint8))
    install(encoder, settings, lexicon)
    return encoder


AutoConfig.register(MODEL_TYPE, BoolBertConfig, exist_ok=True)
AutoModel.register(BoolBertConfig, BoolBertModel, exist_ok=True)

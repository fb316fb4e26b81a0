"""Bool-BERT: an encoder and its plug-in as one Hugging Face model.

No modelling code is copied: the bare encoder is built by ``AutoModel`` from its own settings, and
the plug-in is hooked into it. One class serves every family that ``attach`` supports.
May import: boolattn.plugin, boolattn.attention, boolattn.errors.
"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor, nn
from transformers import AutoConfig, AutoModel, PreTrainedConfig, PreTrainedModel
from transformers.modeling_outputs import BaseModelOutput  # noqa: TC002 - read at run time

from boolattn.attention.config import BoolAttnConfig  # noqa: TC001 - mypy and readers
from boolattn.attention.gate import LexiconGate
from boolattn.errors import ConfigError, GateError
from boolattn.plugin.attach import attach, install, plugin_of
from boolattn.plugin.families import FAMILIES
from boolattn.plugin.storage import saved_config

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from boolattn.plugin.labels import OperatorLabels

MODEL_TYPE = "bool_bert"
#: The task under which the plug-in works; under any other the bare encoder runs.
QUERY = "query"


class BoolBertConfig(PreTrainedConfig):
    """An encoder's own settings with the plug-in's.

    Attributes:
        encoder: The bare encoder's settings, as its own config writes them.
        boolattn: The values of :class:`BoolAttnConfig`.
        lexicon_shape: Cues, longest cue and vocabulary of the compiled lexicon; ``None`` where
            the gate is another.
    """

    model_type = MODEL_TYPE

    encoder: dict[str, Any] | None = None
    boolattn: dict[str, Any] | None = None
    lexicon_shape: list[int] | None = None

    @property
    def encoder_config(self) -> PreTrainedConfig:
        """The bare encoder's config, made anew."""
        values = dict(self.encoder or {})
        family = values.pop("model_type", None)
        if family is None:
            raise ConfigError(f"this {MODEL_TYPE} config names no encoder; load a saved model")
        return AutoConfig.for_model(family, **values)

    @property
    def boolattn_config(self) -> BoolAttnConfig:
        """The plug-in's settings."""
        return saved_config(self.boolattn or {}, source=MODEL_TYPE)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - a size, or the base's complaint
        """Answer for the encoder: its sizes are this model's sizes."""
        # Only these: transformers asks for much else with hasattr, and acts on the answer.
        if name in _SIZES and self.__dict__.get("encoder"):
            return getattr(self.encoder_config, name)
        raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")


_SIZES = (
    "hidden_size",
    "max_position_embeddings",
    "num_attention_heads",
    "num_hidden_layers",
    "vocab_size",
)


class BoolBertModel(PreTrainedModel):
    """An encoder that carries BoolAttn, loaded and saved as one.

    Args:
        config: The settings.
        backbone: An encoder that already carries the plug-in; left out, both are built.
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
            # The plug-in brings its own first values; transformers would draw others.
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
        """Make a Bool-BERT of an encoder, in place.

        Args:
            encoder: A bare encoder, or one that already carries the plug-in.
            config: The plug-in's settings; ``None`` keeps the plug-in it carries, or attaches
                one with the defaults.
            tokenizer: The encoder's own, for the lexicon gate.
        """
        if hasattr(encoder.base_model, "boolattn"):
            carried = plugin_of(encoder).config
            if config is not None and config != carried:
                raise ConfigError(
                    "this encoder already carries BoolAttn with other settings; detach() it first"
                )
        else:
            attach(encoder, config, tokenizer=tokenizer)
        plugin = plugin_of(encoder)
        shape = None
        if isinstance(plugin.gate, LexiconGate):
            shape = [*plugin.gate.cues.shape, len(plugin.gate.word_flags)]
        base = cast("PreTrainedModel", encoder.base_model)
        values = base.config.to_dict() | {"_name_or_path": base_name(base)}
        own = BoolBertConfig(encoder=values, boolattn=asdict(plugin.config), lexicon_shape=shape)
        own.name_or_path = base.config.name_or_path
        return cls(own, base)

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

        Args:
            input_ids: Shape ``(batch, tokens)``.
            attention_mask: 1 for tokens, 0 for padding. Same shape.
            operators: Labels that overrule the gate: names for each text, or 0 and 1 in the
                shape ``(batch, operators)``.
            task: What sentence-transformers names the texts. Under ``query`` the plug-in works;
                under ``document``, and under ``None`` (``encode`` without a task, which its
                router counts as a document), the bare encoder runs.
            **kwargs: What the family's own ``forward`` takes.
        """
        if task == QUERY:
            kwargs["operators"] = operators
        elif operators is not None:
            raise GateError(f"operators belong to queries, and the task is {task!r}")
        else:
            kwargs["is_bare"] = True
        output: BaseModelOutput = self.backbone(
            input_ids=input_ids, attention_mask=attention_mask, **kwargs
        )
        return output

    def get_input_embeddings(self) -> nn.Module:
        """Return the encoder's word embeddings."""
        embeddings: nn.Module = self.backbone.get_input_embeddings()
        return embeddings

    def set_input_embeddings(self, value: nn.Module) -> None:
        """Replace the encoder's word embeddings."""
        self.backbone.set_input_embeddings(value)


def base_name(encoder: PreTrainedModel) -> str:
    """Name the encoder a model started from: a hub's name, or of a folder its last part."""
    if isinstance(encoder, BoolBertModel):
        return str((encoder.config.encoder or {}).get("_name_or_path", ""))
    name = str(encoder.config.name_or_path or "")
    # A path would tell of one machine and mean nothing on another.
    return Path(name).name if Path(name).is_dir() or Path(name).is_absolute() else name


def _backbone(config: BoolBertConfig) -> PreTrainedModel:
    """Build the bare encoder and hook the plug-in in; the weights come later."""
    own = config.encoder_config
    # A family without the interface has only its own attention.
    has_choice = own.model_type not in FAMILIES or FAMILIES[own.model_type].has_interface
    # The precision is the whole model's, not that of the file the encoder once came from.
    encoder: PreTrainedModel = AutoModel.from_config(
        own,
        attn_implementation=config._attn_implementation if has_choice else "eager",
        dtype=torch.get_default_dtype(),
    )
    settings, lexicon = config.boolattn_config, None
    if settings.gate == "lexicon":
        if config.lexicon_shape is None:
            raise ConfigError(f"this {MODEL_TYPE} config lacks lexicon_shape; save the model again")
        n_cues, longest, n_ids = config.lexicon_shape
        lexicon = LexiconGate(
            settings,
            torch.zeros(n_cues, longest, dtype=torch.int64),
            torch.zeros(n_cues, dtype=torch.int64),
            torch.zeros(n_ids, dtype=torch.uint8),
        )
    install(encoder, settings, lexicon)
    return encoder


def register() -> None:
    """Make both classes known to transformers."""
    AutoConfig.register(MODEL_TYPE, BoolBertConfig, exist_ok=True)
    AutoModel.register(BoolBertConfig, BoolBertModel, exist_ok=True)

"""Attach BoolAttn to an encoder: untrained, or the plug-in that comes with the package."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from boolattn.attention.config import BoolAttnConfig
from boolattn.errors import ConfigError
from boolattn.plugin.backend import family_of
from boolattn.plugin.install import install
from boolattn.plugin.storage import SHIPPED, load_shipped
from boolattn.plugin.vocabulary import lexicon_gate
from boolattn.settings import checked

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from boolattn.attention.boolattn import BoolAttn


@checked
def attach(
    encoder: PreTrainedModel | SentenceTransformer,
    config: BoolAttnConfig | str | None = None,
    *,
    tokenizer: PreTrainedTokenizerBase | None = None,
) -> BoolAttn:
    """Give an encoder's self-attention layers a Boolean bias, in place.

    With ``"shipped"`` as the config the plug-in is a trained one, of the shipped encoder or of
    all-MiniLM-L6-v2. Else no output changes by a bit until the plug-in is trained (with gradients
    it does by rounding), and after that while no gate is open. The encoder also takes
    ``operators=``, oracle labels that override the gate: a list of operator names for each text,
    or 0 and 1 of the shape ``(batch, operators)``.

    By default the gate is the lexicon if the encoder's own tokenizer is given, and else no gate
    but labels. The plug-in that is returned is now a module of the encoder.

    Inside a ``SentenceTransformer``, which calls ``forward``, it acts too: attach to
    ``model[0].model``. Only MPNet's ``forward`` ignores ``operators=``.

    >>> from transformers import AutoModel
    >>> from boolattn.encoders.models import minilm_folder
    >>> attach(AutoModel.from_pretrained(minilm_folder()), "shipped").config.gate
    'lexicon'
    """
    encoder = cast("PreTrainedModel", encoder)
    family_of(encoder)  # tells where it is in a SentenceTransformer
    if isinstance(config, str):
        if config != SHIPPED:
            raise ConfigError(f"config must be settings or {SHIPPED!r}, got {config!r}")
        return load_shipped(encoder)
    if config is None:
        config = BoolAttnConfig(gate="label" if tokenizer is None else "lexicon")
    lexicon = None
    if config.gate == "lexicon":
        if tokenizer is None:
            raise ConfigError("gate='lexicon' needs the encoder's tokenizer=")
        lexicon = lexicon_gate(config, tokenizer, encoder.config.vocab_size)
    return install(encoder, config, lexicon)

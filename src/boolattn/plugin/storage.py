"""Attach, save and load a plug-in, alone or with its encoder: one safetensors file.

The settings are in the file's header, so that weights and settings are always of one save. Folders
of torch models are loaded strictly: every tensor fits, and every error is one line. transformers
only warns of missing and superfluous tensors, and makes up what is missing.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn
from transformers import AutoConfig, AutoModel, PreTrainedModel, PreTrainedTokenizerBase
from transformers.utils import logging

from boolattn.attention.config import BoolAttnConfig
from boolattn.attention.gate import LexiconGate
from boolattn.checksums import CONFIG, check_folder, parts_of, write_sums
from boolattn.errors import BoolattnError, ConfigError, DataError, PluginMismatchError
from boolattn.files import atomic_folder
from boolattn.plugin.backend import family_of
from boolattn.plugin.install import NAME, detach, install, plugin_of
from boolattn.plugin.vocabulary import lexicon_gate
from boolattn.settings import checked

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

    from boolattn.attention.boolattn import BoolAttn

FILE = "boolattn.safetensors"
FORMAT = 1
_SHIPPED_FOLDER = Path(__file__).parents[1] / "models" / "boolattn"
_REMEDY = "save the model again, or copy its folder again"
#: Heads of tasks that an encoder was trained for, and that a retriever does not use.
_HEADS = re.compile(
    r"(cls|lm_head|vocab_\w+|(pre_)?classifier|qa_outputs|score|head|decoder|pooler"
    r"|(generator|discriminator)_\w+)\."
)
#: What transformers says of tensors that do not fit.
_MISFITS = {
    "mismatched_keys": "has another shape than its settings say",
    "missing_keys": "is missing",
    "unexpected_keys": "has no place in the model",
}
#: Sizes of the encoder that a plug-in depends on.
_SIZES = ("model_type", "hidden_size", "num_attention_heads", "num_hidden_layers")


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

    It acts in a ``SentenceTransformer`` too, which calls ``forward``: attach to ``model[0].model``.

    >>> from transformers import AutoModel
    >>> from boolattn.encoders.models import minilm_folder
    >>> attach(AutoModel.from_pretrained(minilm_folder()), "shipped").config.gate
    'lexicon'
    """
    encoder = cast("PreTrainedModel", encoder)
    family_of(encoder)  # tells where it is in a SentenceTransformer
    if isinstance(config, str):
        if config != "shipped":
            raise ConfigError(f"config must be settings or 'shipped', got {config!r}")
        paths = sorted(_SHIPPED_FOLDER.glob(f"*/{FILE}"))
        for path in paths:
            header, _ = _read(path)
            is_alike = np.allclose(header["sample"], _sample(encoder), atol=1e-2)
            if header["encoder"] == _sizes(encoder) and is_alike:
                return load_plugin(encoder, path.parent)
        names = " and ".join(path.parent.name for path in paths)
        problem = f"no shipped plug-in was trained for this encoder, only for {names}"
        raise PluginMismatchError(f"{problem}; attach an untrained one and train it")
    if config is None:
        config = BoolAttnConfig(gate="label" if tokenizer is None else "lexicon")
    lexicon = None
    if config.gate == "lexicon":
        if tokenizer is None:
            raise ConfigError("gate='lexicon' needs the encoder's tokenizer=")
        lexicon = lexicon_gate(tokenizer, encoder.config.vocab_size)
    return install(encoder, config, lexicon)


@checked
def save_plugin(encoder: PreTrainedModel, folder: str | Path) -> Path:
    """Write an encoder's plug-in alone to a folder, as in :func:`load_plugin`; return the file."""
    plugin, folder = plugin_of(encoder), Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    draft = folder / f"{FILE}.part"
    tensors = {name: tensor.contiguous() for name, tensor in plugin.state_dict().items()}
    header = {
        "format": FORMAT,
        "config": asdict(plugin.config),
        "encoder": _sizes(encoder),
        "sample": _sample(encoder),
        "sha256": tensors_hash(tensors),
    }
    try:
        save_file(tensors, draft, metadata={NAME: json.dumps(header)})
        return draft.replace(folder / FILE)
    finally:
        draft.unlink(missing_ok=True)


@checked
def load_plugin(encoder: PreTrainedModel, folder: str | Path) -> BoolAttn:
    """Attach a saved plug-in to an encoder of the same family and sizes.

    >>> import boolattn
    >>> from tempfile import TemporaryDirectory
    >>> from transformers import BertConfig, BertModel
    >>> encoder = BertModel(BertConfig(hidden_size=24, num_hidden_layers=1))
    >>> plugin = boolattn.attach(encoder)
    >>> with TemporaryDirectory() as folder:
    ...     path = boolattn.save_plugin(encoder, folder)
    ...     boolattn.load_plugin(BertModel(encoder.config), folder).config == plugin.config
    True
    """
    path = Path(folder) / FILE
    header, tensors = _read(path)
    for name, saved in header.get("encoder", {}).items():
        if (actual := _sizes(encoder).get(name)) != saved:
            values = f"{name} {saved}; this one has {actual}"
            raise PluginMismatchError(f"{path} was saved for an encoder with {values}")
    config = BoolAttnConfig.of_saved(header["config"], str(path))
    lexicon = None
    if config.gate == "lexicon":
        try:
            buffers = [tensors[f"gate.{name}"] for name in ("cues", "owners", "word_flags")]
        except KeyError:
            raise PluginMismatchError(f"{path} has no lexicon; save the plug-in again") from None
        lexicon = LexiconGate(*buffers)
    plugin = install(encoder, config, lexicon)
    try:
        plugin.load_state_dict(tensors)
    except RuntimeError as error:
        detach(encoder)
        reason = str(error).splitlines()[-1].strip()
        raise PluginMismatchError(f"{path} does not fit its own settings: {reason}") from error
    return plugin


def refuse_adapters(model: nn.Module) -> None:
    """Refuse a model with adapters of peft, which our files have no place for."""
    if any(type(part).__module__.startswith("peft.") for part in model.modules()):
        raise ConfigError(
            "this model has adapters of peft; merge them with merge_and_unload() of the PeftModel, "
            "then save; or save the adapters alone with its save_pretrained()"
        )


@checked
def save(
    encoder: PreTrainedModel,
    folder: str | Path,
    *,
    tokenizer: PreTrainedTokenizerBase | None = None,
) -> None:
    """Write an encoder and its plug-in as one folder, atomically.

    The encoder's own files have no plug-in, so that any other tool can load it.

    >>> import boolattn
    >>> from tempfile import TemporaryDirectory
    >>> from transformers import BertConfig, BertModel
    >>> encoder = BertModel(BertConfig(hidden_size=24, num_hidden_layers=1))
    >>> plugin = boolattn.attach(encoder)
    >>> with TemporaryDirectory() as folder:
    ...     boolattn.save(encoder, f"{folder}/encoder")
    ...     boolattn.load(f"{folder}/encoder").boolattn.config == plugin.config
    True
    """
    plugin_of(encoder)
    refuse_adapters(encoder)
    bare = {k: v for k, v in encoder.state_dict().items() if f"{NAME}." not in k}
    with atomic_folder(Path(folder), replace=True, marker=FILE, finish=write_sums) as draft:
        encoder.save_pretrained(draft, state_dict=bare)
        save_plugin(encoder, draft)
        if tokenizer is not None:
            tokenizer.save_pretrained(draft)


@checked
def load(folder: str | Path, **options: Any) -> PreTrainedModel:
    """Load an encoder with its plug-in from the folder that :func:`save` wrote.

    ``options`` are passed to ``AutoModel.from_pretrained``.
    """
    folder = Path(folder)
    if not (folder / FILE).is_file():
        raise PluginMismatchError(f"{folder} holds no {FILE}; give a folder written by save()")
    with strict_loading(folder):
        options |= {"local_files_only": True}
        encoder: PreTrainedModel = AutoModel.from_pretrained(folder, **options)
    load_plugin(encoder, folder)
    return encoder


def _sizes(encoder: PreTrainedModel) -> dict[str, Any]:
    return {name: getattr(encoder.config, name) for name in _SIZES}


def _sample(encoder: PreTrainedModel) -> list[float]:
    """Return a few weights of the first normalization, which tell encoders of a size apart."""
    named = encoder.base_model.named_parameters()
    weights = next(weight for name, weight in named if "norm" in name.lower())
    return [round(value, 4) for value in weights[:16].tolist()]


def _read(path: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    if not path.is_file():
        raise PluginMismatchError(f"{path} does not exist; give a folder written by save_plugin()")
    try:
        with safe_open(path, framework="pt") as file:
            header = json.loads((file.metadata() or {})[NAME])
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (OSError, SafetensorError, KeyError, ValueError, RecursionError) as error:
        raise PluginMismatchError(f"{path} is damaged or no BoolAttn file: {error}") from error
    written = header.get("format") if isinstance(header, dict) else None
    if written != FORMAT or not isinstance(header.get("config"), dict):
        raise PluginMismatchError(f"{path} has format {written}; this version reads {FORMAT}")
    if header.get("sha256") != tensors_hash(tensors):
        raise PluginMismatchError(f"{path} is damaged: its checksum differs; copy it again")
    return header, tensors


def tensors_hash(tensors: Mapping[str, Tensor], head: str = "") -> str:
    """Hash names and bytes of tensors, after other text."""
    digest = hashlib.sha256(head.encode())
    for name, tensor in sorted(tensors.items()):
        values = tensor.cpu().contiguous().reshape(-1).view(torch.uint8).numpy()
        digest.update(name.encode() + values.tobytes())
    return digest.hexdigest()


@contextmanager
def strict_loading(folder: Path) -> Iterator[None]:
    """Check a folder, its weights too; what a library raises inside becomes one line."""
    is_whole = check_folder(folder)
    try:
        if not is_whole:
            for part in parts_of(folder):
                _check_weights(part)
        yield
    except BoolattnError:
        raise
    except Exception as error:
        lines = [line.strip() for line in re.sub(r"\x1b\[\d*m", "", str(error)).splitlines()]
        reason = f"{type(error).__name__}: {next(filter(None, lines), '')}"[:250]
        raise DataError(f"{folder} cannot be loaded: {reason}; {_REMEDY}") from error


def _check_weights(part: Path) -> None:
    """Compare the names and shapes of an encoder's tensors with its settings; reads no weights."""
    path = part / CONFIG
    if not path.is_file() or "model_type" not in json.loads(path.read_text(encoding="utf-8")):
        return
    config = AutoConfig.from_pretrained(part, local_files_only=True)
    if getattr(config, "is_encoder_decoder", False):
        return  # sentence-transformers loads the encoder alone
    level = logging.get_verbosity()
    logging.set_verbosity_error()
    options = {"config": config, "device_map": "meta", "local_files_only": True}
    options |= {"ignore_mismatched_sizes": True, "output_loading_info": True}
    try:
        _, info = AutoModel.from_pretrained(part, **options)
    finally:
        logging.set_verbosity(level)
    for kind, problem in _MISFITS.items():
        names = [key if isinstance(key, str) else str(key[0]) for key in info[kind]]
        if names := sorted(name for name in names if not _HEADS.match(name)):
            more = f" (and {len(names) - 1} more)" if len(names) > 1 else ""
            raise DataError(f"{part}: the tensor {names[0]!r}{more} {problem}; {_REMEDY}")

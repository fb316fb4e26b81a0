"""The two-tower model: Bool-BERT for queries, the encoder without plug-in for documents.

It is a ``SentenceTransformer`` made only of that library's own modules, so that a saved folder
needs no ``trust_remote_code``: a ``Router`` over ``Transformer``, then ``Pooling``, then
``Normalize`` for cosine similarity. With shared weights both routes have the same ``Transformer``,
which uses the plug-in only for the task ``query``.
"""

from __future__ import annotations

import copy
import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, Any, cast

from safetensors import safe_open
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Router
from sentence_transformers.sentence_transformer.modules import Normalize, Pooling, Transformer
from transformers import AutoModel, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase

from boolattn.checksums import write_sums
from boolattn.encoder.bool_bert import QUERY, BoolBertModel, base_name
from boolattn.errors import ConfigError, MissingDataError
from boolattn.files import atomic_folder, scratch_folder
from boolattn.plugin import storage
from boolattn.plugin.install import NAME, detach, forward_of
from boolattn.settings import Checked, build, checked, limited

if TYPE_CHECKING:
    from boolattn.attention.config import BoolAttnConfig

DOCUMENT = "document"
INDEX = "model.safetensors.index.json"


@dataclass(frozen=True, kw_only=True)
class TowerConfig(Checked):
    """Settings of two towers."""

    #: ``mean`` over a text's tokens, or its first token (``cls``)
    pooling: str = limited("mean", choices=("mean", "cls"))
    is_shared: bool = True  # whether both towers use the same weights
    #: ``cosine``, with vectors of length 1, or ``dot``
    similarity: str = limited("cosine", choices=("cosine", "dot"))
    query_length: int = limited(64, least=3)  # most tokens of a query
    document_length: int = limited(256, least=3)  # most tokens of a document


@checked
def build_towers(
    encoder: str | Path | PreTrainedModel,
    config: BoolAttnConfig | None = None,
    *,
    tokenizer: PreTrainedTokenizerBase | None = None,
    document_encoder: str | Path | None = None,
    **settings: Any,
) -> SentenceTransformer:
    """Build two towers, both initialised from one encoder.

    The encoder is a folder, a name on the hub, or a loaded encoder, which is not changed. One with
    BoolAttn, or a folder saved from one, keeps its plug-in. ``config`` has the settings of a new
    plug-in. A ``document_encoder`` is for a document tower that does not share weights. The default
    tokenizer is that of the encoder's folder. ``settings`` are values of :class:`TowerConfig`.

    >>> from boolattn.encoders.models import minilm_folder
    >>> build_towers(minilm_folder(), query_length=64).get_embedding_dimension()
    384
    """
    towers = build(TowerConfig, settings, source="build_towers")
    if tokenizer is None:
        source = encoder
        if isinstance(source, PreTrainedModel):
            source = source.config.name_or_path or "-"
            if not Path(source).is_dir():
                raise ConfigError("a loaded encoder needs its tokenizer=")
        tokenizer = cast("PreTrainedTokenizerBase", from_pretrained(AutoTokenizer, source))
    model = encoder if isinstance(encoder, PreTrainedModel) else _load(encoder)
    limit = model.config.max_position_embeddings
    if (length := max(towers.query_length, towers.document_length)) > limit:
        raise ConfigError(f"the encoder takes at most {limit} tokens; got a length of {length}")
    has_plugin = hasattr(model.base_model, NAME)
    query_model = model if has_plugin else _bare(model)
    if has_plugin or config is not None:
        # To attach changes an encoder.
        query_model = query_model if has_plugin else copy.deepcopy(query_model)
        query_model = BoolBertModel.wrap(query_model, config, tokenizer=tokenizer)
    query = document = _tower(query_model, tokenizer, towers)
    if not towers.is_shared:
        plain = model if document_encoder is None else _load(document_encoder)
        document = _tower(_bare(plain), tokenizer, towers)
    pooling = Pooling(query.get_embedding_dimension(), cast("Any", towers.pooling))
    router = Router.for_query_document([query], [document], default_route=DOCUMENT)
    return SentenceTransformer(
        modules=[router, pooling, *([Normalize()] if towers.similarity == "cosine" else [])],
        similarity_fn_name=cast("Any", towers.similarity),
    )


def _bare(encoder: PreTrainedModel) -> PreTrainedModel:
    """Return an encoder without a task head, or a copy of one without its plug-in."""
    base = cast("PreTrainedModel", encoder.base_model)
    if hasattr(base, NAME):
        base = copy.deepcopy(base)
        detach(base)
    return base


def _tower(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, towers: TowerConfig
) -> Transformer:
    """Copy a model into a tower, by a folder: sentence-transformers takes no loaded encoder."""
    base = cast("PreTrainedModel", model.base_model)
    used = forward_of(base).implementation if hasattr(base, NAME) else ""
    attention = used or base.config._attn_implementation
    with scratch_folder() as folder:
        model.save_pretrained(folder, state_dict=model.state_dict())
        tokenizer.save_pretrained(folder)
        tower: Transformer = Transformer(
            str(folder),
            model_kwargs={"attn_implementation": attention, "local_files_only": True},
            query_length=towers.query_length,
            document_length=towers.document_length,
            max_seq_length=towers.document_length,
        )
    # The folder is temporary; the model card needs the encoder's name.
    tower.model.config.name_or_path = model.config.name_or_path
    return tower


@checked
def query_encoder(model: SentenceTransformer) -> PreTrainedModel:
    """Return the encoder of the query tower: a Bool-BERT if it has the plug-in.

    >>> import boolattn
    >>> towers = boolattn.build_towers(boolattn.shipped_model(), boolattn.BoolAttnConfig())
    >>> type(boolattn.query_encoder(towers)).__name__
    'BoolBertModel'
    """
    return tower_of(model, QUERY).model


def settings_of(model: SentenceTransformer) -> TowerConfig:
    """Return the settings of a two-tower model."""
    query, document = tower_of(model, QUERY), tower_of(model, DOCUMENT)
    [pooling] = [part for part in model.children() if isinstance(part, Pooling)]
    return TowerConfig(
        pooling=str(pooling.pooling_mode),
        is_shared=query is document,
        similarity=str(model.similarity_fn_name),
        # Towers not made by build_towers may have no lengths.
        query_length=query.query_length or query.max_seq_length or 0,
        document_length=document.document_length or document.max_seq_length or 0,
    )


def tower_of(model: SentenceTransformer, route: str) -> Transformer:
    """Return the tower of a route: sentence-transformers' module around the encoder."""
    router = model[0]
    if not isinstance(router, Router) or route not in router.sub_modules:
        raise ConfigError("this model has no two towers; build one with build_towers()")
    return cast("Transformer", next(iter(router.sub_modules[route].children())))


def _load(source: str | Path) -> PreTrainedModel:
    if (Path(source) / storage.FILE).is_file():
        return storage.load(source)
    return cast("PreTrainedModel", from_pretrained(AutoModel, source))


def from_pretrained(kind: Any, source: str | Path) -> Any:  # noqa: ANN401 - an Auto class
    """Load by an ``Auto`` class, from a folder or from the hub."""
    path = Path(source)
    # A missing folder would be looked up on the hub for most of a minute.
    is_path = isinstance(source, Path) or path.is_absolute() or len(path.parts) > 2
    if is_path and not (path / "config.json").is_file():
        raise MissingDataError(f"{source} holds no config.json; name an encoder's folder")
    if path.is_dir():
        with storage.strict_loading(path):
            return kind.from_pretrained(str(source), local_files_only=True)
    try:
        return kind.from_pretrained(str(source))
    except (OSError, ValueError) as error:
        problem = f"{source} is no encoder's folder or name: {str(error).splitlines()[0]}"
        raise MissingDataError(f"{problem}; name its folder") from error


@dataclass(frozen=True, kw_only=True)
class Card:
    """Facts for the model card that are not in the model."""

    base: str = ""  # what the towers were initialised from; by default the name it was loaded by
    licence: str = "apache-2.0"  # identifier of the weights' licence, as model hubs write it
    data: str = "unknown"
    command: str = ""  # that trained the model


@checked
def load_towers(folder: str | Path, *, device: str | None = None) -> SentenceTransformer:
    """Load any sentence-transformers folder, or say that there is none."""
    folder = Path(folder)
    if not (folder / "modules.json").is_file() and not (folder / "config.json").is_file():
        raise MissingDataError(f"{folder} holds no model: neither modules.json nor config.json")
    with storage.strict_loading(folder):
        return SentenceTransformer(str(folder), device=device, local_files_only=True)


@checked
def save_towers(
    model: SentenceTransformer, folder: str | Path, *, card: Card | None = None
) -> None:
    """Write a model with its card, atomically; shared weights are written once.

    An older model in the folder is replaced.

    >>> import boolattn
    >>> from tempfile import TemporaryDirectory
    >>> towers = boolattn.build_towers(boolattn.shipped_model())
    >>> with TemporaryDirectory() as folder:
    ...     boolattn.save_towers(towers, f"{folder}/towers")
    ...     SentenceTransformer(f"{folder}/towers").get_embedding_dimension()
    384
    """
    folder = Path(folder)
    storage.refuse_adapters(model)
    settings_of(model)  # refuses a model of another kind
    with atomic_folder(folder, replace=True, marker="modules.json", finish=write_sums) as draft:
        model.save_pretrained(str(draft), create_model_card=False)
        # For transformers, config, tokenizer and an index of the weights are in the root too.
        places: dict[str, str] = {}
        for file in sorted(draft.glob(f"{QUERY}_0_*/*")):
            if file.suffix == ".safetensors":
                with safe_open(file, framework="pt") as weights:
                    places |= dict.fromkeys(weights.keys(), file.relative_to(draft).as_posix())
            elif file.name not in ("sentence_bert_config.json", INDEX):
                shutil.copyfile(file, draft / file.name)
        index = {"metadata": {}, "weight_map": places}
        (draft / INDEX).write_text(json.dumps(index, indent=1), encoding="utf-8")
        text = model_card(model, card or Card(), folder.name)
        (draft / "README.md").write_text(text, encoding="utf-8")


def model_card(model: SentenceTransformer, card: Card, name: str) -> str:
    """Return the card of a two-tower model as Markdown; ``name`` is that of its folder."""
    encoder, towers, plugin = query_encoder(model), settings_of(model), "none"
    if isinstance(encoder, BoolBertModel):
        config = encoder.config.boolattn_config
        plugin = f"{config.variant} variant in the query encoder; gate: {config.gate}"
    rows = {
        "base encoder": card.base or base_name(encoder) or "unknown",
        "family": cast("Any", encoder).base_model.config.model_type,
        "weights": "shared by both towers" if towers.is_shared else "separate for each tower",
        "pooling": towers.pooling,
        "similarity": towers.similarity,
        "dimensions": str(model.get_embedding_dimension()),
        "maximum length": f"queries {towers.query_length}, documents {towers.document_length}",
        "BoolAttn": plugin,
        "training data": card.data,
    }
    cells = {key: " ".join(value.split()).replace("|", "\\|") for key, value in rows.items()}
    table = "\n".join(f"| {key} | {cell} |" for key, cell in cells.items())
    command = f"\nTrained with\n\n```sh\n{card.command}\n```\n" if card.command else ""
    values = {"name": name, "licence": card.licence, "table": table, "command": command}
    return Template(Path(__file__).with_name("card.md").read_text("utf-8")).substitute(values)

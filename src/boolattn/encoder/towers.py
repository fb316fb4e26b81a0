"""The two-tower model: Bool-BERT for queries, the encoder without plug-in for documents.

It is a ``SentenceTransformer`` made only of that library's own modules, so that a saved folder
needs no ``trust_remote_code``: a ``Router`` over ``Transformer``, then ``Pooling``, then
``Normalize`` for cosine similarity. With shared weights both routes have the same ``Transformer``,
which uses the plug-in only for the task ``query``.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Router
from sentence_transformers.sentence_transformer.modules import Normalize, Pooling, Transformer
from sentence_transformers.util import batch_to_device
from transformers import AutoModel, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase

from boolattn.encoder.bool_bert import QUERY, BoolBertModel
from boolattn.errors import ConfigError, GateError, MissingDataError
from boolattn.files import scratch_folder
from boolattn.plugin.install import NAME, detach, forward_of
from boolattn.plugin.storage import FILE, strict_loading
from boolattn.plugin.storage import load as load_attached
from boolattn.settings import build, check_types, checked, limited

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from boolattn.attention.config import BoolAttnConfig

DOCUMENT = "document"
_QUERIES_AT_ONCE = 32


@dataclass(frozen=True, kw_only=True)
class TowerConfig:
    """Settings of two towers."""

    #: ``mean`` over a text's tokens, or its first token (``cls``)
    pooling: str = limited("mean", choices=("mean", "cls"))
    is_shared: bool = True  # whether both towers use the same weights
    #: ``cosine``, with vectors of length 1, or ``dot``
    similarity: str = limited("cosine", choices=("cosine", "dot"))
    query_length: int = limited(64, least=3)  # most tokens of a query
    document_length: int = limited(256, least=3)  # most tokens of a document

    def __post_init__(self) -> None:
        check_types(self, least=0)


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
    plug-in. A ``document_encoder`` is for a document tower that does not share weights. The
    tokenizer is by default that of the encoder's folder. ``settings`` are values of
    :class:`TowerConfig`.

    >>> from boolattn.encoders.models import minilm_folder
    >>> build_towers(minilm_folder(), query_length=64).get_embedding_dimension()
    384
    """
    towers = build(TowerConfig, settings, source="build_towers")
    if tokenizer is None:
        tokenizer = _tokenizer_of(encoder)
    model = encoder if isinstance(encoder, PreTrainedModel) else _load(encoder)
    limit = model.config.max_position_embeddings
    for length in (towers.query_length, towers.document_length):
        if length > limit:
            raise ConfigError(f"the encoder takes at most {limit} tokens; got a length of {length}")
    query = document = _tower(_query_model(model, config, tokenizer), tokenizer, towers)
    if not towers.is_shared:
        plain = model if document_encoder is None else _load(document_encoder)
        document = _tower(_bare(plain), tokenizer, towers)
    pooling = Pooling(query.get_embedding_dimension(), cast("Any", towers.pooling))
    router = Router.for_query_document([query], [document], default_route=DOCUMENT)
    return SentenceTransformer(
        modules=[router, pooling, *([Normalize()] if towers.similarity == "cosine" else [])],
        similarity_fn_name=cast("Any", towers.similarity),
    )


def _query_model(
    encoder: PreTrainedModel, config: BoolAttnConfig | None, tokenizer: PreTrainedTokenizerBase
) -> PreTrainedModel:
    """Return the query tower's model: a Bool-BERT, or the bare encoder without a plug-in."""
    if not hasattr(encoder.base_model, NAME):
        if config is None:
            return _bare(encoder)
        encoder = copy.deepcopy(_bare(encoder))  # attach changes it
    return BoolBertModel.wrap(encoder, config, tokenizer=tokenizer)


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


@checked
def encode_queries(
    model: SentenceTransformer,
    texts: Sequence[str],
    *,
    operators: Sequence[Sequence[str]],
) -> Tensor:
    """Encode queries with oracle operator labels; ``model.encode_query`` uses the model's gate.

    ``operators`` has the names of each query's operators; empty for none. Returns ``(texts, dim)``.

    >>> from boolattn import BoolAttnConfig
    >>> from boolattn.encoders.models import minilm_folder
    >>> towers = build_towers(minilm_folder(), BoolAttnConfig(gate="label"))
    >>> encode_queries(towers, ["moths but not ants"], operators=[["not"]]).shape
    torch.Size([1, 384])
    """
    if not isinstance(query_encoder(model), BoolBertModel):
        raise GateError("this model has no BoolAttn, so operators have no effect")
    if len(texts) != len(operators):
        raise GateError(f"got {len(texts)} texts and operators for {len(operators)}")
    if not texts:
        return torch.zeros(0, model.get_embedding_dimension() or 0)
    model.eval()
    # Sorted by length, as in encode, for less padding.
    order = sorted(range(len(texts)), key=lambda i: -len(texts[i]))
    rows: list[Tensor] = []
    with torch.inference_mode():
        for start in range(0, len(order), _QUERIES_AT_ONCE):
            chosen = order[start : start + _QUERIES_AT_ONCE]
            features = model.preprocess([texts[i] for i in chosen], task=QUERY)
            features = batch_to_device(features, model.device)
            features["operators"] = [operators[i] for i in chosen]
            rows.append(model(features, task=QUERY)["sentence_embedding"])
    vectors = torch.cat(rows)
    return vectors[torch.tensor(order, device=vectors.device).argsort()]


def encode_documents(
    model: SentenceTransformer, texts: Sequence[str], *, batch_size: int | None = None
) -> Tensor:
    """Encode documents, on a GPU in half precision; the vectors differ by at most 1e-3.

    Returns ``(texts, dim)`` in float32, on the model's device.
    """
    is_half = model.device.type == "cuda"
    options: dict[str, Any] = {"convert_to_tensor": True, "show_progress_bar": False}
    options["batch_size"] = batch_size or (256 if is_half else 32)
    with torch.autocast(model.device.type, torch.float16, enabled=is_half):
        vectors: Tensor = model.encode_document(list(texts), **options).float()
    overflowed = (~vectors.isfinite().all(-1)).nonzero()[:, 0].tolist()
    if is_half and overflowed:
        again = model.encode_document([texts[row] for row in overflowed], **options)
        vectors = vectors.clone()  # encode's own cannot be written
        vectors[overflowed] = again.float()
    return vectors


def must_normalise(model: SentenceTransformer) -> bool:
    """Whether vectors are compared by cosine, and the model does not bring them to length 1."""
    has_lengths = not any(isinstance(part, Normalize) for part in model.children())
    return model.similarity_fn_name == "cosine" and has_lengths


def _load(source: str | Path) -> PreTrainedModel:
    if (Path(source) / FILE).is_file():
        return load_attached(source)
    return cast("PreTrainedModel", from_pretrained(AutoModel, source))


def from_pretrained(kind: Any, source: str | Path) -> Any:  # noqa: ANN401 - an Auto class
    """Load by an ``Auto`` class, from a folder or from the hub."""
    path = Path(source)
    # A missing folder would be looked up on the hub for most of a minute.
    is_path = isinstance(source, Path) or path.is_absolute() or len(path.parts) > 2
    if is_path and not (path / "config.json").is_file():
        raise MissingDataError(f"{source} holds no config.json; name an encoder's folder")
    if path.is_dir():
        with strict_loading(path):
            return kind.from_pretrained(str(source), local_files_only=True)
    try:
        return kind.from_pretrained(str(source))
    except (OSError, ValueError) as error:
        reason = str(error).splitlines()[0]
        raise MissingDataError(
            f"{source} is no encoder's folder or name: {reason}; name its folder"
        ) from error


def _tokenizer_of(encoder: str | Path | PreTrainedModel) -> PreTrainedTokenizerBase:
    source = encoder
    if isinstance(source, PreTrainedModel):
        source = source.config.name_or_path or "-"
        if not Path(source).is_dir():
            raise ConfigError("a loaded encoder needs its tokenizer=")
    return cast("PreTrainedTokenizerBase", from_pretrained(AutoTokenizer, source))

"""The settings of a run, in frozen dataclasses that check their values."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, fields
from typing import TYPE_CHECKING, Any

from boolattn.attention.config import BoolAttnConfig
from boolattn.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

_CHOICES = {
    "pooling": ("mean", "cls"),
    "similarity": ("cosine", "dot"),
    "positives": ("drawn", "fixed"),
    "keep": ("best", "last"),
    "captured": ("none", "queries", "all"),
    "size": ("small", "full"),
}
_KINDS: Mapping[str, tuple[type, ...]] = {
    "int": (int,),
    "float": (int, float),
    "bool": (bool,),
    "str": (str,),
}


class _Checked:
    """Checks the type, the choices and the least value of every field."""

    def __post_init__(self) -> None:
        for item in fields(self):  # type: ignore[arg-type]
            value = getattr(self, item.name)
            if (known := _CHOICES.get(item.name)) and value not in known:
                raise ConfigError(f"{item.name} must be one of {', '.join(known)}; got {value!r}")
            kind = _KINDS[str(item.type)]
            if not isinstance(value, kind) or (isinstance(value, bool) and item.type != "bool"):
                raise ConfigError(f"{item.name} must be of type {item.type}, got {value!r}")
            least = item.metadata.get("at_least", 0)
            if not isinstance(value, str) and value < least:
                raise ConfigError(f"{item.name} must be at least {least}, got {value}")


def _at_least(least: int, default: int) -> Any:  # noqa: ANN401 - a field of the class's type
    return field(default=default, metadata={"at_least": least})


@dataclass(frozen=True, kw_only=True)
class ModelSettings(_Checked):
    """The two towers.

    Attributes:
        encoder: A folder, a hub name, or "minilm" for the installed all-MiniLM-L6-v2.
        use_plugin: Whether the query tower has BoolAttn.
        is_shared: Whether both towers have the same encoder weights.
        pooling: "mean" or "cls".
        similarity: "cosine" or "dot".
        query_length: Longest query in tokens.
        document_length: Longest document in tokens.
    """

    encoder: str = "minilm"
    use_plugin: bool = True
    is_shared: bool = True
    pooling: str = "mean"
    similarity: str = "cosine"
    query_length: int = _at_least(4, 64)
    document_length: int = _at_least(4, 256)


@dataclass(frozen=True, kw_only=True)
class DataSettings(_Checked):
    """The training data.

    Attributes:
        name: A data set of the catalogue.
        size: Of a benchmark that is built: "small" or "full".
        train: Split to train on; several are joined by "+".
        validation: Split to choose the best weights by; empty for none.
    """

    name: str = "taxa"
    size: str = "full"
    train: str = "train"
    validation: str = "validation"


@dataclass(frozen=True, kw_only=True)
class PretrainSettings(_Checked):
    """Auxiliary pretraining; the defaults are the paper's, or *ours* where it gives none.

    Attributes:
        n_sentences: Sentences to generate (*ours*).
        varied_share: Share of them in many more wordings than the benchmark's (*ours*).
        n_held_out: Further sentences to evaluate on, for seen and for unseen wordings (*ours*).
        batch_size: Sentences per step (*ours*).
        n_epochs: Passes over the sentences.
        max_steps: Stop after so many steps; 0: when the epochs are over.
        warmup_steps: Over which the learning rate rises; then it falls to 0 (*ours*).
        learning_rate: Highest learning rate.
        weight_decay: Of AdamW.
        cue_weight: Weight of the cue loss.
        cue_positive_weight: Weight of a cue token against another (*ours*).
        gate_weight: Weight of the gate loss, where the gate is learned.
        triplet_weight: Weight of the triplet loss.
        scope_weight: Weight of the scope loss, which the paper does not have.
        margin: Of the triplet loss (*ours*).
        train_embeddings: Whether the encoder's embedding layer is trained too.
        seed: Of all draws.
    """

    n_sentences: int = _at_least(1, 20_000)
    varied_share: float = 0.0
    n_held_out: int = 500
    batch_size: int = _at_least(1, 32)
    n_epochs: int = _at_least(1, 1)
    max_steps: int = 0
    warmup_steps: int = 0
    learning_rate: float = 1e-5
    weight_decay: float = 0.01
    cue_weight: float = 1.0
    cue_positive_weight: float = 1.0
    gate_weight: float = 1.0
    triplet_weight: float = 0.2
    scope_weight: float = 0.0
    margin: float = 1.0
    train_embeddings: bool = True
    seed: int = 0


@dataclass(frozen=True, kw_only=True)
class TrainSettings(_Checked):
    """Retrieval training; the defaults are the paper's, or *ours* where it gives none.

    Attributes:
        batch_size: Queries per step, over all processes.
        n_epochs: Passes over the queries.
        max_steps: Stop after so many steps; 0: when the epochs are over.
        warmup_steps: Over which the learning rate rises; then it falls to 0 (*ours*).
        learning_rate: Highest learning rate of the encoders.
        plugin_learning_rate: Highest learning rate of new parts: plug-in and query parser; 0: the
            encoders' (*ours*).
        freeze_heads: Whether gate and cue predictor stay as pretraining left them (*ours*).
        weight_decay: Of AdamW.
        max_grad_norm: Longer gradients are clipped to this norm (*ours*).
        positives: "drawn" at each step, or one "fixed" for each query (the ablation).
        n_negatives: Negatives per query.
        n_logical: Most of them from the logic: documents that the query excludes, documents that
            match only part of an AND (*ours*).
        n_bm25: Most of them from a given ranking, best first.
        use_in_batch: Whether the other queries' documents are negatives too.
        scale: Factor on the similarity (*ours*).
        seed: Of all draws.
        evaluate_every: Steps between evaluations; 0: once an epoch.
        save_every: Steps between checkpoints; 0: once an epoch.
        patience: Stop after so many evaluations without a better one; 0: never.
        keep: Which weights are saved, "best" or "last".
        n_validation_queries: Most validation queries; 0: all (*ours*).
        n_validation_documents: Sampled documents that are ranked beside the gold and excluded
            ones; 0: all (*ours*).
        chunk: Documents of similar length encoded at once; 0: 192 where a GPU records them, else
            64 (*ours*).
        captured: Which forward passes a GPU records as CUDA graphs: "none", "queries", or "all"
            (*ours*). A CPU or several processes record none.
        n_workers: Processes that make batches for a GPU (*ours*); a CPU has none.
        use_bf16: Whether a GPU computes in bfloat16.
        needs_gpu: Whether to refuse a machine without one.
    """

    batch_size: int = _at_least(1, 32)
    n_epochs: int = _at_least(1, 40)
    max_steps: int = 0
    warmup_steps: int = 0
    learning_rate: float = 5e-5
    plugin_learning_rate: float = 0.0
    freeze_heads: bool = False
    weight_decay: float = 0.01
    max_grad_norm: float = 1.0
    positives: str = "drawn"
    n_negatives: int = 5
    n_logical: int = 0
    n_bm25: int = 0
    use_in_batch: bool = True
    scale: float = 20.0
    seed: int = 0
    evaluate_every: int = 0
    save_every: int = 0
    patience: int = 0
    keep: str = "best"
    n_validation_queries: int = 200
    n_validation_documents: int = 20_000
    chunk: int = 0
    captured: str = "all"
    n_workers: int = 1
    use_bf16: bool = True
    needs_gpu: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.n_logical + self.n_bm25 > self.n_negatives:
            raise ConfigError(
                f"n_logical + n_bm25 must not exceed n_negatives ({self.n_negatives}), "
                f"got {self.n_logical} + {self.n_bm25}"
            )
        if self.n_negatives == 0 and (not self.use_in_batch or self.batch_size == 1):
            raise ConfigError("there are no negatives: raise n_negatives, or use_in_batch")


@dataclass(frozen=True, kw_only=True)
class ComposeSettings(_Checked):
    """Query parser and composed scores, which are ours; off, a query is one vector.

    Attributes:
        use_parser: Whether a query parser and a calibration are trained beside the towers.
        n_slots: Most operands that the parser tells apart.
        n_states: Layers of the encoder that the parser mixes, from the last one down.
        depth: The parser's own attention layers.
        composed_weight: Weight of the loss of the composed score.
        plain_weight: Weight of the loss of the plain query vector.
        parser_weight: Weight of the parser's loss.
        elided_share: Share of the queries whose operands are elided for the composed score; those
            joined by OR never are.
        n_parser_texts: Texts per step that are only parsed, as many of each source: the training
            queries, and the sources below.
        n_generated: Texts of the source "generated" of the parser queries; likewise
            ``n_sentences``, ``n_natural`` and ``n_short``.
        negation_margin: The calibration's negation margin when training begins.
        calibration_rate_factor: Learning rate of the calibration, as a multiple of the plug-in's.
        parser_steps: Steps of post-training of a new parser; 0: none.
        parser_learning_rate: Highest learning rate of these.
        parser_warmup_steps: Over which it rises.
        gate_steps: Steps of post-training of a learned gate; 0: none.
        gate_learning_rate: Highest learning rate of these.
        gate_warmup_steps: Over which it rises.
        post_batch_size: Texts per step of post-training.
        select_hyperparameters: Whether the hyper-parameters of the composition are selected on
            the validation split, by R-precision, Recall@100 and leak.
        threshold: Least confidence of a parse that the saved model uses.
    """

    use_parser: bool = False
    n_slots: int = _at_least(2, 6)
    n_states: int = _at_least(1, 1)
    depth: int = 0
    composed_weight: float = 1.0
    plain_weight: float = 1.0
    parser_weight: float = 0.5
    elided_share: float = 0.0
    n_parser_texts: int = 224
    n_generated: int = 40_000
    n_sentences: int = 0
    n_natural: int = 0
    n_short: int = 0
    negation_margin: float = 0.25
    calibration_rate_factor: float = 10.0
    parser_steps: int = 0
    parser_learning_rate: float = 1e-3
    parser_warmup_steps: int = 50
    gate_steps: int = 0
    gate_learning_rate: float = 5e-3
    gate_warmup_steps: int = 20
    post_batch_size: int = _at_least(1, 256)
    select_hyperparameters: bool = False
    threshold: float = 0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.elided_share > 1:
            raise ConfigError(f"elided_share must be between 0 and 1, got {self.elided_share}")


@dataclass(frozen=True, kw_only=True)
class Preset:
    """All settings of a run."""

    name: str
    model: ModelSettings = field(default_factory=ModelSettings)
    plugin: BoolAttnConfig = field(default_factory=BoolAttnConfig)
    data: DataSettings = field(default_factory=DataSettings)
    pretrain: PretrainSettings = field(default_factory=PretrainSettings)
    train: TrainSettings = field(default_factory=TrainSettings)
    compose: ComposeSettings = field(default_factory=ComposeSettings)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, as JSON takes them."""
        return asdict(self)


#: Tables of a preset and the class of each.
TABLES: Mapping[str, type] = {
    "model": ModelSettings,
    "plugin": BoolAttnConfig,
    "data": DataSettings,
    "pretrain": PretrainSettings,
    "train": TrainSettings,
    "compose": ComposeSettings,
}

"""Every number of a run, in frozen dataclasses that check themselves.

May import: boolattn.attention.config, boolattn.errors.
"""

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
    """Checks what all settings have in common."""

    def __post_init__(self) -> None:
        for item in fields(self):  # type: ignore[arg-type]
            value = getattr(self, item.name)
            if (known := _CHOICES.get(item.name)) and value not in known:
                raise ConfigError(f"{item.name} must be one of {', '.join(known)}; got {value!r}")
            kind = _KINDS[str(item.type)]
            if not isinstance(value, kind) or (isinstance(value, bool) and item.type != "bool"):
                raise ConfigError(f"{item.name} must be of type {item.type}, got {value!r}")
            if not isinstance(value, str) and value < item.metadata.get("at_least", 0):
                least = item.metadata.get("at_least", 0)
                raise ConfigError(f"{item.name} must be at least {least}, got {value}")


def _at_least(least: int, default: int) -> Any:  # noqa: ANN401 - a field of the class's type
    return field(default=default, metadata={"at_least": least})


@dataclass(frozen=True, kw_only=True)
class ModelSettings(_Checked):
    """The two towers.

    Attributes:
        encoder: A folder, a hub name, or "minilm" for the installed all-MiniLM-L6-v2.
        use_plugin: Whether queries are read with BoolAttn; without it the towers are plain.
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
    """What is learned from.

    Attributes:
        name: A data set of the catalogue.
        size: Of a benchmark that is built: "small" or "full".
        train: Split to learn from.
        validation: Split to choose the best by; empty for none.
    """

    name: str = "taxa"
    size: str = "full"
    train: str = "train"
    validation: str = "validation"


@dataclass(frozen=True, kw_only=True)
class PretrainSettings(_Checked):
    """Auxiliary pretraining; the defaults are the paper's, or *ours* where it is silent.

    Attributes:
        n_sentences: How many sentences are made (*ours*).
        wide: Share of them in many more wordings than the benchmark's (*ours*).
        n_held_out: How many more, to measure on, of seen and as many of unseen wordings (*ours*).
        batch_size: Sentences a step (*ours*).
        n_epochs: Times through the sentences.
        max_steps: Stop after so many steps; 0: when the epochs are over.
        warmup_steps: Over which the learning rate rises; then it falls to 0 (*ours*).
        learning_rate: Highest learning rate.
        weight_decay: Of AdamW.
        cue_weight: Factor of the cue loss.
        cue_positive_weight: Weight of a cue token against another (*ours*).
        gate_weight: Factor of the gate loss, where the gate is learned.
        triplet_weight: Factor of the triplet loss.
        scope_weight: Factor of the scope loss, which the paper has not.
        margin: Of the triplet loss (*ours*).
        train_embeddings: Whether the encoder's embedding layer learns too.
        seed: Of everything that is drawn.
    """

    n_sentences: int = _at_least(1, 20_000)
    wide: float = 0.0
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
    """Retrieval training; the defaults are the paper's, or *ours* where it is silent.

    Attributes:
        batch_size: Queries a step, over all processes.
        n_epochs: Times through the queries.
        max_steps: Stop after so many steps; 0: when the epochs are over.
        warmup_steps: Over which the learning rate rises; then it falls to 0 (*ours*).
        learning_rate: Highest learning rate of the encoders.
        plugin_learning_rate: Highest learning rate of the plug-in; 0: the encoders' (*ours*).
        hold_heads: Whether gate and cue predictor stay as pretraining left them (*ours*).
        weight_decay: Of AdamW.
        max_grad_norm: Longer gradients are cut to this length (*ours*).
        positives: "drawn" anew at each step, or one "fixed" for each query (the ablation).
        n_negatives: Negatives a query.
        n_logical: How many of them at most come from the logic: documents the query excludes,
            documents that match only part of an AND (*ours*).
        n_bm25: How many of them at most come from a given ranking, best first.
        use_in_batch: Whether the other queries' documents are negatives too.
        scale: Factor on the similarity (*ours*).
        seed: Of everything that is drawn.
        evaluate_every: Steps between evaluations; 0: an epoch's.
        save_every: Steps between checkpoints; 0: an epoch's.
        patience: Stop after so many evaluations without a better one; 0: never.
        keep: Which weights the model is saved with, "best" or "last".
        n_validation_queries: At most so many are asked (*ours*).
        n_validation_documents: How many documents are ranked beside the answers (*ours*).
        chunk: Documents of like length encoded at once; 0: 192 where a GPU records them, else 64
            (*ours*).
        captured: Which passes a GPU records as CUDA graphs, one a padded length: "none",
            "queries", or "all" (*ours*). A CPU or several processes record none.
        n_workers: Processes that make batches while a GPU computes (*ours*); a CPU has none.
        use_bf16: Whether a GPU computes in bfloat16.
        needs_gpu: Whether to refuse a machine without one.
    """

    batch_size: int = _at_least(1, 32)
    n_epochs: int = _at_least(1, 40)
    max_steps: int = 0
    warmup_steps: int = 0
    learning_rate: float = 5e-5
    plugin_learning_rate: float = 0.0
    hold_heads: bool = False
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
    chunk: int = _at_least(0, 0)
    captured: str = "all"
    n_workers: int = _at_least(0, 1)
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
    """Reading and composing, which are ours; off, towers give one vector a query.

    Attributes:
        use_reader: Whether a reader and a calibration are trained beside the towers.
        n_slots: Most operands that are told apart.
        n_states: Layers of the encoder that the reader mixes, from the last one down.
        depth: The reader's own attention layers.
        composed_weight: Factor of the loss of the composed score.
        plain_weight: Factor of the loss of the plain vector.
        reading_weight: Factor of the loss of the reading.
        bare_share: Share of the queries whose operands, joined by AND or excluded, the composed
            score takes as barely as people type them.
        n_readings: Texts a step that are only read, as many of each source: the queries that are
            learned from, generated texts, sentences in wide wordings, and natural queries.
        n_generated: How many texts of fifteen domains are made.
        n_wide: How many sentences in wide wordings are made.
        n_natural: How many queries as people write them, and the same with other words.
        n_short: How many of these of a few words.
        read_steps: Steps on reading alone, before the training; 0: none.
        read_batch: Texts of such a step.
        read_learning_rate: Highest learning rate of the encoder in it; new parts take 5e-4.
        polish_steps: Steps of the reader alone, after the training, on states that stay as they
            are; 0: none.
        polish_anew: Whether these begin with a new reader, or go on with the model's own, with the
            layers and depth that it has.
        polish_learning_rate: Highest learning rate of these.
        gate_steps: Steps of a learned gate alone, after the training, on texts whose operators are
            known; 0: none.
        fit_numbers: Whether the few numbers of the composition are chosen anew on the validation
            split, by R-precision, Recall@100 and leak, or stay as they were learned.
        threshold: Least confidence of a reading that is obeyed, in the saved model.
    """

    use_reader: bool = False
    n_slots: int = _at_least(2, 6)
    n_states: int = _at_least(1, 1)
    depth: int = _at_least(0, 0)
    composed_weight: float = 1.0
    plain_weight: float = 1.0
    reading_weight: float = 0.5
    bare_share: float = 0.0
    n_readings: int = 224
    n_generated: int = 40_000
    n_wide: int = _at_least(0, 0)
    n_natural: int = _at_least(0, 0)
    n_short: int = _at_least(0, 0)
    read_steps: int = 0
    read_batch: int = _at_least(1, 256)
    read_learning_rate: float = 1e-4
    polish_steps: int = _at_least(0, 0)
    polish_anew: bool = True
    polish_learning_rate: float = 1e-3
    gate_steps: int = _at_least(0, 0)
    fit_numbers: bool = False
    threshold: float = 0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.bare_share <= 1:
            raise ConfigError(f"bare_share must be between 0 and 1, got {self.bare_share}")


@dataclass(frozen=True, kw_only=True)
class Preset:
    """One run, completely."""

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


#: Tables of a preset and what each is built into.
TABLES: Mapping[str, type] = {
    "model": ModelSettings,
    "plugin": BoolAttnConfig,
    "data": DataSettings,
    "pretrain": PretrainSettings,
    "train": TrainSettings,
    "compose": ComposeSettings,
}

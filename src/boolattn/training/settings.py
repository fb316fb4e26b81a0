"""The settings of a run: frozen dataclasses, and presets, which are TOML files of their values."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, cast, get_type_hints

from boolattn.attention.config import BoolAttnConfig
from boolattn.encoder.towers import TowerConfig
from boolattn.errors import ConfigError
from boolattn.settings import Checked, build, limited

_PRESETS = Path(__file__).with_name("presets")


@dataclass(frozen=True, kw_only=True)
class ModelSettings(TowerConfig):
    """The two towers and their encoder."""

    encoder: str = "minilm"  # A folder, a hub name, or "minilm" for the installed all-MiniLM-L6-v2
    use_plugin: bool = True  # Whether the query tower has BoolAttn


@dataclass(frozen=True, kw_only=True)
class DataSettings(Checked):
    """The training data."""

    name: str = "taxa"  # A data set of the catalogue
    size: str = limited("full", choices=("small", "full"))  # Of a benchmark that is built
    train: str = "train"  # Split to train on; several are joined by "+"
    validation: str = "validation"  # Split to choose the best weights by; empty for none


@dataclass(frozen=True, kw_only=True)
class LoopSettings(Checked):
    """What every training has; the defaults are the paper's, or *ours* where it gives none."""

    batch_size: int = limited(32, least=1)  # Sentences (*ours*) or queries per step
    n_epochs: int = limited(1, least=1)  # Passes over them
    max_steps: int = 0  # Stop after so many steps; 0: when the epochs are over
    warmup_steps: int = 0  # Over which the learning rate rises, to fall to 0 after it (*ours*)
    learning_rate: float = 1e-5  # Highest learning rate
    weight_decay: float = 0.01  # Of AdamW
    max_grad_norm: float = 1.0  # Longer gradients are clipped to this norm (*ours*)
    seed: int = limited(0, least=0, most=2**32 - 1)  # Of all draws

    def n_steps(self, per_epoch: int) -> int:
        """Return the number of all steps."""
        return self.max_steps or self.n_epochs * per_epoch


@dataclass(frozen=True, kw_only=True)
class PretrainSettings(LoopSettings):
    """Auxiliary pretraining."""

    n_sentences: int = limited(20_000, least=1)  # Sentences to generate (*ours*); --data takes all
    varied_share: float = 0.0  # Share of them in many more wordings than the benchmark's (*ours*)
    n_held_out: int = 500  # Sentences to evaluate on, of seen and of unseen wordings (*ours*)
    cue_weight: float = 1.0  # Weight of the cue loss
    cue_positive_weight: float = 1.0  # Weight of a cue token against another (*ours*)
    #: Weight of the gate loss; without effect if neither a gate nor embeddings are trained
    gate_weight: float = 1.0
    triplet_weight: float = 0.2  # Weight of the triplet loss, of a third as many triplets
    scope_weight: float = 0.0  # Weight of the scope loss, which the paper does not have
    margin: float = 1.0  # Of the triplet loss (*ours*)
    train_embeddings: bool = True  # Whether the encoder's embedding layer is trained too


@dataclass(frozen=True, kw_only=True)
class TrainSettings(LoopSettings):
    """Retrieval training."""

    n_epochs: int = limited(40, least=1)
    learning_rate: float = 5e-5  # Of the encoders
    plugin_learning_rate: float = 0.0  # Of plug-in and query parser; 0: the encoders' (*ours*)
    freeze_encoder: bool = False  # Whether only the plug-in is trained, without dropout (*ours*)
    freeze_embeddings: bool = False  # Whether the word embeddings stay as they are (*ours*)
    freeze_heads: bool = False  # Whether gate and cue predictor stay as pretrained (*ours*)
    scope_weight: float = 0.0  # Weight of the scope loss of as many generated sentences (*ours*)
    #: "drawn" at each step, or one "fixed" for each query (the ablation)
    positives: str = limited("drawn", choices=("drawn", "fixed"))
    n_negatives: int = 5  # Negatives per query
    n_logical: int = 0  # Most of them excluded by the query, or part matches of an AND (*ours*)
    n_bm25: int = 0  # Most of them from a given ranking, best first
    one_domain: bool = False  # Whether a batch is of one domain, random negatives included (*ours*)
    scale: float = 20.0  # Factor on the similarity (*ours*)
    evaluate_every: int = 0  # Steps between evaluations; 0: once an epoch
    save_every: int = 0  # Steps between checkpoints; 0: once an epoch
    #: Which weights are saved, the "best" by R-precision or the "last"
    keep: str = limited("best", choices=("best", "last"))
    n_validation_queries: int = 200  # Most validation queries; 0: all (*ours*)
    n_validation_documents: int = 20_000  # Ranked: judged ones, and a sample; 0: all (*ours*)
    chunk: int = 0  # Documents padded at once; 0: on a GPU none is padded, else 64 (*ours*)
    #: Forward passes that a single GPU records as CUDA graphs: "none", "queries", "all" (*ours*)
    captured: str = limited("all", choices=("none", "queries", "all"))
    use_bf16: bool = True  # Whether a GPU computes in bfloat16 (*ours*)
    needs_gpu: bool = False  # Whether to refuse a machine without one

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.n_logical + self.n_bm25 > self.n_negatives:
            sizes = f"({self.n_negatives}), got {self.n_logical} + {self.n_bm25}"
            raise ConfigError(f"n_logical + n_bm25 must not exceed n_negatives {sizes}")
        if self.n_negatives == 0 and self.batch_size == 1:
            raise ConfigError("there are no negatives: raise n_negatives or batch_size")


@dataclass(frozen=True, kw_only=True)
class Preset:
    """All settings of a run."""

    name: str
    model: ModelSettings = field(default_factory=ModelSettings)
    plugin: BoolAttnConfig = field(default_factory=BoolAttnConfig)
    data: DataSettings = field(default_factory=DataSettings)
    pretrain: PretrainSettings = field(default_factory=PretrainSettings)
    train: TrainSettings = field(default_factory=TrainSettings)

    @property
    def takes_labels(self) -> bool:
        """Whether oracle labels open the experts."""
        return self.model.use_plugin and self.plugin.gate == "label"

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, as JSON stores them."""
        return cast("dict[str, Any]", json.loads(json.dumps(asdict(self))))


#: Tables of a preset and the class of each.
TABLES: Mapping[str, type] = {
    name: kind for name, kind in get_type_hints(Preset).items() if name != "name"
}
#: Types of their settings, by name.
_TYPES = {
    table: {item.name: str(item.type) for item in fields(kind)} for table, kind in TABLES.items()
}


def preset_names() -> list[str]:
    """Return the presets that come with the package."""
    return sorted(path.stem for path in _PRESETS.glob("*.toml"))


def read_preset(name: str) -> dict[str, Any]:
    """Read the plain values of a preset by name, or of a TOML file."""
    is_file = name.endswith(".toml")
    if not is_file and name not in preset_names():
        raise ConfigError(f"no preset {name!r}; there are {', '.join(preset_names())}")
    path = Path(name) if is_file else _PRESETS / f"{name}.toml"
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{name} is not TOML: {error}") from error
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read {path}: {error}") from error


def load_preset(
    name: str,
    changes: Sequence[str] = (),
    *,
    first: str = "train",
    values: Mapping[str, Any] | None = None,
) -> Preset:
    """Read a preset by name, or from a TOML file, with single values changed.

    ``changes`` are ``key=value`` or ``table.key=value``; the value as in TOML, text also without
    quotes, and ``none`` for a setting that may be left out. A key without a table is looked up in
    the table ``first`` before the others. ``values`` take the place of the preset's.
    """
    values = read_preset(name) if values is None else values
    source = name if name.endswith(".toml") else f"preset {name}"
    _check_table(values, source)
    tables = {table: dict(values.get(table, {})) for table in TABLES}
    for change in changes:
        key, equals, raw = map(str.strip, change.partition("="))
        if not equals:
            raise ConfigError(f"--set takes key=value, got {change!r}")
        table, _, setting = key.rpartition(".")
        owners = [table] if table else [t for t in (first, *TABLES) if setting in _TYPES[t]]
        if not owners:
            known = ", ".join(sorted({name for types in _TYPES.values() for name in types}))
            raise ConfigError(f"--set {key}: no setting has that name; there are {known}")
        _check_table(owners[:1], f"--set {key}")
        tables[owners[0]][setting] = _value(raw, _TYPES[owners[0]].get(setting, ""))
    pairs = ((table, f"{source} [{table}]", kind) for table, kind in TABLES.items())
    built: Any = {table: build(kind, tables[table], source=where) for table, where, kind in pairs}
    return Preset(name=Path(name).stem, **built)


def _check_table(names: Iterable[str], source: str) -> None:
    if unknown := sorted(set(names) - set(TABLES)):
        raise ConfigError(f"{source}: no table {unknown[0]!r}; there are {', '.join(TABLES)}")


def _value(raw: str, kind: str) -> Any:  # noqa: ANN401 - any value TOML has
    # TOML has no null; "none" is also a choice of settings that are text.
    words = {"true": True, "false": False} | ({"none": None} if "None" in kind else {})
    try:
        return words[raw.lower()] if raw.lower() in words else tomllib.loads(f"v = {raw}")["v"]
    except tomllib.TOMLDecodeError:
        return raw

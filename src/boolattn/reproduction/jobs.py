"""The jobs that workers do, light to make and to send; what does them is imported in the worker.

May import: boolattn.reproduction, boolattn.data, boolattn.training.settings.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from boolattn.reproduction.places import Places
    from boolattn.reproduction.runs import RunKey
    from boolattn.reproduction.systems import Encoder, Suite, System
    from boolattn.training.settings import Preset, PretrainSettings


#: Of data sets that are laid out; another one has other files or splits.
LAYOUT_FORMAT = "boolattn-prepared-2"


@dataclass(frozen=True, kw_only=True)
class Layout:
    """Open and tokenise a data set, once for all."""

    folder: Path
    data: Path | None
    preset: Preset

    def do(self, places: Places) -> str:
        """Lay it out."""
        from boolattn.reproduction import work

        return work.lay_out(self, places)


@dataclass(frozen=True, kw_only=True)
class Make:
    """Make one kind of the sentences that heads, or a reader in wide wordings, learn from."""

    settings: PretrainSettings
    what: str
    n_wide: int = 0

    def do(self, places: Places) -> str:
        """Make them, where they are not there yet."""
        from boolattn.reproduction.making import make

        return make(self, places)


@dataclass(frozen=True, kw_only=True)
class Heads:
    """Teach a plug-in its cues, scopes and gate."""

    folder: Path
    preset: Preset

    def do(self, places: Places) -> str:
        """Run the auxiliary pretraining."""
        from boolattn.reproduction import work

        return work.teach(self, places)


@dataclass(frozen=True, kw_only=True)
class Train:
    """Train a system, where it is trained, and measure it.

    Attributes:
        key: Which run.
        system: What is compared.
        suite: On what.
        encoder: Standing on what.
        preset: Every number.
        layout: Folder of the data set, laid out.
        heads: Folder of the pretrained heads.
        start: Model to go on from.
    """

    key: RunKey
    system: System
    suite: Suite
    encoder: Encoder
    preset: Preset
    layout: Path
    heads: Path | None = None
    start: Path | None = None

    def do(self, places: Places) -> str:
        """Train, rank, measure, write."""
        from boolattn.reproduction import work

        return work.train(self, places)


@dataclass(frozen=True, kw_only=True)
class Bm25:
    """Measure BM25, which needs neither an encoder nor a GPU."""

    key: RunKey
    suite: Suite
    encoder: Encoder
    preset: Preset
    layout: Path

    def do(self, places: Places) -> str:
        """Index, rank, measure, write."""
        from boolattn.reproduction import work

        return work.rank_words(self, places)


@dataclass(frozen=True, kw_only=True)
class NegationSettings:
    """Every number of one training on annotated negation.

    Attributes:
        is_frozen: Whether only the heads learn.
        n_epochs: Times through the training part; the best on the development part is kept.
        batch_size: Sentences a step.
        learning_rate: Of the encoder.
        head_learning_rate: Of the heads.
        cue_positive_weight: Weight of a cue token against another.
        length: Longest sentence in tokens.
        max_steps: Stop after so many; 0: when the epochs are over.
        seed: Of order, dropout and noise.
    """

    is_frozen: bool = True
    n_epochs: int = 8
    batch_size: int = 32
    learning_rate: float = 5e-5
    head_learning_rate: float = 2e-3
    cue_positive_weight: float = 3.0
    length: int = 160
    max_steps: int = 0
    seed: int = 0


@dataclass(frozen=True, kw_only=True)
class Negate:
    """Teach heads negation from people's annotations, and measure them."""

    corpus: str
    data: Path | None
    encoder: Encoder
    source: str
    settings: NegationSettings

    @property
    def path(self) -> Path:
        """Its file below the folder of results."""
        kind = "frozen" if self.settings.is_frozen else "tuned"
        return Path(self.corpus, self.encoder.name, f"{kind}-{self.settings.seed}.json")

    def do(self, places: Places) -> str:
        """Train, measure, write."""
        from boolattn.reproduction import work

        return work.negate(self, places)


Work = Layout | Make | Heads | Train | Bm25 | Negate

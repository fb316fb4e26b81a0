"""Training a retriever that reads: the composed score itself, the plain vector, and the reading.

A step encodes its queries and, in the same pass, further texts that are only read; then the
queries' operands apart, with the words they are marked with. What is not marked learns the plain
vector alone. May import: boolattn.composition, boolattn.data, boolattn.logic, boolattn.training.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from boolattn.composition.scores import compose_batch
from boolattn.encoder import query_encoder
from boolattn.encoder.calibration import TrainableCalibration
from boolattn.encoder.parser_head import ParserConfig, ParserHead, ParserLabels, parser_loss
from boolattn.encoder.parser_pass import encode_and_parse
from boolattn.encoder.retriever import Retriever
from boolattn.encoder.retriever_storage import SETTINGS
from boolattn.errors import ConfigError
from boolattn.parsing.decoding import NEGATED, POSITIVE, ParserLogits
from boolattn.training.losses import SIMILARITIES, softmax_loss
from boolattn.training.tower_pass import encode, gather

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from sentence_transformers import SentenceTransformer

    from boolattn.training.batches import Features
    from boolattn.training.settings import Preset


#: How far what is excluded is held against what is wanted when a training begins.
_LEAN = 0.25


class Encoded(NamedTuple):
    """What one forward pass gives.

    Attributes:
        queries: Shape ``(queries, dim)``.
        documents: Shape ``(documents, dim)``.
        operands: Shape ``(operands, dim)``.
        read: Of the queries and of the texts that are only read.
    """

    queries: Tensor
    documents: Tensor
    operands: Tensor
    read: ParserLogits


class Composing(nn.Module):
    """Towers, reader and calibration in one forward pass."""

    def __init__(
        self, towers: SentenceTransformer, reader: ParserHead, calibration: TrainableCalibration
    ) -> None:
        super().__init__()
        self.towers = towers
        #: Encodes batches of documents, as in :class:`Both`; None: as usual. A step's other passes
        #: have as many texts as it has operands, or are read: no graph serves them.
        self.encode_batch: Callable[[Features, str, int], Tensor] | None = None
        self.composer = nn.ModuleDict({"reader": reader, "calibration": calibration})

    def forward(
        self,
        queries: Features,
        documents: list[Features],
        places: Tensor,
        operands: Features,
        n_queries: int,
    ) -> Encoded:
        """Encode a step; arguments as in :class:`Both`, and the operands."""
        parts = [self._encode(part, slot) for slot, part in enumerate(documents)]
        vectors, read = encode_and_parse(self.towers, self.reader, queries)
        return Encoded(
            vectors[:n_queries],
            torch.cat(parts)[places],
            encode(self.towers, operands, "query"),
            read,
        )

    def _encode(self, documents: Features, slot: int) -> Tensor:
        if self.encode_batch is None:
            return encode(self.towers, documents, "document")
        return self.encode_batch(documents, "document", slot)

    def read(self, queries: Features) -> ParserLogits:
        """Read texts."""
        return encode_and_parse(self.towers, self.reader, queries)[1]

    @property
    def reader(self) -> ParserHead:
        """What reads."""
        return cast("ParserHead", self.composer["reader"])

    def retriever(self, preset: Preset) -> Retriever:
        """Return the parts as a retriever, sharing their weights."""
        own: Any = self.composer
        threshold = preset.compose.threshold
        return Retriever(self.towers, own["reader"], own["calibration"], threshold)

    def writer(self, preset: Preset) -> Callable[[Path], None]:
        """Return what writes the reader and the calibration into a model's folder."""
        return self.retriever(preset).write_files


class Objective:
    """The three losses of a step, added with their weights."""

    def __init__(self, preset: Preset) -> None:
        self.preset = preset

    def __call__(self, model: nn.Module, inputs: dict[str, Any]) -> tuple[Tensor, Encoded]:
        """Run a step's forward pass and return its loss."""
        targets, blocked = inputs.pop("targets"), inputs.pop("blocked")
        slots, labels = inputs.pop("slots"), dict(inputs.pop("labels"))
        is_known = labels.pop("is_known")
        mask = inputs["queries"]["attention_mask"]
        found: Encoded = model(**inputs, n_queries=len(targets))
        documents = gather(found.documents)
        settings, similarity = self.preset.compose, self.preset.model.similarity
        loss = settings.plain_weight * softmax_loss(
            found.queries,
            documents,
            targets,
            blocked,
            similarity=similarity,
            scale=self.preset.train.scale,
        )
        with torch.autocast(targets.device.type, enabled=False):
            wanted = ParserLabels(**labels)
            if settings.composed_weight:
                scores, is_marked = self._scores(model, found, documents, slots, wanted)
                each = F.cross_entropy(
                    scores.masked_fill(blocked, -torch.inf), targets, reduction="none"
                )
                weight = is_marked.float()
                loss = loss + settings.composed_weight * (
                    (each * weight).sum() / weight.sum().clamp(min=1)
                )
            loss = loss + settings.reading_weight * parser_loss(
                ParserLogits(*(part.float() for part in found.read)), wanted, mask, is_known
            )
        return loss, found

    def _scores(
        self,
        model: nn.Module,
        found: Encoded,
        documents: Tensor,
        slots: Tensor,
        wanted: ParserLabels,
    ) -> tuple[Tensor, Tensor]:
        """Compose the operands' scores. Shapes ``(queries, documents)`` and ``(queries,)``."""
        own: Any = getattr(model, "module", model)
        trained: TrainableCalibration = own.composer["calibration"]
        calibration = trained.values()
        compare = SIMILARITIES[self.preset.model.similarity]
        operands = found.operands.float()
        flat = compare(operands, documents.float())
        roles = wanted.roles[: len(slots)]
        chosen = slots.clamp(min=0)
        logits = calibration.logits(flat[chosen], operands[chosen], (roles == NEGATED).float())
        is_or = wanted.is_or[: len(slots)] > 0.5
        scores = compose_batch(
            logits, roles == POSITIVE, roles == NEGATED, is_or, calibration.negation_margin
        )
        is_joined = (roles == POSITIVE).sum(-1) > 1
        used = torch.stack([is_joined & ~is_or, is_joined & is_or, (roles == NEGATED).any(-1)], -1)
        # Of the text as typed: what a search compares by would cost texts more. The weights are
        # chosen anew afterwards, where compose.fit_numbers says so.
        whole = compare(found.queries.float(), documents.float())
        return scores + calibration.whole_query_term(whole, used.float()), slots[:, 0] >= 0


def make_composing(
    towers: SentenceTransformer, preset: Preset, pretrained: Path | None = None
) -> Composing:
    """Put a reader and a calibration beside towers, new ones or those of a trained model."""
    hidden = towers.get_embedding_dimension() or 0
    if pretrained is not None and (pretrained / SETTINGS).is_file():
        found = Retriever.load(pretrained)
        if found.parser is not None:
            if (n_slots := found.parser.config.n_slots) != preset.compose.n_slots:
                raise ConfigError(
                    f"{pretrained} reads {n_slots} operands; set compose.n_slots={n_slots}"
                )
            # What was shown was fitted to numbers that training moves.
            found.calibration.reset_display()
            return Composing(towers, found.parser, found.calibration)
    settings = preset.compose
    n_layers: int = query_encoder(towers).config.num_hidden_layers
    config = ParserConfig(
        hidden_size=hidden,
        n_slots=settings.n_slots,
        # What enters the first layer counts as one.
        n_states=min(settings.n_states, n_layers + 1),
        depth=settings.depth,
    )
    reader = ParserHead(config)
    return Composing(towers, reader, TrainableCalibration(hidden, _LEAN))

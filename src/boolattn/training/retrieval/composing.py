"""Training with composed scores: plain query vector, composed score and parser together.

A step encodes its queries and, in the same forward pass, further texts that are only parsed; then
the queries' operands. Queries without labelled operands train the plain vector alone.
"""

from __future__ import annotations

from dataclasses import dataclass
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
from boolattn.training.losses import SIMILARITIES, softmax_loss, weighted_mean
from boolattn.training.tower_pass import SCOPE, TowerPass, encode, gather

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from sentence_transformers import SentenceTransformer

    from boolattn.training.batches.tokens import Features
    from boolattn.training.settings import Preset


class Encoded(NamedTuple):
    """The results of one forward pass, each ``(texts, dim)``."""

    queries: Tensor
    documents: Tensor
    operands: Tensor
    parsed: ParserLogits  # Of the queries and of the texts that are only parsed
    scope: Tensor | None  # Scope loss of sentences, where it is supervised


class Composing(TowerPass):
    """Towers, parser and calibration in one forward pass.

    Queries and operands are never recorded as CUDA graphs: their number changes by step.
    """

    def __init__(
        self, towers: SentenceTransformer, parser: ParserHead, calibration: TrainableCalibration
    ) -> None:
        super().__init__(towers)
        self.composer = nn.ModuleDict({"reader": parser, "calibration": calibration})

    def forward(  # type: ignore[override]
        self,
        queries: Features,
        documents: list[Features],
        places: Tensor,
        operands: Features,
        n_queries: int,
        scoped: Features | None = None,
    ) -> Encoded:
        """Encode a step; arguments as in ``TowerPass``, and the operands."""
        vectors = self.encode_documents(documents, places)
        queries_and_texts, parsed = encode_and_parse(self.towers, self.parser, queries)
        found = encode(self.towers, operands, "query")
        scope = None if scoped is None else self.encode(scoped, SCOPE)
        return Encoded(queries_and_texts[:n_queries], vectors, found, parsed, scope)

    @property
    def parser(self) -> ParserHead:
        """The query parser."""
        return cast("ParserHead", self.composer["reader"])

    @property
    def calibration(self) -> TrainableCalibration:
        """The calibration."""
        return cast("TrainableCalibration", self.composer["calibration"])

    def writer(self, preset: Preset) -> Callable[[Path], None]:
        """Return what writes the parser and the calibration into a model's folder."""
        retriever = Retriever(self.towers, self.parser, self.calibration, preset.compose.threshold)
        return retriever.write_files


@dataclass(frozen=True)
class Objective:
    """The weighted sum of the three losses of a step."""

    preset: Preset

    def __call__(self, model: nn.Module, inputs: dict[str, Any]) -> tuple[Tensor, Encoded]:
        """Run a step's forward pass and return its loss."""
        targets, blocked = inputs.pop("targets"), inputs.pop("blocked")
        slots, labels = inputs.pop("slots"), dict(inputs.pop("labels"))
        is_known = labels.pop("is_known")
        mask = inputs["queries"]["attention_mask"]
        found: Encoded = model(**inputs, n_queries=len(targets))
        documents = gather(found.documents)
        settings = self.preset.compose
        loss = settings.plain_weight * softmax_loss(
            found.queries,
            documents,
            targets,
            blocked,
            similarity=self.preset.model.similarity,
            scale=self.preset.train.scale,
        )
        if found.scope is not None:
            loss = loss + self.preset.train.scope_weight * found.scope
        with torch.autocast(targets.device.type, enabled=False):
            wanted = ParserLabels(**labels)
            if settings.composed_weight:
                own: Any = getattr(model, "module", model)
                scores = self._scores(own.calibration, found, documents, slots, wanted)
                each = F.cross_entropy(
                    scores.masked_fill(blocked, -torch.inf), targets, reduction="none"
                )
                has_operands = (slots[:, 0] >= 0).float()
                loss = loss + settings.composed_weight * weighted_mean(each, has_operands)
            loss = loss + settings.parser_weight * parser_loss(
                ParserLogits(*(part.float() for part in found.parsed)), wanted, mask, is_known
            )
        return loss, found

    def _scores(
        self,
        trained: TrainableCalibration,
        found: Encoded,
        documents: Tensor,
        slots: Tensor,
        wanted: ParserLabels,
    ) -> Tensor:
        """Compose the operands' scores. Shape ``(queries, documents)``."""
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
        # The vector of the text as typed; a search's own whole-query vector would cost one more
        # text a query. Its weights can be selected afterwards: compose.select_hyperparameters.
        whole = compare(found.queries.float(), documents.float())
        total: Tensor = scores + calibration.whole_query_term(whole, used.float())
        return total


def make_composing(
    towers: SentenceTransformer, preset: Preset, pretrained: Path | None = None
) -> Composing:
    """Add a parser and a calibration to towers, new ones or those of a trained model."""
    settings = preset.compose
    if pretrained is not None and (pretrained / SETTINGS).is_file():
        found = Retriever.load(pretrained)
        if found.parser is not None:
            if (n_slots := found.parser.config.n_slots) != settings.n_slots:
                raise ConfigError(
                    f"{pretrained} parses {n_slots} operands; set compose.n_slots={n_slots}"
                )
            # Displayed probabilities were fitted to parameters that training changes.
            found.calibration.reset_display()
            return Composing(towers, found.parser, found.calibration)
    hidden = towers.get_embedding_dimension() or 0
    n_layers: int = query_encoder(towers).config.num_hidden_layers
    config = ParserConfig(
        hidden_size=hidden,
        n_slots=settings.n_slots,
        # The embedding output counts as one state.
        n_states=min(settings.n_states, n_layers + 1),
        depth=settings.depth,
    )
    calibration = TrainableCalibration(hidden, settings.negation_margin)
    return Composing(towers, ParserHead(config), calibration)

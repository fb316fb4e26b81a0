"""A retriever that reads: plain text or a tree in, operand vectors and composed scores out.

The query is encoded once, and read from that same pass. What it names is then encoded apart, all
operands in one batch; a query without operators is the plain vector and costs one pass.
May import: boolattn.composition, boolattn.encoder, boolattn.logic.parsed_query, boolattn.logic.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
from sentence_transformers.sentence_transformer.modules import Normalize
from torch.nn import functional as F

from boolattn.composition.calibration import Calibration
from boolattn.composition.plan import Plan
from boolattn.composition.scores import compose, in_words, with_negation_margin
from boolattn.encoder import BoolBertModel, encode_queries, query_encoder, settings_of
from boolattn.encoder.document_encoder import document_encoder
from boolattn.encoder.parser_head import POSITIVE, ParserHead, ParserLogits, ParserOutput, decode
from boolattn.encoder.parser_pass import QUERY, encode_and_parse
from boolattn.errors import ConfigError
from boolattn.logic.operators import OPERATORS, Operator
from boolattn.logic.tree import And, Atom, Or, atoms, wanted

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray
    from sentence_transformers import SentenceTransformer
    from torch import Tensor

    from boolattn.logic.tree import QueryTree

    Array = NDArray[np.float32]

#: Below it a reading is not trusted, and the query stays one vector.
THRESHOLD = 0.5


@dataclass
class Retriever:
    """Two towers with a reader and a calibration.

    Attributes:
        towers: Any sentence-transformers model; with a reader, ours.
        reader: Reads plain text; without one, plain text is one operand.
        calibration: From similarity to probability; left out, an untrained one.
        threshold: Least confidence of a reading that is obeyed.
        rule: How scores are composed.
    """

    towers: SentenceTransformer
    parser: ParserHead | None = None
    calibration: Calibration = None  # type: ignore[assignment]  # set below
    threshold: float = THRESHOLD
    rule: str = "probability"
    _fingerprint: str = field(default="", repr=False)

    def __post_init__(self) -> None:
        device = self.towers.device
        self.towers.eval()
        if self.calibration is None:
            self.calibration = Calibration(self.dimension)
        if self.calibration.dimension != self.dimension:
            raise ConfigError(
                f"the calibration is for vectors of {self.calibration.dimension} numbers, "
                f"and these towers make {self.dimension}"
            )
        self.calibration.to(device).eval()
        if self.parser is not None:
            self.parser.to(device).eval()
        # Towers that end with Normalize make vectors of length 1 already, and no bit may change.
        self._must_normalise = self.similarity == "cosine" and not any(
            isinstance(part, Normalize) for part in self.towers.children()
        )

    @classmethod
    def load(cls, folder: str | Path, *, device: str | None = None) -> Retriever:
        """Load a saved retriever, or any sentence-transformers folder."""
        from boolattn.encoder.retriever_storage import load_retriever

        return load_retriever(folder, device=device)

    @property
    def dimension(self) -> int:
        """Numbers in a vector."""
        return int(self.towers.get_embedding_dimension() or 0)

    @property
    def similarity(self) -> str:
        """``cosine`` or ``dot``."""
        return str(self.towers.similarity_fn_name)

    @property
    def fingerprint(self) -> str:
        """Names what made a document's vector: an index of another model's cannot be searched."""
        if not self._fingerprint:
            # Not the weights alone: the same ones make other vectors with another pooling.
            digest = hashlib.sha256(f"{self.similarity} {_shape(self.towers)}".encode())
            for name, value in sorted(self.towers.state_dict().items()):
                digest.update(name.encode())
                digest.update(
                    value.cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
                )
            self._fingerprint = digest.hexdigest()[:32]
        return self._fingerprint

    def plan(self, texts: Sequence[str]) -> list[Plan]:
        """Read queries in plain language, all in one batch."""
        if not texts:
            return []
        vectors, verdicts = self._read(texts)
        plans: list[Plan] = []
        for text, vector, verdict in zip(texts, vectors, verdicts, strict=True):
            reading = verdict.parsed
            whole = Plan(
                text, Atom(text), (text,), (), vector[None], vector, False, 1.0, Atom(text)
            )
            if reading is not None and not reading.is_plain:
                tree = reading.tree(text)
                whole = _with(whole, confidence=verdict.confidence, parsed=tree)
                if verdict.confidence >= self.threshold:
                    # One Atom a span list: the tree was built from them in this order.
                    spans = (*reading.positive, *reading.negated)
                    names = tuple(atom.text for atom in atoms(tree))
                    whole = _with(whole, tree=tree, atoms=names, spans=spans, is_composed=True)
            plans.append(whole)
        return self._with_parts(plans)

    def parse(self, texts: Sequence[str]) -> list[ParserOutput]:
        """Say how queries are read, sure or not; ``None`` for a text that is one operand."""
        return self._read(texts)[1] if texts else []

    def plan_trees(
        self, trees: Sequence[QueryTree], texts: Sequence[str] | None = None
    ) -> list[Plan]:
        """Take queries that are trees already; all that they name is encoded in one batch.

        Args:
            trees: The queries.
            texts: How they were worded, where that is known; else a tree is said plainly.
        """
        said = [in_words(tree) for tree in trees] if texts is None else texts
        plans = []
        for tree, text, plain in zip(trees, said, self.encode_queries(said), strict=True):
            names = tuple(atom.text for atom in atoms(tree))
            is_composed = not isinstance(tree, Atom)
            plans.append(Plan(text, tree, names, (), plain[None], plain, is_composed, 1.0, tree))
        return self._with_parts(plans)

    def _with_parts(self, plans: Sequence[Plan]) -> list[Plan]:
        """Encode what composed plans name, all in one batch: operands, then the whole.

        The whole is what is wanted, said in one breath: the text as typed would bring along what
        it excludes. Where it excludes nothing the text counts as much as its plain wording:
        either may be worded in a way that the encoder knows less of.
        """
        rest = [wanted(plan.tree) for plan in plans]
        texts: list[str] = []
        for plan, tree in zip(plans, rest, strict=True):
            if plan.is_composed:
                texts += plan.atoms
                if isinstance(tree, And | Or):
                    texts.append(in_words(tree))
        # One open expert would have the whole batch pay for it.
        encoded = iter(self.encode_operands(texts))
        found = []
        for plan, tree in zip(plans, rest, strict=True):
            if not plan.is_composed:
                found.append(plan)
                continue
            own = np.stack([next(encoded) for _ in plan.atoms])
            match tree:
                case None:
                    whole = plan.plain
                case Atom():
                    whole = own[plan.atoms.index(tree.text)]
                case _:
                    whole = next(encoded)
            if Operator.NOT not in plan.operators:
                whole = np.mean([whole, plan.plain], axis=0, dtype=np.float32)
            found.append(_with(plan, vectors=np.concatenate([own, whole[None]])))
        return found

    def encode_operands(self, texts: Sequence[str]) -> Array:
        """Encode operands by the query tower; their own operators, if any, open no expert."""
        if texts and isinstance(_encoder(self.towers), BoolBertModel):
            closed: list[tuple[str, ...]] = [()] * len(texts)
            return self._array(encode_queries(self.towers, texts, operators=closed))
        return self.encode_queries(texts)

    def encode_queries(self, texts: Sequence[str]) -> Array:
        """Encode whole queries by the query tower, as its own gate has it."""
        if not texts:
            return np.zeros((0, self.dimension), dtype=np.float32)
        return self._array(
            self.towers.encode_query(list(texts), convert_to_tensor=True, show_progress_bar=False)
        )

    def encode_documents(self, texts: Sequence[str], *, batch_size: int | None = None) -> Array:
        """Encode documents; see :func:`document_encoder`. Shape ``(texts, dim)``."""
        if not texts:
            return np.zeros((0, self.dimension), dtype=np.float32)
        return self._array(document_encoder(self.towers, batch_size=batch_size)(texts))

    def _array(self, vectors: Tensor) -> Array:
        return _array(F.normalize(vectors, dim=-1) if self._must_normalise else vectors)

    def logits(self, plan: Plan, similarities: Array) -> Tensor:
        """Turn similarities to the plan's vectors into the operands' logits.

        Args:
            plan: Of the query.
            similarities: Of its vectors to each document. Shape ``(vectors, documents)``.

        Returns:
            Shape ``(operands, documents)``.
        """
        n, device = len(plan.atoms), self.towers.device
        with torch.inference_mode():
            found: Tensor = self.calibration(
                torch.as_tensor(similarities[:n], dtype=torch.float32, device=device),
                torch.as_tensor(plan.vectors[:n], dtype=torch.float32, device=device),
                torch.tensor(plan.is_negated, dtype=torch.float32, device=device),
            )
        return found

    def score(self, plan: Plan, similarities: Array) -> Array:
        """Score documents: composed, or the bare similarity where nothing is.

        Args:
            plan: Of the query.
            similarities: Of its vectors to each document. Shape ``(vectors, documents)``.

        Returns:
            Higher is better. Shape ``(documents,)``.
        """
        if not plan.is_composed:
            return np.asarray(similarities[0], dtype=np.float32)
        with torch.inference_mode():
            logits = self.logits(plan, similarities)
            whole = torch.as_tensor(similarities[-1], dtype=torch.float32, device=logits.device)
            return _array(self.compose(plan, logits, whole))

    def compose(self, plan: Plan, logits: Tensor, whole: Tensor) -> Tensor:
        """Compose logits, and take in the whole query's similarity. Shape ``(documents,)``."""
        used = [float(operator in plan.operators) for operator in OPERATORS]
        added = self.calibration.whole_query_term(whole, torch.tensor(used, device=whole.device))
        return compose(plan.tree, self.with_margin(plan, logits), self.rule) + added

    def with_margin(self, plan: Plan, logits: Tensor) -> Tensor:
        """Hold what is excluded against what is wanted, as far as this retriever does."""
        # The other rules are there to be compared, and are what their names say.
        is_usual = self.rule == "probability"
        return (
            with_negation_margin(plan.tree, logits, self.calibration.lean) if is_usual else logits
        )

    def probabilities(self, plan: Plan, similarities: Array) -> Array:
        """Return how probably each document belongs to each operand, as far as that was fitted.

        Args:
            plan: Of the query.
            similarities: Of its vectors to each document. Shape ``(vectors, documents)``.

        Returns:
            Shape ``(operands, documents)``.
        """
        return self.chances(plan, similarities)[1]

    def chances(self, plan: Plan, similarities: Array) -> tuple[Array, Array]:
        """Return the same as it is composed, and as it is shown; arguments and shapes alike."""
        logits = self.logits(plan, similarities)
        excluded = torch.tensor(plan.is_negated, device=logits.device)
        composed = self.with_margin(plan, logits).sigmoid()
        return _array(composed), _array(self.calibration.shown(logits, excluded))

    def _read(self, texts: Sequence[str]) -> tuple[Array, list[ParserOutput]]:
        """Encode texts and read them from the same pass."""
        if self.parser is None:
            return self.encode_queries(texts), [ParserOutput(None, 1.0, 1.0)] * len(texts)
        device = self.towers.device
        features = self.towers.preprocess(list(texts), task=QUERY)
        features = {k: v.to(device) if torch.is_tensor(v) else v for k, v in features.items()}
        with torch.inference_mode():
            vectors, read = encode_and_parse(self.towers, self.parser, features)
        read = ParserLogits(*(part.cpu() for part in read))
        verdicts = [ParserOutput(None, 1.0, 1.0)] * len(texts)
        # Nothing is looked at in a text whose slots hold one operand.
        n_present = (read.roles.argmax(-1) != 0).sum(-1)
        has_excluded = (read.roles.argmax(-1) > POSITIVE).any(-1)
        rows = torch.nonzero((n_present > 1) | has_excluded).flatten().tolist()
        if rows:
            offsets = self._offsets([texts[row] for row in rows])
            for row, own in zip(rows, offsets, strict=True):
                verdicts[row] = decode(read, texts[row], own, row)
        return self._array(vectors), verdicts

    def _offsets(self, texts: Sequence[str]) -> list[list[tuple[int, int]]]:
        tokenizer: Any = self.towers.tokenizer
        encoded = tokenizer(
            list(texts),
            truncation=True,
            max_length=settings_of(self.towers).query_length,
            return_offsets_mapping=True,
        )
        return cast("list[list[tuple[int, int]]]", encoded["offset_mapping"])


def _shape(towers: SentenceTransformer) -> str:
    """Name what turns weights into vectors: lengths and pooling, and prompts."""
    try:
        made_of = str(settings_of(towers))
    except (ConfigError, ValueError):
        parts = [part for part in towers.modules() if hasattr(part, "pooling_mode")]
        pooling = [str(part.pooling_mode) for part in parts]
        made_of = f"{towers.max_seq_length} {pooling}"
    return f"{made_of} {sorted(towers.prompts.items())}"


def _encoder(towers: SentenceTransformer) -> object:
    try:
        return query_encoder(towers)
    except ConfigError:
        # Any other model has one tower.
        return None


def _with(plan: Plan, **changes: Any) -> Plan:
    return replace(plan, **changes)


def _array(tensor: Tensor) -> Array:
    return cast("Array", tensor.detach().float().cpu().numpy())

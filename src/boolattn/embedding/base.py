"""The retriever that both backends share: plans of queries, and scores of documents."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from boolattn.composition.plan import Plan, operand_probabilities, score
from boolattn.logic.operators import Operator
from boolattn.logic.structure import in_words
from boolattn.logic.tree import And, Atom, Or, QueryTree, atoms, positive_part

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from boolattn.composition.calibration import Calibration
    from boolattn.composition.plan import OperandProbabilities
    from boolattn.parsing.decoding import ParserOutput

    Array = NDArray[np.float32]

#: A parse of lower confidence is not used, and the query stays one vector.
THRESHOLD = 0.5


def ignore(_: int) -> None:
    """Report no progress."""


class BaseRetriever(ABC):
    """An encoder with a query parser and a calibration.

    A query is encoded once and parsed from the same pass; its operands are then encoded in one
    batch. A query without operators is one vector and costs one pass.
    """

    threshold: float = THRESHOLD

    @property
    @abstractmethod
    def dimension(self) -> int:
        """Length of a vector."""

    @property
    @abstractmethod
    def similarity(self) -> str:
        """``cosine`` or ``dot``."""

    @property
    @abstractmethod
    def fingerprint(self) -> str:
        """Identifies what made a document's vector; an index is bound to it."""

    @property
    @abstractmethod
    def calibration_arrays(self) -> Calibration:
        """The calibration as numpy arrays."""

    @property
    @abstractmethod
    def has_parser(self) -> bool:
        """Whether plain text is parsed; without a parser it is one operand."""

    @abstractmethod
    def encode_queries(self, texts: Sequence[str]) -> Array:
        """Encode whole queries. Shape ``(texts, dim)``."""

    @abstractmethod
    def encode_operands(self, texts: Sequence[str]) -> Array:
        """Encode operands, as queries without an operator. Shape ``(texts, dim)``."""

    @property
    @abstractmethod
    def gate(self) -> str:
        """What opens BoolAttn's gate without labels; empty without BoolAttn."""

    @property
    @abstractmethod
    def max_tokens(self) -> int:
        """Most tokens of a document that are read."""

    @abstractmethod
    def encode_documents(
        self,
        texts: Sequence[str],
        *,
        batch_size: int | None = None,
        progress: Callable[[int], None] = ignore,
    ) -> Array:
        """Encode documents; ``progress`` gets the number just encoded. Shape ``(texts, dim)``."""

    @abstractmethod
    def encode_and_parse(self, texts: Sequence[str]) -> tuple[Array, list[ParserOutput]]:
        """Encode queries and parse them from the same pass."""

    def parse(self, texts: Sequence[str]) -> list[ParserOutput]:
        """Parse queries, whatever the confidence."""
        return self.encode_and_parse(texts)[1] if texts else []

    def plan(self, texts: Sequence[str]) -> list[Plan]:
        """Plan queries in plain language, all in one batch."""
        if not texts:
            return []
        plans: list[Plan] = []
        for text, vector, output in zip(texts, *self.encode_and_parse(texts), strict=True):
            atom, parsed = Atom(text), output.parsed
            plan = Plan(text, atom, (text,), (), vector[None], vector, False, 1.0, atom)
            if parsed is not None and not parsed.is_plain:
                tree = parsed.tree(text)
                plan = replace(plan, confidence=output.confidence, parsed=tree)
                if output.confidence >= self.threshold:
                    # The tree's operands are in the order of these span lists.
                    spans = parsed.operands
                    names = tuple(atom.text for atom in atoms(tree))
                    plan = replace(plan, tree=tree, atoms=names, spans=spans, is_composed=True)
            plans.append(plan)
        return self._with_operands(plans)

    def plan_trees(
        self, trees: Sequence[QueryTree], texts: Sequence[str] | None = None
    ) -> list[Plan]:
        """Plan queries that are trees already, all in one batch.

        ``texts`` is their wording, where it is known; by default the tree in words.
        """
        worded = [in_words(tree) for tree in trees] if texts is None else texts
        plans = []
        for tree, text, plain in zip(trees, worded, self.encode_queries(worded), strict=True):
            names = tuple(atom.text for atom in atoms(tree))
            is_composed = not isinstance(tree, Atom)
            plans.append(Plan(text, tree, names, (), plain[None], plain, is_composed, 1.0, tree))
        return self._with_operands(plans)

    def _with_operands(self, plans: Sequence[Plan]) -> list[Plan]:
        """Encode the operands and the whole-query text of composed plans, all in one batch.

        The whole-query text is the positive part in words: the text as typed would bring in what
        it negates. Without a negation the text as typed counts as much, because either wording
        may be the one that the encoder knows better.
        """
        positives = [positive_part(plan.tree) for plan in plans]
        texts: list[str] = []
        for plan, tree in zip(plans, positives, strict=True):
            if plan.is_composed:
                texts += plan.atoms
                if isinstance(tree, And | Or):
                    texts.append(in_words(tree))
        # As operands: an open gate would cost the whole batch its experts.
        encoded = iter(self.encode_operands(texts))
        found = []
        for plan, tree in zip(plans, positives, strict=True):
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
            found.append(replace(plan, vectors=np.concatenate([own, whole[None]])))
        return found

    def score(self, plan: Plan, similarities: Array) -> Array:
        """Score documents: composed, or by similarity where nothing is composed. Higher is better.

        ``similarities`` of the plan's vectors have the shape ``(vectors, documents)``.
        """
        return np.asarray(score(plan, similarities, self.calibration_arrays), np.float32)

    def operand_probabilities(self, plan: Plan, similarities: Array) -> OperandProbabilities:
        """Return the probability that each document belongs to each operand."""
        return operand_probabilities(plan, similarities, self.calibration_arrays)

    def probabilities(self, plan: Plan, similarities: Array) -> Array:
        """Return the displayed probabilities; arguments as in :meth:`score`."""
        return np.asarray(self.operand_probabilities(plan, similarities).displayed, np.float32)

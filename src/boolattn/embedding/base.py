"""The retriever that both backends share: plans of queries, and scores of documents."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from boolattn.composition.clauses import MAX_CLAUSES, n_clauses
from boolattn.composition.fitted import conjunctions
from boolattn.composition.plan import Plan, score
from boolattn.logic.structure import in_words
from boolattn.logic.tree import And, Atom, QueryTree, atoms
from boolattn.parsing.decoding import ParserOutput
from boolattn.parsing.parser import load_parser

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from boolattn.parsing.parser import Parser

    Array = NDArray[np.float32]

#: A parse of lower confidence is not used, and the query stays one vector.
THRESHOLD = 0.5


def ignore(_: int) -> None:
    """Report no progress."""


class BaseRetriever(ABC):
    """An encoder with a query parser.

    A query is parsed and encoded; its operands are then encoded in one batch. A query without
    operators is one vector and costs one pass of the encoder.
    """

    parser: Parser | None = None  # without one, plain text is one operand
    threshold: float = THRESHOLD  # least confidence of a parse that is used

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
    def parts(self) -> dict[str, str]:
        """Hashes of what else decides over results, by name; an index remembers them."""
        own = getattr(self.parser, "fingerprint", "")
        return {"parser": own} if own else {}

    @property
    def has_parser(self) -> bool:
        """Whether plain text is parsed; without a parser it is one operand."""
        return self.parser is not None

    def use_parser(self, parser: Parser | str | None) -> None:
        """Parse plain text with a parser, or with the one of a name; ``None`` for no parsing."""
        self.parser = load_parser(parser) if isinstance(parser, str) else parser
        self.threshold = THRESHOLD if self.parser is None else self.parser.threshold

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

    def parse(self, texts: Sequence[str]) -> list[ParserOutput]:
        """Parse queries, whatever the confidence."""
        return [ParserOutput()] * len(texts) if self.parser is None else self.parser.parse(texts)

    def plan(self, texts: Sequence[str]) -> list[Plan]:
        """Plan queries in plain language, all in one batch."""
        if not texts:
            return []
        plans: list[Plan] = []
        vectors, outputs = self.encode_queries(texts), self.parse(texts)
        for text, vector, output in zip(texts, vectors, outputs, strict=True):
            atom, parsed = Atom(text), output.parsed
            plan = Plan(text, atom, (text,), (), vector[None], vector, False, 1.0, atom)
            plan = replace(plan, fallback=output.reason)
            if parsed is not None and not parsed.is_plain:
                tree = parsed.tree(text)
                low = f"the parser's confidence is {output.confidence:.2f}, below {self.threshold}"
                plan = replace(plan, confidence=output.confidence, parsed=tree, fallback=low)
                if output.confidence >= self.threshold:
                    # The tree's operands are in the order of these span lists.
                    spans = parsed.operands
                    names = tuple(atom.text for atom in atoms(tree))
                    plan = replace(
                        plan, tree=tree, atoms=names, spans=spans, is_composed=True, fallback=""
                    )
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
        """Encode the operands and conjunctions of composed plans, all in one batch.

        A conjunction is its operands in words: the text as typed would bring in what it negates.
        Where it is the whole query, the text as typed counts as much, because either wording may
        be the one that the encoder knows better.
        """
        plans = [_expanded(plan) for plan in plans]
        texts: list[str] = []
        for plan in plans:
            if plan.is_composed:
                texts += plan.atoms
                for own in conjunctions(plan.clauses):
                    texts.append(in_words(And(tuple(Atom(plan.atoms[place]) for place in own))))
        # As operands: an open gate would cost the whole batch its experts.
        encoded = iter(self.encode_operands(texts))
        found = []
        for plan in plans:
            if plan.is_composed:
                n = len(plan.atoms) + len(conjunctions(plan.clauses))
                vectors = np.stack([next(encoded) for _ in range(n)])
                if n > len(plan.atoms) and plan.clauses[0].positive == (*range(len(plan.atoms)),):
                    vectors[-1] = (vectors[-1] + plan.plain) / 2
                plan = replace(plan, vectors=vectors)
            found.append(plan)
        return found

    def score(self, plan: Plan, similarities: Array) -> Array:
        """Score documents: composed, or by similarity where nothing is composed. Higher is better.

        ``similarities`` of the plan's vectors have the shape ``(vectors, documents)``.
        """
        return np.asarray(score(plan, similarities), np.float32)


def _expanded(plan: Plan) -> Plan:
    """Return the plan, or one vector where its tree has too many alternatives."""
    # A list joined by OR may be long: each operand is an alternative.
    most = max(MAX_CLAUSES, len(plan.atoms))
    if not plan.is_composed or (n := n_clauses(plan.tree)) <= most:
        return plan
    reason = f"it has {n} alternatives, more than {most}"
    return single_vector_plan(plan, reason)


def single_vector_plan(plan: Plan, reason: str) -> Plan:
    """Return a plan that searches the text as one vector, and says why."""
    return replace(
        plan,
        tree=Atom(plan.text),
        atoms=(plan.text,),
        spans=(),
        vectors=plan.plain[None],
        is_composed=False,
        fallback=reason,
    )

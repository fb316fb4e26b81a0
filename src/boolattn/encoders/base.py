"""The retriever that both backends share: plans of queries, and scores of documents."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from boolattn.errors import QueryError
from boolattn.query.clauses import MAX_CLAUSES, conjunctions, n_clauses
from boolattn.query.decoding import ParserOutput
from boolattn.query.forms import is_request, read_negated_form
from boolattn.query.parser import KNOWN_PHRASE, load_parser
from boolattn.query.plan import Plan
from boolattn.query.structure import in_words
from boolattn.query.tree import (
    And,
    Atom,
    Like,
    QueryTree,
    Where,
    atoms,
    join_all,
    signed_atoms,
)
from boolattn.scoring.exact import score
from boolattn.settings import checked

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    from boolattn.query.parsed_query import Spans
    from boolattn.query.parser import Parser

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

    @checked
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

    def plan(
        self,
        texts: Sequence[str],
        *,
        added: Sequence[QueryTree] = (),
        known: Mapping[str, Array] | None = None,
        refuse: Callable[[str, QueryTree], str] = lambda _text, _tree: "",
    ) -> list[Plan]:
        """Plan queries in plain language, all in one batch.

        Args:
            texts: The queries.
            added: Parts that every query has besides, joined by AND.
            known: Vectors of documents that are operands, by id.
            refuse: Says of a text and its parse why that is not used; empty where it is.
        """
        if not texts:
            return []
        plans: list[Plan] = []
        n_added = sum(1 for part in added for _ in atoms(part))
        worded = [in_words(join_all([Atom(text), *added])) for text in texts]
        vectors = self.encode_queries(worded)
        outputs = map(self._with_negated_form, texts, self.parse(texts))
        for text, wording, vector, output in zip(texts, worded, vectors, outputs, strict=True):
            own, spans, read, why = self._read(text, output, refuse)
            is_part = isinstance(own, Atom) and own != Atom(text)
            tree, parsed = (join_all([part, *added]) for part in (own, read))
            plan = _plan(wording, tree, _plain(tree, vector, known, self.dimension))
            spans = (*spans, *[()] * n_added) if plan.is_composed or is_part else ()
            plans.append(
                replace(
                    plan,
                    spans=spans,
                    confidence=1.0 if read == Atom(text) else output.confidence,
                    parsed=parsed,
                    fallback=why,
                    is_request=is_part,
                )
            )
        return self._with_operands(plans, known)

    def _read(
        self, text: str, output: ParserOutput, refuse: Callable[[str, QueryTree], str]
    ) -> tuple[QueryTree, tuple[Spans, ...], QueryTree, str]:
        """Return what is scored, its operands' characters, what was parsed, and the reason.

        A long request for one thing is scored by the words that name it.
        """
        whole, everywhere = Atom(text), (((0, len(text)),),)
        found = output.parsed
        if found is None or (found.is_plain and not is_request(text, found.operands[0])):
            return whole, everywhere, whole, output.reason
        tree = found.tree(text)
        doubt = self._doubt(output) or refuse(text, tree)
        if doubt:
            return whole, everywhere, whole if found.is_plain else tree, doubt
        why = ""
        if found.is_plain:
            why = f"it was read as a request for {' '.join(in_words(tree).split())!r}"
        # The tree's operands are in the order of these span lists.
        return tree, found.operands, tree, why

    def _doubt(self, output: ParserOutput) -> str:
        if output.confidence >= self.threshold:
            return ""
        return f"the parser's confidence is {output.confidence:.2f}, below {self.threshold}"

    def _with_negated_form(self, text: str, output: ParserOutput) -> ParserOutput:
        """Read what the parser left as one operand, and is a known form of negation."""
        is_left = output.parsed is None or output.parsed.is_plain
        if self.parser is None or not is_left or output.reason == KNOWN_PHRASE:
            return output
        parsed = read_negated_form(text)
        return output if parsed is None else ParserOutput(parsed)

    def plan_trees(
        self,
        trees: Sequence[QueryTree],
        texts: Sequence[str] | None = None,
        *,
        known: Mapping[str, Array] | None = None,
        compose: bool = True,
    ) -> list[Plan]:
        """Plan queries that are trees already, all in one batch.

        ``texts`` is their wording, where it is known; by default the tree in words. ``known`` has
        the vectors of documents that are operands. Without ``compose`` each is one vector.
        """
        worded = [in_words(tree) for tree in trees] if texts is None else texts
        encoded = iter(self.encode_queries([text for text in worded if text]))
        plans = []
        for tree, text in zip(trees, worded, strict=True):
            plain = _plain(tree, next(encoded) if text else None, known, self.dimension)
            plans.append(_plan(text, tree, plain))
        if not compose:
            return [single_vector_plan(plan, "") for plan in plans]
        return self._with_operands(plans, known)

    def _with_operands(
        self, plans: Sequence[Plan], known: Mapping[str, Array] | None
    ) -> list[Plan]:
        """Encode the operands and conjunctions of composed plans, all in one batch.

        A conjunction is its operands in words: the text as typed would bring in what it negates.
        Where it is the whole query, the text as typed counts as much, because either wording may
        be the one that the encoder knows better; so it does where the query is a request. A
        document in it counts as one operand.
        """
        plans = [_expanded(plan) for plan in plans]
        texts = [_operand_texts(p) if p.is_composed or p.is_request else [] for p in plans]
        # As operands: an open gate would cost the whole batch its experts.
        encoded = iter(self.encode_operands([text for own in texts for text in own if text]))
        found = []
        for plan, own in zip(plans, texts, strict=True):
            if own:
                nothing = np.zeros(self.dimension, np.float32)
                vectors = np.stack([next(encoded) if text else nothing for text in own])
                _add_documents(vectors, plan, known)
                operands = list(atoms(plan.tree))
                n = len(operands)
                scored = tuple(i for i in range(n) if not isinstance(operands[i], Where))
                if len(vectors) > n and plan.clauses[0].positive == scored:
                    vectors[-1] = (vectors[-1] + plan.plain) / 2
                elif plan.is_request and scored == (0,):
                    vectors[0] = (vectors[0] + plan.plain) / 2
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
        tree=Atom(text := plan.text or " ".join(plan.atoms)),
        atoms=(text,),
        spans=(),
        vectors=plan.plain[None],
        is_composed=False,
        is_request=False,
        fallback=reason,
    )


def _plan(text: str, tree: QueryTree, plain: Array) -> Plan:
    """Return the plan of a tree, before its operands are encoded."""
    names, is_composed = tuple(atom.name for atom in atoms(tree)), not isinstance(tree, Atom)
    return Plan(text, tree, names, (), plain[None], plain, is_composed, 1.0, tree)


def _plain(
    tree: QueryTree, words: Array | None, known: Mapping[str, Array] | None, dimension: int
) -> Array:
    """Return one vector for a query: of its words, and of the documents that are operands."""
    likes = [atom for atom, sign in signed_atoms(tree) if isinstance(atom, Like) and sign > 0]
    found = [] if words is None else [words]
    found += [_document(atom, known) for atom in likes]
    if len(found) == 1:
        return found[0]
    return np.mean(found, axis=0, dtype=np.float32) if found else np.zeros(dimension, np.float32)


def _operand_texts(plan: Plan) -> list[str]:
    """Return the words of each of a plan's vectors; empty where it has none."""
    named = [atom.words for atom in atoms(plan.tree)]
    joined = ([Atom(named[place]) for place in own] for own in conjunctions(plan.clauses))
    return [*named, *(in_words(And(tuple(parts))) for parts in joined)]


def _add_documents(vectors: Array, plan: Plan, known: Mapping[str, Array] | None) -> None:
    """Fill in the vectors of documents that are operands, and of conjunctions with them."""
    likes = {i: one for i, one in enumerate(atoms(plan.tree)) if isinstance(one, Like)}
    for place, atom in likes.items():
        vectors[place] = _document(atom, known)
    for row, places in enumerate(conjunctions(plan.clauses), start=len(plan.atoms)):
        if own := [place for place in places if place in likes]:
            total = (len(places) - len(own)) * vectors[row] + vectors[own].sum(0)
            vectors[row] = total / len(places)


def _document(atom: Like, known: Mapping[str, Array] | None) -> Array:
    if known is None or atom.text not in known:
        raise QueryError(f"{atom.name}: no document with this id is known here")
    return known[atom.text]

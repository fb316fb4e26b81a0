"""Generated Boolean sentences, labelled with operators, cues, scopes and operands.

They combine category names (taxa by place, films, books, food ...) with the frozen wordings of the
taxa benchmark, so the cue words held out there are held out here.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache

from benchmark_data.taxa.phrases import Builder, Phrase, families_of, fill
from benchmark_data.taxa.places import are_apart, places
from benchmark_data.taxa.queries import Speaker
from benchmark_data.taxa.sets import Operand
from benchmark_data.taxa.wordings import families, requests, wordings
from boolattn.data.sentences import Mixture, ScopeSpans, Sentence, Span, Triplet
from boolattn.query.syntax import TEMPLATES, template_operators
from boolattn.query.tree import Operator
from experiments.sentences.contents import Category, SentenceContent, Taxa, domains, groups
from experiments.sentences.varied import VariedBuilder, VariedWordings

#: Equivalents of "and" that the paper names and the frozen wordings do not have, by family.
_MORE_CUES = {"and2_prep": "~including", "and2_in": "~including", "and3_in": "~,~including"}
#: Positive operands of the templates that have a negated one.
_N_POSITIVE = {"_ that are not _": 1, "_ that are also _ but not _": 2}


def generate(n: int, seed: int, mixture: Mixture | None = None) -> Iterator[Sentence]:
    """Generate sentences; equal arguments give equal sentences on every machine.

    >>> sentence = next(generate(1, seed=0))
    >>> all(sentence.text[cue.start : cue.end] for cue in sentence.cues)
    True
    """
    writer = _Writer(random.Random(f"sentences {seed}"), mixture or Mixture())
    for _ in range(n):
        template = writer.template()
        yield writer.write(template, writer.content(template))


def generate_triplets(n: int, seed: int, mixture: Mixture | None = None) -> Iterator[Triplet]:
    """Generate triplets; the negative has the anchor's operands and other operators."""
    writer = _Writer(random.Random(f"triplets {seed}"), mixture or Mixture())
    for _ in range(n):
        template = writer.rng.choice([name for name in TEMPLATES if name != "_"])
        content = writer.content(template)
        words = writer.slots(content)
        anchor = writer.write(template, content, words)
        positive = anchor
        while positive.text.lower() == anchor.text.lower():
            positive = writer.write(template, content)
        others = [
            name
            for name in TEMPLATES
            if name != template and name.count("_") == template.count("_")
        ]
        negative = writer.write(writer.rng.choice(others), content, words)
        yield Triplet(anchor, positive, negative)


class _Writer:
    """Draws contents and wordings from one random generator."""

    def __init__(self, rng: random.Random, mixture: Mixture) -> None:
        self.rng = rng
        self._mixture = mixture
        self._speaker = Speaker(rng, unseen=mixture.unseen)
        self._varied = VariedWordings(rng, held_out=mixture.varied_held_out)

    def template(self) -> str:
        if self.rng.random() < self._mixture.plain:
            return "_"
        return self.rng.choice([name for name in TEMPLATES if name != "_"])

    def content(self, template: str) -> SentenceContent:
        n_operands = template.count("_")
        draw = self.rng.random()
        if draw < self._mixture.names:
            return self._category(n_operands, n_names=1)
        if self.rng.random() < self._mixture.taxa:
            return self._taxa(template, n_operands)
        return self._category(n_operands, n_names=0)

    def slots(self, content: SentenceContent) -> dict[str, str]:
        return content.slots(self._speaker, self.rng)

    def write(
        self, template: str, content: SentenceContent, slots: Mapping[str, str] | None = None
    ) -> Sentence:
        if self._mixture.varied and self.rng.random() < self._mixture.varied:
            return self._write_varied(template, content)
        unseen = self._mixture.unseen
        skeleton, takes_request = self.rng.choice(content.skeletons(template, unseen=unseen))
        builder = Builder(template.count("_"))
        request = "*"
        if takes_request and self.rng.random() < 0.3:
            request = self.rng.choice(requests().allowed(unseen=unseen))
        before, _, after = request.partition("*")
        builder.add(before)
        fill(skeleton, self._cues(template, skeleton), slots or self.slots(content), builder)
        builder.add(after)
        return _sentence(template, self._speaker.cased(builder.finish()))

    def _write_varied(self, template: str, content: SentenceContent) -> Sentence:
        fitting = [row for row in self._varied.words.skeletons[template] if content.fits(row)]
        drawn = self._varied.draw(template, fitting, content.skeletons(template, unseen=False))
        builder = VariedBuilder(template.count("_"))
        before, _, after = drawn.request.partition("*")
        builder.add(before)
        slots = content.slots(self._speaker, self.rng, self._varied)
        fill(drawn.skeleton, drawn.cues, slots, builder)
        builder.add(after)
        return _sentence(template, self._speaker.cased(builder.finish()))

    def _cues(self, template: str, skeleton: str) -> dict[str, tuple[Operator, str]]:
        """Draw the cues: plain ones, equivalents, or one that is held out of training."""
        names = families_of(skeleton)
        is_new = skeleton in _held_out_skeletons(template)
        held_out = self.rng.choice(names) if names and self._mixture.unseen and not is_new else ""
        cues = {}
        for name in names:
            family = families()[name]
            if name == held_out:
                cue = self.rng.choice(family.unseen)
            elif self.rng.random() < self._mixture.replace:
                more = [_MORE_CUES[name]] if name in _MORE_CUES else []
                cue = self.rng.choice([*family.seen, *more])
            else:
                cue = family.seen[0]
            cues[name] = (family.operator, cue)
        return cues

    def _category(self, n_operands: int, *, n_names: int) -> Category:
        domain = self.rng.choice(domains())
        phrases = self.rng.sample(domain["phrases"], n_operands)
        for index in self.rng.sample(range(n_operands), n_names):
            phrases[index] = self.rng.choice(domain["names"])
        return Category(self.rng.choice(domain["heads"]), tuple(phrases))

    def _taxa(self, template: str, n_operands: int) -> Taxa:
        """Draw one group in several places, or for an OR also several groups in one place."""
        if template.startswith("_ or") and self.rng.random() < 0.4:
            place = self.rng.choice(list(places()))
            several = self.rng.sample(groups(), n_operands)
            return Taxa(tuple(Operand(group, place) for group in several))
        chosen: list[str] = []
        while len(chosen) < n_operands:
            place = self.rng.choice(list(places()))
            if place not in chosen and all(are_apart(place, other) for other in chosen):
                chosen.append(place)
        group = self.rng.choice(groups())
        return Taxa(tuple(Operand(group, place) for place in chosen))


def _sentence(template: str, phrase: Phrase) -> Sentence:
    operators = template_operators(template)
    n_positive = _N_POSITIVE.get(template, len(phrase.operands))
    positive = _characters(phrase.operands[:n_positive])
    negated = _characters(phrase.operands[n_positive:]) - positive
    scopes = tuple(
        ScopeSpans(op, _spans(phrase.text, negated if op is Operator.NOT else positive))
        for op in operators
    )
    return Sentence(
        text=phrase.text,
        template=template,
        operators=operators,
        cues=phrase.cues,
        scopes=scopes,
        operands=phrase.operands,
    )


def _characters(operands: Sequence[Sequence[Span]]) -> set[int]:
    return {at for spans in operands for start, end in spans for at in range(start, end)}


def _spans(text: str, characters: set[int]) -> tuple[Span, ...]:
    """Merge characters into spans that neither begin nor end with a space."""
    spans: list[Span] = []
    for at in sorted(characters):
        if text[at].isspace():
            continue
        if (
            spans
            and not text[spans[-1][1] : at].strip()
            and set(range(spans[-1][1], at)) <= characters
        ):
            spans[-1] = (spans[-1][0], at + 1)
        else:
            spans.append((at, at + 1))
    return tuple(spans)


@lru_cache(maxsize=8)
def _held_out_skeletons(template: str) -> frozenset[str]:
    """Return the skeletons that are held out with any cue."""
    seen = {wording.skeleton for wording in wordings()[template] if not wording.is_unseen}
    return frozenset(wording.skeleton for wording in wordings()[template]) - seen

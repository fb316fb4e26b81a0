"""QUEST and QUEST-intro: loading them, and queries generated from their categories."""

from __future__ import annotations

from boolattn.data.quest.loader import (
    Coverage,
    Quest,
    fetch_quest,
    load_quest,
    load_quest_intro,
    read_documents,
)

__all__ = [
    "Coverage",
    "Quest",
    "fetch_quest",
    "load_quest",
    "load_quest_intro",
    "read_documents",
]

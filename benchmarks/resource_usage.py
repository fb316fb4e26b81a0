"""Memory of a process and its children."""

from __future__ import annotations

import os
from pathlib import Path


def processes() -> list[int]:
    """Return the ids of this process and all its descendants."""
    found, pending = [], [os.getpid()]
    while pending:
        own = pending.pop()
        found.append(own)
        for task in Path(f"/proc/{own}/task").glob("*/children"):
            pending += [int(child) for child in task.read_text().split()]
    return found


def memory_mb() -> dict[str, int]:
    """Return anonymous memory and mapped files of all processes."""
    found = {"own": 0, "mapped files": 0}
    for process in processes():
        lines = Path(f"/proc/{process}/status").read_text().splitlines()
        fields = dict(line.split(":", 1) for line in lines if ":" in line)
        for name, field in (("own", "RssAnon"), ("mapped files", "RssFile")):
            found[name] += int(fields[field].split()[0]) >> 10
    return found

"""Jobs for tests of worker processes, which import them from this file."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass

from boolattn.errors import DataError


@dataclass(frozen=True)
class Write:
    name: str

    def run(self, paths):
        (paths.runs / self.name).write_text(str(os.getpid()))
        return self.name


class OutOfMemoryError(RuntimeError):
    """As torch names its own."""


@dataclass(frozen=True)
class OutOfMemory:
    """Runs out of memory beside another job; alone it succeeds if it is small."""

    beside: str
    is_small: bool

    def run(self, paths):
        first = paths.runs / f"tried-{self.is_small}"
        if not first.exists():
            first.touch()
            while not (paths.runs / self.beside).exists():
                time.sleep(0.05)
            raise OutOfMemoryError("no memory")
        if not self.is_small:
            raise OutOfMemoryError("no memory at all")
        return "alone" if (paths.runs / f"{self.beside}-ended").exists() else "not alone"


@dataclass(frozen=True)
class Sleep:
    """Sleeps, and writes a file when it starts and one when it ends."""

    name: str
    seconds: float

    def run(self, paths):
        (paths.runs / self.name).write_text(str(os.getpid()))
        time.sleep(self.seconds)
        (paths.runs / f"{self.name}-ended").touch()
        return self.name


@dataclass(frozen=True)
class Fail:
    how: str

    def run(self, paths):
        if self.how == "die":
            os._exit(3)
        if self.how == "error":
            raise DataError("no such file")
        if self.how == "sleep":
            time.sleep(60)
        raise ValueError("two\nlines")

"""Jobs that worker processes of the tests do; they must be found by the name of this file."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass

from boolattn.errors import DataError


@dataclass(frozen=True)
class Say:
    words: str

    def do(self, places):
        (places.runs / self.words).write_text(str(os.getpid()))
        return self.words


class OutOfMemoryError(RuntimeError):
    """As torch names its own."""


@dataclass(frozen=True)
class Crowd:
    """Waits until another has begun, and finds no room beside it; alone it finds some, or none."""

    beside: str
    is_small: bool

    def do(self, places):
        first = places.runs / f"crowded-{self.is_small}"
        if not first.exists():
            first.touch()
            while not (places.runs / self.beside).exists():
                time.sleep(0.05)
            raise OutOfMemoryError("no room")
        if not self.is_small:
            raise OutOfMemoryError("no room at all")
        return "alone" if (places.runs / f"{self.beside}-ended").exists() else "not alone"


@dataclass(frozen=True)
class Hold:
    """Takes its time, and says when it begins and ends."""

    name: str
    seconds: float

    def do(self, places):
        (places.runs / self.name).write_text(str(os.getpid()))
        time.sleep(self.seconds)
        (places.runs / f"{self.name}-ended").touch()
        return self.name


@dataclass(frozen=True)
class Fail:
    how: str

    def do(self, places):
        if self.how == "die":
            os._exit(3)
        if self.how == "complain":
            raise DataError("no such file")
        if self.how == "sleep":
            time.sleep(60)
        raise ValueError("two\nlines")

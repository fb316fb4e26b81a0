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

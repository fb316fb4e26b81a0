"""The page's files, read once and handed out as they are.

May import: nothing.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from importlib.resources import files

#: Type by ending; a file of any other kind is not handed out.
TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}


@dataclass(frozen=True)
class Asset:
    """One file of the page.

    Attributes:
        content: Its bytes.
        kind: Its media type.
        tag: Changes when it changes.
    """

    content: bytes
    kind: str
    tag: str


def load_page() -> dict[str, Asset]:
    """Read the page's files by name."""
    found: dict[str, Asset] = {}
    for path in files("boolattn.service").joinpath("page").iterdir():
        kind = TYPES.get(path.name[path.name.rfind(".") :])
        if kind is not None:
            content = path.read_bytes()
            tag = f'"{hashlib.sha256(content).hexdigest()[:16]}"'
            found[path.name] = Asset(content, kind, tag)
    return found

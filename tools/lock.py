"""Writes the hashes of the lock files.

``python -m tools.lock requirements.lock`` rewrites one in place.
The versions are those that the files name; to change one, change it there. The hashes are those
that the registry of pip's configuration lists for every file of a version that a Python 3.11 or
newer can install on 64-bit Linux, macOS or Windows, and of its source.
"""

from __future__ import annotations

import html
import json
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.error import URLError
from urllib.parse import unquote
from urllib.request import Request, urlopen

_DEFAULT = "https://pypi.org/simple"
_ACCEPT = "application/vnd.pypi.simple.v1+json, text/html;q=0.5"
_PIN = re.compile(r"(?P<name>[\w.-]+)==(?P<version>[\w.+!-]+)")
_LINK = re.compile(r'<a [^>]*href="([^"]*)"')
_WHEEL = re.compile(
    r".*-(cp31[1-9]-cp31[1-9]|cp3\d+-abi3(\.abi3t)?|(py2\.)?py3\d*(\.py2)?-none|cp3\d+-none)-"
    r"(any|.*(linux|macosx).*_(x86_64|aarch64|arm64|universal2)|win_amd64)\.whl"
)


def read_registry() -> str:
    """Return the address of the registry that pip asks."""
    command = [sys.executable, "-m", "pip", "config", "list"]
    listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found = dict(re.findall(r"^([\w:]+)\.index-url='([^']*)'", listed, re.M))
    return str(found.get(":env:") or found.get("install") or found.get("global") or _DEFAULT)


def read_files(registry: str, name: str) -> dict[str, str]:
    """Return the SHA-256 of every file of a project, by the file's name."""
    address = f"{registry.rstrip('/')}/{re.sub('[-_.]+', '-', name).lower()}/"
    try:
        with urlopen(Request(address, headers={"Accept": _ACCEPT}), timeout=60) as reply:
            is_json, body = "json" in reply.headers.get_content_type(), reply.read().decode()
    except (URLError, TimeoutError) as error:
        raise SystemExit(f"{address}: {error}") from error
    if is_json:
        files = json.loads(body)["files"]
        return {own["filename"]: own["hashes"].get("sha256", "") for own in files}
    links = (html.unescape(link).partition("#sha256=") for link in _LINK.findall(body))
    return {unquote(link.rpartition("/")[2]): digest for link, _, digest in links}


def choose(files: dict[str, str], name: str, version: str) -> list[str]:
    """Return the hashes of one version's source and of the wheels that may be installed."""
    own = re.escape(re.sub("[-_.]+", "-", name).lower()).replace(r"\-", "[-_.]+")
    mine = re.compile(rf"{own}-{re.escape(version)}(-.*\.whl|\.tar\.gz|\.zip)", re.I)
    found = {
        digest
        for file, digest in files.items()
        if mine.fullmatch(file) and (_WHEEL.fullmatch(file) or not file.endswith(".whl"))
    }
    if not found or "" in found:
        raise SystemExit(f"{name}=={version}: the registry has no hash of it")
    return sorted(found)


def lock(path: Path, registry: str) -> None:
    """Write the hashes of one file; comments and the names of other files stay."""
    text = re.sub(r" *\\?\n +--hash=\S+", "", path.read_text(encoding="utf-8"))
    pins = [match for line in text.splitlines() if (match := _PIN.fullmatch(line.strip()))]
    with ThreadPoolExecutor(8) as pool:
        files = pool.map(lambda pin: read_files(registry, pin["name"]), pins)
        for pin, own in zip(pins, files, strict=True):
            hashes = choose(own, pin["name"], pin["version"])
            lines = " \\\n".join((pin[0], *(f"    --hash=sha256:{digest}" for digest in hashes)))
            text = re.sub(rf"^{re.escape(pin[0])}$", lines.replace("\\", r"\\"), text, flags=re.M)
    path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        lock(Path(argument), read_registry())

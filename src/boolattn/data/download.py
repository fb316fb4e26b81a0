"""Downloads: cached and checked. A file gets its name when it is complete."""

from __future__ import annotations

import http.client
import os
import shutil
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from boolattn.checksums import file_sum
from boolattn.errors import DataError, MissingDataError


def is_offline() -> bool:
    """Say whether ``$BOOLATTN_OFFLINE`` forbids requests."""
    return os.environ.get("BOOLATTN_OFFLINE", "").lower() not in ("", "0", "no", "false")


def fetch(url: str, target: Path, *, sha256: str = "") -> Path:
    """Return a file from the cache, downloaded first if it is missing.

    ``sha256`` is its checksum, where known.
    """
    if target.is_file():
        check_sum(target, sha256, f"{target} is not the file it should be: remove it")
        return target
    if is_offline():
        raise MissingDataError(f"offline, and no {target}; fetch {url} and put it there")
    draft = target.with_name(f"{target.name}.{os.getpid()}.part")
    request = Request(url, headers={"User-Agent": "boolattn"})
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with urlopen(request, timeout=30) as response, draft.open("wb") as file:  # nosec B310
            shutil.copyfileobj(response, file)
            if response.length:  # what is left of the announced length
                raise http.client.IncompleteRead(b"", response.length)
        check_sum(draft, sha256, f"{url} did not give the file that was expected: try again")
        draft.replace(target)
    except (OSError, http.client.HTTPException) as error:
        if isinstance(error, HTTPError):
            error.close()
        elif isinstance(error, OSError) and error.filename is not None:
            raise DataError(f"cannot write {error.filename}: {error.strerror}") from error
        reason = " ".join(str(error).split())
        remedy = f"try again, or fetch it and put it at {target}"
        raise MissingDataError(f"cannot fetch {url} ({reason}); {remedy}") from error
    finally:
        if target.parent.is_dir():
            draft.unlink(missing_ok=True)
    return target


def check_sum(path: Path, sha256: str, message: str) -> None:
    """Refuse a file with another SHA-256; an empty one is not checked."""
    if sha256 and (digest := file_sum(path)) != sha256.lower():
        raise DataError(f"{message} (SHA-256 {digest[:12]}…, wanted {sha256[:12]}…)")

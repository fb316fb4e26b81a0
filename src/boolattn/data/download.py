"""Downloads: cached and checked. A file gets its name when it is complete."""

from __future__ import annotations

import http.client
import os
import sys
import urllib.error
import urllib.request
from typing import TYPE_CHECKING

from boolattn.checksums import file_sum
from boolattn.errors import DataError, MissingDataError

if TYPE_CHECKING:
    from pathlib import Path

_CHUNK = 1 << 20
_TIMEOUT_S = 30.0


def is_offline() -> bool:
    """Say whether ``$BOOLATTN_OFFLINE`` forbids requests."""
    return os.environ.get("BOOLATTN_OFFLINE", "").lower() not in ("", "0", "no", "false")


def fetch(url: str, target: Path, *, sha256: str = "") -> Path:
    """Return a file from the cache, downloaded first if it is missing.

    ``sha256`` is its checksum, where known. A progress bar is drawn on stderr.
    """
    if target.is_file():
        check_sum(target, sha256, f"{target} is not the file it should be: remove it")
        return target
    if is_offline():
        raise MissingDataError(f"offline, and no {target}; fetch {url} and put it there")
    draft = target.with_name(f"{target.name}.{os.getpid()}.part")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        _transfer(url, draft)
        check_sum(draft, sha256, f"{url} did not give the file that was expected: try again")
        draft.replace(target)
    except urllib.error.HTTPError as error:
        error.close()
        raise MissingDataError(
            f"{url} answers {error.code} {error.reason}; fetch it elsewhere and put it at {target}"
        ) from error
    except (OSError, http.client.HTTPException) as error:
        if isinstance(error, OSError) and error.filename is not None:
            raise DataError(f"cannot write {error.filename}: {error.strerror}") from error
        reason = " ".join(str(getattr(error, "reason", error)).split())
        raise MissingDataError(
            f"cannot reach {url} ({reason}); try again, or fetch it and put it at {target}"
        ) from error
    finally:
        if target.parent.is_dir():
            draft.unlink(missing_ok=True)
    return target


def _transfer(url: str, draft: Path) -> None:
    import click

    request = urllib.request.Request(url, headers={"User-Agent": "boolattn"})
    with (
        urllib.request.urlopen(request, timeout=_TIMEOUT_S) as response,  # nosec B310
        click.progressbar(
            length=response.length or 0, file=sys.stderr, hidden=not sys.stderr.isatty()
        ) as bar,
        draft.open("wb") as handle,
    ):
        while chunk := response.read(_CHUNK):
            handle.write(chunk)
            bar.update(len(chunk))
        if response.length:  # what is left of the announced length
            raise http.client.IncompleteRead(b"", response.length)


def check_sum(path: Path, sha256: str, message: str) -> None:
    """Refuse a file with another SHA-256; an empty one is not checked."""
    if sha256 and (digest := file_sum(path)) != sha256.lower():
        raise DataError(f"{message} (SHA-256 {digest[:12]}…, wanted {sha256[:12]}…)")

"""Downloads: cached, resumed and checked.

A file gets its name when it is complete; until then its bytes are in ``<name>.part``.
"""

from __future__ import annotations

import hashlib
import http.client
import json
import os
import urllib.error
import urllib.parse
import urllib.request
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, TypeAlias

from boolattn.errors import DataError, MissingDataError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

_CHUNK = 1 << 18
_TIMEOUT_S = 30.0

#: Called with the bytes received and the total (None where unknown).
Progress: TypeAlias = "Callable[[int, int | None], None]"


def is_offline(url: str) -> bool:
    """Say whether ``$BOOLATTN_OFFLINE``, or for the hub ``$HF_HUB_OFFLINE``, forbids a request."""
    names = ["BOOLATTN_OFFLINE"]
    if urllib.parse.urlsplit(url).hostname == "huggingface.co":
        names.append("HF_HUB_OFFLINE")
    return any(os.environ.get(n, "").lower() not in ("", "0", "no", "false") for n in names)


def fetch(url: str, target: Path, *, sha256: str = "", progress: Progress | None = None) -> Path:
    """Return a file from the cache, downloaded first if it is missing.

    ``sha256`` is its checksum, where known. Without ``progress`` a progress bar is drawn.
    """
    if target.is_file():
        check_sum(target, sha256, f"{target} is not the file it should be: remove it")
        return target
    if is_offline(url):
        raise MissingDataError(f"offline, and no {target}; fetch {url} and put it there")
    part = target.with_name(target.name + ".part")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with nullcontext(progress) if progress else progress_bar(target.name) as draw:
            _transfer(url, part, draw)
    except (urllib.error.URLError, http.client.HTTPException, OSError) as error:
        raise _download_error(url, target, part, error) from error
    try:
        check_sum(part, sha256, f"{url} did not give the file that was expected: try again")
    except DataError:
        # The next call must not resume from wrong bytes.
        _discard(part)
        raise
    part.replace(target)
    _discard(part)
    return target


@contextmanager
def progress_bar(name: str) -> Iterator[Progress]:
    """Draw a progress bar on stderr."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn())
    with Bar(*columns, TimeRemainingColumn(), console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(name, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def _transfer(url: str, part: Path, progress: Progress) -> None:
    """Download the rest of a file."""
    state = _state_path(part)
    done, etag = _resumable(part, state)
    try:
        response = _open(url, done, etag)
    except urllib.error.HTTPError as error:
        error.close()
        if error.code != http.client.REQUESTED_RANGE_NOT_SATISFIABLE:
            raise
        # The part is as long as the file or longer: start again.
        _discard(part)
        done = 0
        response = _open(url, 0, "")
    with response:
        is_rest = response.status == http.client.PARTIAL_CONTENT
        done = done if is_rest else 0
        length = response.headers.get("Content-Length")
        total = done + int(length) if length else None
        state.write_text(json.dumps({"etag": response.headers.get("ETag") or ""}))
        with part.open("ab" if is_rest else "wb") as handle:
            while chunk := response.read(_CHUNK):
                handle.write(chunk)
                done += len(chunk)
                progress(done, total)
    if total is not None and done < total:
        raise http.client.IncompleteRead(b"", total - done)


def _open(url: str, start: int, etag: str) -> Any:  # noqa: ANN401 - urllib does not say
    headers = {"User-Agent": "boolattn"}
    if start:
        # If-Range: a file that has changed is sent from the beginning.
        headers |= {"Range": f"bytes={start}-", "If-Range": etag}
    request = urllib.request.Request(url, headers=headers)
    return urllib.request.urlopen(request, timeout=_TIMEOUT_S)  # nosec B310


def _state_path(part: Path) -> Path:
    return part.with_name(part.name + ".json")


def _resumable(part: Path, state: Path) -> tuple[int, str]:
    """Return the bytes received and their version; none where the version is unknown."""
    try:
        etag = str(json.loads(state.read_text())["etag"])
        return (part.stat().st_size, etag) if etag else (0, "")
    except (OSError, ValueError, KeyError, TypeError):
        return 0, ""


def _discard(part: Path) -> None:
    part.unlink(missing_ok=True)
    _state_path(part).unlink(missing_ok=True)


def _download_error(url: str, target: Path, part: Path, error: Exception) -> DataError:
    """Return an error of one line with a remedy."""
    if isinstance(error, urllib.error.HTTPError):
        return MissingDataError(
            f"{url} answers {error.code} {error.reason}; fetch it elsewhere and put it at {target}"
        )
    if isinstance(error, OSError) and error.filename is not None:
        return DataError(f"cannot write {error.filename}: {error.strerror}")
    n_bytes = part.stat().st_size if part.is_file() else 0
    if n_bytes:
        return DataError(
            f"the download of {url} stopped after {n_bytes:,} bytes; run it again to go on, "
            f"or put the file at {target}"
        )
    reason = " ".join(str(getattr(error, "reason", error)).split())
    return MissingDataError(f"cannot reach {url} ({reason}); fetch it and put it at {target}")


def check_sum(path: Path, sha256: str, message: str) -> None:
    """Refuse a file with another SHA-256; an empty one is not checked."""
    if not sha256:
        return
    with path.open("rb") as handle:
        digest = hashlib.file_digest(handle, "sha256").hexdigest()
    if digest != sha256.lower():
        raise DataError(f"{message} (SHA-256 {digest[:12]}…, wanted {sha256[:12]}…)")

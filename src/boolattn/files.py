"""Files of records: JSON lines read as a stream, files and folders written whole or not at all.

Plain, gzip, xz, zstandard and zip (of one file) are told apart by the name's ending. Every
complaint names the file and the line. May import: boolattn.errors.
"""

from __future__ import annotations

import gzip
import io
import json
import lzma
import os
import shutil
import zipfile
import zlib
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from boolattn.errors import DataError, MissingDataError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from typing import BinaryIO, TextIO

#: Endings under which a file may be kept, in the order in which they are looked for.
ENDINGS = ("", ".xz", ".zst", ".gz")

_CHUNK = 1 << 20

# What the decompressors raise when the bytes are damaged or stop too early.
_DAMAGE = (
    EOFError,
    gzip.BadGzipFile,
    lzma.LZMAError,
    zlib.error,
    zipfile.BadZipFile,
)


def find_file(folder: Path, *names: str, remedy: str = "") -> Path:
    """Find the first of some files in a folder, compressed or not.

    Args:
        folder: Where to look.
        *names: Names without the ending of a compression, the preferred first.
        remedy: What to do when there is none, for the message.
    """
    for name in names:
        for ending in ENDINGS:
            path = folder / (name + ending)
            if path.is_file():
                return path
    wanted = " or ".join(names)
    raise MissingDataError(f"no {wanted} in {folder}" + (f"; {remedy}" if remedy else ""))


def read_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Read a text file line by line, numbered from 1, without the line ends.

    Only a line feed ends a line, because titles may hold the other Unicode line separators.
    """
    number = 0
    try:
        for number, raw in enumerate(_raw_lines(path), start=1):
            yield number, raw.decode("utf-8").rstrip("\r\n")
    except FileNotFoundError as error:
        raise MissingDataError(f"no file {path}") from error
    except _DAMAGE as error:
        raise DataError(
            f"{path}:{number + 1}: the file is truncated or damaged ({_plain(error)}); "
            "fetch or build it again"
        ) from error
    except UnicodeDecodeError as error:
        raise DataError(f"{path}:{number}: not UTF-8 text ({error.reason})") from error
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror or error}") from error


def read_jsonl(path: Path, fields: Mapping[str, type] | None = None) -> Iterator[tuple[int, Any]]:
    """Read JSON objects, one a line, each with its line number; empty lines are passed over.

    Args:
        path: The file, compressed or not.
        fields: Fields every object must have, with their types.
    """
    for number, line in read_lines(path):
        if not line or line.isspace():
            continue
        try:
            row = json.loads(line)
        except ValueError as error:
            raise DataError(f"{path}:{number}: not JSON ({_plain(error)}); is it cut?") from error
        if not isinstance(row, dict):
            raise DataError(f"{path}:{number}: a JSON object is wanted, not {type(row).__name__}")
        if fields:
            check_fields(row, fields, path, number)
        yield number, row


def check_fields(
    row: Mapping[str, Any], fields: Mapping[str, type], path: Path, number: int
) -> None:
    """Refuse a row that lacks a field, or has it in another type."""
    for name, kind in fields.items():
        if isinstance(row.get(name), kind):
            continue
        if name not in row:
            present = ", ".join(row)
            raise DataError(f"{path}:{number}: the field {name!r} is missing; there are {present}")
        found = type(row[name]).__name__
        raise DataError(f"{path}:{number}: the field {name!r} must be {kind.__name__}, not {found}")


def _plain(error: Exception) -> str:
    """Put an exception's words on one line."""
    return " ".join(str(error).split()) or type(error).__name__


def _raw_lines(path: Path) -> Iterator[bytes]:
    """Read the decompressed lines of a file, each with its line end."""
    if path.suffix == ".zst":
        with path.open("rb") as handle:
            yield from _zstd_lines(handle)
        return
    if path.suffix == ".zip":
        yield from _zip_lines(path)
        return
    openers: Mapping[str, Any] = {".gz": gzip.open, ".xz": lzma.open}
    with openers.get(path.suffix, Path.open)(path, "rb") as handle:
        yield from handle


def _zstd_lines(handle: BinaryIO) -> Iterator[bytes]:
    """Decompress zstandard frames; the library's own reader takes a cut frame for the end."""
    zstandard = _zstandard()
    rest = b""
    decompressor = zstandard.ZstdDecompressor().decompressobj()
    is_open = True
    while chunk := handle.read(_CHUNK):
        while chunk:
            try:
                rest += decompressor.decompress(chunk)
            except zstandard.ZstdError as error:
                raise EOFError(_plain(error)) from error
            chunk = decompressor.unused_data
            is_open = not decompressor.eof
            if decompressor.eof:
                decompressor = zstandard.ZstdDecompressor().decompressobj()
        *lines, rest = rest.split(b"\n")
        for line in lines:
            yield line + b"\n"
    if is_open:
        raise EOFError("the last frame has no end")
    if rest:
        yield rest


def _zstandard() -> Any:  # noqa: ANN401 - a module
    """Import zstandard when a file needs it: a machine that only trains does without."""
    try:
        import zstandard
    except ImportError as error:
        raise MissingDataError(
            "a .zst file needs zstandard; pip install zstandard, or pack the file as .xz"
        ) from error
    return zstandard


def _zip_lines(path: Path) -> Iterator[bytes]:
    with zipfile.ZipFile(path) as archive:
        # Archives made on a Mac carry a shadow of every file.
        names = [name for name in archive.namelist() if name.endswith((".jsonl", ".csv"))]
        names = [name for name in names if not name.startswith("__MACOSX")]
        if len(names) != 1:
            raise DataError(f"{path} must hold one .jsonl file, it holds {len(names)}")
        with archive.open(names[0]) as handle:
            yield from handle


@contextmanager
def whole_file(path: Path) -> Iterator[TextIO]:
    """Open a text file that appears under its name only when everything was written.

    The ending of the name chooses the compression. The bytes depend on the text alone.
    """
    # Two processes may make the same file at once: each its own draft, and either is whole.
    draft = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with draft.open("wb") as raw, closing(_compressed(raw, path.suffix)) as packed:
            text = io.TextIOWrapper(packed, encoding="utf-8", newline="\n")
            yield text
            text.flush()
            text.detach()
        draft.replace(path)
    except OSError as error:
        raise DataError(f"cannot write {path}: {error.strerror or error}") from error
    finally:
        with suppress(OSError):
            draft.unlink()


def _compressed(raw: BinaryIO, ending: str) -> Any:  # noqa: ANN401 - four unrelated classes
    match ending:
        case ".gz":
            # No name and no time, so that equal text gives equal bytes.
            return gzip.GzipFile(filename="", mode="wb", fileobj=raw, mtime=0)
        case ".xz":
            return lzma.LZMAFile(raw, "wb")
        case ".zst":
            return _zstandard().ZstdCompressor(level=10).stream_writer(raw, closefd=False)
        case _:
            return io.BufferedWriter(_Unclosed(raw))


class _Unclosed(io.RawIOBase):
    """Passes writes on, and leaves the file below open when it is closed itself."""

    def __init__(self, raw: BinaryIO) -> None:
        self._raw = raw

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:  # noqa: ANN401 - any buffer
        return self._raw.write(data)


def write_jsonl(path: Path, rows: Iterable[Mapping[str, Any]]) -> int:
    """Write JSON objects, one a line, whole or not at all; return how many."""
    count = 0
    with whole_file(path) as handle:
        for row in rows:
            handle.write(json.dumps(row, ensure_ascii=False, separators=(",", ":")) + "\n")
            count += 1
    return count


@contextmanager
def whole_folder(folder: Path) -> Iterator[Path]:
    """Give a draft folder that takes its name when everything was written.

    A folder that is there already is left alone: only its owner may remove it.
    """
    if folder.exists():
        raise DataError(f"{folder} is there already; remove it or name another folder")
    draft = folder.with_name(folder.name + ".part")
    shutil.rmtree(draft, ignore_errors=True)
    try:
        draft.mkdir(parents=True)
        yield draft
        draft.rename(folder)
    except OSError as error:
        raise DataError(f"cannot write {folder}: {error.strerror or error}") from error
    finally:
        shutil.rmtree(draft, ignore_errors=True)

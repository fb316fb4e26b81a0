"""Files and folders that are written completely or not at all, the cache, files of packages."""

from __future__ import annotations

import gzip
import hashlib
import io
import lzma
import os
import shutil
import sys
import time
import tomllib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from functools import cache
from importlib import import_module
from importlib.machinery import PathFinder
from importlib.util import find_spec, module_from_spec
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir
from typing import Any, TextIO

from boolattn.errors import ConfigError, DataError, MissingDataError

#: What is not taken over from an older folder: weights and checksums.
_OLD = (".safetensors", ".safetensors.index.json", "checksums.json")
_SCRATCH, _NEW_S = "boolattn-scratch-", 60.0


def cache_folder() -> Path:
    """Return the folder of cached files: ``$BOOLATTN_CACHE``, or one in the user's cache."""
    if named := os.environ.get("BOOLATTN_CACHE"):
        return Path(named).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "boolattn"


def checkout_module(name: str, product: str = "") -> Any:  # noqa: ANN401 - a module
    """Import a module that is in the source checkout and not in the wheel; ``None`` without one.

    With a ``product``, what is made by it, a missing checkout is an error.
    """
    root, folder = Path(__file__).parents[2], name.partition(".")[0]
    if not (root / folder).is_dir():
        if product:
            remedy = "install boolattn from a checkout: pip install -e ."
            raise MissingDataError(f"{product} by {folder}/ of the source repository; {remedy}")
        return None
    # All of them, because they import each other, and the root may not be on the path.
    for package in ("benchmark_data", "examples", "experiments"):
        spec = None if package in sys.modules else PathFinder.find_spec(package, [str(root)])
        if spec and spec.loader:
            sys.modules[package] = module = module_from_spec(spec)
            spec.loader.exec_module(module)
    return import_module(name)


@cache
def package_table(package: str, name: str) -> dict[str, Any]:
    """Read a TOML file of a package, once."""
    path = Path(str(import_module(package).__file__)).with_name(name)
    return tomllib.loads(path.read_text(encoding="utf-8"))


def check_regular(path: Path) -> None:
    """Refuse a file that may never end: after its links a pipe, a device or a socket."""
    if path.exists() and not path.is_file() and not path.is_dir():
        raise DataError(f"{path} is not a regular file; put a copy of the file there")


@contextmanager
def atomic_file(path: Path) -> Iterator[TextIO]:
    """Open a text file that gets its name when the block ends without an error.

    The ending of the name selects the compression. Equal text gives equal bytes.
    """
    # Two processes may write the same file: each writes its own draft.
    draft = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with ExitStack() as stack:
            packed: Any = stack.enter_context(draft.open("wb"))
            if path.suffix == ".gz":
                # Without name and time, so that equal text gives equal bytes.
                packed = stack.enter_context(gzip.GzipFile("", "wb", fileobj=packed, mtime=0))
            elif path.suffix == ".xz":
                packed = stack.enter_context(lzma.LZMAFile(packed, "wb"))
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


def write_text(path: Path, text: str) -> None:
    """Write a text file, completely or not at all."""
    with atomic_file(path) as file:
        file.write(text)


@contextmanager
def atomic_folder(
    folder: Path,
    *,
    replace: bool = False,
    marker: str = "",
    finish: Callable[[Path], object] = lambda _: None,
) -> Iterator[Path]:
    """Yield a draft folder that gets its name when the block ends without an error.

    Args:
        folder: The final name.
        replace: Replace an existing folder. Its files that the draft lacks are kept, except model
            weights. By default an existing folder is an error.
        marker: A file that every such folder has; a non-empty folder without it is not replaced.
        finish: Called with the draft when it has all its files.
    """
    folder = Path(folder).resolve()
    if folder.exists() and not replace:
        raise DataError(f"{folder} exists; remove it or name another folder")
    if folder.exists() and not folder.is_dir():
        raise ConfigError(f"{folder} is a file; name a folder")
    if marker and folder.is_dir() and any(folder.iterdir()) and not (folder / marker).is_file():
        raise ConfigError(f"{folder} holds other files and no {marker}; name a new or empty folder")
    draft, old = (folder.with_name(f"{folder.name}.{part}") for part in ("part", "old"))
    shutil.rmtree(draft, ignore_errors=True)
    try:
        draft.mkdir(parents=True)
        yield draft
        for path in folder.iterdir() if folder.exists() else ():
            if path.is_file() and not (path.name.endswith(_OLD) or (draft / path.name).exists()):
                shutil.copy2(path, draft / path.name)
        finish(draft)
        if folder.exists():
            shutil.rmtree(old, ignore_errors=True)
            folder.rename(old)
        try:
            draft.rename(folder)
        except OSError:
            if old.exists():
                old.rename(folder)
            raise
    except OSError as error:
        raise DataError(f"cannot write {folder}: {error.strerror or error}") from error
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    shutil.rmtree(old, ignore_errors=True)


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """Yield an empty folder, removed at the end; if the process is killed, by the next one."""
    _clean_scratch()
    lock = _locked if os.name == "posix" else nullcontext
    with TemporaryDirectory(prefix=_SCRATCH, ignore_cleanup_errors=True) as name, lock(name):
        yield Path(name)


@contextmanager
def _locked(folder: str | Path) -> Iterator[None]:
    """Lock a folder until the process ends, however it does; another's lock is an error."""
    import fcntl  # not on Windows

    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(descriptor)


@cache
def _clean_scratch() -> None:
    """Remove folders whose process is gone: nobody holds their lock. Once in a process."""
    for folder in Path(gettempdir()).glob(f"{_SCRATCH}*"):
        # A new folder may not be locked yet; a file, or another's folder, is no error.
        with suppress(OSError, ImportError):
            if time.time() - folder.lstat().st_mtime > _NEW_S:
                with _locked(folder):
                    shutil.rmtree(folder, ignore_errors=True)


def text_hash(rows: Iterable[Sequence[str]]) -> str:
    """Hash rows of text."""
    digest = hashlib.sha256()
    for row in rows:
        digest.update("".join(f"{value}\0" for value in row).encode())
    return digest.hexdigest()


@contextmanager
def installed_by(extra: str, feature: str) -> Iterator[None]:
    """Turn a package that cannot be imported into one line with the extra that installs it."""
    try:
        yield
    except ImportError as error:
        line = f"{feature} needs {error.name or 'a package'}; pip install 'boolattn[{extra}]'"
        raise MissingDataError(line) from error


def require(feature: str, packages: tuple[str, ...], extra: str) -> None:
    """Raise if a package of an extra is not installed."""
    if missing := [name for name in packages if find_spec(name) is None]:
        raise MissingDataError(f"{feature} needs {missing[0]}; pip install 'boolattn[{extra}]'")

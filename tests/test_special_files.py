"""Pipes, devices and links where files are expected: one line, and no wait."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from boolattn.checksums import check_folder
from boolattn.encoders.models import load_model
from boolattn.errors import BoolattnError, DataError
from boolattn.query.parser import Parser
from boolattn.search import Document, Searcher
from boolattn.stores.document_files import read_documents
from boolattn.stores.local.manifest import MANIFEST, read_manifest
from tests.stores.kill_server import MODEL

MODELS = Path(sys.modules["boolattn"].__file__).with_name("models")
DEVICE = Path("/dev/zero")


def pipe(path):
    os.mkfifo(path)


def device(path):
    path.symlink_to(DEVICE)


SPECIAL = pytest.mark.parametrize("make", [pipe, device])


def run(*arguments):
    """Run the command; whatever waits for a pipe is killed."""
    command = [sys.executable, "-m", "boolattn", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_special_files_and_links_of_a_folder_are_not_indexed(tmp_path):
    folder, secret = tmp_path / "texts", tmp_path / "secret.txt"
    (folder / "inside").mkdir(parents=True)
    secret.write_text("the secret of another folder")
    (folder / "moth.md").write_text("# Moth\nA moth.")
    pipe(folder / "pipe.txt")
    device(folder / "zero.txt")
    (folder / "passwd.txt").symlink_to(secret)
    (folder / "inside" / "up.txt").symlink_to(Path("..") / "moth.md")
    (folder / "linked").symlink_to(tmp_path)
    done = run("index", folder, "--out", tmp_path / "index")
    assert done.returncode == 0, done.stderr
    assert "1 document," in done.stdout
    assert [document.id for document in read_documents(folder)] == ["moth.md"]
    (folder / "moth.md").unlink()
    with pytest.raises(DataError, match=r"holds no files that end in .*; links are not followed"):
        list(read_documents(folder))


@SPECIAL
def test_an_index_with_special_files(tmp_path, make):
    folder = tmp_path / "index"
    Searcher.build(folder, [Document(id="1", text="a moth")], MODEL, parser=None)
    for name in (MANIFEST, *read_manifest(folder).files):
        path = folder / name
        content = path.read_bytes()
        path.unlink()
        make(path)
        with pytest.raises(BoolattnError, match=f"{path.name} "):
            Searcher.open(folder, MODEL, parser=None)
        path.unlink()
        path.write_bytes(content)
    assert len(Searcher.open(folder, MODEL, parser=None)) == 1


@SPECIAL
@pytest.mark.parametrize(
    ("name", "opened"), [("bge-small-general", load_model), ("parser", Parser)]
)
def test_a_model_with_special_files(tmp_path, make, name, opened):
    for source in MODELS.iterdir():
        (tmp_path / source.name).symlink_to(source)
    folder = tmp_path / name
    folder.unlink()
    shutil.copytree(MODELS / name, folder)
    files = [path for path in folder.iterdir() if path.suffix in (".json", ".onnx", ".safetensors")]
    for path in files:
        content = tmp_path / f"saved-{path.name}"
        path.rename(content)
        make(path)
        with pytest.raises(BoolattnError, match=path.name):
            opened(str(folder))
        path.unlink()
        # As in the cache of a hub.
        path.symlink_to(content)
    assert opened(str(folder))
    assert len(files) >= 2


@SPECIAL
def test_a_torch_model_with_special_files(tmp_path, make):
    for name in ("config.json", "model.safetensors", "extra.txt"):
        make(tmp_path / name)
        with pytest.raises(DataError, match=f"{name} is not a regular file"):
            check_folder(tmp_path)
        (tmp_path / name).unlink()

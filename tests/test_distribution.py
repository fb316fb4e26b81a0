"""What is installed: the wheel's files, a start from another folder, the container's steps."""

import json
import lzma
import os
import re
import subprocess
import sys
import tomllib
import urllib.error
import zipfile
from fnmatch import fnmatch
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "boolattn"
DOCKERFILE = (ROOT / "Dockerfile").read_text(encoding="utf-8").replace("\\\n", " ")
STEPS = [
    tuple(line.split(maxsplit=1)) for line in DOCKERFILE.splitlines() if re.match("[A-Z]+ ", line)
]
DOCUMENTS = [
    {"id": "b", "text": "A hawk moth found in Borneo.", "year": 1903},
    {"id": "s", "text": "A hawk moth found in Sumatra.", "year": 1950},
]


def data_files():
    """The files of the package that are not code; what the repository packs stays behind."""
    others = (".py", ".pyc", ".xz")
    files = (path.relative_to(PACKAGE) for path in PACKAGE.rglob("*") if path.is_file())
    return [p for p in files if p.suffix not in others and "__pycache__" not in p.parts]


def test_weights_are_unpacked_as_they_were_packed():
    packed = [*PACKAGE.glob("models/*/*.xz")]
    assert len(packed) == 3
    for path in packed:
        assert path.with_suffix("").read_bytes() == lzma.decompress(path.read_bytes())


def test_the_wheel_names_every_file_that_is_not_code():
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    globs = settings["tool"]["setuptools"]["package-data"]["boolattn"]
    named = {path.relative_to(PACKAGE) for glob in globs for path in PACKAGE.glob(glob)}
    assert [str(path) for path in data_files() if path not in named] == []
    # Each of them is there for something.
    assert [glob for glob in globs if not [*PACKAGE.glob(glob)]] == []


def test_python_m_boolattn_shows_how_to_begin():
    command = [sys.executable, "-m", "boolattn"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    text = " ".join((done.stdout + done.stderr).split())
    assert 'Begin: boolattn index DOCUMENTS --out moths; boolattn search moths "moths' in text


def test_the_container_runs_as_another_user_and_knows_its_health():
    names = [name for name, _ in STEPS]
    last = names[len(names) - 1 - names[::-1].index("FROM") :]
    assert last.index("RUN") < last.index("USER") < last.index("ENTRYPOINT")
    user = dict(STEPS)["USER"]
    assert user != "root"
    assert f"useradd --create-home --uid 10001 {user}" in DOCKERFILE
    assert json.loads(dict(STEPS)["ENTRYPOINT"]) == ["boolattn"]
    serve = json.loads(dict(STEPS)["CMD"])
    assert serve[:2] == ["serve", dict(STEPS)["VOLUME"]]
    assert dict(STEPS)["EXPOSE"] in serve
    assert "/health" in DOCKERFILE
    ignored = (ROOT / ".dockerignore").read_text(encoding="utf-8").split()
    kept = {line[1:] for line in ignored if line.startswith("!")}
    # What a build of the package needs is not ignored.
    assert {
        "pyproject.toml",
        "setup.py",
        "README.md",
        "LICENSE",
        "src",
        "requirements-search.lock",
    } == kept
    assert all((ROOT / name).exists() for name in kept)


def run(command, folder, **variables):
    kept = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    done = subprocess.run(
        command, cwd=folder, env=kept | variables, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_a_wheel_has_everything_and_runs_from_another_folder(tmp_path):
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]
    source = tmp_path / "source"
    names = ("pyproject.toml", "setup.py", "README.md", "LICENSE", "src")
    source.mkdir()
    run(["cp", "-r", *(str(ROOT / name) for name in names), str(source)], tmp_path)
    run([*pip, "wheel", "--no-deps", "--no-build-isolation", "-w", "w", str(source)], tmp_path)
    [wheel] = (tmp_path / "w").glob("boolattn-*.whl")
    inside = zipfile.ZipFile(wheel).namelist()
    assert [str(path) for path in data_files() if f"boolattn/{path.as_posix()}" not in inside] == []
    assert {"boolattn/py.typed", "boolattn/__main__.py"} <= set(inside)
    assert not [name for name in inside if fnmatch(name, "*__pycache__*") or "tests/" in name]
    installed = tmp_path / "installed"
    run([*pip, "install", "--no-deps", "--target", str(installed), str(wheel)], tmp_path)
    # The packages it needs are this environment's; boolattn is the installed one.
    place = {"PYTHONPATH": str(installed), "BOOLATTN_CACHE": str(tmp_path / "cache")}
    boolattn = [sys.executable, "-m", "boolattn"]
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    where = run(
        [sys.executable, "-c", "import boolattn; print(boolattn.__file__)"], elsewhere, **place
    )
    assert Path(where.strip()).is_relative_to(installed)
    assert run([*boolattn, "--version"], elsewhere, **place).startswith("0.")
    lines = "\n".join(map(json.dumps, DOCUMENTS))
    (elsewhere / "docs.jsonl").write_text(lines, encoding="utf-8")
    run([*boolattn, "index", "docs.jsonl", "--out", "index"], elsewhere, **place)
    command = [*boolattn, "search", "index", "moths but not Sumatra", "--json"]
    assert json.loads(run(command, elsewhere, **place))["hits"][0]["id"] == "b"
    _check_health([*boolattn, "serve", "index", "--port", "0"], elsewhere, place)


def _check_health(command, folder, place):
    """Run the container's check against a running service, and after it ended."""
    environment = os.environ | place
    service = subprocess.Popen(
        command, cwd=folder, env=environment, stdout=subprocess.PIPE, text=True
    )
    try:
        address = service.stdout.readline().strip().rstrip("/")
        _, check = dict(STEPS)["HEALTHCHECK"].split("CMD ")
        check = json.loads(check)
        code = check[2].replace("http://127.0.0.1:8000", address)
        assert address in code
        run([sys.executable, "-c", code], folder)
    finally:
        service.terminate()
        service.communicate(timeout=20)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert urllib.error.URLError.__name__ in done.stderr

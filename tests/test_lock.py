"""The lock files: versions, hashes, what they are for, and licences by the installed metadata.

No database of vulnerabilities is in any installed package; ``make audit`` asks for them.
"""

from __future__ import annotations

import json
import re
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from importlib.metadata import PackageNotFoundError, metadata, requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tools import lock

ROOT = Path(__file__).parents[1]
TORCH = re.search(r"^TORCH +:= (torch==\S+)$", (ROOT / "Makefile").read_text(), re.M)[1]
#: Licences that a user may combine with Apache-2.0; MPL-2.0 only concerns the files it covers.
KNOWN = (
    "0BSD|Apache(-| )?(Software License|2.0( License)?)?|BSD( License)?"
    "|BSD[- ][23]-Clause( License)?|[23]-Clause BSD License|BSL-1.0|CC0-1.0|CNRI-Python"
    r"|ISC( License( \(ISCL\))?)?|LLVM-exception|MIT( License)?|MIT-CMU|MPL-2.0"
    r"|Mozilla Public License 2.0 \(MPL 2.0\)|PSF-2.0|Python Software Foundation License|Zlib"
    r"|Unlicense|LGPL-[23].[01](-only|-or-later)?|GNU Lesser General Public License.*"
    r"|Academic Free License \(AFL\)"
)
#: Licences that only a file beside the metadata names; read by hand.
READ = {"matplotlib": "matplotlib's own, like that of Python"}


def read(name):
    """Return the versions of a lock file and of those it includes, and their hashes."""
    text = (ROOT / name).read_text().replace("\\\n", "")
    found = {}
    for line in text.splitlines():
        if line.startswith("-r "):
            found |= read(line[3:])
        elif not line.startswith("#"):
            pin, *hashes = line.split()
            found[pin] = hashes
    return found


def pins(name="requirements.lock"):
    return dict(pin.split("==") for pin in read(name))


def needed(*roots):
    """Return the names of what some packages need, by the installed metadata."""
    found, left = set(), [Requirement(root) for root in roots]
    while left:
        one = left.pop()
        key = (canonicalize_name(one.name), frozenset(one.extras))
        if key not in found:
            found.add(key)
            for own in map(Requirement, requires(one.name) or ()):
                extras = ("", *one.extras)
                if own.marker is None or any(own.marker.evaluate({"extra": e}) for e in extras):
                    left.append(own)
    return {name for name, _ in found} - {"boolattn"}


def licences(name):
    """Return the licences that a package names: an expression, classifiers, or one line."""
    own = metadata(name)
    if found := own.get("License-Expression"):
        return re.split(r" (?:AND|OR|WITH) ", found.replace("(", "").replace(")", ""))
    names = [c.rpartition(" :: ")[2] for c in own.get_all("Classifier") or [] if "License ::" in c]
    line = (own.get("License") or "").strip().partition("\n")[0]
    return names or [part for part in re.split(" AND | OR ", line) if part]


@pytest.mark.parametrize("name", [*pins(), "torch"])
def test_every_licence_is_known(name):
    try:
        found = licences(name)
    except PackageNotFoundError:
        pytest.skip("not installed")
    assert found or name in READ, "no licence in the metadata"
    for one in found:
        assert re.fullmatch(KNOWN, one), f"{name}: {one}; add it to KNOWN if users may combine it"


def test_every_version_is_exact_and_has_its_hashes():
    found = read("requirements.lock")
    assert [pin for pin in found if not re.fullmatch(r"[\w.-]+==[\w.+-]+", pin)] == []
    wrong = [
        pin
        for pin, hashes in found.items()
        if not hashes or not all(re.fullmatch("--hash=sha256:[0-9a-f]{64}", h) for h in hashes)
    ]
    assert wrong == [], "write their hashes: make lock"
    assert len(pins()) == len(found) > len(read("requirements-demo.lock"))


@pytest.mark.parametrize(
    ("name", "root"),
    [("requirements-search.lock", "boolattn[serve]"), ("requirements-demo.lock", "boolattn[taxa]")],
)
def test_a_smaller_lock_has_all_that_its_part_needs(name, root):
    assert needed(root, "setuptools") - set(map(canonicalize_name, pins(name))) == set()
    assert not {"torch", "transformers"} & set(pins(name))


class Registry(BaseHTTPRequestHandler):
    """Two files of one version, as JSON or as a page."""

    FILES = {
        f"a_b-1.0-{tags}.whl": digit * 64
        for tags, digit in {
            "cp311-cp311-manylinux_2_28_aarch64": "1",
            "cp313-cp313-musllinux_1_2_x86_64": "2",
            "cp39-abi3-macosx_11_0_arm64": "3",
            "cp310-cp310-manylinux_2_28_x86_64": "c",
            "pp311-pypy311_pp73-manylinux_2_28_x86_64": "d",
            "cp311-cp311-manylinux_2_28_ppc64le": "e",
        }.items()
    } | {"a_b-1.0.tar.gz": "4" * 64, "a_b-1.0.1.tar.gz": "f" * 64}

    def do_GET(self):
        is_json = self.path == "/json/a-b/"
        rows = [{"filename": name, "hashes": {"sha256": h}} for name, h in self.FILES.items()]
        links = (f'<a href="../{name}#sha256={h}">{name}</a>' for name, h in self.FILES.items())
        self.send_response(200 if self.path.endswith("/a-b/") else 404)
        self.send_header("Content-Type", lock._ACCEPT.split(",")[0] if is_json else "text/html")
        self.end_headers()
        self.wfile.write((json.dumps({"files": rows}) if is_json else "\n".join(links)).encode())

    def log_message(self, *_):
        pass


@pytest.fixture
def registry():
    with HTTPServer(("127.0.0.1", 0), Registry) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.mark.parametrize("kind", ["json", "page"])
def test_hashes_are_those_of_the_registry(registry, tmp_path, kind):
    path = tmp_path / "a.lock"
    path.write_text("# About.\n-r other.lock\nA.b==1.0 \\\n    --hash=sha256:old\n")
    for _ in range(2):  # a second time nothing changes
        lock.lock(path, f"{registry}/{kind}")
        hashes = "".join(f" \\\n    --hash=sha256:{str(n) * 64}" for n in (1, 2, 3, 4))
        assert path.read_text() == f"# About.\n-r other.lock\nA.b==1.0{hashes}\n"


@pytest.mark.parametrize(("pin", "why"), [("a-b==2.0", "no hash of it"), ("x==1", "404")])
def test_a_version_that_the_registry_lacks_is_named(registry, tmp_path, pin, why):
    path = tmp_path / "a.lock"
    path.write_text(f"{pin}\n")
    with pytest.raises(SystemExit, match=f"{pin.partition('==')[0]}.*{why}"):
        lock.lock(path, f"{registry}/json")
    assert path.read_text() == f"{pin}\n"


def test_the_registry_is_that_of_pip(monkeypatch):
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    assert lock.read_registry() == "http://127.0.0.1:9/simple"


def test_the_locked_pytorch_is_one_that_the_package_takes():
    name, version = TORCH.split("==")
    [asked] = [own for own in map(Requirement, requires("boolattn")) if own.name == name]
    assert asked.specifier.contains(version)
    assert name not in pins()

"""Licences of what the lock installs, from the metadata of the installed packages.

No database of vulnerabilities is in any installed package, so there is no such check offline.
"""

from __future__ import annotations

import re
from importlib.metadata import PackageNotFoundError, metadata
from pathlib import Path

import pytest

LOCK = Path(__file__).parents[1] / "requirements.lock"
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


def pins():
    lines = [line.split("#")[0].strip() for line in LOCK.read_text().splitlines()]
    return dict(re.split("==", line.split(";")[0].split()[0]) for line in lines if "==" in line)


def licences(name):
    """Return the licences that a package names: an expression, classifiers, or one line."""
    own = metadata(name)
    if found := own.get("License-Expression"):
        return re.split(r" (?:AND|OR|WITH) ", found.replace("(", "").replace(")", ""))
    names = [c.rpartition(" :: ")[2] for c in own.get_all("Classifier") or [] if "License ::" in c]
    line = (own.get("License") or "").strip().partition("\n")[0]
    return names or [part for part in re.split(" AND | OR ", line) if part]


@pytest.mark.parametrize("name", pins())
def test_every_licence_is_known(name):
    try:
        found = licences(name)
    except PackageNotFoundError:
        pytest.skip("not installed")
    assert found or name in READ, "no licence in the metadata"
    for one in found:
        assert re.fullmatch(KNOWN, one), f"{name}: {one}; add it to KNOWN if users may combine it"


def test_every_version_is_exact():
    lines = [line for line in LOCK.read_text().splitlines() if line and line[0] not in "# "]
    assert [line for line in lines if not re.match(r"[\w.-]+==[\w.+-]+", line)] == []
    assert len(pins()) == len(lines)

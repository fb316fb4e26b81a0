"""The size of the code: short files, small packages."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FILES = sorted(
    path
    for part in ("src", "benchmark_data", "experiments", "examples")
    for path in (ROOT / part).rglob("*.py")
)
#: Lines of the Python files of each folder. These bounds are only ever lowered.
MAX_LINES = {
    "src": 30_870,
    "benchmark_data": 2_720,
    "experiments": 5_890,
    "benchmarks": 3_130,
    "tools": 90,
}


def n_lines(path: Path) -> int:
    return path.read_text(encoding="utf-8").count("\n")


def test_no_file_is_longer_than_350_lines():
    assert {str(path.relative_to(ROOT)): n for path in FILES if (n := n_lines(path)) > 350} == {}


def test_no_package_has_more_than_fifteen_files_at_one_level():
    folders = {path.parent for path in FILES}
    counts = {str(folder.relative_to(ROOT)): len([*folder.glob("*.py")]) for folder in folders}
    assert {folder: n for folder, n in counts.items() if n > 15} == {}


@pytest.mark.parametrize("part", MAX_LINES)
def test_the_code_stays_small(part):
    total = sum(map(n_lines, (ROOT / part).rglob("*.py")))
    assert 0 < total <= MAX_LINES[part]

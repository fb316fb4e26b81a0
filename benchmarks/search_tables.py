"""Tables of ``benchmarks.search`` for the documentation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from benchmarks import billion

if TYPE_CHECKING:
    from pathlib import Path

BEGIN, END = "<!-- benchmarks.search: begin -->", "<!-- benchmarks.search: end -->"


def table(results: dict[str, Any]) -> str:
    """Return the engines as a Markdown table."""
    headings = (
        "engine",
        "build",
        "engine / memory",
        "one vector p50 / p99",
        "composed p50 / p99",
        "ratio",
        "recall@10",
        "recall@10 / 100 of candidates",
    )
    lines = [f"| {' | '.join(headings)} |", "|---" * len(headings) + "|"]
    for name, own in results["engines"].items():
        one, both, memory = own["one vector"], own["composed"], own["memory_mb"]
        cells = (
            name,
            f"{own['build_s']:,.0f} s",
            f"{own['engine_mb']:,.0f} / {sum(memory.values()):,.0f} MB",
            f"{one['search_p50']:.1f} / {one['search_p99']:.1f} ms",
            f"{both['search_p50']:.1f} / {both['search_p99']:.1f} ms",
            f"{own['ratio']['search_p50']:.1f}; {own['ratio']['p50']:.1f} with parsing",
            f"{own['recall@10']:.3f}",
            f"{own['candidate recall@10']:.3f} / {own['candidate recall@100']:.3f}",
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def page(results: dict[str, Any]) -> str:
    """Return everything that the documentation shows."""
    own = next(iter(results["engines"].values()))
    about = (
        f"{results['documents']:,} documents of {results['corpus']}, vectors by {results['model']}",
        f"10 results, {results['queries']} queries, one at a time",
        f"{results['cores']} cores, {results['threads']} threads",
    )
    text = (
        f"{'; '.join(about)}. Parsing and encoding a query takes "
        f"{own['one vector']['read_p50']:.0f} ms (one vector) and "
        f"{own['composed']['read_p50']:.0f} ms (composed) more, with every engine.\n"
    )
    estimate = billion.both(results, billion.Nodes())
    return f"{text}\n{table(results)}\n" + (
        f"\n### A billion documents\n\n{estimate}" if estimate else ""
    )


def write_page(path: Path, results: dict[str, Any]) -> None:
    """Write the tables between the two markers of a page."""
    before, begin, rest = path.read_text().partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise SystemExit(f"{path} has no markers {BEGIN} and {END}")
    path.write_text(f"{before}{BEGIN}\n{page(results)}{END}{after}")

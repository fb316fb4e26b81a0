"""Title and text of a file that is one document: plain text, Markdown, HTML, PDF; rows of xlsx."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from boolattn.errors import DataError
from boolattn.files import require
from boolattn.jsonl import read_lines

_HEADING = re.compile(r"^# +(.+?)(?: +#+)?$|^(.+)\n=+$", re.M)
#: Markup of Markdown and what is left of it, in the order in which they are applied.
_MARKUP = (
    (r"\A---\n(?s:.*?)\n---\n", ""),  # front matter
    (r"<!--(?s:.*?)-->|</?[a-zA-Z][^<>\n]*>", ""),
    (r"^ *(?:```|~~~).*\n?", ""),
    (r"!\[[^\]]*\](?:\([^)]*\)|\[[^\]]*\])", ""),  # images
    (r"^ *\[[^\]]+\]: .*\n?", ""),
    (r"\[([^\]]*)\](?:\([^)]*\)|\[[^\]]*\])", r"\1"),
    (r"^ *\|?[-:| ]*-[-:| ]*\|[-:| ]*\n", ""),  # below the heading of a table
    (r"^ {0,3}(?:#{1,6} +|> ?|[-*+] +|(?:[-*_] ?){3,}$|=+$)", ""),
    (r"(?<!\w)(\*\*|__|\*|`)(?=\S)([^\n]*?\S)\1(?!\w)", r"\2"),
    (r"\n{3,}", "\n\n"),
)


def plain_markdown(text: str) -> str:
    """Remove the markup of Markdown.

    >>> plain_markdown("## A **b** [c](d) [![Build](x)](y)`e`")
    'A b c e'
    """
    for pattern, left in _MARKUP:
        text = re.sub(pattern, left, text, flags=re.M)
    return text


def _plain(path: Path) -> tuple[str, str]:
    return "", "\n".join(line for _, line in read_lines(path)).removeprefix("\ufeff")


def _markdown(path: Path) -> tuple[str, str]:
    """The title is the first heading of level 1."""
    _, text = _plain(path)
    heading = _HEADING.search(re.sub(r"^```.*?^```", "", text, flags=re.M | re.S))
    title = heading[1] or heading[2] if heading else ""
    return plain_markdown(title), plain_markdown(text)


def _html(path: Path) -> tuple[str, str]:
    require("an HTML file", ("selectolax",), "files")
    from selectolax.lexbor import LexborHTMLParser

    page = LexborHTMLParser(path.read_bytes())
    page.strip_tags(["script", "style", "noscript", "template"])
    page.unwrap_tags(["a", "b", "code", "em", "i", "mark", "small", "span", "strong", "sub", "sup"])
    page.merge_text_nodes()  # or each word in bold type is a line
    heading = page.css_first("title") or page.css_first("h1")
    text = page.body.text(separator="\n", strip=True) if page.body else ""
    return heading.text(strip=True) if heading else "", text


def _pdf(path: Path) -> tuple[str, str]:
    require("a PDF file", ("pypdf",), "files")
    from pypdf import PdfReader
    from pypdf.errors import PyPdfError

    try:
        reader = PdfReader(path)
        title = reader.metadata.title if reader.metadata else ""
        return str(title or ""), "\n\n".join(page.extract_text() for page in reader.pages)
    except (PyPdfError, ValueError, KeyError, TypeError) as error:
        raise DataError(f"{path}: damaged, encrypted, or not PDF ({error})") from error


def read_sheets(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the rows of all sheets by the names in the first row of each."""
    require("an Excel file", ("openpyxl",), "files")
    from zipfile import BadZipFile

    from openpyxl import load_workbook
    from openpyxl.utils.exceptions import InvalidFileException

    try:
        for sheet in load_workbook(path, read_only=True, data_only=True).worksheets:
            rows = enumerate(sheet.iter_rows(values_only=True), start=1)
            _, heading = next(rows, (0, ()))
            names = ["" if name is None else str(name).strip() for name in heading]
            for number, values in rows:
                if any(value is not None for value in values):
                    pairs = zip(names, values, strict=False)
                    yield number, {name: value for name, value in pairs if name}
    except (BadZipFile, InvalidFileException, KeyError, ValueError) as error:
        raise DataError(f"{path}: damaged, or not an Excel file ({error})") from error


#: Readers of files that are one document, by the end of their names; a title may be empty.
READERS: dict[str, Callable[[Path], tuple[str, str]]] = {".txt": _plain, ".md": _markdown}
READERS |= {".markdown": _markdown, ".html": _html, ".htm": _html, ".pdf": _pdf}

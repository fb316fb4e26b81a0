"""Abstracts of PubMed with MeSH headings, which professionals assign."""

from __future__ import annotations

import gzip
import io
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

from benchmark_data.domains.items import Item
from benchmark_data.domains.sources import read_member

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path


def read(files: Sequence[Path], size: str) -> Iterator[Item]:
    """Read the articles that have an abstract in English."""
    packed = read_member(files[0], "data/pubmed20n0014.xml.gz")
    with gzip.open(io.BytesIO(packed)) as handle:
        for _, article in ElementTree.iterparse(handle):  # nosec B314
            if article.tag != "PubmedArticle":
                continue
            if abstract := " ".join(_text(one) for one in article.iter("AbstractText")):
                title = _text(article.find(".//ArticleTitle")).strip("[]. ")
                headings = {_heading(one.text or "") for one in article.iter("DescriptorName")}
                yield Item(article.findtext(".//PMID", ""), title, abstract, {"topic": headings})
            article.clear()


def _text(element: Any) -> str:  # noqa: ANN401 - an element or None
    return "" if element is None else "".join(element.itertext())


def _heading(name: str) -> str:
    """Write a heading as a person does: "Diabetes Mellitus, Type 1" in direct order, lower case."""
    head, _, rest = name.partition(", ")
    words = f"{rest} {head}".strip() if rest and ", " not in rest else name
    return " ".join(
        word if word[1:].lower() != word[1:] else word.lower() for word in words.split()
    )

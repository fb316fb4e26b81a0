"""Skeletons in markup (see wordings.toml), and texts built from them with exact spans.

Pieces are appended one by one, so the spans of operands and cues are exact by construction.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from boolattn.data.sentences import CueSpan, Span
from boolattn.errors import DataError
from boolattn.query.tree import Operator

_TOKEN = re.compile(
    r"<(?P<owners>\d+)\|(?P<owned>[^>]*)>"
    r"|\[(?P<operator>and|or|not):(?P<literal>[^\]]*)\]"
    r"|\{(?P<family>[a-z]\w*)(?:\.(?P<part>\d))?(?:@(?P<rest>\d+))?\}"
    r"|(?P<plain>[^<\[{]+)"
)
_SLOT = re.compile(r"\{(\w+)\}")
#: Signs without a space before them.
_CLOSING = tuple(",.;:?!)")


@dataclass(frozen=True, slots=True)
class Token:
    """One token of a skeleton: plain words, words of operands, a literal cue, or a cue slot."""

    text: str = ""
    owners: tuple[int, ...] = ()
    operator: Operator | None = None
    family: str = ""
    part: int = 0


@dataclass(frozen=True, slots=True)
class Phrase:
    """A text with the spans of its operands, which may share words, and its cues."""

    text: str
    operands: tuple[tuple[Span, ...], ...]
    cues: tuple[CueSpan, ...]


@dataclass(slots=True)
class Builder:
    """Appends pieces to a text and records their spans."""

    n_operands: int
    _text: str = ""
    _owned: list[tuple[int, int, tuple[int, ...]]] = field(default_factory=list)
    _cues: list[CueSpan] = field(default_factory=list)

    def add(self, piece: str, owners: Iterable[int] = (), operator: Operator | None = None) -> None:
        """Append a piece, with at most one space before it, and none before a comma."""
        piece = re.sub(r"\s+", " ", piece)
        # "among the" + "the Philippines' frogs".
        if self._text.endswith("the ") and piece.startswith("the "):
            piece = piece.removeprefix("the ")
        stripped = piece.strip()
        if not stripped:
            if piece and self._text and not self._text.endswith((" ", "(")):
                self._text += " "
            return
        if stripped.startswith(_CLOSING):
            self._text = self._text.rstrip()
            if stripped[0] == "," and self._text.endswith(","):
                stripped = stripped[1:].strip()
                self._text += " "
        elif piece[0] == " " and self._text and not self._text.endswith((" ", "(")):
            self._text += " "
        start = len(self._text)
        self._text += stripped
        self._mark(start, stripped, tuple(owners), operator)
        if piece[-1] == " ":
            self._text += " "

    def _mark(
        self, start: int, piece: str, owners: tuple[int, ...], operator: Operator | None
    ) -> None:
        end = start + len(piece)
        if owners:
            self._owned.append((start, end, owners))
        if operator is None:
            return
        # A comma beside a cue is not part of it, and a comma alone is not a cue.
        word = re.search(r"[\w&/].*[\w&/]|[\w&/]", piece)
        if word:
            self._cues.append(CueSpan(operator, start + word.start(), start + word.end()))

    def finish(self) -> Phrase:
        """Return the text with its spans; adjacent spans of one operand are merged."""
        text = self._text.rstrip()
        operands = []
        for index in range(self.n_operands):
            spans: list[Span] = []
            for start, end, owners in self._owned:
                if index not in owners:
                    continue
                if spans and not text[spans[-1][1] : start].strip():
                    spans[-1] = (spans[-1][0], end)
                else:
                    spans.append((start, end))
            operands.append(tuple(spans))
        return Phrase(text, tuple(operands), tuple(self._cues))


@lru_cache(maxsize=4096)
def parse(skeleton: str) -> tuple[Token, ...]:
    """Parse a skeleton.

    >>> [token.text or token.family for token in parse("<01|{G} of> <0|{P0}> {not_place} <1|{P1}>")]
    ['{G} of', ' ', '{P0}', ' ', 'not_place', ' ', '{P1}']
    """
    tokens, end = [], 0
    for match in _TOKEN.finditer(skeleton):
        if match.start() != end:
            break
        end = match.end()
        tokens.append(_token(match))
    if end != len(skeleton):
        raise DataError(f"cannot parse the wording {skeleton!r} from {skeleton[end:]!r} on")
    return tuple(tokens)


def _token(match: re.Match[str]) -> Token:
    if match["owners"]:
        return Token(text=match["owned"], owners=tuple(map(int, match["owners"])))
    if match["operator"]:
        return Token(text=match["literal"], operator=Operator(match["operator"]))
    if match["family"]:
        owners = tuple(map(int, match["rest"] or ""))
        return Token(family=match["family"], part=int(match["part"] or 0), owners=owners)
    return Token(text=match["plain"])


def slots_of(skeleton: str) -> frozenset[str]:
    """Return the slots of a skeleton.

    >>> sorted(slots_of("<01|{G} of> <0|{P0}> {not_place} <1|{P1}>"))
    ['G', 'P0', 'P1']
    """
    return frozenset(slot for token in parse(skeleton) for slot in _SLOT.findall(token.text))


def families_of(skeleton: str) -> tuple[str, ...]:
    """Return the cue families of a skeleton, in order of appearance."""
    return tuple(dict.fromkeys(token.family for token in parse(skeleton) if token.family))


def fill(
    skeleton: str,
    cues: Mapping[str, tuple[Operator, str]],
    slots: Mapping[str, str],
    builder: Builder,
) -> None:
    """Append a skeleton with its cues and operands to a text.

    ``cues`` has operator and cue by family; parts of a cue are separated by ``~``.
    """
    pending = ""
    for token in parse(skeleton):
        if token.family:
            operator, cue = cues[token.family]
            words, _, rest = cue.split("~")[token.part].partition("|")
            is_cue = not words.startswith("^")
            builder.add(_filled(words.lstrip("^"), slots), operator=operator if is_cue else None)
            if rest:
                builder.add(" ")
                if token.owners:
                    builder.add(_filled(rest, slots), token.owners)
                else:
                    pending = f"{rest} "
        elif token.owners:
            builder.add(_filled(pending + token.text, slots), token.owners)
            pending = ""
        elif not (pending and token.text.isspace()):
            builder.add(token.text, operator=token.operator)


def _filled(words: str, slots: Mapping[str, str]) -> str:
    # Twice, because a link may contain a verb slot: "{in}" gives "that {live} in".
    once = _SLOT.sub(lambda match: slots[match[1]], words)
    return _SLOT.sub(lambda match: slots[match[1]], once)

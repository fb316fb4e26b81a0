"""The analyzer of every store that is written here: words, what a text negates, and passages."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from functools import cache, lru_cache
from itertools import chain, pairwise
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from boolattn.files import package_table
from boolattn.kinds.lexicon import LAND, SHIFT, VALUE, Kinds
from boolattn.query.tokens import WORDS, any_of, find_cues, spell_out
from boolattn.query.tree import Operator
from boolattn.stores.values import items

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Set

    from boolattn.data.records import Document

    Analyzer = Any

Term = TypeVar("Term", str, int)  # itself, or its number
#: Of BM25+; DELTA is what having a word or a kind counts, beside at most 2.2 for how often a word
#: is in how short a text. It was chosen on validation data (docs/composition.md).
K1, B, DELTA = 1.2, 0.75, 2.0
#: Words that say nothing about a document.
_WORDS = package_table("boolattn.stores", "words.toml")
_TERM = re.compile(r"[^\W_]+(?:\+\+|#)?")
#: C++ and C# are words.
_SIGNED, _SIGNS = re.compile(r"(?<!\w)([a-z])(\+\+|#)(?!\w)", re.IGNORECASE), {"#": "sharp"}
#: Scripts written without spaces: each character becomes a word.
_UNSPACED = re.compile("([\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff])")
#: A word that does not begin another clause.
_WORD = (
    r"(?!(?:although|and|because|but|however|if|nor|only|or|so|though|unless|until|when|where|"
    r"which|while|who|with)\b)[^\W_][\w'’/-]*"
)
_PHRASE = rf"{_WORD}(?:[ \t]+{_WORD}){{0,3}}"
#: What a NOT before it negates: up to four words, or a list of such with "or" before the last.
_AFTER = re.compile(
    rf"[ \t:]*{_PHRASE}(?:(?:,[ \t]*{_PHRASE})*,?[ \t]+n?or[ \t]+{_PHRASE})?", re.IGNORECASE
)
#: After a verb or an adjective it goes on: "not good with cats".
_AFTER_NOT = re.compile(
    rf"[ \t:]*{_PHRASE}(?:[ \t]+with[ \t]+{_PHRASE}(?:[ \t]+or[ \t]+{_PHRASE})?)?", re.I
)
#: What negates a name before it: "Pets: no", but not "Symphony: No. 5"; "makes pins unnecessary".
_NO_VALUE = re.compile(
    r":[ \t]*(?:no|none|never|n/a|0)(?=[ \t]*(?:[,;|)\n]|\.(?!\s*\d)|$))|\bunnecessary\b", re.I
)
#: What "not required" negates, which stands before it: "knowledge of German is not required".
_BEFORE = re.compile(rf"{_PHRASE}[ \t:]*$", re.IGNORECASE)
_LONGEST = 80  # characters of it
_NEEDED = re.compile(
    r"\s+(?:accepted|allowed|available|essential|included|necessary|needed|offered|permitted|"
    r"possible|provided|required|served|sold|used|welcome)\b",
    re.IGNORECASE,
)
#: "nut-free", "gluten and sugar free", and "non-" before one word; few texts have these.
_MAY_LACK = re.compile(r"free|non[-‐‑]", re.IGNORECASE)
_COMPOUND = re.compile(
    # Only from a word's beginning: else a long word would be tried from each of its letters.
    rf"(?<![^\W_])(?:(?:{any_of(WORDS['lacked'])})(?:,| and| or|,? &) )*(?:[^\W_]+(?=[-‐‑]free\b)|"
    rf"(?:{any_of(WORDS['lacked'])})(?= free\b(?! of\b)))|(?<=\bnon)[-‐‑][^\W_]+",
    re.IGNORECASE,
)
#: What negates the phrase after it, or a list.
_FREE_OF = re.compile(
    r"\b(?:free (?:from|of)|instead of|lacks|lacking|rather than|(?<![\d.,])0(\.0)? ?%)(?!\w)", re.I
)
LACKS = f"{VALUE}-"  # begins the tag of a word that a document says it lacks
#: What negates a lack, and so nothing: "not nut-free", "isn't without nuts".
_TWICE = re.compile(
    r"(?:\b(?:cannot|never|no|not)|n['’]t)\s(?:guarantee\b[^.;!?]{0,40}?\s)?(?:non[-‐‑](\w+)|"
    r"(\w+)[-‐‑ ]free\b(?! of)|(?:forget|free (?:from|of)|lack|shortage of|without)\b)|\bwhy not\b",
    re.IGNORECASE,
)
_SHORT = 60  # characters of a value of the metadata that is searched as words too
#: Values that say whether a document is or has what the field is called.
_TRUTH = dict.fromkeys(("allowed", "available", "included", "true", "y", "yes"), True)
_TRUTH |= dict.fromkeys(("false", "n", "no", "none"), False)
_GAP = re.compile(r"(?<=[a-z])(?=[A-Z])|[_.]")
_AROUND = re.compile(
    r"^(?:allows|has|is|with)\s+|\s+(?:accepted|allowed|available|included|offered|welcome)$",
    re.IGNORECASE,
)
#: About a token: six letters of an alphabet, a character of another script, a sign.
_PIECE = re.compile(r"[0-9A-Za-z_\u00c0-\u04ff]{1,6}|\w|[^\w\s]")
_SENTENCE_ENDS = ("。", "！", "？", "\n", ". ", "! ", "? ", '." ', ".) ", ".\u201d ")
_WORD_ENDS = (" ", "\n", "\t")
#: Characters from which on a text is long, and tokens of its parts.
_LONG, _PART = 6000, 400
#: Passages are filled to this part, because tokens are only estimated.
_FILLED = 0.9


@cache
def analyzer() -> Analyzer:
    """Return the analyzer: words in lower case, folded, without stop words, stemmed."""
    import tantivy  # not every command analyses texts

    builder = tantivy.TextAnalyzerBuilder(tantivy.Tokenizer.simple())
    steps = tantivy.Filter
    for step in (steps.remove_long(100), steps.lowercase(), steps.ascii_fold()):
        builder = builder.filter(step)
    return builder.filter(steps.stopword("english")).filter(steps.stemmer("english")).build()


def operand_terms(text: str) -> list[str]:
    """Return the words of an operand that say what it is about; the others, where none does.

    >>> operand_terms("recipes with something sweet"), operand_terms("something you have to eat")
    (['sweet'], ['someth', 'eat'])
    >>> operand_terms("from England"), operand_terms("The Who"), operand_terms("driving jobs")
    (['england'], ['who'], ['drive'])
    """
    terms = terms_of(text)
    for empty in (_WORDS["empty"], _WORDS["filler"]):
        terms = [term for term in terms if term not in _terms_of_words(empty)] or terms
    return terms


def terms_of(text: str) -> list[str]:
    """Return the words of a text as they are indexed, each once.

    >>> terms_of("the Moths of Borneo, moths of 婆罗洲")
    ['moth', 'borneo', '婆', '罗', '洲']
    """
    return list(dict.fromkeys(analyzer().analyze(spaced(text))))


def term_weights(counts: Mapping[Term, int], mean_length: float) -> dict[Term, float]:
    """Return what each term of a document counts in BM25+, but for its rarity.

    >>> term_weights({"moth": 2}, 2.0)
    {'moth': 3.375}
    """
    length = sum(counts.values()) / max(mean_length, 1.0)
    part = K1 * (1 - B + B * length)
    return {term: (K1 + 1) * n / (n + part) + DELTA for term, n in counts.items()}


def matched_words(text: str, terms: Set[str], start: int, end: int) -> list[tuple[int, int]]:
    """Return the spans of the words between two places that are indexed as one of some terms.

    >>> matched_words("A moth, and the Moths of Java.", {"moth"}, 0, 30)
    [(2, 6), (16, 21)]
    """
    words = _TERM.finditer(text, start, end)
    return [word.span() for word in words if not terms.isdisjoint(_terms_of_words(word[0]))]


@lru_cache(maxsize=1 << 15)
def _terms_of_words(words: str) -> frozenset[str]:
    return frozenset(terms_of(words))


def plain_title(text: str) -> str:
    """Return a title as it is compared, whatever the case, the spaces and the marks around it."""
    return " ".join(text.casefold().split()).strip(" \"'.?!")


def asserted_terms(text: str, negated: Iterable[tuple[int, int]] | None = None) -> frozenset[str]:
    """Return the words of a text as they are indexed, without those that the text negates.

    A word that also stands elsewhere in the text, without a negation, counts. ``negated`` are the
    text's :func:`negated_spans`, if they are known.

    >>> sorted(asserted_terms("Nut-free cake without eggs or dairy. Driving licence not required."))
    ['cake', 'free', 'requir', 'without']
    >>> sorted(asserted_terms("Alcohol is not served at lunch. Pets: none"))
    ['lunch', 'serv']
    """
    pieces, end = [], 0
    for start, stop in sorted(negated_spans(text) if negated is None else negated):
        pieces.append(text[end : max(start, end)])
        end = max(end, stop)
    return frozenset(terms_of(" ".join([*pieces, text[end:]])))


def negated_spans(text: str) -> Iterator[tuple[int, int]]:
    """Yield the characters of what a text negates."""
    text = _TWICE.sub(lambda match: (match[1] or match[2] or "").rjust(len(match[0])), text)
    for match in _COMPOUND.finditer(text) if _MAY_LACK.search(text) else ():
        yield match.span()
    ends = [(_AFTER, match.end()) for match in _FREE_OF.finditer(text)]
    after_names = [match.span() for match in _NO_VALUE.finditer(text)]
    for cue in find_cues(text):
        if cue.operator is Operator.NOT and _NEEDED.match(text, cue.end):
            after_names.append((cue.start, cue.end))
        elif cue.operator is Operator.NOT:
            is_verb = cue.text.lower().endswith(("not", "n't", "n\u2019t", "never"))
            ends += [(_AFTER, cue.end), *([(_AFTER_NOT, cue.end)] if is_verb else [])]
    for start, end in after_names:
        first = max(0, start - _LONGEST)
        if before := _BEFORE.search(text[first:start]):
            yield first + before.start(), end
    yield from (after.span() for form, end in ends if (after := form.match(text, end)))


def spaced(text: str) -> str:
    """Return a text with spaces around characters that are words of their own.

    >>> spaced("C++ or 汉字"), terms_of("not C, but C#")
    ('Cplusplus or  汉  字 ', ['c', 'csharp'])
    """
    text = spell_out(text, "infotech")
    text = _SIGNED.sub(lambda match: match[1] + _SIGNS.get(match[2], "plusplus"), text)
    return _UNSPACED.sub(r" \1 ", text)


def cut(text: str, n_tokens: int) -> list[tuple[int, int]]:
    """Return spans of at most about ``n_tokens`` tokens, cut after sentences where there are any.

    A text that is short enough, and any text with 0 tokens, is one span.

    >>> text = "One two. Three four five. Six seven."
    >>> [text[start:end] for start, end in cut(text, 6)]
    ['One two.', 'Three four five.', 'Six seven.']
    """
    starts = [match.start() for match in _PIECE.finditer(text)] if n_tokens else []
    if len(starts) <= n_tokens:
        return [(0, len(text))]
    size, chosen = max(1, int(_FILLED * n_tokens)), [0]
    while len(starts) - chosen[-1] > size:
        first, last = chosen[-1], chosen[-1] + size
        # In the second half, so that passages do not become short.
        pieces = range(last, first + size // 2, -1)
        ends = (
            p
            for e in (_SENTENCE_ENDS, _WORD_ENDS)
            for p in pieces
            if text.endswith(e, 0, starts[p])
        )
        chosen.append(next(ends, last))
    pairs = pairwise([*(starts[piece] for piece in chosen), len(text)])
    return [(start, start + len(text[start:end].rstrip())) for start, end in pairs]


class DocumentTerms(NamedTuple):
    """The words of a document, as they are indexed, and tags: of its values, and of kinds."""

    counts: Counter[str]  # 0 for a tag
    asserted: list[str]
    denied: list[str]  # the text has these, but only negated or in passing


def indexed_text(document: Document) -> str:
    """Return what is indexed as words: title, text and short texts of the metadata."""
    return "\n".join([document.title, document.text, *named_values(document.metadata)])


def named_values(metadata: Mapping[str, Any], *, is_true: bool = True) -> Iterator[str]:
    """Yield the short texts of metadata, and the names of fields that are true; or false ones.

    >>> list(named_values({"city": "Rome", "petsAllowed": True, "has_pool": "yes", "rooms": 9}))
    ['Rome', 'pets', 'pool']
    >>> list(named_values({"smoke_free": "no", "furnished": False}))
    ['smoke', 'unfurnished']
    """
    for field, listed in metadata.items():
        name = _AROUND.sub("", _GAP.sub(" ", field)) or field
        for value in items(listed):
            truth = _TRUTH.get(str(value).casefold())
            if truth is not None and name.endswith(" free"):  # what is not smoke-free has smoke
                yield from [name.replace(" free", "-free" * truth)] * is_true
            elif truth is is_true:
                yield name
            elif truth is False and re.fullmatch("[a-z]+ed", name):
                yield f"un{name}"
            elif isinstance(value, str) and truth is None and is_true and len(value) <= _SHORT:
                yield value


def value_tags(text: str, *, whole: bool = False) -> list[str]:
    """Return the tag of a short value; or of each that a text may name.

    >>> value_tags("wood elves"), value_tags("Wood Elf", whole=True)
    (['=wood', '=elf', '=wood elf'], ['=wood elf'])
    """
    terms = [re.sub("v$", "f", term) for term in terms_of(text)]  # "elv" is the stem of elves
    phrases = [*terms, *map(" ".join, pairwise(terms)), " ".join(terms)]
    return [
        f"{VALUE}{phrase}" for phrase in dict.fromkeys(phrases[-1:] if whole else phrases) if phrase
    ]


def land_tags(value: str, kinds: Kinds) -> Iterator[str]:
    """Yield the tags of what is around a place that a value is the name of: "Lyon, France"."""
    for part in filter(kinds.is_name, map(str.strip, value.split(","))):
        named = [mention for mention in kinds.mentions(part) if mention[:2] == (0, len(part))]
        itself = {f"#{entry >> SHIFT:x}" for mention in named for entry in mention.entries}
        around = kinds.tags(part)[0] - itself if named else ()
        yield from (tag for tag in around if tag[0] == "#" and kinds.class_of(tag) in LAND)


def document_terms(document: Document, kinds: Kinds | None) -> DocumentTerms:
    """Analyse title and text of a document.

    A long text asserts what its beginning says, and what a third of its parts say; it has the rest
    in passing.
    """
    counts: Counter[str] = Counter(analyzer().analyze(spaced(indexed_text(document))))
    spans = cut(document.text, _PART if len(document.text) > _LONG else 0)
    n_parts, tags = Counter[str](), set[str]()
    # "Alcohol-free" of a title, a value or a false field is said of the whole document.
    false = (f"{name}: no" for name in named_values(document.metadata, is_true=False))
    label = "\n".join([indexed_text(replace(document, text="")), *false])
    free_of = kinds.tags(label, negated_spans(label))[2] if kinds else frozenset()
    for number, span in enumerate(spans):
        text = indexed_text(replace(document, text=document.text[slice(*span)]))
        negated = list(negated_spans(text))
        named, lacked = kinds.tags(text, negated)[:2] if kinds else ((), ())
        tags.update(named, lacked)
        for term in {*asserted_terms(text, negated), *(tag for tag in named if tag not in free_of)}:
            n_parts[term] += len(spans) if number == 0 else 1
    about = {term for term, n in n_parts.items() if 3 * n >= len(spans)}
    asserted = [*sorted(about & tags), *sorted(about - tags)]
    denied = [*sorted(tags - about), *sorted(counts.keys() - about)]
    lacks = denied[len(tags - about) :] if len(spans) == 1 else ()
    texts = [*named_values(document.metadata)]
    # The city Lyon is a value in France too.
    around = chain.from_iterable(land_tags(text, kinds) for text in texts if kinds)
    places = [f"{VALUE}{tag}" for tag in around]
    named_tags = (value_tags(value, whole=True) for value in texts)
    values = sorted({*(f"{LACKS}{term}" for term in lacks), *places, *chain(*named_tags)})
    # A tag is no word: it adds nothing to the length, and counts by its rarity alone.
    counts.update(dict.fromkeys([*sorted(tags), *values], 0))
    return DocumentTerms(counts, [*values, *asserted], denied)

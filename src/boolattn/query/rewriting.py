"""Queries in plain language that a parser would misread, written as it reads them rightly.

A rewritten text has the same characters at the same places, so that spans stay correct.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from boolattn.query.parsed_query import Gap, ParsedQuery, Span
from boolattn.query.tokens import QUOTED, WORDS, any_of, find_cues, phrases_of
from boolattn.query.tree import EVERYTHING, Operator

if TYPE_CHECKING:
    from collections.abc import Sequence

#: What an exclusion alone is read after: "no fish please" is "everything, no fish please".
EVERYTHING_BUT = "everything "
_AUXILIARY = "(?:ai|are|ca|could|did|do|does|had|has|have|is|must|need|should|was|were|wo|would)"
_NOT = rf"(?:not|none|never|cannot|can\s?not|{_AUXILIARY}n['\u2019]?t)"
_NEGATION = re.compile(rf"\b{_NOT}\b", re.IGNORECASE)
_VERB = r"(?:is|are|was|were|be|been|being|do|does|did|come|comes|made|served)"
_THAT = rf"(?:,?\s+(?:but|and))?(?:\s+(?:that|which|who))?(?:['\u2019]s|['\u2019]re|\s+{_VERB})?"
_LACKING = (
    r"(?:without|w/o|lack(?:s|ing)?|free\s+(?:of|from)|devoid\s+of|missing|minus|sans|"
    r"exclud(?:e|es|ing)|omit(?:s|ting)?|not)"
)
#: "desserts that are not without eggs", "nothing but desserts", "pasta that isn't meat-free".
_DOUBLE = re.compile(
    rf"(?<!\s){_THAT}(?:\s+|^){_NOT}(?:\s+{_VERB})?\s+(?:{_LACKING}\s+|(?=[^\W\d_]+(?P<free>[\s-]free)\b))|"
    r"^\s*nothing\s+(?:but|except|other\s+than)\s+",
    re.IGNORECASE,
)
#: "no breakfast without cheese" is one with cheese.
_NOT_WITHOUT = re.compile(
    r"\s*(?:no|never|not|(?:i\s+|please\s+)?(?:don['\u2019]?t|do\s+not)\s+(?:want|show|give|list|find)"
    r"(?:\s+me)?)\s++(?:any\s++)?(?P<wanted>[^\s,;.][^,;.]*?)(?<!\s)\s++"
    r"(?P<lacking>(?:without|w/o|lacking|(?:that|which|who)\s+(?:lacks?|(?:do|does|did|is|are|ha[sv]e?)"
    r"(?:n['\u2019]?t|\s+not)(?:\s+(?:have|contain|include|use))?))\s)[^,;.]+$",
    re.IGNORECASE,
)
#: "doesnt bark" and "isnt toxic", which the parser does not know.
_UNMARKED = re.compile(rf"\b(?!ain|can|don|won){_AUXILIARY}nt\b|(?<=\bwho )wont\b", re.IGNORECASE)
_LONGER = re.compile(rf"(?:^|(?<=, ))(?ai:{'|'.join(WORDS['longer_forms'])})(?!\w)|(?ai:\bw/out\b)")
#: "hotels that are not expensive and have a pool": only the first is negated.
_AND_HAS = re.compile(r"(?<=\w) and ha(?:s|ve) (?=(?:an?|its|the|their)\b)", re.IGNORECASE)
_HOLD = re.compile(r"(?<=[\w,] )hold\s(?=the\s)", re.IGNORECASE)
_PREPOSITION = r"(?:about|at|by|for|from|in|near|of|on|with)\b"
#: "tools (not in the attic)", "soup (no cream)".
_ASIDE = re.compile(
    rf"(?<=\w)\s\(((?:not\s+{_PREPOSITION}|(?:no|without)\s)[^()]*)\)(?=\s*$)", re.IGNORECASE
)
#: "all books" are books. "All Saints" may be a name, and "all weather jackets" are no jackets.
_ALL = re.compile(r"\s*[Aa]ll\s+(?:(?:of\s+)?(?:the|my|our)\s+(?=[a-z ]+$)|(?=[a-z]+[^s\W]s\s*$))")
#: Words that are all written with a capital letter, as in a title.
_CAPITALS = re.compile(r"\s*(?:[A-Z][\w'\u2019-]*(?:\s+|$)){3,}")
#: "salads without cheese, with nuts" is read as "salads with nuts, without cheese".
_EXCLUDED_FIRST = re.compile(
    r"(?P<head>[^,;.?!]*?\w),?\s+"
    r"(?P<excluded>(?:but\s+)?(?:(?:(?:that|which)\s+)?(?:(?:ha(?:s|ve)|with)\s+no|(?:is|are|do|does)(?:\s+not|n['\u2019]?t))|no|w/o|without|minus|sans|"
    r"lacking|excluding|not(?!\s+(?:just|only|so|too|very)\b))\s[^,;.?!]+?)"
    r"(?P<mark>,\s*(?:(?:but|and)\s+)?|\s+(?:(?:but|and)\s+|(?=plus\s)))?"
    r"(?P<wanted>(?(mark)|\s+)(?:with|containing|including|plus)\s+(?!no\b)[^;.?!]+)[?.!\s]*",
    re.IGNORECASE,
)
#: "dogs not in Leeds but in York" is read as "dogs in York, not in Leeds".
_BUT_WANTED = re.compile(
    r"(?P<head>[^,;.?!]*?\w),?\s+(?P<excluded>not\s+(?!(?:just|merely|only|so|too|very)\b)[^,;.?!]+?)(?P<mark>,?\s+but\s+"
    r"(?:rather\s+)?)(?P<wanted>(?!(?:also|no|not|only|still|without)\b)[^,;.?!]+)[?.!\s]*",
    re.IGNORECASE,
)
#: Characters of the longest text that is matched: the time grows with the cube of the length.
_MAX_REORDERED = 300
_WITHOUT_ONE = re.compile(r"(?:without|w/o|no|sans|minus)\s+[\w-]+", re.IGNORECASE)
#: What "-free" does not negate, and what "free" negates without a hyphen.
_LEXICALISED, _LACKED = f"(?!(?:{any_of(WORDS['lexicalised'])})-free)", any_of(WORDS["lacked"])
_ITEM = rf"(?:(?:{_LACKED})(?:[-\s]free|-)?|{_LEXICALISED}[^\W\d_]+-(?:free)?)"
_LACKED_WORD = re.compile(r"\b(?!(?:and|both|free|or)\b)[^\W\d_]+", re.IGNORECASE)
#: "gluten and dairy free desserts", "desserts that are gluten- and dairy-free".
_FREE_OF_SEVERAL = re.compile(
    r"\s*(?:(?P<head>[^;.?!]*?\w),?\s+(?:(?:that|which)\s+)?(?:(?:is|are)\s+)?)??"
    rf"(?P<several>(?:both\s+)?{_ITEM}(?:\s*,\s*(?:(?:and|or)\s+)?{_ITEM}|\s+(?:and|or|&)\s+{_ITEM})+)"
    r"(?<=free)(?(head)|(?:\s+(?P<last_head>[^\W_][^,;.?!]*?))?)[?.!\s]*",
    re.IGNORECASE,
)
#: "nut-free please" and "neither soup nor salad" want nothing in particular.
_END = r"(?:,?\s+please)?[?.!,;\s]*"
_FREE_ALONE = re.compile(rf"\s*(?P<several>{_ITEM})(?<=free){_END}", re.IGNORECASE)
#: "no dogs, no cats", "no keys or strings", "houses neither in France nor in Spain".
_SEVERAL_EXCLUDED = re.compile(
    r"\s*(?:(?P<head>[^,;.?!]*?\w),?\s+(?=neither\b))?(?P<first>no|not|without|neither|non(?![\s-]{_NON_WORDS})(?=-))[\s-]+"
    rf"(?P<others>[^;.?!]+?){_END}",
    re.IGNORECASE,
)
_NEXT_EXCLUDED = (
    r"(?<!\s)(?:\s*+,\s*+|\s++)(?:(?:(?:and|or)\s++)?(?:no|not|nor|without)\s++|or\s++)"
)
#: After "neither" a comma is enough.
_NEXT = re.compile(_NEXT_EXCLUDED, re.IGNORECASE)
_NEXT_NEITHER = re.compile(_NEXT_EXCLUDED + r"|(?<!\s)\s*+,\s*+", re.IGNORECASE)
#: An excluded thing: up to three words.
_THING = re.compile(
    rf"(?:{_PREPOSITION}\s+)?(?:(?:an?|any|the)\s+)?"
    r"(?P<thing>(?!(?:with|but|that|who|to)\b)[^\s,]+(?:\s(?!(?:with|but|that|who|to)\b)[^\s,]+){0,2})",
    re.IGNORECASE,
)
_POLITE = rf"(?:(?:{any_of(WORDS['polite'])})\b[\s,!:.-]*)*"
_NON_WORDS = rf"(?:{any_of(WORDS['non_words'])})\b"
#: How a query begins that only excludes.
_EXCLUDES = re.compile(
    rf"[\s,;.]*{_POLITE}(?P<cue>no(?![\s-](?:{any_of(WORDS['not_excluded_by_no'])})\b)|"
    rf"not(?!\s+(?:{any_of(WORDS['not_excluded_by_not'])})\b)|"
    rf"non(?![\s-]{_NON_WORDS})|{any_of(WORDS['excludes'])})\b|"
    rf"[\s,;.]*{_POLITE}(?:i|we)\s+(?=(?:hate|dislike|(?:do|ca)n['\u2019]?t(?!\s+mind)|do\s+not|can\s*not)\b)",
    re.IGNORECASE,
)


def rewrite(text: str) -> str:
    """Return a text whose pairs of negations that cancel each other are gone, and the like.

    >>> rewrite("desserts that are not without eggs"), rewrite("pasta that isn't meat-free")
    ('desserts AND                  eggs', 'pasta AND        meat     ')
    >>> rewrite("tools (not in the attic)"), rewrite("soup (no fish)"), rewrite("all books")
    ('tools, not in the attic ', 'soup, no fish ', '    books')
    """
    text = _HOLD.sub("sans ", text)
    text = _UNMARKED.sub(lambda match: "not".ljust(len(match[0])), text)
    text = _LONGER.sub(
        lambda m: WORDS["longer_forms"].get(m[0].lower(), "w/o").ljust(len(m[0])), text
    )
    if (match := _AND_HAS.search(text)) and _NEGATION.search(text, 0, match.start()):
        text = f"{text[: match.start()]}{' , with '.ljust(len(match[0]))}{text[match.end() :]}"
    text = _ASIDE.sub(r", \1 ", text)
    if match := _ALL.match(text):
        text = " " * match.end() + text[match.end() :]
    if (match := _NOT_WITHOUT.match(text)) and not find_cues(match["wanted"]):
        start, (first, last) = match.start("wanted"), match.span("lacking")
        return " " * start + text[start:first] + "AND ".ljust(last - first) + text[last:]
    for match in _DOUBLE.finditer(text):
        start, end = match.span()
        text = text[:start] + (" AND " if start else " ").ljust(end - start) + text[end:]
        if match["free"]:
            first, last = match.span("free")
            text = text[:first] + " " * (last - first) + text[last:]
    return text


def with_exclusion_last(text: str, *, is_doubtful: bool = False) -> tuple[str, list[int]] | None:
    """Return a text whose exclusion stands before what is wanted, the other way round.

    Besides, where each character stands in the original; -1 for what was inserted. Without a comma
    or the like between them, one word must be excluded and the parser in doubt: "without actors
    with beards" excludes one thing.

    >>> with_exclusion_last("salads without cheese, with nuts")[0]
    'salads with nuts, without cheese'
    >>> with_exclusion_last("gluten and dairy free desserts")[0]
    'desserts without gluten or dairy'
    """
    if len(text) > _MAX_REORDERED:
        return None
    if match := _FREE_OF_SEVERAL.fullmatch(text) or _FREE_ALONE.fullmatch(text):
        start, end = match.span("several")
        items = [item.span() for item in _LACKED_WORD.finditer(text, start, end)]
        heads = [name for name, head in match.groupdict().items() if head and name != "several"]
        first = ("", match.span(heads[0])) if heads else (EVERYTHING_BUT.strip(), (0, 0))
        others = [(" or " if n else " without ", span) for n, span in enumerate(items)]
        return _moved(text, [first, *others])
    match = _EXCLUDED_FIRST.fullmatch(text) or _BUT_WANTED.fullmatch(text)
    if match is None or any(
        cue.operator is Operator.NOT for cue in find_cues(f"{match['head']}, {match['wanted']}")
    ):
        return None
    is_one = is_doubtful and _WITHOUT_ONE.fullmatch(match["excluded"])
    if match["mark"] is None and not is_one:
        return None
    names = (("", "head"), (" ", "wanted"), (", ", "excluded"))
    return _moved(text, [(before, match.span(name)) for before, name in names])


def _moved(text: str, pieces: Sequence[tuple[str, Span]]) -> tuple[str, list[int]]:
    """Join pieces of a text, each after inserted words; see :func:`with_exclusion_last`."""
    positions = [at for before, span in pieces for at in (*[-1] * len(before), *range(*span))]
    return "".join(before + text[slice(*span)] for before, span in pieces), positions


def split_at_and(text: str) -> ParsedQuery:
    """Return the operands on both sides of the AND that replaced a double negation."""
    before, _, after = text.partition(" AND ")
    spans = [(0, len(before)), (len(text) - len(after), len(text))] if after else [(0, len(text))]
    operands = tuple((span,) for span in spans if text[slice(*span)].strip())
    n = len(operands)
    return ParsedQuery(operands, (False,) * n, (Gap(Operator.AND),) * (n - 1))


def after_everything(text: str) -> str | None:
    """Return a text after "everything", if it begins as one that says only what is not wanted.

    >>> after_everything("please no fish"), after_everything("no-bake cookies")
    ('everything        no fish', None)
    """
    if (match := _EXCLUDES.match(text)) is None or _CAPITALS.fullmatch(text):
        return None
    start = match.start("cue") if match["cue"] else match.end()
    return EVERYTHING_BUT + " " * start + text[start:]


def read_exclusions(text: str, *, least: int = 2) -> ParsedQuery | None:
    """Read a text that excludes so many things, each of up to three words, and says little else.

    >>> text = "not in Africa, not in Asia"
    >>> read_exclusions(text).structure, read_exclusions("No Woman, No Cry")
    ('_ NOT _ NOT _', None)
    """
    match = _SEVERAL_EXCLUDED.fullmatch(text)
    if match is None or not (match["head"] or after_everything(text)):
        return None
    separator = _NEXT_NEITHER if match["first"].lower() == "neither" else _NEXT
    start, end = match.span("others")
    edges = [start, *(at for m in separator.finditer(text, start, end) for at in m.span()), end]
    spans = list(zip(edges[::2], edges[1::2], strict=True))
    things = [thing for span in spans if (thing := _THING.fullmatch(text, *span))]
    if not least <= len(things) == len(spans):
        return None
    if text[0].isupper() and not text.isupper() and all(thing[0][0].isupper() for thing in things):
        return None  # a title: "Neither Wolf nor Dog"
    head = (match.span("head"),) if match["head"] else ()
    operands = (head, *((thing.span("thing"),) for thing in things))
    return ParsedQuery(operands, (False, *[True] * len(things)), (Gap(Operator.AND),) * len(things))


def mixes_operators(text: str) -> bool:
    """Tell whether a text with operators in capitals also negates in plain words.

    >>> mixes_operators("soup without cream AND noodles"), mixes_operators("rock and roll NOT jazz")
    (True, False)
    """
    negations = (cue.text for cue in find_cues(text) if cue.operator is Operator.NOT)
    is_plain = not any(sign in text for sign in '"()^:=<>')
    return is_plain and any({*cue.split()} - {"AND", "OR", "NOT"} for cue in negations)


#: What a word excludes that holds no cue.
_IMPLIED = {word: phrases_of(names) for word, names in WORDS["implied"].items()}
_IMPLYING = re.compile(rf"(?<![\w-])(?:{'|'.join(_IMPLIED)})(?![\w-])", re.IGNORECASE)


def implied_exclusions(text: str) -> list[tuple[str, tuple[int, int]]]:
    """Return what words of a text exclude, each with the characters that say so.

    >>> implied_exclusions("meatless pasta"), implied_exclusions('"meatless" pasta')
    ([('meat', (0, 8))], [])
    """
    unquoted = QUOTED.sub(lambda match: " " * len(match[0]), text)
    return [
        (name, match.span())
        for match in _IMPLYING.finditer(unquoted)
        for name in _IMPLIED[match[0].lower()]
    ]


_FREE_FORM = rf"{_LEXICALISED}(?P<negated>[^\W\d_]+(?=-)|(?:{_LACKED})(?=\s))[-\s]free"
_REST = r"(?P<positive>[^\W_][^,;.!?]*?)(?<!\s)"
_NEGATED = r"(?P<negated>[^\s,;:.!?][^,;:.!?]*?)(?<!\s)"
_FORMS = tuple(
    re.compile(form + r"[\s,?.!]*$", re.IGNORECASE)
    for form in (
        rf"\s*{_FREE_FORM}\s+{_REST}",
        rf"\s*non[-\s](?!{_NON_WORDS})(?P<negated>[^\W\d_]+)\s+{_REST}",
        rf"\s*{_REST},?\s+(?:(?:that|which)\s+(?:is|are)\s+|(?:is|are)\s+)?{_FREE_FORM}",
        rf"\s*{_REST},?\s+(?:with\s+|where\s+)?no\s+{_NEGATED}\s+(?:is\s+)?"
        r"(?:necessary|needed|required)",
        # "If not for you" and "he is not in" exclude nothing.
        r"(?!but\b|.*(?<!that\s)(?<!which\s)\b(?:am|are|ask|be|if|is|me|or|was|were|why)\s+not\b)"
        rf"\s*{_REST}(?:\s*,|\s+-)?\s+(?:but\s+)?(?:(?:that|which)\s+(?:is|are)\s+)?not\s+"
        rf"{_PREPOSITION}\s+(?:(?:an?|any|the)\s+)?{_NEGATED}",
        # "damage, no fire", "tastes like wine but no fruit in it".
        rf"(?-i:(?!(?:[A-Z]\S*(?:\s|$))+$))(?!if\b|.*\b(?:and|or)\s+without\b)\s*{_REST}(?:\s*,|\s-|,?\s+but)\s+(?:with\s+)?(?:no|without)\s+"
        rf"(?!\d|(?:{any_of(WORDS['no_things'])})\b){_NEGATED}(?:\s+in\s+(?:it|them))?",
        # "nurse no nights"; names have capitals, and sentences a verb.
        rf"(?-i:(?!.*[A-Z]))(?!(?:an?|can|how|if|the|there|wh\w+|{any_of(WORDS['polite'])})\b|"
        rf".*\b(?:{any_of(WORDS['before_no'])})(?:n['\u2019]?t)?\s+no\b)\s*{_REST}\s+no\s+"
        rf"(?!\d|(?:{any_of(WORDS['no_things'])})\b)(?P<negated>(?:[a-z]+\s)?[a-z]+(?:s|ren))",
        # "performance but not memory"; names have capitals, and sentences a verb.
        rf"(?-i:(?!.*[A-Z]))(?!(?:.*\s)?(?:{any_of(WORDS['of_sentences'])})\b)"
        r"\s*(?P<positive>(?:[a-z][\w-]*\s){0,2}(?!but\s)[a-z][\w-]*),?\s+"
        rf"(?:but\s+not|except(?:\s+for)?|excluding|not|that\s+{_AUXILIARY}n['\u2019]t)\s+(?P<negated>(?:[a-z][\w-]*\s){{0,3}}[a-z][\w-]*)",
        # "ways to get around without flying"; names of this form have capitals.
        rf"\s*{_REST}\s+without\s+(?P<negated>[a-z]{{2,}}ing(?:\s[^,;.!?]+?)?)",
        rf"(?-i:(?!.*[A-Z]))(?!(?:an?|can|how|if|the|wh\w+)\b|.*\b(?:and|or)\s+with|\S+\swithout\s(?:an?|the)\b|.*\bborders\b)\s*{_REST}\s+"
        rf"(?:without|with\s+no)\s+{_NEGATED}",
        r"(?!.*\bhow\b)\s*(?P<positive>[^\W_][^,;.!?]*?\b(?:to|that|which|who|(?:i|you|we)\s+can)\s+"
        rf"[a-z][^,;.!?]*?)\s+without\s+{_NEGATED}",
        # "books I have not read yet".
        rf"(?!how\b|if\b|wh\w+\b)\s*{_REST},?\s+(?:(?:that|which)\s+)?(?:i|we)\s*"
        r"(?:(?:\s(?:have|had|did)|['\u2019]ve)(?:\s+not|n['\u2019]?t)|(?:(?:\s(?:have|had)|['\u2019]ve)\s+|\s)never)\s+"
        r"(?!been\b|had\b|got\b)(?P<negated>[^\W\d_]+)(?:\s+(?:yet|before))?",
        # "not a van but an estate"
        r"(?-i:(?!.*[A-Z]))\s*not\s+(?!(?:all|always|bad|dead|just|last|merely|never|now|often|one|only|perfect|"
        rf"quite|so|sure|with|yet)\b){_NEGATED},?\s+but\s+(?:rather\s+)?(?!(?:no|not|without)\b){_REST}",
        # "Everything but the Girl" is a name.
        rf"\s*+(?:[^,;.!?]*\b(?:find|give|have|like|list|need|see|show|want)\s+(?:me\s+)?)?"
        rf"(?P<positive>{EVERYTHING})\s+(?:but(?!\s+the\s+(?-i:[A-Z]))|(?:except|apart\s+from|other\s+than)"
        rf"(?:\s+for)?)\s+{_NEGATED}",
    )
)


def read_negated_form(text: str, *, is_parsed: bool = False) -> ParsedQuery | None:
    """Read a query of a known form; ``None`` for any other, and where a parse may be better.

    >>> text = "jobs in Leeds with no experience needed"
    >>> read_negated_form(text).tree(text)
    And(parts=(Atom(text='jobs in Leeds'), Not(part=Atom(text='experience'))))
    >>> read_negated_form("hands-free kit")
    """
    for form in _FORMS[-2:] if is_parsed else _FORMS:
        if (match := form.match(text)) and not (is_parsed and find_cues(match["negated"])):
            names = sorted(("positive", "negated"), key=match.start)
            operands = tuple((match.span(name),) for name in names)
            is_negated = tuple(name == "negated" for name in names)
            return ParsedQuery(operands, is_negated, (Gap(Operator.AND),))
    return None

"""Alignment of a paraphrase with its operands, which are known in other words.

QUEST's queries were built from category names and then rewritten by people: words were moved,
inflected, left out, or shared by several operands. Words are matched by stem, ending and a table
of equivalents. A word that only one operand has must be found, or the query is skipped. No model
is used.
"""

from __future__ import annotations

import re
from itertools import pairwise
from typing import TYPE_CHECKING

from boolattn.logic.lexicon import find_cues
from boolattn.logic.operators import Operator
from boolattn.logic.parsed_query import LabelledQuery, label_template
from experiments.parser_queries.aligned_text import AlignedText, Name, Unit, similarity, word_set

if TYPE_CHECKING:
    from collections.abc import Sequence

    from boolattn.data import records
    from boolattn.logic.parsed_query import Spans

_MARK = re.compile(r"<mark>(.*?)</mark>", re.DOTALL)
#: Prepositions that may replace each other in a paraphrase.
_INTERCHANGEABLE = frozenset(("of", "in", "from", "by"))
#: Most unaligned words of a paraphrase, function words and cues aside.
_MAX_UNALIGNED = 2
#: Least similarity of two forms of one word.
_SAME_WORD = 0.7
#: Most words between two words of an operand that join it: "that can be found in".
_MAX_BETWEEN = 5


def align(query: records.Query, original: str = "") -> LabelledQuery | None:
    """Label the operands of a query whose wording differs from theirs.

    Args:
        query: With a template; its operands are taken from the original, if one is given.
        original: QUEST's query before it was rewritten, its operands inside ``<mark>``.

    Returns:
        ``None`` when the alignment is uncertain.

    >>> from boolattn.data.records import Query
    >>> query = Query(id="1", text="Fish of Bolivia but not of Brazil", gold=frozenset(),
    ...               template="_ that are not _")
    >>> found = align(query, "<mark>Fish of Bolivia</mark> that are not "
    ...               "<mark>Fish of Brazil</mark>")
    >>> print(found.parsed.tree(found.text))
    And(parts=(Atom(text='Fish of Bolivia'), Not(part=Atom(text='Fish of Brazil'))))
    """
    names = [" ".join(name.split()) for name in _MARK.findall(original)]
    names = names or [operand.text for operand in query.operands]
    if not names or query.template.count("_") != len(names):
        return None
    spans = align_operands(query.text, names)
    labelled = label_template(query.text, query.template, spans) if spans else None
    return labelled if labelled and _has_consistent_negation(labelled) else None


def _has_consistent_negation(query: LabelledQuery) -> bool:
    """Say whether the operands that follow a NOT cue are exactly the negated ones.

    Some paraphrases lost their negation or negate another operand.
    """
    operands = query.parsed.operands
    owned = [{at for start, end in spans for at in range(start, end)} for spans in operands]
    own = [
        places - set().union(*(other for other in owned if other is not places)) for places in owned
    ]
    negated = set()
    for cue in find_cues(query.text):
        if cue.operator is Operator.NOT and not any(cue.start in places for places in owned):
            after = [min((at for at in places if at > cue.start), default=None) for places in own]
            firsts = [(at, index) for index, at in enumerate(after) if at is not None]
            negated.add(min(firsts)[1] if firsts else -1)
    return negated == {at for at, own in enumerate(query.parsed.is_negated) if own}


def align_operands(text: str, names: Sequence[str]) -> list[Spans] | None:
    """Find the spans of each operand in a text; ``None`` when the alignment is uncertain."""
    operands = [Name(name) for name in names]
    aligned = AlignedText(text, operands)
    if len(names) == 1:
        return aligned.all_words()
    owners = _assigned(aligned, operands)
    if owners is None or not _is_clear(aligned, owners):
        return None
    _add_function_words(aligned, operands, owners)
    return [aligned.spans(tokens) for tokens in owners]


def _assigned(aligned: AlignedText, operands: Sequence[Name]) -> list[set[int]] | None:
    """Assign tokens to every operand: first words of its own, then shared ones."""
    owners: list[set[int]] = []
    taken: set[int] = set()
    for index, operand in enumerate(operands):
        rest = [form for at, other in enumerate(operands) if at != index for form in other.forms]
        own = [form for form in operand.forms if not any(similarity(form, o) for o in rest)]
        places = _own_places(aligned, own, taken)
        if places is None:
            return None
        taken |= places
        owners.append(places)
    for operand, places in zip(operands, owners, strict=True):
        if not places:
            places |= _best_clause(aligned, operand, taken)
    if not all(_add_shared(aligned, *pair, taken) for pair in zip(operands, owners, strict=True)):
        return None
    return owners


def _add_shared(aligned: AlignedText, operand: Name, places: set[int], taken: set[int]) -> bool:
    """Add the words that an operand shares; false where one is missing."""
    for form in operand.forms:
        if _has_all(aligned, places, form, operand.forms):
            continue
        is_first = not _count_similar(aligned, places, form)
        unit = _nearest(aligned, form, places, taken | places)
        if unit is not None and not is_first and not _is_near(aligned, unit, places):
            continue
        if unit is None and is_first and form in word_set("heads"):
            unit = _other_head(aligned, places)
        if unit is not None:
            places |= set(range(unit.start, unit.end))
        elif is_first and not (_is_optional(form) and places):
            return False
    return True


def _is_optional(form: str) -> bool:
    return form in word_set("optional") or form in word_set("heads")


def _own_places(aligned: AlignedText, own: Sequence[str], others: set[int]) -> set[int] | None:
    """Find the words that only one operand has; only a head may be missing."""
    places: set[int] = set()
    for form in own:
        unit = _nearest(aligned, form, places, others)
        if unit is not None:
            places |= set(range(unit.start, unit.end))
        elif not _is_optional(form):
            return None
    return places


def _other_head(aligned: AlignedText, places: set[int]) -> Unit | None:
    """Find the head of an operand that elides it: "orchids of China that are also in Peru"."""
    clauses = {aligned.clause[place] for place in places}
    best = None
    for unit in aligned.units:
        # An elliptic operand follows the head, or is in its clause.
        is_before = bool(places) and unit.start < max(places)
        if unit.form in word_set("heads") and (is_before or aligned.clause[unit.start] in clauses):
            best = unit
    return best


def _best_clause(aligned: AlignedText, operand: Name, taken: set[int]) -> set[int]:
    """Assign an operand without own words to the clause that has most of its words."""
    best: set[int] = set()
    excluded = {aligned.clause[place] for place in taken}
    for clause in sorted(set(aligned.clause) - excluded):
        found = {
            place
            for unit in aligned.units
            if aligned.clause[unit.start] == clause
            and not aligned.is_cue[unit.start]
            and any(similarity(form, unit.form) for form in operand.forms)
            for place in range(unit.start, unit.end)
        }
        if len(found) > len(best):
            best = found
    return best


def _count_similar(aligned: AlignedText, places: set[int], form: str) -> int:
    """Count the assigned tokens that are similar to a word."""
    return sum(unit.start in places and bool(similarity(form, unit.form)) for unit in aligned.units)


def _has_all(aligned: AlignedText, places: set[int], form: str, forms: Sequence[str]) -> bool:
    """Say whether a word was found as often as the operand has it ("Vietnam War ... of war")."""
    return _count_similar(aligned, places, form) >= sum(
        bool(similarity(form, other)) for other in forms
    )


def _is_near(aligned: AlignedText, unit: Unit, places: set[int]) -> bool:
    return aligned.clause[unit.start] in {aligned.clause[place] for place in places}


def _nearest(aligned: AlignedText, form: str, near: set[int], excluded: set[int]) -> Unit | None:
    """Return the most similar unit, preferring the clause of the words already assigned."""
    best: tuple[bool, bool, float, int] | None = None
    found = None
    follows_link = aligned.follows_link(near)
    clauses = {aligned.clause[place] for place in near}
    for unit in aligned.units:
        alike = similarity(form, unit.form)
        if not alike or unit.start in excluded or aligned.is_cue[unit.start]:
            continue
        distance = min((abs(unit.start - place) for place in near), default=unit.start)
        # "Laotian frogs and toads of Laos": an inflected word nearby beats an exact one far off.
        is_near = aligned.clause[unit.start] in clauses and alike >= _SAME_WORD
        is_behind = follows_link and unit.start < min(near)
        key = (is_near, is_behind, alike, -distance)
        if best is None or key > best:
            best, found = key, unit
    return found


def _is_clear(aligned: AlignedText, owners: Sequence[set[int]]) -> bool:
    """Say whether every operand has own words and few words of the text are unaligned."""
    for index, places in enumerate(owners):
        others = set().union(*(o for at, o in enumerate(owners) if at != index))
        if not places - others:
            return False
    every = set().union(*owners)
    unaligned = [
        place
        for place in range(len(aligned.tokens))
        if place not in every and not aligned.is_function_word(place)
    ]
    return len(unaligned) <= min(_MAX_UNALIGNED, len(every) // 2)


def _add_function_words(
    aligned: AlignedText, operands: Sequence[Name], owners: Sequence[set[int]]
) -> None:
    """Add prepositions, articles and linking words to the operands they belong to."""
    named = [set(places) for places in owners]
    first = min(min(places) for places in named)
    for place, word in enumerate(aligned.words):
        # "List of birds", "which of the ducks": the request is not part of an operand.
        if (
            not (aligned.is_link(place) or word == "found")
            or aligned.is_cue[place]
            or place < first
        ):
            continue
        after = _next_named(aligned, place, named)
        for index, places in enumerate(named):
            if after in places:
                owners[index].add(place)
    for index, operand in enumerate(operands):
        others = set().union(*(p for at, p in enumerate(named) if at != index)) - named[index]
        owners[index] |= _between(aligned, named[index], others)
        owners[index] |= _neighbours(aligned, operand, named[index])
        _share_preposition(aligned, operand, owners[index], named[index])


def _between(aligned: AlignedText, named: set[int], others: set[int]) -> set[int]:
    """Return the words between two words of an operand: "birds *that occur in* Peru"."""
    found: set[int] = set()
    places = sorted(named)
    for left, right in pairwise(places):
        gap = range(left + 1, right)
        between = aligned.text[aligned.tokens[left][1] : aligned.tokens[right][0]]
        if (
            0 < len(gap) <= _MAX_BETWEEN
            and not re.search(r"[,;:()]", between)
            and not any(aligned.is_cue[place] or place in others for place in gap)
            and any(aligned.words[place] not in word_set("copulas") for place in gap)
        ):
            found.update(gap)
    return found


def _neighbours(aligned: AlignedText, operand: Name, named: set[int]) -> set[int]:
    """Return function words beside an aligned word, as in the name: "Elizabeth *I*"."""
    found: set[int] = set()
    for place in range(len(aligned.words) - 1):
        pair = (aligned.words[place], aligned.words[place + 1])
        if pair in operand.pairs and (place in named or place + 1 in named):
            found |= {
                p for p in (place, place + 1) if not aligned.is_cue[p] and not aligned.is_link(p)
            }
    return found


def _next_named(aligned: AlignedText, place: int, named: Sequence[set[int]]) -> int:
    """Return the next token of an operand, if only function words lie between."""
    for after in range(place + 1, len(aligned.tokens)):
        if any(after in places for places in named):
            return after
        if not aligned.is_filler(after):
            break
    return -1


def _share_preposition(
    aligned: AlignedText, operand: Name, places: set[int], named: set[int]
) -> None:
    """Share a preposition: in "flora of Japan and Finland" both operands have the "of"."""
    own = set(operand.prepositions)
    alike = own | _INTERCHANGEABLE if own & _INTERCHANGEABLE else own
    if sum(aligned.words[place] in alike for place in places) >= len(operand.prepositions):
        return
    for place, word in enumerate(aligned.words):
        before = place - 1
        while before > 0 and before not in named and aligned.is_filler(before):
            before -= 1
        # Its object follows: "Peru's frogs found in Chile" share no preposition with Peru.
        is_free = place not in places and not aligned.is_cue[place] and place < max(named)
        if word in alike and before in named and is_free:
            places.update(range(before + 1, place + 1))
            return

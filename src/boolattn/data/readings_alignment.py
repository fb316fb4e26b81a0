"""Which words of a paraphrase say which operand, where the operands are known in other words.

QUEST's queries were made from category names and then rewritten by people: words moved, were
inflected, left out, or said once for several operands. Words are matched by stem, by a table of
equivalents and by endings; a word that only one operand has must be found, or the query is given
up. No model is asked. May import: boolattn.data, boolattn.logic.
"""

from __future__ import annotations

import re
from itertools import pairwise
from typing import TYPE_CHECKING

from boolattn.data.readings_board import Board, Name, Unit, likeness, word_set
from boolattn.logic.lexicon import find_cues
from boolattn.logic.operators import Operator
from boolattn.logic.parsed_query import LabelledQuery, label_template

if TYPE_CHECKING:
    from collections.abc import Sequence

    from boolattn.data import records
    from boolattn.logic.parsed_query import Spans

_MARK = re.compile(r"<mark>(.*?)</mark>", re.DOTALL)
#: A preposition of a category stands for any of these in a paraphrase.
_ALIKE = frozenset(("of", "in", "from", "by"))
#: Words of a paraphrase that no operand has and that no cue or small word explains.
_MOST_STRAY = 2
#: Likeness of two forms of one word.
_SURE = 0.7
#: Most words between two of one operand that are taken with them: "that can be found in".
_MOST_BETWEEN = 5


def align(query: records.Query, original: str = "") -> LabelledQuery | None:
    """Mark the operands in a query whose wording is not that of its operands.

    Args:
        query: With a template; its operands are read from the original, if one is given.
        original: QUEST's query before it was rewritten, its operands inside ``<mark>``.

    Returns:
        ``None`` when it is unsure.

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
    marked = label_template(query.text, query.template, spans) if spans else None
    return marked if marked and _excludes_what_it_says(marked) else None


def _excludes_what_it_says(marked: LabelledQuery) -> bool:
    """Say whether after every NOT comes an excluded operand, and every one after a NOT.

    Some paraphrases lost their exclusion or turned it round.
    """
    operands = marked.parsed.positive + marked.parsed.negated
    owned = [{at for start, end in spans for at in range(start, end)} for spans in operands]
    own = [
        places - set().union(*(other for other in owned if other is not places)) for places in owned
    ]
    negated = set()
    for cue in find_cues(marked.text):
        if cue.operator is Operator.NOT and not any(cue.start in places for places in owned):
            after = [min((at for at in places if at > cue.start), default=None) for places in own]
            firsts = [(at, index) for index, at in enumerate(after) if at is not None]
            negated.add(min(firsts)[1] if firsts else -1)
    return negated == set(range(len(marked.parsed.positive), len(operands)))


def align_operands(text: str, names: Sequence[str]) -> list[Spans] | None:
    """Find the words of each operand in a text; ``None`` when it is unsure."""
    operands = [Name(name) for name in names]
    board = Board(text, operands)
    if len(names) == 1:
        return board.whole()
    owners = _assigned(board, operands)
    if owners is None or not _is_clear(board, owners):
        return None
    _add_small_words(board, operands, owners)
    return [board.spans(tokens) for tokens in owners]


def _assigned(board: Board, operands: Sequence[Name]) -> list[set[int]] | None:
    """Give every operand its tokens; first the words it alone has, then those it shares."""
    owners: list[set[int]] = []
    taken: set[int] = set()
    for index, operand in enumerate(operands):
        rest = [form for at, other in enumerate(operands) if at != index for form in other.forms]
        own = [form for form in operand.forms if not any(likeness(form, o) for o in rest)]
        places = _own_places(board, own, taken)
        if places is None:
            return None
        taken |= places
        owners.append(places)
    for operand, places in zip(operands, owners, strict=True):
        if not places:
            places |= _likeliest_clause(board, operand, taken)
    if not all(_add_shared(board, *pair, taken) for pair in zip(operands, owners, strict=True)):
        return None
    return owners


def _add_shared(board: Board, operand: Name, places: set[int], taken: set[int]) -> bool:
    """Add the words that an operand shares; false where one is not found."""
    for form in operand.forms:
        if _has_all(board, places, form, operand.forms):
            continue
        is_first = not _held(board, places, form)
        unit = _nearest(board, form, places, taken | places)
        if unit is not None and not is_first and not _is_near(board, unit, places):
            continue
        if unit is None and is_first and form in word_set("heads"):
            unit = _other_head(board, places)
        if unit is not None:
            places |= set(range(unit.start, unit.end))
        elif is_first and not (_may_be_missing(form) and places):
            return False
    return True


def _may_be_missing(form: str) -> bool:
    return form in word_set("loose") or form in word_set("heads")


def _own_places(board: Board, own: Sequence[str], others: set[int]) -> set[int] | None:
    """Find the words that one operand alone has; none may be missing but a head."""
    places: set[int] = set()
    for form in own:
        unit = _nearest(board, form, places, others)
        if unit is not None:
            places |= set(range(unit.start, unit.end))
        elif not _may_be_missing(form):
            return None
    return places


def _other_head(board: Board, places: set[int]) -> Unit | None:
    """Find the head that stands for one left out: "orchids of China that are also in Peru"."""
    clauses = {board.clause[place] for place in places}
    best = None
    for unit in board.units:
        # An operand comes after the head it leans on, or just before it.
        is_before = bool(places) and unit.start < max(places)
        if unit.form in word_set("heads") and (is_before or board.clause[unit.start] in clauses):
            best = unit
    return best


def _likeliest_clause(board: Board, operand: Name, taken: set[int]) -> set[int]:
    """Find an operand without a word of its own in the clause that has most of its words."""
    best: set[int] = set()
    barred = {board.clause[place] for place in taken}
    for clause in sorted(set(board.clause) - barred):
        found = {
            place
            for unit in board.units
            if board.clause[unit.start] == clause
            and not board.is_cue[unit.start]
            and any(likeness(form, unit.form) for form in operand.forms)
            for place in range(unit.start, unit.end)
        }
        if len(found) > len(best):
            best = found
    return best


def _held(board: Board, places: set[int], form: str) -> int:
    """Count the words among some places that are like a word."""
    return sum(unit.start in places and bool(likeness(form, unit.form)) for unit in board.units)


def _has_all(board: Board, places: set[int], form: str, forms: Sequence[str]) -> bool:
    """Say whether a word was found as often as the operand has it ("Vietnam War ... of war")."""
    return _held(board, places, form) >= sum(bool(likeness(form, other)) for other in forms)


def _is_near(board: Board, unit: Unit, places: set[int]) -> bool:
    return board.clause[unit.start] in {board.clause[place] for place in places}


def _nearest(board: Board, form: str, near: set[int], barred: set[int]) -> Unit | None:
    """Return the likeliest word of a text, of equals that in the clause of the words near it."""
    best: tuple[bool, bool, float, int] | None = None
    found = None
    leans_back = board.leans_back(near)
    clauses = {board.clause[place] for place in near}
    for unit in board.units:
        alike = likeness(form, unit.form)
        if not alike or unit.start in barred or board.is_cue[unit.start]:
            continue
        distance = min((abs(unit.start - place) for place in near), default=unit.start)
        # "Laotian frogs and toads of Laos": an inflected word at hand is likelier than a far one.
        is_near = board.clause[unit.start] in clauses and alike >= _SURE
        is_behind = leans_back and unit.start < min(near)
        key = (is_near, is_behind, alike, -distance)
        if best is None or key > best:
            best, found = key, unit
    return found


def _is_clear(board: Board, owners: Sequence[set[int]]) -> bool:
    """Say whether every operand has words of its own and hardly a word of the text is left."""
    for index, places in enumerate(owners):
        others = set().union(*(o for at, o in enumerate(owners) if at != index))
        if not places - others:
            return False
    every = set().union(*owners)
    stray = [
        place
        for place in range(len(board.tokens))
        if place not in every and not board.is_small(place)
    ]
    return len(stray) <= min(_MOST_STRAY, len(every) // 2)


def _add_small_words(board: Board, operands: Sequence[Name], owners: Sequence[set[int]]) -> None:
    """Give prepositions, articles and what ties two words to the operands they belong to."""
    named = [set(places) for places in owners]
    first = min(min(places) for places in named)
    for place, word in enumerate(board.words):
        # "List of birds", "which of the ducks": what asks is no part of what is asked for.
        if not (board.is_tie(place) or word == "found") or board.is_cue[place] or place < first:
            continue
        after = _next_named(board, place, named)
        for index, places in enumerate(named):
            if after in places:
                owners[index].add(place)
    for index, operand in enumerate(operands):
        others = set().union(*(p for at, p in enumerate(named) if at != index)) - named[index]
        owners[index] |= _between(board, named[index], others)
        owners[index] |= _neighbours(board, operand, named[index])
        _borrow_preposition(board, operand, owners[index], named[index])


def _between(board: Board, named: set[int], others: set[int]) -> set[int]:
    """Return what lies between two words of an operand: "birds *that occur in* Peru"."""
    found: set[int] = set()
    places = sorted(named)
    for left, right in pairwise(places):
        gap = range(left + 1, right)
        between = board.text[board.tokens[left][1] : board.tokens[right][0]]
        if (
            0 < len(gap) <= _MOST_BETWEEN
            and not re.search(r"[,;:()]", between)
            and not any(board.is_cue[place] or place in others for place in gap)
            and any(board.words[place] not in word_set("being") for place in gap)
        ):
            found.update(gap)
    return found


def _neighbours(board: Board, operand: Name, named: set[int]) -> set[int]:
    """Return small words that stand beside a named one as in the name: "Elizabeth *I*"."""
    found: set[int] = set()
    for place in range(len(board.words) - 1):
        pair = (board.words[place], board.words[place + 1])
        if pair in operand.pairs and (place in named or place + 1 in named):
            found |= {p for p in (place, place + 1) if not board.is_cue[p] and not board.is_tie(p)}
    return found


def _next_named(board: Board, place: int, named: Sequence[set[int]]) -> int:
    """Return the next token that an operand has, if only small words of one clause lie between."""
    for after in range(place + 1, len(board.tokens)):
        if any(after in places for places in named):
            return after
        if not board.is_filling(after):
            break
    return -1


def _borrow_preposition(board: Board, operand: Name, places: set[int], named: set[int]) -> None:
    """In "flora of Japan and Finland" the second operand borrows the first one's "of"."""
    own = set(operand.prepositions)
    alike = own | _ALIKE if own & _ALIKE else own
    if sum(board.words[place] in alike for place in places) >= len(operand.prepositions):
        return
    for place, word in enumerate(board.words):
        before = place - 1
        while before > 0 and before not in named and board.is_filling(before):
            before -= 1
        # What it ties stands after it: "Peru's frogs found in Chile" lend nothing to Peru.
        is_free = place not in places and not board.is_cue[place] and place < max(named)
        if word in alike and before in named and is_free:
            places.update(range(before + 1, place + 1))
            return

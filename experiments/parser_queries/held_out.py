"""The words of the taxa benchmark's held-out wordings, that no training text may hold."""

from __future__ import annotations

import re

#: Stems of every word by which a wording of the taxa benchmark is held out. They stand nowhere in
#: the tables, not even where they are no cue, so that nothing about them can be learnt.
#: A low line stands for a space.
STEMS = r"""
alternat\w* possib\w* and_?/_?or at_least_one not_only not_just at_once on_top_of plus along_with
together in_addition addition\w* every_one too likewise simultan\w* shar(?:e|es|ed|ing) happen\w*
doubl\w* rather instead oppos\w* yet minus sans apart aside bar barring omit\w* save disregard\w*
prefer\w* to_the_exclusion to_one_side miss(?:es|ed|ing)? unknown stays?_out fail\w* avoid\w* nobody
skip(?:s|ped|ping)? drop(?:s|ped|ping)? discard\w* forg[eo]t\w* spar(?:e|ing) cross\w* would_do
will_do failing_that whether whichever any_one_of fine so_are common overlap\w* cover\w* alike
span(?:s|ning)? yes equal\w* met meets? among favou?r\w* nope lack\w* filter\w* tak(?:e|ing)_away
foreign\w* thanks throw\w* stranger\w* enough hail\w* reported at_home call_\w+_home collected_in
one_can_see thriv\w* track(?:ed|ing)?_down dig curious counts?_as love_to come_across might_i
name_me i'm_after got_any every_sort never range extend\w* nothing but_also
"""
BANNED = re.compile(
    r"(?<![\w-])(?:" + "|".join(STEMS.split()).replace("_", " ") + r")(?![\w-])|/|\.\.\.",
    re.IGNORECASE,
)

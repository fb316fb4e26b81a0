"""Filters on the points of a store, in SQL."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from boolattn.stores.filters import RANGES, SIGNS, tag_condition
from boolattn.stores.points.database import number_key
from boolattn.stores.postgres.database import escaped

if TYPE_CHECKING:
    from boolattn.stores.filters import Condition, Filter

#: A NUL in JSON, which the functions of Postgres do not take, and what stands for it.
_NUL = r"(?<!\\)((?:\\\\)*)\\u0000", r"\1\\ufffd"


class Values(dict[str, Any]):
    """Values of a statement by name."""

    def add(self, value: object) -> str:
        """Add a value; return what stands for it."""
        name = f"value{len(self)}"
        self[name] = value
        return f"%({name})s"


def filter_test(where: Filter) -> tuple[str, Values]:
    """Write a filter on points, which are called d; return it with its values."""
    values = Values()
    tests = [_test(condition, values) for condition in where.conditions]
    if where.alternatives:
        either = [[_test(c, values) for c in conditions] for conditions in where.alternatives]
        tests.append(f"({' OR '.join(' AND '.join(both) for both in either)})")
    if where.without:
        tests.append(f"d.document <> ALL({values.add([*where.without])}::bigint[])")
    for terms in filter(None, where.lacking):
        # A join, for which the index of terms is used; a negated test would read every list.
        asserting = f"x.asserted @> {values.add([*terms])}::text[]"
        selected = f"SELECT 1 FROM {{points}} x WHERE x.key = d.document AND {asserting}"  # nosec B608
        tests.append(f"NOT EXISTS ({selected})")
    return " AND ".join(tests) or "true", values


def _test(condition: Condition, values: Values) -> str:
    kind = condition.kind
    if kind in RANGES:
        number = values.add(number_key(condition.number))
        limit = values.add(float(condition.values[0]))
        test = f"(d.numbers ->> {number}::text)::float8 {SIGNS[kind]} {limit}::float8"
    elif kind == "contains":
        body = f"regexp_replace(h.body::text, {values.add(_NUL[0])}, {values.add(_NUL[1])}, 'g')"
        path = values.add(["document", "metadata", condition.name.replace("\0", "\ufffd")])
        field = f"({body}::json #> {path}::text[])"
        pattern = values.add(f"%{escaped(str(condition.values[0]))}%".replace("\0", "\ufffd"))
        test = (
            f"EXISTS (SELECT 1 FROM {{points}} h, json_array_elements(CASE json_typeof{field} "  # nosec B608
            f"WHEN 'array' THEN {field} ELSE json_build_array{field} END) AS v (item) WHERE "
            "h.key = d.document AND json_typeof(item) = 'string' AND "
            f"item #>> '{{}}' ILIKE {pattern})"
        )
    else:
        tags, is_wanted = tag_condition(condition)
        test = f"d.tags && {values.add([*tags])}::text[]"
        return test if is_wanted else f"NOT ({test})"
    return f"({test}) IS NOT TRUE" if condition.is_negated else f"({test})"

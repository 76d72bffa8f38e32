"""Names of attributes. They are columns in every table, so the columns of Spillway and of levers are reserved names.

>>> from spillway.contracts.fields import Report
>>> report = Report("weather.yaml")
>>> ColumnName().read("adj_close", "attributes[0].name", report)
'adj_close'
>>> _ = ColumnName().read("Scheme", "attributes[0].name", report)
>>> print(report.problems[0].rule)
not be a name that the lever attributes reserves for its column
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from spillway.contracts.fields import Report, Text
from spillway.registry import LEVERS, columns_of

OWN = ("seq", "batch", "batch_date", "file", "line", "stage", "frame")
"""Columns of Spillway's own in the tables that also hold the attributes."""

TO_COME = ("sic",)
"""Columns that future levers will add to rows. They are reserved, so that existing contracts stay valid."""

BOUND_SUFFIX = "__bound_pct"
"""Suffix of the column that holds the bound of a recovered value in per cent."""

OWN_BOUND_SUFFIX = "__bound"
"""Suffix of the column that holds the bound in the attribute's own unit, if the contract states `error`."""

_NAME = Text(
    pattern=rf"^(?!.*{OWN_BOUND_SUFFIX}(?:_pct)?\Z)[A-Za-z][A-Za-z0-9_]{{0,126}}\Z",
    means="a name of letters, digits and _ that starts with a letter",
    remedy="write e.g. adj_close, and the name in the source as field: Adj Close",
)


def reserved_names() -> Mapping[str, str]:
    """Return the reserved names, each with the words that say what reserves it."""
    return _reserved_names(tuple(LEVERS.items()))


@cache
def _reserved_names(levers: tuple[tuple[str, str], ...]) -> Mapping[str, str]:
    kept = dict.fromkeys(OWN, "that Spillway reserves for its own columns")
    kept |= dict.fromkeys(TO_COME, "that Spillway reserves for future levers")
    for lever, _ in levers:
        kept |= {name: f"that the lever {lever} reserves for its column" for name, _, _ in columns_of(lever)}
    return kept


def is_attribute(column: str) -> bool:
    """Return whether a column is an attribute, by its name.

    >>> is_attribute("temp"), is_attribute("Batch_Date"), is_attribute("temp__bound_pct")
    (True, False, False)
    """
    return column.lower() not in reserved_names() and not is_bound(column)


def is_bound(column: str) -> bool:
    """Return whether a column holds the bounds of an attribute.

    >>> is_bound("temp__bound_pct"), is_bound("temp__bound"), is_bound("temp")
    (True, True, False)
    """
    return column.lower().endswith((BOUND_SUFFIX, OWN_BOUND_SUFFIX))


def bounded_attribute(column: str) -> str:
    """Return the attribute whose value or bound a column holds.

    >>> bounded_attribute("temp__bound_pct"), bounded_attribute("temp__bound"), bounded_attribute("temp")
    ('temp', 'temp', 'temp')
    """
    return column.removesuffix(BOUND_SUFFIX).removesuffix(OWN_BOUND_SUFFIX)


@dataclass(frozen=True)
class ColumnName:
    """The shape of an attribute's name."""

    def read(self, value: object, path: str, report: Report) -> Any:
        keeper = reserved_names().get(value.lower()) if isinstance(value, str) else None
        if keeper is not None:
            remedy = f"choose another name; one in the source stays as field: {value}"
            return report.add(path, f"not be a name {keeper}", value, remedy)
        return _NAME.read(value, path, report)

    def json_schema(self) -> dict[str, Any]:
        # JSON Schema patterns are case-sensitive; the reader, like Spark, ignores case
        taken = "^(" + "|".join(_any_case(name) for name in reserved_names()) + ")$"
        return {**_NAME.json_schema(), "not": {"pattern": taken}}


def _any_case(word: str) -> str:
    return "".join(f"[{c}{c.upper()}]" if c.isalpha() else c for c in word)

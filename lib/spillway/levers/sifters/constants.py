"""Constants that predicates compare with, as Spark works them out.

    3, 0.1, 10L, 0.1BD       exact (a `Fraction`)
    1e-1, 0.1D               a double (a `float`); what is computed with one, and a list with one in it, are doubles

A cast that leaves its value as it is, is that value. One that rounds (`cast(2.7 as int)`, `0.1F`) is no constant of
the text as it stands, nor is a date with a time of day, which Spark cuts off: None, and whoever asked refuses it.

>>> cast_to(exp.DataType.build("double"), number_of("0.1")), cast_to(exp.DataType.build("int"), number_of("2.7"))
(0.1, None)
>>> computed("*", number_of("0.1"), number_of("3e0"))
0.30000000000000004
"""

from __future__ import annotations

import math
import operator
from datetime import date, datetime
from fractions import Fraction
from typing import Any

from sqlglot import exp

_COMPUTED = {"+": operator.add, "-": operator.sub, "*": operator.mul}
_WHOLE = ("tinyint", "smallint", "int", "bigint")
_TIMES = ("timestamp", "timestamptz", "timestampltz")
_NOT_FINITE = ("nan", "infinity", "inf", "-infinity", "-inf")
MOST_DIGITS = 38
"""A decimal of Spark holds no more; with an exponent it is a double, and may be larger."""


def number_of(text: str) -> Fraction | float | None:
    """A number as written; None where Spark has no such number.

    >>> number_of("2.50"), number_of("25e-1"), number_of("1e400")
    (Fraction(5, 2), 2.5, None)
    """
    try:
        if "e" in text.lower():
            return float(text) if math.isfinite(float(text)) else None
        return Fraction(text) if sum(one.isdigit() for one in text) <= MOST_DIGITS else None
    except ValueError:
        return None


def negative(value: Any) -> Fraction | float | None:
    """The number with the other sign; None of what is no number."""
    return -value if isinstance(value, Fraction | float) else None


def computed(sign: str, one: Any, other: Any) -> Fraction | float | None:
    """What two numbers come to: exactly, or as doubles where either is one; None of what is no number."""
    if isinstance(one, Fraction) and isinstance(other, Fraction):
        found: Fraction | float = _COMPUTED[sign](one, other)
        return found
    if isinstance(one, Fraction | float) and isinstance(other, Fraction | float):
        found = _COMPUTED[sign](float(one), float(other))
        return found
    return None


def cast_to(type_: exp.DataType, value: Any) -> Any:
    """The value of a cast that changes nothing but the type; None of any other."""
    kind = type_.this.name.lower()
    if isinstance(value, str):
        return _of_text(kind, value)
    if isinstance(value, Fraction):
        if kind == "double":
            return float(value)
        if kind in _WHOLE:
            return value if value.denominator == 1 else None
        if kind == "decimal":
            stated = [one.this.name for one in type_.expressions]
            scale = int(stated[1]) if len(stated) > 1 else 0
            return value if (value * 10**scale).denominator == 1 else None
    return value if isinstance(value, float) and kind == "double" else None


def _of_text(kind: str, text: str) -> Any:
    plain = text.strip()
    if kind in _TIMES:
        return text
    if kind == "double" and plain.lower() in _NOT_FINITE:
        return float(plain)
    if kind in ("decimal", "double"):
        return number_of(plain) if kind == "decimal" else None
    try:
        if kind == "date":
            date.fromisoformat(plain)
            return text
        if kind == "timestampntz":  # an offset would be cut off
            return text if datetime.fromisoformat(plain).tzinfo is None else None
    except ValueError:
        return None
    return None

"""Regions in words: what lies in one, as people would say it."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime, timedelta

from spillway.levers.sifters.filter import SifterFilter
from spillway.levers.sifters.layout import Axis

ASKED_BY_NONE = "asked for by no query"


def region_words(of: SifterFilter, region: int) -> str:
    """What lies in a region.

    >>> from spillway.levers.sifters.dimensions import Dimension
    >>> import numpy as np
    >>> axis = Axis(Dimension("temp", "double"), 0.0, 100.0)
    >>> axis_words(axis, 0.25, 1.0), axis_words(axis, 0.0, 0.5), axis_words(axis, 0.0, 1.0)
    ('temp 25 or more', 'temp below 50', '')
    """
    if region == of.tree.count:
        return ASKED_BY_NONE
    bounds = of.tree.bounds[region]
    said = [axis_words(line, low, high) for line, (low, high) in zip(of.layout.lines, bounds, strict=True)]
    return "; ".join(filter(None, said)) or "everything"


def axis_words(axis: Axis, low: float, high: float) -> str:
    """What lies between two places of a dimension; empty where that is everything."""
    least, most = axis.ends
    name = axis.dimension.name
    if low <= least and high >= most:
        return ""
    if axis.nulls and high <= 0.0:
        return f"no {name}"
    if axis.dimension.is_text or axis.dimension.type == "boolean":
        words = [*axis.dimension.words, "any other"] if axis.dimension.is_text else ["false", "true"]
        inside = [
            word for at, word in enumerate(words) if low <= (at - axis.low) / (axis.high - axis.low) < high
        ]
        if low <= least and axis.nulls:
            inside.insert(0, "none")
        return f"{name} {', '.join(inside) or 'none'}"
    first, last = axis.value_at(low), axis.value_at(high)
    if math.isinf(first) and math.isinf(last):
        return f"{name} any" if axis.nulls else ""
    begin, end = (value_words(axis.dimension.type, value) for value in (first, last))
    if math.isinf(last):
        return f"{name} {begin} or more"
    return f"{name} below {end}" if math.isinf(first) else f"{name} {begin} to {end}"


def value_words(kind: str, value: float) -> str:
    """A value of a dimension.

    >>> value_words("date", 18_262.0), value_words("double", 0.123456)
    ('2020-01-01', '0.1235')
    """
    if math.isinf(value):
        return "any"
    if kind == "timestamp":
        return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=round(value))).strftime(
            "%Y-%m-%d %H:%M"
        )
    if kind == "date":
        return str(date(1970, 1, 1) + timedelta(days=math.ceil(value)))
    if kind == "integer":
        return f"{math.ceil(value):,}"
    return f"{value:.4g}"

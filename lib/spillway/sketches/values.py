"""Convert values for sketches: from SQL or the command line, to ordered numbers and back, and to JSON."""

from __future__ import annotations

import datetime
import math
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from spillway.errors import InvalidValue

_WRITE = {
    "integer": "write e.g. 4711",
    "double": "write e.g. 21.5",
    "date": "write e.g. 2013-02-01",
    "timestamp": "write e.g. 2013-02-01T06:00, on the clocks of the contract's timezone, or with an offset",
    "boolean": "write true or false",
}
_CAST = {
    "timestamp": "CAST it to TIMESTAMP, by the clocks that you mean",
    "date": "CAST it to DATE, by the clocks that you mean",
    "boolean": "write true or false",
    "integer": "give a number",
    "double": "give a number",
    "": "give a value of the attribute's own type",
}
_LEAST, _MOST, _EXACT = -(1 << 63), (1 << 63) - 1, 1 << 53
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


def coerce(value: object, kind: str) -> object:
    """Convert a value from SQL or the command line to the attribute's type; return it unchanged if it does not fit.

    >>> coerce("7", "integer"), coerce("seven", "integer"), coerce(7, "double")
    (7, 'seven', 7.0)
    """
    if value is None or isinstance(value, str) == (kind == "string"):
        number = isinstance(value, int | Decimal) and not isinstance(value, bool)
        if kind == "double" and number:
            try:
                return float(value)  # type: ignore[arg-type]
            except OverflowError:
                return str(value)
        if kind == "integer" and isinstance(value, Decimal) and value.is_finite():
            return int(value) if value == value.to_integral_value() else value
        return value
    if not isinstance(value, str):
        return value
    try:
        return _parse(value, kind)
    except ValueError:
        return value


def _parse(text: str, kind: str) -> object:
    if kind == "integer":
        return int(text)
    if kind == "double":
        return float(text)
    if kind == "date":
        return datetime.date.fromisoformat(text)
    if kind == "timestamp":
        return datetime.datetime.fromisoformat(text)
    return {"true": True, "false": False}.get(text.lower(), text)


def read_value(
    text: str, kind: str, moment: Callable[[datetime.datetime], datetime.datetime | None]
) -> object:
    """Parse a value that a user typed. `moment` converts a time without offset; it returns None if there is none.

    >>> read_value("2013-01-01", "date", lambda local: local), read_value("null", "string", lambda local: local)
    (datetime.date(2013, 1, 1), None)
    >>> read_value("'null'", "string", lambda local: local)
    'null'
    """
    if text == "null":
        return None
    if kind == "string":
        return "null" if text == "'null'" else text
    wanted = f"be of type {kind}, or null"
    try:
        found = _parse(text, kind)
    except ValueError:
        found = text
    if isinstance(found, datetime.datetime):
        found = moment(found) or text
        wanted += ", at a time that clocks show"
    if isinstance(found, str):
        raise InvalidValue("value", wanted, text, _WRITE[kind])
    return found


def whole_number(name: str, value: object, least: int, remedy: str = "") -> int:
    """Return a count as an integer; raise `InvalidValue` if it is not a whole number of at least `least`.

    >>> whole_number("count", 3, 1), whole_number("count", Decimal(3), 1)
    (3, 3)
    >>> whole_number("count", 2.5, 1)
    Traceback (most recent call last):
        ...
    spillway.errors.InvalidValue: `count` must be a whole number of at least 1, got 2.5; write e.g. 10
    """
    number = isinstance(value, int | float | Decimal | np.integer) and not isinstance(value, bool)
    if not number or value % 1 != 0 or value < least:  # type: ignore[operator]
        raise InvalidValue(name, f"be a whole number of at least {least}", value, remedy or "write e.g. 10")
    return int(value)  # type: ignore[call-overload]


def as_value(number: float, kind: str) -> object:
    """Return the value that a number of a quantile sketch represents; the inverse of `ordinal`.

    >>> as_value(2.0, "date"), as_value(2.5, "double"), as_value(7.0, "integer")
    (datetime.date(1970, 1, 3), 2.5, 7)
    """
    try:
        if kind == "date":
            return _EPOCH.date() + datetime.timedelta(days=round(number))
        if kind == "timestamp":
            return _EPOCH + datetime.timedelta(microseconds=round(number))
    except OverflowError:
        return number  # Python's calendar does not reach it
    if kind == "boolean":
        return number >= 0.5
    return int(number) if kind == "integer" else number


def ordinal(value: object, kind: str = "", upward: bool = False) -> int | float:
    """Return a value as a number of a quantile sketch: dates in days, timestamps in microseconds, both since 1970.

    A value of another type than `kind` is refused; "" accepts every type that has an order. A value between two
    representable numbers is rounded up (`upward`) or down.

    >>> ordinal(datetime.date(1970, 1, 3)), ordinal(0.5), ordinal(0.5, "integer", upward=True), ordinal("7", "integer")
    (2, 0.5, 1, 7)
    >>> ordinal(datetime.date(1970, 1, 3), "timestamp")  # doctest: +NORMALIZE_WHITESPACE
    Traceback (most recent call last):
        ...
    spillway.errors.InvalidValue: `value` must be of type timestamp, got datetime.date(1970, 1, 3); CAST it to
    TIMESTAMP, \
by the clocks that you mean
    """
    found = _parsed_or_same(value, kind) if isinstance(value, str) and kind else value
    if isinstance(found, datetime.datetime) and kind in ("", "timestamp"):
        moment = found if found.tzinfo else found.replace(tzinfo=datetime.UTC)
        return (moment - _EPOCH) // datetime.timedelta(microseconds=1)
    if isinstance(found, datetime.date) and not isinstance(found, datetime.datetime) and kind in ("", "date"):
        return (found - _EPOCH.date()).days
    if isinstance(found, bool) and kind in ("", "boolean"):
        return int(found)
    number = isinstance(found, int | float | Decimal) and not isinstance(found, bool)
    if not number or kind not in ("", "integer", "double"):
        raise InvalidValue(
            "value", f"be of type {kind or 'number, date or timestamp'}", value, _CAST.get(kind, _CAST[""])
        )
    return _whole(found, upward) if kind == "integer" else _fraction(found, upward)  # type: ignore[arg-type]


def _parsed_or_same(text: str, kind: str) -> object:
    try:
        return _parse(text, kind)
    except ValueError:
        return text


def _whole(number: float | Decimal, upward: bool) -> int | float:
    """Round to the nearest 64-bit integer above or below; NaN is unchanged."""
    if number != number or abs(number) == math.inf:
        return float(number) if number != number else (_MOST if number > 0 else _LEAST)
    return max(_LEAST, min(_MOST, math.ceil(number) if upward else math.floor(number)))


def _fraction(number: float | Decimal, upward: bool) -> int | float:
    """Return the number if a double or a small integer holds it exactly, else the nearest double above or below."""
    if isinstance(number, int):
        return number if -_EXACT <= number <= _EXACT else round_to_double(number, upward)
    return number if isinstance(number, float) else round_to_double(number, upward)


def round_to_double(number: float | Decimal, upward: bool) -> float:
    """Return the nearest double that is not less (`upward`), or not greater, than the number.

    >>> round_to_double(2**53 + 1, True) - 2**53, round_to_double(2**53 + 1, False) - 2**53
    (2.0, 0.0)
    """
    try:
        near = float(number)
    except OverflowError:
        near = math.inf if number > 0 else -math.inf
    if near == number or near != near:
        return near
    if upward:
        return near if near > number else math.nextafter(near, math.inf)
    return near if near < number else math.nextafter(near, -math.inf)


def order_values(column: pa.ChunkedArray, kind: str) -> npt.NDArray[Any]:
    """Return a column as numbers in the same order: doubles unchanged, other types as integers, without nulls.

    >>> order_values(pa.chunked_array([pa.array([datetime.date(1970, 1, 3), None])]), "date").tolist()
    [2]
    """
    column = column.drop_null()
    if kind in ("boolean", "date"):
        column = column.cast(pa.int32())
    elif kind == "timestamp" and pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("us", column.type.tz), safe=False)
    return np.asarray(column.cast(pa.float64() if kind == "double" else pa.int64(), safe=False))


def json_values(column: pa.ChunkedArray, kind: str) -> list[object]:
    """Return a column as JSON values: dates and timestamps (in milliseconds) as text, NaN and infinities by name.

    >>> json_values(pa.chunked_array([pa.array([-0.0, float("nan"), float("-inf"), None])]), "double")
    [0.0, 'NaN', '-Infinity', None]
    >>> moment = datetime.datetime(2013, 1, 1, 0, 0, 0, 1999, tzinfo=datetime.UTC)
    >>> json_values(pa.chunked_array([pa.array([moment], pa.timestamp("us", "UTC"))]), "timestamp")
    ['2013-01-01T00:00:00.001Z']
    """
    if pa.types.is_null(column.type):
        return [None] * len(column)
    if kind == "double":
        return [_json_number(value) for value in column.cast(pa.float64()).to_pylist()]
    if kind in ("date", "timestamp"):
        whole = column.cast(pa.int32() if kind == "date" else pa.timestamp("us", "UTC")).cast(pa.int64())
        counts = np.asarray(pc.fill_null(whole, 0))
        moments: Any = counts.astype("datetime64[D]" if kind == "date" else "datetime64[us]")
        texts = np.datetime_as_string(moments, unit="D" if kind == "date" else "ms", casting="unsafe")
        end = "" if kind == "date" else "Z"
        valid = column.is_valid().to_pylist()
        return [f"{text}{end}" if there else None for text, there in zip(texts, valid, strict=True)]
    found: list[object] = column.to_pylist()
    return found


def _json_number(value: float | None) -> object:
    if value is None:
        return None
    if value != value:
        return "NaN"
    if value in (float("inf"), float("-inf")):
        return "Infinity" if value > 0 else "-Infinity"
    return value + 0.0

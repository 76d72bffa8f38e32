"""Define dimensions, the attributes that queries compare, and the keys of their values (module `boxes`).

Numbers, times, days and booleans have keys in their own order. A text is a category: only the texts that queries name
(`Dimension.words`) have a key of their own, and all other texts share one key (`other_key`). If the contract lists a
dimension's values, their order is the order of comparisons (`severity >= 'ERROR'`), and a text that is not listed is
outside this order.

>>> severity = Dimension("severity", "string", ("INFO", "WARN", "ERROR"), ordered=True)
>>> severity.keys_of(pa.chunked_array([["WARN", None, "odd"]])).tolist() == [1, NULL, 3]
True
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from fractions import Fraction
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spillway.errors import InvalidValue
from spillway.levers.sifters.boxes import END, NULL, Spans, float_key, float_keys, whole_edge, whole_keys

_EPOCH_DAY = date(1970, 1, 1)
_WHOLE = ("integer", "timestamp", "date")


@dataclass(frozen=True)
class Dimension:
    """An attribute that predicates compare."""

    name: str
    type: str
    words: tuple[str, ...] = ()
    """The texts that have a key of their own: a text is a whole value, not a part of one."""
    ordered: bool = False
    """Whether the contract lists the values in order."""
    low: float | None = None
    high: float | None = None
    """`low` and `high` are the domain, if the contract states it."""
    timezone: str = "UTC"

    @property
    def is_text(self) -> bool:
        return self.type == "string"

    @property
    def other_key(self) -> int:
        """Return the key that all texts outside `words` share."""
        return len(self.words)

    def with_words(self, words: Sequence[str]) -> Dimension:
        """Return the dimension with more `words`, sorted; if the contract lists the values, return it unchanged."""
        if self.ordered or not self.is_text:
            return self
        return replace(self, words=tuple(sorted(set(self.words) | set(words))))

    def keys_of(self, column: pa.ChunkedArray) -> np.ndarray:
        """Return the keys of a column's values."""
        column = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
        if isinstance(column, pa.ChunkedArray):  # it has no chunks
            column = pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)
        absent = np.asarray(column.is_null()) if column.null_count else None
        if pa.types.is_null(column.type):
            return np.full(len(column), NULL, np.int64)
        if self.is_text:
            places = pc.index_in(column.cast(pa.string()), value_set=pa.array(self.words, pa.string()))
            keys = np.asarray(places.fill_null(self.other_key), np.int64)
        elif self.type == "double":
            keys = float_keys(np.asarray(column.cast(pa.float64()).fill_null(0.0)))
        elif self.type == "boolean":
            keys = np.asarray(column.cast(pa.int8()).fill_null(0), np.int64)
        else:
            keys = whole_keys(np.asarray(_as_whole(column, self.type).fill_null(0)))
        if absent is not None:
            keys = np.where(absent, NULL, keys)
        return keys

    def matching_spans(self, operator: str, literal: Any) -> Spans:
        """Return the spans of the values for which `value <operator> literal` is true."""
        if self.is_text:
            return self._compared_words(operator, literal)
        first, behind = self._edges(literal)
        found = {
            "<": ((NULL + 1, first),),
            "<=": ((NULL + 1, behind),),
            ">": ((behind, END),),
            ">=": ((first, END),),
            "=": ((first, behind),),
            "!=": ((NULL + 1, first), (behind, END)),
        }[operator]
        return tuple(span for span in found if span[0] < span[1])

    def _compared_words(self, operator: str, literal: Any) -> Spans:
        if not isinstance(literal, str):
            raise InvalidValue(self.name, "be compared with a text", literal, "write it in quotes")
        if operator in ("=", "!="):
            if literal not in self.words:
                here: Spans = ()
                if self.ordered:
                    raise InvalidValue(
                        self.name,
                        f"be one of {', '.join(self.words)}",
                        literal,
                        "list it under values of the dimension",
                    )
            else:
                place = self.words.index(literal)
                here = ((place, place + 1),)
            if operator == "=":
                return here
            (low, high) = here[0] if here else (0, 0)
            return tuple(span for span in ((0, low), (high, self.other_key + 1)) if span[0] < span[1])
        if not self.ordered:
            raise InvalidValue(
                self.name,
                "have an order to be compared by",
                f"{self.name} {operator} '{literal}'",
                f"list its values from least to most: dimensions: [{{attribute: {self.name}, values: [...]}}]",
            )
        if literal not in self.words:
            raise InvalidValue(
                self.name,
                f"be one of {', '.join(self.words)}",
                literal,
                "list it among the dimension's values",
            )
        place = self.words.index(literal)
        low, high = {
            "<": (0, place),
            "<=": (0, place + 1),
            ">": (place + 1, len(self.words)),
            ">=": (place, len(self.words)),
        }[operator]
        return ((low, high),) if low < high else ()

    def _edges(self, literal: Any) -> tuple[int, int]:
        """Return the first key that is not below the literal, and the first key above it."""
        if self.type == "boolean":
            if not isinstance(literal, bool):
                raise InvalidValue(
                    self.name, "be compared with true or false", literal, "write true or false"
                )
            return int(literal), int(literal) + 1
        if self.type == "timestamp":
            micros = _micros(self, literal)
            return micros, micros + 1
        if self.type == "date":
            days = _days(self, literal)
            return days, days + 1
        if isinstance(literal, bool) or not isinstance(literal, int | float | Fraction):
            raise InvalidValue(self.name, "be compared with a number", literal, "write a plain number")
        if self.type == "double":
            key = float_key(float(literal))
            return key, key + 1
        if isinstance(literal, float):
            key = float_key(literal)
            return _first_of(key), _first_of(key + 1)
        exact = Fraction(literal)
        first = -((-exact.numerator) // exact.denominator)
        return whole_edge(first), whole_edge(exact.numerator // exact.denominator + 1)


def _first_of(key: int) -> int:
    """Return the key of the first integer whose key as a double is at least `key`: Spark compares both as doubles."""
    low, high = -(2**63), 2**63
    while low < high:
        middle = (low + high) // 2
        if float_key(float(middle)) < key:
            low = middle + 1
        else:
            high = middle
    return whole_edge(low)


def _as_whole(column: pa.Array, kind: str) -> pa.Array:
    if kind == "timestamp":
        return column.cast(pa.timestamp("us", tz=getattr(column.type, "tz", None))).cast(pa.int64())
    if kind == "date":
        return column.cast(pa.date32()).cast(pa.int32()).cast(pa.int64())
    return column.cast(pa.int64())


def _micros(dimension: Dimension, literal: Any) -> int:
    try:
        found = datetime.fromisoformat(str(literal).strip())
    except ValueError:
        raise InvalidValue(
            dimension.name, "be compared with a time", literal, "write it as '2026-01-31 12:00:00'"
        ) from None
    if found.tzinfo is None:
        found = found.replace(tzinfo=ZoneInfo(dimension.timezone))
    since = found.astimezone(UTC) - datetime(1970, 1, 1, tzinfo=UTC)
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds


def _days(dimension: Dimension, literal: Any) -> int:
    try:
        return (date.fromisoformat(str(literal).strip()) - _EPOCH_DAY).days
    except ValueError:
        raise InvalidValue(
            dimension.name, "be compared with a date", literal, "write it as '2026-01-31'"
        ) from None


def whole_type(kind: str) -> bool:
    """Return whether values of this contract type are whole numbers, so that the value after x is x + 1."""
    return kind in _WHOLE

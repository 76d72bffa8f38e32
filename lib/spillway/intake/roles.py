"""Which column of a sample is which: when (the order attribute), who (keys), and what only repeats the time in parts.

A sample holds bad records: up to one value in twenty may be missing from, or at odds with, what the others say.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spillway.errors import safely
from spillway.intake.order_unit import is_moment, is_row_number, recognise_unit

ODD_SHARE = 0.05
_MOSTLY = 1 - ODD_SHARE
_LEAST_TIMES, _MOST_TIMES = 32, 2048
"""Fewer say too little, and more show no more."""
_FILLED = 0.5
"""Share of an integer key's members that a moment has at least, or it is a measure that happens not to repeat."""
_NAMING = frozenset(
    ["id", "ids", "uuid", "guid", "code", "zip", "postcode", "isbn", "sku", "ean", "gtin", "upc", "vin", "mmsi", "imo",
     "imei", "imsi", "iban", "serial"]
)  # fmt: skip
"""Last words of names whose values say which one, not how much: nearly the same number is another one."""
_COARSE = frozenset(["week", "month", "quarter", "year"])
"""Words of a name that tell of a time coarser than a day."""
_MOST_SHOWN = 60
"""Characters of a value that a note repeats."""


@dataclass(frozen=True, eq=False)
class SampleColumn:
    """A column of the sample: its name there and in the contract, its type, its values."""

    field: str
    name: str
    type: str
    values: pa.Array

    @property
    def whole(self) -> bool:
        """There in all records but the odd one."""
        return len(self.values) > 0 and self.values.null_count <= ODD_SHARE * len(self.values)

    @property
    def distinct(self) -> int:
        return int(pc.count_distinct(self.values, mode="only_valid").as_py())

    @property
    def ascending(self) -> bool:
        """Rising or level from record to record, but for the odd one."""
        there = self.values.drop_null()
        falls = int(pc.sum(pc.greater(there[:-1], there[1:])).as_py() or 0)
        return self.whole and falls <= ODD_SHARE * len(there)

    @cached_property
    def unit(self) -> str | None:
        """What a whole number counts, if its name and magnitude show it."""
        return recognise_unit(self.name, self._integers) if self.type == "integer" else None

    @cached_property
    def is_moment(self) -> bool:
        """Whether a whole number is an epoch or a date, and not an elapsed time or a count."""
        return self.type == "integer" and is_moment(self.unit, self._integers)

    @property
    def is_row_number(self) -> bool:
        return self.type == "integer" and is_row_number(self.name, self._integers)

    @property
    def is_coarse(self) -> bool:
        """Whether it names a month, a quarter or a year, of which a stream's rows share one."""
        return self.unit in ("yyyymm", "year") or (
            self.type in ("timestamp", "date") and not _COARSE.isdisjoint(self.name.split("_"))
        )

    @property
    def _integers(self) -> np.ndarray:
        return np.asarray(self.values.cast(pa.int64()).drop_null())

    @property
    def constant(self) -> bool:
        """The same in every record that has it."""
        return self.distinct == 1 and len(self.values) > 1


def order_of(columns: Sequence[SampleColumn]) -> SampleColumn | None:
    """Return the column that says when, or None.

    A time comes before a year or a month, and both before a number of unknown unit. Within a group, a column that rises
    from row to row comes first; of these the one with the most different values, which is the finest. What was read as
    a time comes before a number of the same fineness, whose unit is a guess, and a moment before an elapsed time. A row
    number is never the order: it says nothing of time.

    >>> year = SampleColumn("year", "year", "integer", pa.array([2000, 2000, 2000, 2001]))
    >>> date = SampleColumn("date", "date", "integer", pa.array([20000131, 20000229, 20000331, 20010131]))
    >>> order_of([year, date]).name
    'date'
    """
    times = [c for c in columns if c.type in ("timestamp", "date")]
    counts = [c for c in columns if c.type == "integer" and c.distinct > 1 and not c.is_row_number]
    fine = [c for c in times if not c.is_coarse]
    moments = [c for c in counts if c.unit and c.is_moment and not c.is_coarse]
    elapsed = [c for c in counts if c.unit and not c.is_moment and not c.is_coarse]
    coarse = [c for c in times + counts if c.is_coarse]
    groups = (
        [c for c in fine + moments if c.ascending],
        [c for c in fine if c.whole],
        [c for c in moments if c.whole],
        [c for c in elapsed if c.ascending],
        [c for c in coarse if c.ascending],
        [c for c in times if c.whole],
        times,
        [c for c in counts if c.ascending and not c.name.endswith("month")],
    )
    found = next((group for group in groups if group), [])
    # of two that are equally fine, the first
    return max(found, key=lambda one: one.distinct, default=None)


def finer_than(order: SampleColumn, columns: Sequence[SampleColumn]) -> SampleColumn | None:
    """A fraction that rises more finely than the order attribute, which only times and whole numbers can be."""
    rising = [c for c in columns if c.type == "double" and c.ascending and c.distinct > order.distinct]
    if order.type != "integer":
        return None
    return max(rising, key=lambda one: one.distinct, default=None)


def senders_of(columns: Sequence[SampleColumn], order: SampleColumn) -> tuple[str, ...]:
    """Who: a text that repeats; a whole number of a few values, each once a moment; or both together.

    What says who by its name comes first: where tuples have moments of their own, anything that repeats would do.

    >>> at = SampleColumn("at", "at", "integer", pa.array([i // 3 for i in range(12)]))
    >>> pump = SampleColumn("pump", "pump", "integer", pa.array([1 + i % 3 for i in range(12)]))
    >>> senders_of([at, pump], at)
    ('pump',)
    """
    others = [c for c in columns if c is not order and c.whole and c.distinct > 1]
    repeating = [c for c in others if c.distinct * 2 <= len(c.values)]
    named = [c for c in repeating if c.type in ("string", "integer") and _is_named_so(c)]
    if named and _is_once_a_moment([order, named[0]]):
        return (named[0].name,)
    texts = [c for c in repeating if c.type == "string"][:1]
    numbers = [c for c in repeating if c.type == "integer" and not _follows(c, order)]
    if texts and _is_once_a_moment([order, *texts]):
        return (texts[0].name,)
    alone = next((c for c in numbers if _is_key([order], c, _MOSTLY)), None)
    if alone is not None:
        # all of its values are there at nearly every moment: a text beside it says how, not who
        return (alone.name,)
    found = next((c for c in numbers if _is_key([order, *texts], c)), None)
    return tuple(c.name for c in (*texts, *([found] if found else ())))


def _is_key(moment: Sequence[SampleColumn], number: SampleColumn, share: float = _FILLED) -> bool:
    """Whether each of the number's values comes once a moment, and a moment has such a share of them."""
    moments = len(_places(moment)[1])
    filled = len(number.values) >= share * number.distinct * moments
    return moments * 2 <= len(number.values) and filled and _is_once_a_moment([*moment, number])


def _is_once_a_moment(columns: Sequence[SampleColumn]) -> bool:
    return len(_places(columns)[1]) >= _MOSTLY * len(columns[0].values)


def _places(columns: Sequence[SampleColumn]) -> tuple[pa.Table, list[int]]:
    table = pa.table({f"c{i}": c.values for i, c in enumerate(columns)})
    counted = table.group_by(table.column_names).aggregate([([], "count_all")])
    return counted, counted["count_all"].to_pylist()


_PARTS: dict[str, tuple[Callable[[pa.Array], pa.Array], int | None]] = {
    "year": (pc.year, None),
    "month": (pc.month, 12),
    "day": (pc.day, 31),
    "weekday": (pc.day_of_week, 7),
    "day of the year": (pc.day_of_year, 366),
    "hour": (pc.hour, 24),
    "minute": (pc.minute, 60),
    "second": (pc.second, 60),
}
"""The parts of a time, and how many different values each has."""
_QUARTER_MICROSECONDS = 900_000_000
_QUARTERS_PER_HOUR = 4
_FIRST_LOOK_ROWS = 64
_FIRST_LOOK_SHARE = 0.3
"""A clock that fits has this share of equal differences among a few rows, even if half of them are in summer time."""


@lru_cache(maxsize=1024)
def part_of_time(column: SampleColumn, order: SampleColumn) -> str | None:
    """Return which part of the order attribute's time a whole number is, up to a constant, or None.

    The clock may be any whole number of quarters of an hour from UTC, and may be put forward for summer. The result is
    kept per pair of columns, because a draft asks for it several times.

    >>> at = SampleColumn("at", "at", "timestamp", pa.array([i * 3_600_000_000 for i in range(99)], pa.timestamp("us")))
    >>> hour = SampleColumn("h", "h", "integer", pa.array([(i - 5) % 24 for i in range(99)]))
    >>> part_of_time(hour, at)
    'hour'
    """
    if column.type != "integer" or order.type not in ("timestamp", "date") or column.distinct < 2:
        return None
    return _search_part_of_time(column, order)


def _search_part_of_time(column: SampleColumn, order: SampleColumn) -> str | None:
    both = pc.and_(column.values.is_valid(), order.values.is_valid())
    step = max(1, int(pc.sum(both).as_py() or 0) // _MOST_TIMES)
    numbers = np.asarray(column.values.filter(both))[::step]
    times = np.asarray(order.values.filter(both).cast(pa.timestamp("us")).cast(pa.int64()))[::step]
    if len(numbers) < _LEAST_TIMES:
        return None
    # a number that never falls may be a counter that looks like a day or a minute; a year never does
    falls = bool((numbers[1:] < numbers[:-1]).any())
    hours = 14 if order.type == "timestamp" else 0
    shifts = np.arange(-hours * _QUARTERS_PER_HOUR, hours * _QUARTERS_PER_HOUR + 1) * _QUARTER_MICROSECONDS
    few = slice(None, None, max(1, len(numbers) // _FIRST_LOOK_ROWS))
    odd = ODD_SHARE * len(column.values)
    for name, (part, most_values) in _PARTS.items():
        if (not falls and name != "year") or (
            most_values is not None and column.distinct > most_values + odd
        ):
            continue
        for shift in shifts[_may_fit(_difference(numbers[few], part, times[few] + shifts[:, None]))]:
            apart = _difference(numbers, part, times + shift)
            if (numbers - apart == numbers[0] - apart[0]).all():
                continue  # this part stands still on this clock, so it says nothing
            # in summer the difference is that of the clock one hour ahead
            summer = _difference(numbers, part, times + shift + _QUARTERS_PER_HOUR * _QUARTER_MICROSECONDS)
            usual = _most_frequent(apart)
            if float(((apart == usual) | (summer == usual)).mean()) >= _MOSTLY:
                return name
    return None


def _may_fit(apart: np.ndarray) -> np.ndarray:
    """Return for each row of differences whether one value fills at least the first-look share of it."""
    ordered, run = np.sort(apart, axis=1), max(1, int(_FIRST_LOOK_SHARE * apart.shape[1]))
    return np.asarray((ordered[:, run - 1 :] == ordered[:, : ordered.shape[1] - run + 1]).any(axis=1))


def _difference(numbers: np.ndarray, part: Callable[[pa.Array], pa.Array], micros: np.ndarray) -> np.ndarray:
    found = np.asarray(part(pa.array(micros.ravel(), pa.timestamp("us")))).astype(np.int64)
    return numbers - found.reshape(micros.shape)


def _most_frequent(numbers: np.ndarray) -> int:
    values, counts = np.unique(numbers, return_counts=True)
    return int(values[int(np.argmax(counts))])


def names_something(column: SampleColumn) -> bool:
    """Whether a whole number says which one, by its name.

    >>> [names_something(SampleColumn(n, n, "integer", pa.array([1, 2]))) for n in ("order_id", "zip_code", "paid")]
    [True, True, False]
    """
    return column.type == "integer" and _is_named_so(column)


def _is_named_so(column: SampleColumn) -> bool:
    return column.name.rsplit("_", 1)[-1] in _NAMING


_UNIT_TEXT = {
    **{unit: f"{unit} since 1970" for unit in ("s", "ms", "us", "ns")},
    "yyyymm": "year and month as digits",
    "yyyymmdd": "year, month and day as digits",
}


def _follows(column: SampleColumn, order: SampleColumn) -> bool:
    return part_of_time(column, order) is not None


def notes_of(column: SampleColumn, order: SampleColumn, role: str) -> Iterator[str]:
    """What whoever reads the draft should know of the column."""
    missing = column.values.null_count
    part = part_of_time(column, order) if role == "protected" else None
    if missing == len(column.values):
        yield "null throughout the sample: type guessed"
    elif column.constant:
        # a text may hold line breaks, which would end the comment that this stands in
        yield f"always {safely(str(column.values.drop_null()[0].as_py()), _MOST_SHOWN)} in the sample"
    elif role == "order" and not column.ascending:
        yield "does not rise throughout the sample"
    elif role in ("order", "key") and missing:
        yield f"missing or odd in {missing} of the sample: rejected then"
    if role == "order" and column.unit is not None:
        yield f"the unit is a guess by name and magnitude: {_UNIT_TEXT.get(column.unit, column.unit)}"
    elif role == "order" and column.type == "integer":
        yield "its unit is unknown: state unit: (s, ms, day, ...) if it counts time"
    if role == "order" and column.is_coarse:
        yield "coarse: if the file can hold it, deliver one column with the whole time"
    if role == "protected" and names_something(column):
        yield "says which one, by its name, and so is exact; a quantity: role: measure"
    elif role == "protected" and column.is_row_number:
        yield "numbers the rows, as seq does"
    if part is not None:
        yield f"the {part} of {order.name}; as a measure with codes: true it is shed, and given back exactly from that"

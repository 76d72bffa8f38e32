"""Which column of a sample is which: when (the order attribute), who (keys), and what only repeats the time in parts.

A sample holds bad records: up to one value in twenty may be missing from, or at odds with, what the others say.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spillway.errors import safely

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
_MOST_SHOWN = 60
"""Characters of a value that a note repeats."""


@dataclass(frozen=True)
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

    @property
    def constant(self) -> bool:
        """The same in every record that has it."""
        return self.distinct == 1 and len(self.values) > 1


def order_of(columns: Sequence[SampleColumn]) -> SampleColumn | None:
    """When: a time before a number, one that rises before one that does not, and of these the finest.

    >>> year = SampleColumn("year", "year", "integer", pa.array([2000, 2000, 2000, 2001]))
    >>> date = SampleColumn("date", "date", "integer", pa.array([20000131, 20000229, 20000331, 20010131]))
    >>> order_of([year, date]).name
    'date'
    """
    timed = [c for c in columns if c.type in ("timestamp", "date")]
    counted = [c for c in columns if c.type == "integer" and c.ascending and c.distinct > 1]
    tiers = ([c for c in timed if c.ascending], [c for c in timed if c.whole], timed, counted)
    found = next((tier for tier in tiers if tier), [])
    # of two as fine as one another, the first
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


_PARTS: dict[str, Callable[[pa.Array], pa.Array]] = {
    "year": pc.year,
    "month": pc.month,
    "day": pc.day,
    "weekday": pc.day_of_week,
    "day of the year": pc.day_of_year,
    "hour": pc.hour,
    "minute": pc.minute,
    "second": pc.second,
}
_QUARTER_MICROSECONDS = 900_000_000
_HOUR = 4
"""In quarters."""


def part_of_time(column: SampleColumn, order: SampleColumn) -> str | None:
    """Which part of the order attribute's time a whole number is, up to a constant; None where it is none.

    On one clock, a whole number of quarters of an hour from UTC, or on one that is put forward for summer.

    >>> at = SampleColumn("at", "at", "timestamp", pa.array([i * 3_600_000_000 for i in range(99)], pa.timestamp("us")))
    >>> hour = SampleColumn("h", "h", "integer", pa.array([(i - 5) % 24 for i in range(99)]))
    >>> part_of_time(hour, at)
    'hour'
    """
    if column.type != "integer" or order.type not in ("timestamp", "date") or column.distinct < 2:
        return None
    both = pc.and_(column.values.is_valid(), order.values.is_valid())
    step = max(1, int(pc.sum(both).as_py() or 0) // _MOST_TIMES)
    truth = np.asarray(column.values.filter(both))[::step]
    times = order.values.filter(both).cast(pa.timestamp("us")).cast(pa.int64())
    micros = np.asarray(times)[::step]
    # what has not begun anew may be a counter that looks like a day or a minute; a year never does
    begins_anew = bool((truth[1:] < truth[:-1]).any())
    if len(truth) < _LEAST_TIMES:
        return None
    quarters = range(-14 * _HOUR, 14 * _HOUR + 1) if order.type == "timestamp" else range(1)
    for name, part in _PARTS.items():
        if not begins_anew and name != "year":
            continue
        apart = [_apart(truth, part, micros + quarter * _QUARTER_MICROSECONDS) for quarter in quarters]
        # in summer as far from it as in winter, on a clock that is put forward by an hour
        for here, summer in zip(apart, [*apart[_HOUR:], *apart[-_HOUR:]], strict=False):
            if (
                here is not None
                and float(((here == _usual(here)) | (summer == _usual(here))).mean()) >= _MOSTLY
            ):
                return name
    return None


def names_something(column: SampleColumn) -> bool:
    """Whether a whole number says which one, by its name.

    >>> [names_something(SampleColumn(n, n, "integer", pa.array([1, 2]))) for n in ("order_id", "zip_code", "paid")]
    [True, True, False]
    """
    return column.type == "integer" and _is_named_so(column)


def _is_named_so(column: SampleColumn) -> bool:
    return column.name.rsplit("_", 1)[-1] in _NAMING


def _apart(truth: np.ndarray, part: Callable[[pa.Array], pa.Array], micros: np.ndarray) -> np.ndarray | None:
    """How far the number is from that part of the time; None where that part stands still and says nothing."""
    found = np.asarray(part(pa.array(micros, pa.timestamp("us")))).astype(np.int64)
    return None if (found == found[0]).all() else truth - found


def _usual(apart: np.ndarray) -> int:
    values, counts = np.unique(apart, return_counts=True)
    return int(values[int(np.argmax(counts))])


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
    if role == "protected" and names_something(column):
        yield "says which one, by its name, and so is exact; a quantity: role: measure"
    if part is not None:
        yield f"the {part} of {order.name}; as a measure with codes: true it is shed, and given back exactly from that"

"""Draft a contract from a sample file: names, types, roles and order as the sample shows them.

A draft is a valid contract that states where it guesses. Its owner reads it and decides. It never offers text or
identifiers for shedding, and never makes a column without repeats a key.

Three questions decide the roles: which column is the time (the order attribute), which columns identify the sender
(keys), and which columns only repeat a part of the time. Samples have bad records, too: up to one value in twenty
(`ODD_SHARE`) may be missing or may contradict the others.
"""

from __future__ import annotations

import csv
import io
import json
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet

from spillway.contracts.column_names import reserved_names
from spillway.contracts.fields import Report
from spillway.contracts.loader import read_stream
from spillway.contracts.stream import TYPES
from spillway.contracts.yaml import read_yaml
from spillway.errors import InvalidValue, escape_text
from spillway.intake.order_unit import SECONDS_PER, is_moment, is_row_number, recognise_unit, to_steps
from spillway.intake.rate import seconds_spanned
from spillway.records.convert import convert, is_convertible
from spillway.records.rejects import WholeFile
from spillway.records.wrapper import open_decompressed

ODD_SHARE = 0.05
_MOSTLY = 1 - ODD_SHARE
_LEAST_TIMES, _MOST_TIMES = 32, 2048
"""Rows that are compared with a time: fewer are not conclusive, and more add nothing."""
_FILLED = 0.5
"""The smallest share of an integer key's values that moments have; else it is a measure that happens not to repeat."""
_NAMING = frozenset(
    ["id", "ids", "uuid", "guid", "code", "zip", "postcode", "isbn", "sku", "ean", "gtin", "upc", "vin", "mmsi", "imo",
     "imei", "imsi", "iban", "serial"]
)  # fmt: skip
"""Last words of names of identifiers. A similar number is another identifier, so such a value has no error bound."""
_BEGIN_AGAIN = frozenset(
    ["day", "weekday", "week", "hour", "minute", "second", "quarter", "dom", "doy", "dow"]
)
"""Last words of names for a part of a time that starts again."""
_COARSE = frozenset(["week", "month", "quarter", "year"])
"""Words in the name of a time unit that is coarser than a day."""
_MOST_SHOWN = 60
"""The number of characters of a value that a note repeats."""


@dataclass(frozen=True, eq=False)
class SampleColumn:
    """A column of the sample: its name there (`field`) and in the contract (`name`), its type, and its values."""

    field: str
    name: str
    type: str
    values: pa.Array

    @property
    def is_complete(self) -> bool:
        """Whether nearly all records have a value."""
        return len(self.values) > 0 and self.values.null_count <= ODD_SHARE * len(self.values)

    @property
    def distinct(self) -> int:
        return int(pc.count_distinct(self.values, mode="only_valid").as_py())

    @property
    def is_ascending(self) -> bool:
        """Whether the values hardly ever fall from one record to the next."""
        there = self.values.drop_null()
        falls = int(pc.sum(pc.greater(there[:-1], there[1:])).as_py() or 0)
        return self.is_complete and falls <= ODD_SHARE * len(there)

    @cached_property
    def unit(self) -> str | None:
        """The unit of an integer, if its name and magnitude show it."""
        return recognise_unit(self.name, self._integers) if self.type == "integer" else None

    @cached_property
    def is_moment(self) -> bool:
        """Whether an integer is an epoch or a date, not an elapsed time or a count."""
        return self.type == "integer" and is_moment(self.unit, self._integers)

    @property
    def is_row_number(self) -> bool:
        return self.type == "integer" and is_row_number(self.name, self._integers)

    @property
    def is_part_of_calendar(self) -> bool:
        """Whether it is a month, or a day, hour, minute or week that starts again; alone it is no time."""
        word = self.name.rpartition("_")[2]
        return word == "month" or (word in _BEGIN_AGAIN and bool((np.diff(self._integers) < 0).any()))

    @property
    def is_coarse(self) -> bool:
        """Whether it is a month, a quarter or a year, which many rows share."""
        return self.unit in ("yyyymm", "year") or (
            self.type in ("timestamp", "date") and not _COARSE.isdisjoint(self.name.split("_"))
        )

    @property
    def _integers(self) -> np.ndarray:
        return np.asarray(self.values.cast(pa.int64()).drop_null())

    @property
    def is_constant(self) -> bool:
        """Whether all records that have a value have the same one."""
        return self.distinct == 1 and len(self.values) > 1


def find_order(columns: Sequence[SampleColumn]) -> SampleColumn | None:
    """Return the column with the time of a row, or None.

    A time is preferred to a year or a month, and both to a number of unknown unit. Within a group, a column that rises
    from row to row is preferred, then the column with the most different values, which is the finest. Between equally
    fine columns a time is preferred to a number, whose unit is a guess, and a moment to an elapsed time. A row number
    is never the order, because it is not a time.

    >>> year = SampleColumn("year", "year", "integer", pa.array([2000, 2000, 2000, 2001]))
    >>> date = SampleColumn("date", "date", "integer", pa.array([20000131, 20000229, 20000331, 20010131]))
    >>> find_order([year, date]).name
    'date'
    """
    times = [c for c in columns if c.type in ("timestamp", "date")]
    counts = [c for c in columns if c.type == "integer" and c.distinct > 1 and not c.is_row_number]
    fine = [c for c in times if not c.is_coarse]
    moments = [c for c in counts if c.unit and c.is_moment and not c.is_coarse]
    elapsed = [c for c in counts if c.unit and not c.is_moment and not c.is_coarse]
    coarse = [c for c in times + counts if c.is_coarse]
    groups = (
        [c for c in fine + moments if c.is_ascending],
        [c for c in fine if c.is_complete],
        [c for c in moments if c.is_complete],
        [c for c in elapsed if c.is_ascending],
        [c for c in coarse if c.is_ascending],
        [c for c in times if c.is_complete],
        times,
        [c for c in counts if c.is_ascending and not c.is_part_of_calendar],
    )
    found = next((group for group in groups if group), [])
    # the first of equally fine columns
    return max(found, key=lambda one: one.distinct, default=None)


def find_finer_order(order: SampleColumn, columns: Sequence[SampleColumn]) -> SampleColumn | None:
    """Return a `double` column that rises in finer steps than an integer order attribute, or None.

    Only times and integers can be the order attribute.
    """
    rising = [c for c in columns if c.type == "double" and c.is_ascending and c.distinct > order.distinct]
    if order.type != "integer":
        return None
    return max(rising, key=lambda one: one.distinct, default=None)


def find_sender_columns(columns: Sequence[SampleColumn], order: SampleColumn) -> tuple[str, ...]:
    """Return the columns that identify the sender of a record.

    They are a text that repeats, or an integer with a few values that each occur once per moment, or both together. A
    column with an identifier's name is preferred: if tuples have moments of their own, any column that repeats would
    fit.

    >>> at = SampleColumn("at", "at", "integer", pa.array([i // 3 for i in range(12)]))
    >>> pump = SampleColumn("pump", "pump", "integer", pa.array([1 + i % 3 for i in range(12)]))
    >>> find_sender_columns([at, pump], at)
    ('pump',)
    """
    others = [c for c in columns if c is not order and c.is_complete and c.distinct > 1]
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
        # nearly every moment has all of its values, so a text in addition to it describes the record, not the sender
        return (alone.name,)
    found = next((c for c in numbers if _is_key([order, *texts], c)), None)
    return tuple(c.name for c in (*texts, *([found] if found else ())))


def _is_key(moment: Sequence[SampleColumn], number: SampleColumn, share: float = _FILLED) -> bool:
    """Return whether each value of the number occurs once per moment.

    A moment must have at least `share` of all values on average.
    """
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
"""The parts of a time, each with its function and the number of different values it can have."""
_QUARTER_MICROSECONDS = 900_000_000
_QUARTERS_PER_HOUR = 4
_FIRST_LOOK_ROWS = 64
_FIRST_LOOK_SHARE = 0.3
"""The smallest share of equal differences, in a few rows, of a clock that may fit.

Half of the rows may be in summer time.
"""


@lru_cache(maxsize=1024)
def part_of_time(column: SampleColumn, order: SampleColumn) -> str | None:
    """Return which field of the order attribute's time an integer is, up to a constant, or None.

    The offset of the clock from UTC may be any multiple of 15 minutes, and may change for summer time. The result is
    cached per pair of columns, because a draft needs it several times.

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
    # a number that never falls may be a counter, not a day or a minute; a year never falls either
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
                continue  # this field is constant on this clock, so it proves nothing
            # in summer the difference is that of a clock one hour ahead
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


def is_identifier(column: SampleColumn) -> bool:
    """Return whether an integer is an identifier, by its name.

    >>> [is_identifier(SampleColumn(n, n, "integer", pa.array([1, 2]))) for n in ("order_id", "zip_code", "paid")]
    [True, True, False]
    """
    return column.type == "integer" and _is_named_so(column)


def with_room_for_fractions(column: SampleColumn) -> SampleColumn:
    """Return an integer column as `double` if all its values are 0, because 0 says nothing about later values.

    A later 0.5 is rejected by an integer, and a later 3 is accepted by a double. An identifier stays an integer.

    >>> found = with_room_for_fractions(SampleColumn("rain_mm", "rain_mm", "integer", pa.array([0, None, 0])))
    >>> found.type, found.values.to_pylist()
    ('double', [0.0, None, 0.0])
    >>> with_room_for_fractions(SampleColumn("errors", "errors", "integer", pa.array([0, 1]))).type
    'integer'
    """
    if column.type != "integer" or is_identifier(column):
        return column
    ends = pc.min_max(column.values)
    if (ends["min"].as_py(), ends["max"].as_py()) != (0, 0):
        return column
    return SampleColumn(column.field, column.name, "double", column.values.cast(pa.float64()))


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
    """Yield notes on the column for the reader of the draft."""
    missing = column.values.null_count
    part = part_of_time(column, order) if role == "protected" else None
    if missing == len(column.values):
        yield "null throughout the sample: type guessed"
    elif column.is_constant:
        # a text may have line breaks, which would end the YAML comment that contains the note
        first = column.values.drop_null()[0].as_py()
        if column.type == "double" and first == 0:
            yield "always 0 in the sample: type guessed, integer if it is a count"
        else:
            yield f"always {escape_text(str(first), _MOST_SHOWN)} in the sample"
    elif role == "order" and not column.is_ascending:
        yield "does not rise throughout the sample"
    elif role in ("order", "key") and missing:
        yield f"missing or odd in {missing} of the sample: rejected then"
    if role == "order" and column.unit is not None:
        yield f"unit guessed by name and magnitude: {_UNIT_TEXT.get(column.unit, column.unit)}"
    elif role == "order" and column.type == "integer":
        yield "unknown unit: if it is a time, state unit: (s, ms, day, ...)"
    if role == "order" and column.is_coarse:
        yield "coarse: better deliver one column with the full time"
    if role == "protected" and is_identifier(column):
        yield "an identifier by its name, so it is exact; if it is a quantity: role: measure"
    elif role == "protected" and column.is_row_number:
        yield "a row number, like seq"
    if part is not None:
        yield f"the {part} of {order.name}; as a measure with codes: true it can be shed, and is recovered exactly"


_FORMATS = {
    ".csv": "csv", ".tsv": "csv", ".txt": "csv", ".json": "json", ".jsonl": "json", ".ndjson": "json",
    ".parquet": "parquet", ".pq": "parquet",
}  # fmt: skip
_WRAPPER_ENDINGS = (".gz", ".zst")
_SAMPLE_BYTES = 4 << 20
_SAMPLE_ROWS = 20_000
_SMALL_BYTES = 1_000_000
# this order matters: Arrow reads a date as a timestamp, too, and 0 and 1 as booleans
_TEXT_TYPES = ("integer", "double", "date", "timestamp", "boolean")
_EMPTY_WORDS = ("", "NA", "N/A", "null", "NULL", "NaN", "nan")
_NAN_WORDS = frozenset(["NaN", "nan"])


def draft_contract(sample_file: str | Path, *, stream: str | None = None, channel: str = "uplink") -> str:
    """Return the YAML of a draft contract for files like `sample_file`."""
    path = Path(sample_file)
    form, options, raw, decimal = _read(path)
    nested = [escape_text(field) for field, values in raw.items() if pa.types.is_nested(values.type)]
    odd = {
        f: one.type
        for f, one in raw.items()
        if not pa.types.is_nested(one.type) and not _can_be_read(one.type)
    }
    kept = {f: one for f, one in raw.items() if not pa.types.is_nested(one.type) and f not in odd}
    columns = _columns(kept, decimal)
    if form != "parquet":
        columns = [with_room_for_fractions(column) for column in columns]
    order = _order(columns, path)
    keys = find_sender_columns(columns, order)
    name = stream or _word(path.stem.split(".")[0])
    lines = [
        "# yaml-language-server: $schema=../contract.schema.json",
        f"# A draft from {path.name}, {len(columns[0].values)} records: read every line, then remove this one.",
        f"stream: {name}",
        "description: >-",
        "  What this stream is, in a sentence.",
        f"source: {{kind: files, path: {name}, format: {form}{options}}}",
        "attributes:  # in contract order; roles: key, order, measure (may be shed), protected (never shed)",
        *(_attribute(column, order, keys) for column in columns),
        f"channel: {channel}  # one of channels.yaml",
        _rate(order),
        *_batching(order, path),
        "mode: observe  # plans and records, sheds nothing; later: shed",
        _levers(columns, order, keys),
    ]
    finer = find_finer_order(order, columns)
    if finer is not None:
        told = f"{finer.name} rises more finely than {order.name}, but only times and whole numbers can be the order"
        lines.insert(7, f"  # {told}: deliver it as one")
    if nested:
        told = f"nested fields, which are not taken in: {', '.join(nested)}"
        lines.insert(7, f"  # {told}; flatten the fields that you need before delivery")
    if odd:
        told = ", ".join(f"{escape_text(field)} ({kind})" for field, kind in odd.items())
        lines.insert(
            7,
            f"  # fields of other types, which are not taken in: {told}; deliver them with another type",
        )
    if not keys:
        lines.insert(7, "  # no attribute repeats like a sender's name: give one role: key if there is one")
    text = "\n".join(lines) + "\n"
    report = Report("the draft")
    read_stream(read_yaml(text, report), "the draft")
    return text


def _read(path: Path) -> tuple[str, str, dict[str, pa.Array], str]:
    """Return the format, its options as YAML, the columns as read, and their decimal separator."""
    # as in intake, gzip and zstd are recognised by the file's bytes; their suffix names no format
    named = path.with_suffix("") if path.suffix.lower() in _WRAPPER_ENDINGS else path
    form = _FORMATS.get(named.suffix.lower())
    if form is None:
        raise InvalidValue(
            "sample_file", "end in " + ", ".join(_FORMATS), path.name, "rename it after its format"
        )
    try:
        if form == "parquet":
            return form, "", _parquet(path), "."
        content = _first_bytes(path)
    except WholeFile as error:
        _name, rule, value, remedy = error.why
        raise InvalidValue("sample_file", rule, value, remedy) from None
    except OSError as error:
        raise InvalidValue("sample_file", "be readable", str(path), str(error.strerror or error)) from None
    lines = content.decode("utf-8-sig", "replace").splitlines()
    if len(content) >= _SAMPLE_BYTES:
        lines.pop()  # most likely incomplete
    if not any(line.strip() for line in lines):
        raise InvalidValue("sample_file", "hold records", "an empty file", "give one that does")
    if form == "json":
        return form, "", _json(lines, path), "."
    delimiter = max(",;\t|", key=lines[0].count)
    table = [row for row in csv.reader(io.StringIO("\n".join(lines)), delimiter=delimiter) if row]
    header, rows = table[0], [row for row in table[1 : _SAMPLE_ROWS + 1] if len(row) == len(table[0])]
    if not rows:
        raise InvalidValue(
            "sample_file", "hold records below its header", f"{len(header)} column names", "give more lines"
        )
    columns = [[row[i] for row in rows] for i in range(len(header))]
    words = sorted({word for column in columns for word in _null_words(column)})
    raw = {field.strip(): pa.array([None if word in words else word for word in column], pa.string())
           for field, column in zip(header, columns, strict=True)}  # fmt: skip
    decimal = _decimal(list(raw.values()))
    parts = [f"delimiter: {json.dumps(delimiter)}"] if delimiter != "," else []
    parts += [f"decimal: {json.dumps(decimal)}"] if decimal != "." else []
    parts += [f"null_values: {json.dumps(words)}"] if words not in ([], [""]) else []
    return form, f", options: {{{', '.join(parts)}}}" if parts else "", raw, decimal


def _decimal(columns: Sequence[pa.Array]) -> str:
    """Return the decimal separator of a file's numbers.

    It is a comma if some columns are numbers with a comma, and none with a point.

    >>> _decimal([pa.array(["53,5", "7,25"]), pa.array(["1", "2"])]), _decimal([pa.array(["53,5"]), pa.array(["1.5"])])
    (',', '.')
    """
    by_point, by_comma = (
        sum(_infer_type("", one, decimal)[0] == "double" and not _is_null(one) for one in columns)
        for decimal in ".,"
    )
    return "," if by_comma and not by_point else "."


def _null_words(column: Sequence[str]) -> set[str]:
    """Return the words that represent null in a column. Among numbers with a fraction, NaN is a number and not null."""
    found = set(column) & set(_EMPTY_WORDS)
    if found & _NAN_WORDS:
        kind, _ = _infer_type("", pa.array([None if word in found else word for word in column], pa.string()))
        found -= _NAN_WORDS if kind == "double" and set(column) - found else set()
    return found


def _first_bytes(path: Path) -> bytes:
    with pa.OSFile(str(path)) as source:
        plain, found = open_decompressed(source), bytearray()
        while len(found) < _SAMPLE_BYTES and (more := plain.read(_SAMPLE_BYTES - len(found))):
            found += more
    return bytes(found)


def _parquet(path: Path) -> dict[str, pa.Array]:
    try:
        batch = next(pyarrow.parquet.ParquetFile(path).iter_batches(_SAMPLE_ROWS), None)
    except (pa.ArrowException, ValueError) as error:
        raise InvalidValue("sample_file", "be readable Parquet", path.name, str(error)) from None
    if batch is None:
        raise InvalidValue("sample_file", "hold records", "no rows", "give one that does")
    return {name: batch.column(i) for i, name in enumerate(batch.schema.names)}


def _json(lines: Sequence[str], path: Path) -> dict[str, pa.Array]:
    records = list(_objects(lines))
    if not records:
        raise InvalidValue("sample_file", "hold one JSON object a line", path.name, "write JSON lines")
    raw = {}
    for field in dict.fromkeys(name for record in records for name in record):
        values = [record.get(field) for record in records]
        if sum(field in record for record in records) > ODD_SHARE * len(records):
            raw[field] = _one_type(field, values)
    return raw


def _one_type(field: str, values: Sequence[object]) -> pa.Array:
    kinds = Counter(
        "number" if type(v) in (int, float) else type(v).__name__ for v in values if v is not None
    )
    if not kinds:
        return pa.nulls(len(values))
    (kind, count), total = kinds.most_common(1)[0], sum(kinds.values())
    if kind in ("dict", "list"):
        return pa.nulls(len(values), pa.struct([]))
    if total - count > ODD_SHARE * total:
        raise InvalidValue(
            field, "be of one type", " and ".join(sorted(kinds)), "let the source deliver one type"
        )
    if kind != "number":
        return pa.array([v if type(v).__name__ == kind else None for v in values])
    numbers = [v if isinstance(v, int | float) and not isinstance(v, bool) else None for v in values]
    whole = sum(isinstance(v, float) for v in numbers) <= ODD_SHARE * count
    fitting = [v if not whole or (isinstance(v, int) and abs(v) < 1 << 63) else None for v in numbers]
    return pa.array(fitting, pa.int64() if whole else pa.float64())


def _objects(lines: Sequence[str]) -> Iterator[dict[str, object]]:
    for line in lines[:_SAMPLE_ROWS]:
        try:
            record = json.loads(line)
        except ValueError:
            continue
        if isinstance(record, dict):
            yield record


def _is_null(values: pa.Array) -> bool:
    return values.null_count == len(values)


def _can_be_read(kind: pa.DataType) -> bool:
    return pa.types.is_null(kind) or any(is_convertible(kind, one) for one in TYPES)


def _columns(raw: dict[str, pa.Array], decimal: str) -> list[SampleColumn]:
    columns: list[SampleColumn] = []
    for field, values in raw.items():
        word = _word(field)
        taken = {column.name for column in columns} | set(reserved_names())
        name = next(n for n in (word, *(f"{word}_{i}" for i in range(2, len(raw) + 3))) if n not in taken)
        columns.append(SampleColumn(field, name, *_infer_type(field, values, decimal)))
    return columns


def _infer_type(field: str, values: pa.Array, decimal: str = ".") -> tuple[str, pa.Array]:
    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    if pa.types.is_null(values.type):
        return "double", pa.nulls(len(values), pa.float64())
    if pa.types.is_string(values.type):
        for kind in ("double",) if _is_null(values) else _TEXT_TYPES:
            typed, bad = convert(values, kind, decimal=decimal)
            if bad.sum() <= ODD_SHARE * (len(values) - values.null_count):
                return kind, typed
        return "string", values
    for kind in ("boolean", "integer", "double", "timestamp", "date", "string"):
        if is_convertible(values.type, kind):
            return kind, convert(values, kind)[0]
    raise InvalidValue(
        field, "be text, a number, a boolean, a timestamp or a date", str(values.type), "flatten or drop it"
    )


def _order(columns: Sequence[SampleColumn], path: Path) -> SampleColumn:
    found = find_order(columns)
    if found is None:
        names = ", ".join(f"{escape_text(c.field)} ({c.type})" for c in columns)
        numbering = "".join(
            f"{escape_text(c.field)} is a row number, not a time;  " for c in columns if c.is_row_number
        )
        raise InvalidValue(
            path.name,
            "hold a timestamp, a date or a rising number",
            names,
            f"{numbering}add a column with the time of each record in ISO 8601, e.g. 2013-01-01T06:00:00Z",
        )
    return found


def _role(column: SampleColumn, order: SampleColumn, keys: Sequence[str]) -> str:
    if column is order:
        return "order"
    if column.name in keys:
        return "key"
    # a repeated time or an identifier allows no error: it is exact or wrong
    names_one = is_identifier(column) or column.is_row_number
    if column.type == "string" or names_one or part_of_time(column, order) is not None:
        return "protected"
    return "measure"


def _levers(columns: Sequence[SampleColumn], order: SampleColumn, keys: Sequence[str]) -> str:
    if any(_role(column, order, keys) == "measure" for column in columns):
        return (
            "# bounds: trained: training finds the bounds; stated: attributes without error_pct or error are exact\n"
            "levers: [{lever: attributes, bounds: trained}]  # the levers, in order, each with its settings"
        )
    return "levers: []  # no attribute is a measure: everything is sent unchanged"


def _attribute(column: SampleColumn, order: SampleColumn, keys: Sequence[str]) -> str:
    parts = [f"name: {column.name}"]
    if column.field != column.name:
        parts.append(f"field: {json.dumps(column.field, ensure_ascii=False)}")
    role = _role(column, order, keys)
    parts += [f"type: {column.type}", f"role: {role}", f"bits: {_bits(column)}"]
    if role == "order" and column.unit is not None:
        parts.append(f"unit: {column.unit}")
    if role in ("order", "key"):
        parts.append("nullable: false")
    notes = "; ".join(notes_of(column, order, role))
    return "  - {" + ", ".join(parts) + "}" + (f"  # {notes}" if notes else "")


def _bits(column: SampleColumn) -> int:
    if column.type == "string":
        return max(8, 8 * int(pc.max(pc.binary_length(column.values)).as_py() or 1))
    if column.type == "integer" and column.values.null_count < len(column.values):
        ends = pc.min_max(column.values)
        needed = max(abs(ends["min"].as_py()), abs(ends["max"].as_py())).bit_length() + 1
        return next(width for width in (8, 16, 32, 64, 128) if needed <= width) if needed <= 64 else 64
    return {"boolean": 1, "date": 32}.get(column.type, 64)


def _rate(order: SampleColumn) -> str:
    if order.type in ("timestamp", "date") or order.unit is not None:
        return "rate: {from: event_time}  # or {from: declared, tuples_per_second: ...}"
    return "rate: {from: arrival}  # or {from: declared, tuples_per_second: ...}"


def _batching(order: SampleColumn, path: Path) -> list[str]:
    """Return the `batching:` line if the sample is small and spans at most an hour; else no line."""
    seconds = _span_seconds(order)
    if path.stat().st_size >= _SMALL_BYTES or seconds is None or seconds > 3600:
        return []
    note = (
        f"a file spans {seconds:,.0f} s; a batch that is sent alone costs 1 to 2 kB more; null: send at once"
    )
    return [f"batching: {{until_bytes: 1 MB, until_seconds: 3600}}  # {note}"]


def _span_seconds(order: SampleColumn) -> float | None:
    """Return the time that the sample's rows span; None if it is not known."""
    if order.type == "timestamp":
        moments, step = order.values.cast(pa.timestamp("us")).cast(pa.int64()), 1e-6
    elif order.type == "integer" and order.unit is not None:
        moments, step = order.values, SECONDS_PER[order.unit]
    else:
        return None
    values = np.asarray(moments.drop_null())
    if order.type == "integer" and order.unit is not None:
        values = to_steps(values, order.unit)
    found = seconds_spanned(values)
    return None if found is None else found * step


def _word(text: str) -> str:
    """Return a lower-case name of letters, digits and `_`.

    >>> _word("Adj Close"), _word("responseTime (ms)"), _word("2nd"), _word("Länge")
    ('adj_close', 'response_time_ms', 'a_2nd', 'lange')
    """
    bare = "".join(c for c in unicodedata.normalize("NFKD", text) if not unicodedata.combining(c))
    split = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", bare)
    word = re.sub(r"[^a-z0-9]+", "_", split.lower()).strip("_")
    return word if word and word[0].isalpha() else f"a_{word}"

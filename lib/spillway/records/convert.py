"""Convert columns of text, or Parquet columns, to the contract's types, and assemble the records of a file.

Arrow's cast decides which values fit, with these additional rules:

- NaN and infinities are kept, made null or refused, as the contract's `non_finite` states. A number that is too large
  for a double is always refused.
- Integers are decimal. Years are 1 to 9999.
- Surrounding blanks and a leading plus are ignored, except in strings.
- Fractions of a second are truncated to microseconds.
- A timestamp without an offset is read by the rule of `contracts.timezone`.
- A decimal with at most 15 digits fits a double, because no two such decimals have the same double. A decimal of scale
  0 fits an integer.

Values are not parsed one by one. If a cast fails, it is retried on each half of the column. So one bad value in a
million costs about twenty additional casts.

>>> values, bad = convert(pa.array(["1", " 2", "x", None]), "integer")
>>> values.to_pylist(), bad.tolist()
([1, 2, None, None], [False, False, True, False])
>>> values, bad = convert(pa.array(["nan", "-inf", "1e999"]), "double")
>>> values.to_pylist(), bad.tolist()
([nan, -inf, None], [False, False, True])
>>> convert(pa.array(["1,5", "1.234,5"]), "double", decimal=",")[0].to_pylist()
[1.5, None]

`assemble` is the last step of every format: it converts the columns, checks required attributes, and removes the
rejected records.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from spillway.contracts.stream import ARROW_TYPES, StreamContract
from spillway.contracts.timezone import UTC_NAME, utc_moment
from spillway.records.rejects import Rejects, repeated_hour

Mask = npt.NDArray[np.bool_]

RULES = {
    "string": ("be text", "send it as text"),
    "boolean": ("be true or false", "send true or false"),
    "integer": ("be a whole number of 64 bits", "send a whole number, or declare the attribute double"),
    "double": ("be a number", "send a number, or null for none"),
    "timestamp": ("be an ISO 8601 date and time", "send e.g. 2013-01-01T06:00:00Z"),
    "date": ("be an ISO 8601 date", "send e.g. 2004-08-19"),
}
_DIGITS_OF_A_DOUBLE = 15
"""Every decimal with at most this number of digits survives a round trip through a double."""
_NO_NUMBER = r"^\s*[-+]?(?i:nan|inf|infinity)\s*$"
_OFFSET = r"(Z|[+-][0-9]{2}(:?[0-9]{2})?)$"
_DATE_ONLY = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$"
_EARLIEST_US = -62135596800_000_000
_LATEST_US = 253402300799_999_999
_DAY_US = 86_400_000_000
_UTC = pa.timestamp("us", tz="UTC")


def type_rule(
    kind: str, zone: str = UTC_NAME, non_finite: str = "keep", decimal: str = "."
) -> tuple[str, str]:
    """Return the rule that a value breaks if it does not fit the type `kind`, and the remedy."""
    rule, remedy = RULES[kind]
    if kind == "double" and decimal != ".":
        rule, remedy = (
            f"be a number with {decimal!r} before its fraction",
            f"{remedy}, or mend source.options.decimal",
        )
    if kind == "double" and non_finite == "reject":
        return rule.replace("a number", "a finite number"), remedy
    if kind == "timestamp" and zone != UTC_NAME:
        return f"{rule}, with an offset or as clocks in {zone} show it", remedy
    return rule, remedy


_EPOCH = re.compile(r"(1\d{9})(?P<more>(\d{3}){0,3})(\.\d+)?")
_DAY_FIRST = re.compile(r"\d{1,2}[./-]\d{1,2}[./-]\d{4}\b.*", re.DOTALL)
_DECIMAL_COMMA = re.compile(r"[-+]?\d+,\d+")
_WORDS_FOR_NULL = frozenset(("na", "n/a", "#n/a", "null", "none", "nil", "-", "--", "?", "\\n"))


def remedy_for_value(value: object, kind: str, is_csv: bool) -> str:
    """Return the remedy for a bad value in a form that is often delivered; empty for any other value.

    >>> remedy_for_value("1735689600000", "timestamp", is_csv=True)
    'if it is a count of ms since 1970, declare the attribute type: integer, unit: ms'
    >>> remedy_for_value("24.10.2025 02:00", "timestamp", is_csv=True)
    'send the year first, e.g. 2025-10-24T02:00:00Z'
    >>> remedy_for_value("1,5", "double", is_csv=True)
    'if the comma is before the fraction, write options: {decimal: ","} under source in the contract'
    >>> remedy_for_value("NA", "double", is_csv=True)
    'if it means null, write options: {null_values: ["", "NA"]} under source in the contract'
    >>> remedy_for_value("fast", "double", is_csv=True)
    ''
    """
    text = str(value).strip()
    if kind in ("timestamp", "date"):
        if epoch := _EPOCH.fullmatch(text):
            unit = ("s", "ms", "us", "ns")[len(epoch["more"]) // 3]
            return f"if it is a count of {unit} since 1970, declare the attribute type: integer, unit: {unit}"
        if _DAY_FIRST.fullmatch(text):
            return f"send the year first, e.g. 2025-10-24{'T02:00:00Z' if kind == 'timestamp' else ''}"
    if is_csv and kind == "double" and _DECIMAL_COMMA.fullmatch(text):
        return (
            'if the comma is before the fraction, write options: {decimal: ","} under source in the contract'
        )
    if is_csv and text.lower() in _WORDS_FOR_NULL:
        return (
            f'if it means null, write options: {{null_values: ["", "{text}"]}} under source in the contract'
        )
    return ""


def convert(
    values: pa.Array, kind: str, zone: str = UTC_NAME, non_finite: str = "keep", decimal: str = "."
) -> tuple[pa.Array, Mask]:
    """Return the values converted to the contract's type, and a mask of those that do not fit (null in the result).

    `decimal`: the decimal separator of numbers that are text.
    """
    target = ARROW_TYPES[kind]
    if pa.types.is_null(values.type):
        return pa.nulls(len(values), target), np.zeros(len(values), dtype=np.bool_)
    if kind == "timestamp":
        return _timestamp(values, zone) if pa.types.is_string(values.type) else _timestamps(values, zone)
    if kind == "double":
        text = pa.types.is_string(values.type)
        if text and decimal != ".":
            values = _with_decimal_point(values, decimal)
        found, bad = _double(values) if text else _number(values)
        return _without_end(found, bad, values if text else None, non_finite)
    if pa.types.is_string(values.type):
        return _FROM_TEXT[kind](values)
    if kind == "string":
        return _cast(values, lambda v: v.cast(pa.binary()).cast(pa.string()))
    if kind == "date":
        return _years(*_cast(values, lambda v: v.cast(target)))
    return _cast(values, lambda v: v.cast(target))


def is_convertible(arrow_type: pa.DataType, kind: str) -> bool:
    """Return whether a column of this Arrow type can be converted to the contract's type without parsing text."""
    types = pa.types
    if types.is_null(arrow_type):
        return True
    if types.is_dictionary(arrow_type):
        return is_convertible(arrow_type.value_type, kind)
    if kind == "string":
        return types.is_string(arrow_type) or types.is_large_string(arrow_type)
    if kind == "boolean":
        return types.is_boolean(arrow_type)
    if kind == "integer":
        return types.is_integer(arrow_type) or (types.is_decimal(arrow_type) and arrow_type.scale == 0)
    if kind == "double":
        numbers = (types.is_floating, types.is_integer, types.is_decimal)
        return any(is_one(arrow_type) for is_one in numbers)
    return types.is_timestamp(arrow_type) if kind == "timestamp" else types.is_date(arrow_type)


def _cast(values: pa.Array, cast: Callable[[pa.Array], pa.Array]) -> tuple[pa.Array, Mask]:
    """Cast the values; if that fails, cast each half, down to the single values that do not fit."""
    try:
        return cast(values), np.zeros(len(values), dtype=np.bool_)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        if len(values) == 1:
            return pa.nulls(1, cast(values.slice(0, 0)).type), np.ones(1, dtype=np.bool_)
    half = len(values) // 2
    left, left_bad = _cast(values.slice(0, half), cast)
    right, right_bad = _cast(values.slice(half), cast)
    return pa.concat_arrays([left, right]), np.concatenate([left_bad, right_bad])


def _number(values: pa.Array) -> tuple[pa.Array, Mask]:
    """Convert numbers of another type to doubles; a decimal with more than 15 significant digits does not fit."""
    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    if not pa.types.is_decimal(values.type):
        return _cast(values, lambda v: v.cast(pa.float64()))
    # by way of text, since Arrow's own cast of a decimal may not give the nearest double
    text = values.cast(pa.string())
    found = text.cast(pa.float64())
    if values.type.precision <= _DIGITS_OF_A_DOUBLE:
        return found, np.zeros(len(values), dtype=np.bool_)
    digits = pc.replace_substring_regex(text, pattern=r"E.*$|[-.]", replacement="")
    digits = pc.replace_substring_regex(digits, pattern=r"^0+|0+$", replacement="")
    long = _mask(pc.greater(pc.utf8_length(digits), _DIGITS_OF_A_DOUBLE))
    return _drop(found, long), long


def _with_decimal_point(values: pa.Array, decimal: str) -> pa.Array:
    """Replace the decimal separator by a point; a number that also has a point becomes invalid."""
    taken = pc.replace_substring(values, pattern=".", replacement="_")
    return pc.replace_substring(taken, pattern=decimal, replacement=".")


def _drop(values: pa.Array, bad: Mask) -> pa.Array:
    return pc.if_else(pa.array(~bad), values, pa.scalar(None, values.type)) if bad.any() else values


def _mask(condition: pa.Array) -> Mask:
    return np.asarray(pc.fill_null(condition, False).to_numpy(zero_copy_only=False), dtype=np.bool_)


def _tidy(values: pa.Array) -> pa.Array:
    return pc.replace_substring_regex(
        pc.utf8_trim_whitespace(values), pattern=r"^\+([0-9.])", replacement=r"\1"
    )


def _text_to(target: pa.DataType, fitting: str) -> Callable[[pa.Array], tuple[pa.Array, Mask]]:
    def convert_text(values: pa.Array) -> tuple[pa.Array, Mask]:
        try:
            found = values.cast(target)
            hexadecimal = (
                pa.types.is_integer(target) and _mask(pc.match_substring(values, "x", ignore_case=True)).any()
            )
            if not hexadecimal:
                return found, np.zeros(len(values), dtype=np.bool_)
        except pa.ArrowInvalid:
            pass
        tidy = _tidy(values)
        bad = ~_mask(pc.match_substring_regex(tidy, fitting)) & ~_mask(values.is_null())
        found, worse = _cast(_drop(tidy, bad), lambda v: v.cast(target))
        return found, bad | worse

    return convert_text


def _string(values: pa.Array) -> tuple[pa.Array, Mask]:
    return values, np.zeros(len(values), dtype=np.bool_)


_double = _text_to(pa.float64(), r"^(?:[-+]?[0-9.][0-9.eE+-]*|[-+]?(?i:nan|inf|infinity))$")


def _without_end(
    values: pa.Array, bad: Mask, words: pa.Array | None, non_finite: str
) -> tuple[pa.Array, Mask]:
    """Keep, drop or refuse NaN and infinities as the contract states.

    If the values come from texts (`words`), an infinity whose text is not a word for it is a number that is too large.
    """
    odd = ~_mask(pc.is_finite(values)) & ~_mask(values.is_null())
    if not odd.any():
        return values, bad
    too_large = (
        odd & ~_mask(pc.match_substring_regex(words, _NO_NUMBER)) if words is not None else odd & False
    )
    if non_finite == "keep":
        numbers = np.asarray(values.fill_null(0.0))
        # one bit pattern for all NaNs, so that equal values have equal bytes
        alike = pa.array(np.where(np.isnan(numbers), np.nan, numbers), mask=np.asarray(values.is_null()))
        return _drop(alike, too_large), bad | too_large
    return _drop(values, odd), bad | (odd if non_finite == "reject" else too_large)


def _timestamp(values: pa.Array, zone: str) -> tuple[pa.Array, Mask]:
    try:  # the common case: every value has its offset
        return _in_calendar(values.cast(_UTC), np.zeros(len(values), dtype=np.bool_))
    except pa.ArrowInvalid:
        pass
    tidy = pc.utf8_trim_whitespace(values)
    tidy = pc.replace_substring_regex(tidy, pattern=r"(\.[0-9]{6})[0-9]+", replacement=r"\1")
    # an offset needs a time before it: the last hyphen of 2004-08-19 does not start an offset
    has_offset = pc.and_(
        pc.match_substring_regex(tidy, _OFFSET), pc.invert(pc.match_substring_regex(tidy, _DATE_ONLY))
    )
    offset = _mask(has_offset)
    with_offset, bad_1 = _cast(_drop(tidy, ~offset), lambda v: v.cast(_UTC))
    local, bad_2 = _cast(_drop(tidy, offset), lambda v: v.cast(pa.timestamp("us")))
    without, bad_3 = _local_to_utc(local, zone)
    return _in_calendar(pc.coalesce(with_offset, without), bad_1 | bad_2 | bad_3)


def _local_to_utc(local: pa.Array, zone: str) -> tuple[pa.Array, Mask]:
    """Convert local times of a zone to UTC; local times that do not exist there do not fit."""
    if zone == UTC_NAME:
        return local.cast(_UTC), np.zeros(len(local), dtype=np.bool_)
    # time zone arithmetic is valid only within the years 1 to 9999
    local, outside = _in_calendar(local, np.zeros(len(local), dtype=np.bool_))
    moments = pc.assume_timezone(local, zone, ambiguous="earliest", nonexistent="earliest")
    never = _mask(pc.not_equal(pc.local_timestamp(moments), local))
    return _drop(moments.cast(pa.int64()).cast(_UTC), never), never | outside


def skipped_hour_rule(value: object, zone: str) -> tuple[str, str] | None:
    """Return the rule and the remedy for a time in an hour that clocks in the zone skip; None for any other time.

    >>> skipped_hour_rule("2026-03-29 02:30", "Europe/Berlin")[0]
    'be a time that clocks in Europe/Berlin show'
    >>> skipped_hour_rule("2026-03-29 03:30", "Europe/Berlin"), skipped_hour_rule("soon", "Europe/Berlin")
    (None, None)
    """
    try:
        local = value if isinstance(value, datetime) else datetime.fromisoformat(str(value).strip())
        if zone == UTC_NAME or utc_moment(local, zone) is not None:
            return None
        standard = local.replace(tzinfo=ZoneInfo(zone)).isoformat()
    except (ValueError, OverflowError):
        return None
    return (
        f"be a time that clocks in {zone} show",
        f"clocks are set forward and skip this hour: send the time with an offset, e.g. {standard}",
    )


def is_in_repeated_hour(delivered: pa.Array, moments: pa.Array, zone: str) -> Mask:
    """Return which of these times have no offset and lie in an hour that clocks in the zone show twice.

    `moments`: the times as `convert` read them, the earlier of both.

    >>> texts = pa.array(["2026-10-25T02:30:00", "2026-10-25T02:30:00+02:00", "2026-10-25T03:30:00"])
    >>> is_in_repeated_hour(texts, convert(texts, "timestamp", "Europe/Berlin")[0], "Europe/Berlin").tolist()
    [True, False, False]
    """
    none = np.zeros(len(moments), dtype=np.bool_)
    if zone == UTC_NAME or moments.null_count == len(moments):
        return none
    local = pc.local_timestamp(moments.cast(pa.int64()).cast(pa.timestamp("us", tz=zone)))
    later = pc.assume_timezone(local, zone, ambiguous="latest", nonexistent="earliest")
    twice = _mask(pc.not_equal(later.cast(pa.int64()), moments.cast(pa.int64())))
    if not twice.any():
        return none
    kind = delivered.type.value_type if pa.types.is_dictionary(delivered.type) else delivered.type
    if pa.types.is_timestamp(kind):
        return twice if kind.tz is None else none
    tidy = pc.utf8_trim_whitespace(delivered.cast(pa.string()))
    return twice & ~_mask(pc.match_substring_regex(tidy, _OFFSET))


def _timestamps(values: pa.Array, zone: str) -> tuple[pa.Array, Mask]:
    if pa.types.is_dictionary(values.type):
        values = values.cast(values.type.value_type)
    tz = values.type.tz
    # truncation to microseconds is intended, overflow is an error
    kind, safe = pa.timestamp("us", tz=tz), values.type.unit in ("s", "ms")
    in_us, bad = _cast(values, lambda v: v.cast(kind, safe=safe))
    if tz is not None:
        return _in_calendar(in_us.cast(pa.int64()).cast(_UTC), bad)
    moments, never = _local_to_utc(in_us, zone)
    return _in_calendar(moments, bad | never)


def _in_calendar(values: pa.Array, bad: Mask) -> tuple[pa.Array, Mask]:
    micros = values.cast(pa.int64())
    outside = _mask(pc.or_(pc.less(micros, _EARLIEST_US), pc.greater(micros, _LATEST_US)))
    return _drop(values, outside), bad | outside


def _date(values: pa.Array) -> tuple[pa.Array, Mask]:
    return _years(*_text_to(pa.date32(), _DATE_ONLY)(values))


def _years(values: pa.Array, bad: Mask) -> tuple[pa.Array, Mask]:
    days = values.cast(pa.int32())
    outside = _mask(pc.or_(pc.less(days, _EARLIEST_US // _DAY_US), pc.greater(days, _LATEST_US // _DAY_US)))
    return _drop(values, outside), bad | outside


_FROM_TEXT: dict[str, Callable[[pa.Array], tuple[pa.Array, Mask]]] = {
    "string": _string,
    "boolean": _text_to(pa.bool_(), r"^[tTfF01]"),
    "integer": _text_to(pa.int64(), r"^-?[0-9]+$"),
    "date": _date,
}


LINE = "line"


@dataclass(frozen=True)
class ParsedRecords:
    """The records of a file or of a slice of it.

    `table`: the accepted records (`line`, then the attributes). `rejected`: the rejections. `notes`: the number of
    accepted records with an oddity, by note.
    """

    table: pa.Table
    rejected: pa.Table
    notes: Mapping[str, int] = field(default_factory=dict)


def table_schema(contract: StreamContract) -> pa.Schema:
    """Return the schema of accepted records: `line` and the contract's attributes."""
    return pa.schema([pa.field(LINE, pa.int64(), nullable=False), *contract.arrow_schema])


def no_records(contract: StreamContract, rejects: Rejects) -> ParsedRecords:
    """Return the result for a file without accepted records."""
    return ParsedRecords(table_schema(contract).empty_table(), rejects.table())


def assemble(
    contract: StreamContract,
    lines: npt.NDArray[np.int64],
    columns: Mapping[str, pa.Array],
    original: Callable[[int], bytes],
    rejects: Rejects,
) -> pa.Table:
    """Convert every column, reject the records that do not fit, and return the others.

    `columns`: by attribute name; an absent column is null. `original(i)`: the bytes of record i. Only the first problem
    of a record, in contract order, is reported.
    """
    refused = np.zeros(len(lines), dtype=np.bool_)
    decimal = contract.source.options.decimal if contract.source.format == "csv" else "."
    typed: list[pa.Array] = []
    for attribute in contract.attributes:
        raw = columns.get(attribute.name)
        if raw is None:
            raw = pa.nulls(len(lines), pa.string())
        values, bad = convert(raw, attribute.type, contract.timezone, contract.non_finite, decimal)
        rule, remedy = type_rule(attribute.type, contract.timezone, contract.non_finite, decimal)
        for i in np.flatnonzero(bad & ~refused):
            value = python_value(raw[int(i)])
            skipped = skipped_hour_rule(value, contract.timezone) if attribute.type == "timestamp" else None
            own = remedy_for_value(value, attribute.type, contract.source.format == "csv")
            broken, remedied = skipped or (rule, own or remedy)
            rejects.add(int(lines[i]), attribute.source_name, broken, str(value), remedied, original(int(i)))
        refused |= bad
        if attribute.required and values.null_count > 0:
            part = {"key": "a key", "order": "the order"}.get(attribute.role, "declared nullable: false")
            why = f"send it with every record: it is {part}"
            missing = np.asarray(values.is_null().to_numpy(zero_copy_only=False)) & ~refused
            for i in np.flatnonzero(missing):
                rejects.add(int(lines[i]), attribute.source_name, "be there", "null", why, original(int(i)))
            refused |= missing
        if attribute.type == "timestamp":
            twice = int((is_in_repeated_hour(raw, values, contract.timezone) & ~refused).sum())
            if twice:
                note = repeated_hour(attribute.source_name)
                rejects.notes[note] = rejects.notes.get(note, 0) + twice
        typed.append(values)
    table = pa.Table.from_arrays([pa.array(lines, pa.int64()), *typed], schema=table_schema(contract))
    return table.filter(pa.array(~refused)) if refused.any() else table


def python_value(value: pa.Scalar) -> Any:
    """Return the value as a Python value.

    A time that Python cannot represent becomes a number. Bytes that are not UTF-8 are escaped.
    """
    try:
        plain = value.as_py()
    except UnicodeDecodeError:
        plain = value.cast(pa.binary()).as_py()
    except (ValueError, OverflowError, pa.ArrowException):
        plain = value.cast(pa.int32() if pa.types.is_date32(value.type) else pa.int64()).as_py()
    return plain.decode("utf-8", "backslashreplace") if isinstance(plain, bytes) else plain

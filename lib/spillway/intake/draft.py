"""Drafts a contract from a landing file: names, types, roles and order as the sample shows them.

A draft is a guess that is valid and says where it guessed; its owner reads it and decides. What it never does is
offer text or identifiers for shedding, or guess a key that never repeats. Samples hold bad records too: up to one
value in twenty may be missing from, or at odds with, what the others say.
"""

from __future__ import annotations

import csv
import io
import json
import re
import unicodedata
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet

from spillway.contracts.column_names import reserved
from spillway.contracts.loader import read_stream
from spillway.contracts.model import TYPES
from spillway.contracts.shapes import Report
from spillway.contracts.yaml_lines import read_yaml
from spillway.errors import Refused, safely
from spillway.intake.order_unit import SECONDS_PER, to_steps
from spillway.intake.rate import covered
from spillway.intake.roles import (
    ODD_SHARE,
    SampleColumn,
    finer_than,
    names_something,
    notes_of,
    order_of,
    part_of_time,
    senders_of,
)
from spillway.records.convert import convert, fits
from spillway.records.rejects import WholeFile
from spillway.records.wrapper import plain_bytes

_FORMATS = {
    ".csv": "csv", ".tsv": "csv", ".txt": "csv", ".json": "json", ".jsonl": "json", ".ndjson": "json",
    ".parquet": "parquet", ".pq": "parquet",
}  # fmt: skip
_WRAPPER_ENDINGS = (".gz", ".zst")
_SAMPLE_BYTES = 4 << 20
_SAMPLE_ROWS = 20_000
_SMALL_BYTES = 1_000_000
# in this order: to Arrow a date is a timestamp too, and 0 and 1 are booleans
_TEXT_TYPES = ("integer", "double", "date", "timestamp", "boolean")
_EMPTY_WORDS = ("", "NA", "N/A", "null", "NULL", "NaN", "nan")
_NAN_WORDS = frozenset(["NaN", "nan"])


def new_contract(sample_file: str | Path, *, stream: str | None = None, channel: str = "uplink") -> str:
    """The YAML of a draft contract for files like `sample_file`."""
    path = Path(sample_file)
    form, options, raw, decimal = _read(path)
    nested = [safely(field) for field, values in raw.items() if pa.types.is_nested(values.type)]
    odd = {
        f: one.type
        for f, one in raw.items()
        if not pa.types.is_nested(one.type) and not _can_be_read(one.type)
    }
    kept = {f: one for f, one in raw.items() if not pa.types.is_nested(one.type) and f not in odd}
    columns = _columns(kept, decimal)
    order = _order(columns, path)
    keys = senders_of(columns, order)
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
        "mode: observe  # plans and accounts, drops nothing; then: shed",
        _levers(columns, order, keys),
    ]
    finer = finer_than(order, columns)
    if finer is not None:
        told = f"{finer.name} rises more finely than {order.name}, but only times and whole numbers can be the order"
        lines.insert(7, f"  # {told}: deliver it as one")
    if nested:
        told = f"nested, and so left out of what is taken in: {', '.join(nested)}"
        lines.insert(7, f"  # {told}; flatten what you need before it lands")
    if odd:
        told = ", ".join(f"{safely(field)} ({kind})" for field, kind in odd.items())
        lines.insert(
            7, f"  # of no type that is taken in, and so left out: {told}; deliver what you need as another"
        )
    if not keys:
        lines.insert(7, "  # no attribute repeats like a sender's name: give one role: key if there is one")
    text = "\n".join(lines) + "\n"
    report = Report("the draft")
    read_stream(read_yaml(text, report), "the draft")
    return text


def _read(path: Path) -> tuple[str, str, dict[str, pa.Array], str]:
    """The format, how it is read as the contract says it, the columns, and what stands before fractions in them."""
    # gzip and zstd are known by the bytes, as when the file lands; their ending says no format
    named = path.with_suffix("") if path.suffix.lower() in _WRAPPER_ENDINGS else path
    form = _FORMATS.get(named.suffix.lower())
    if form is None:
        raise Refused("sample_file", "end in " + ", ".join(_FORMATS), path.name, "rename it after its format")
    try:
        if form == "parquet":
            return form, "", _parquet(path), "."
        content = _first_bytes(path)
    except WholeFile as error:
        _name, rule, value, remedy = error.why
        raise Refused("sample_file", rule, value, remedy) from None
    except OSError as error:
        raise Refused("sample_file", "be readable", str(path), str(error.strerror or error)) from None
    lines = content.decode("utf-8-sig", "replace").splitlines()
    if len(content) >= _SAMPLE_BYTES:
        lines.pop()  # most likely cut in two
    if not any(line.strip() for line in lines):
        raise Refused("sample_file", "hold records", "an empty file", "give one that does")
    if form == "json":
        return form, "", _json(lines, path), "."
    delimiter = max(",;\t|", key=lines[0].count)
    table = [row for row in csv.reader(io.StringIO("\n".join(lines)), delimiter=delimiter) if row]
    header, rows = table[0], [row for row in table[1 : _SAMPLE_ROWS + 1] if len(row) == len(table[0])]
    if not rows:
        raise Refused(
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
    """What stands before the fractions of a file's numbers: a comma where some read so are numbers and none by a point.

    >>> _decimal([pa.array(["53,5", "7,25"]), pa.array(["1", "2"])]), _decimal([pa.array(["53,5"]), pa.array(["1.5"])])
    (',', '.')
    """
    by_point, by_comma = (
        sum(_typed("", one, decimal)[0] == "double" and not _is_null(one) for one in columns)
        for decimal in ".,"
    )
    return "," if by_comma and not by_point else "."


def _null_words(column: Sequence[str]) -> set[str]:
    """What stands for nothing in a column; NaN does not where it stands among numbers with a fraction: it is one."""
    found = set(column) & set(_EMPTY_WORDS)
    if found & _NAN_WORDS:
        kind, _ = _typed("", pa.array([None if word in found else word for word in column], pa.string()))
        found -= _NAN_WORDS if kind == "double" and set(column) - found else set()
    return found


def _first_bytes(path: Path) -> bytes:
    with pa.OSFile(str(path)) as source:
        plain, found = plain_bytes(source), bytearray()
        while len(found) < _SAMPLE_BYTES and (more := plain.read(_SAMPLE_BYTES - len(found))):
            found += more
    return bytes(found)


def _parquet(path: Path) -> dict[str, pa.Array]:
    try:
        batch = next(pyarrow.parquet.ParquetFile(path).iter_batches(_SAMPLE_ROWS), None)
    except (pa.ArrowException, ValueError) as error:
        raise Refused("sample_file", "be readable Parquet", path.name, str(error)) from None
    if batch is None:
        raise Refused("sample_file", "hold records", "no rows", "give one that does")
    return {name: batch.column(i) for i, name in enumerate(batch.schema.names)}


def _json(lines: Sequence[str], path: Path) -> dict[str, pa.Array]:
    records = list(_objects(lines))
    if not records:
        raise Refused("sample_file", "hold one JSON object a line", path.name, "write JSON lines")
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
        raise Refused(field, "be of one type", " and ".join(sorted(kinds)), "mend the sender")
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
    return pa.types.is_null(kind) or any(fits(kind, one) for one in TYPES)


def _columns(raw: dict[str, pa.Array], decimal: str) -> list[SampleColumn]:
    columns: list[SampleColumn] = []
    for field, values in raw.items():
        word = _word(field)
        taken = {column.name for column in columns} | set(reserved())
        name = next(n for n in (word, *(f"{word}_{i}" for i in range(2, len(raw) + 3))) if n not in taken)
        columns.append(SampleColumn(field, name, *_typed(field, values, decimal)))
    return columns


def _typed(field: str, values: pa.Array, decimal: str = ".") -> tuple[str, pa.Array]:
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
        if fits(values.type, kind):
            return kind, convert(values, kind)[0]
    raise Refused(
        field, "be text, a number, a boolean, a timestamp or a date", str(values.type), "flatten or drop it"
    )


def _order(columns: Sequence[SampleColumn], path: Path) -> SampleColumn:
    found = order_of(columns)
    if found is None:
        names = ", ".join(f"{safely(c.field)} ({c.type})" for c in columns)
        numbering = "".join(
            f"{safely(c.field)} is a row number, not a time;  " for c in columns if c.is_row_number
        )
        raise Refused(
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
    # what only says the time again, or which one, has no error to trade: it is exact or wrong
    names_one = names_something(column) or column.is_row_number
    if column.type == "string" or names_one or part_of_time(column, order) is not None:
        return "protected"
    return "measure"


def _levers(columns: Sequence[SampleColumn], order: SampleColumn, keys: Sequence[str]) -> str:
    if any(_role(column, order, keys) == "measure" for column in columns):
        return (
            "# bounds: trained, of quantities that state none; stated: what states no error_pct or error is exact\n"
            "levers: [{lever: attributes, bounds: trained}]  # what sheds, in order; settings stand beside its name"
        )
    return "levers: []  # nothing is a measure: sent on as it is"


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
    found = covered(values)
    return None if found is None else found * step


def _word(text: str) -> str:
    """A lower-case name of letters, digits and _.

    >>> _word("Adj Close"), _word("responseTime (ms)"), _word("2nd"), _word("Länge")
    ('adj_close', 'response_time_ms', 'a_2nd', 'lange')
    """
    bare = "".join(c for c in unicodedata.normalize("NFKD", text) if not unicodedata.combining(c))
    split = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", bare)
    word = re.sub(r"[^a-z0-9]+", "_", split.lower()).strip("_")
    return word if word and word[0].isalpha() else f"a_{word}"

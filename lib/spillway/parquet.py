"""Write columns as Parquet in the encoding that takes the fewest bytes, measure columns, and shorten Parquet footers.

>>> rows = pa.table({"repeated": [1] * 4096, "counted": list(range(4096))})
>>> best_encodings(rows)
{'repeated': 'DELTA_BINARY_PACKED', 'counted': 'DELTA_BINARY_PACKED'}
>>> sum(compressed_widths(rows).values()) < 200
True

**Encodings.** `make bench` (part `encoding`: real, generated and long streams) compares the constants with
others. The figures below are its output with pyarrow 26.0.1. Choosing encodings takes 0.8 of the processor time
of writing for a million rows. For a file of 20,000 rows, all of which are compared, it takes 4 to 7 times the
processor time of writing.

**Footers.** A footer is a struct in Thrift's compact protocol (`parquet.thrift` of Apache Parquet names the
fields). Arrow writes three optional fields that no reader here needs. For each column of each row group: how
often each page encoding occurs, and size statistics. For each column: its sort order. In a small batch they
take a quarter of the footer. Readers need the first two only to plan reads of pages. They need the sort order
only to compare statistics, so it stays if the footer has statistics.

Before a shortened footer is written, it is compared with the one that Arrow wrote, and Arrow parses it
(`footer_difference`). If anything but the omitted fields differs, `WrongFooter` is raised, and no file is left.
"""

from __future__ import annotations

import io
import itertools
import json
import struct
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from spillway.errors import WrongFooter

_ROW_GROUPS, _COLUMN_ORDERS, _COLUMNS, _META_DATA, _ENCODING_STATS, _SIZE_STATISTICS = 4, 7, 1, 3, 13, 16
_ENDS_WITH = b"PAR1"
_TRUE, _FALSE, _BYTE, _DOUBLE, _BINARY, _LIST, _SET, _STRUCT = 1, 2, 3, 7, 8, 9, 10, 12

Omitted = Mapping[int, Any]
"""By field number: True if the field is left out; a mapping if parts of it are (of each item, if it is a list)."""


class ShortFooterSink:
    """A sink for Arrow's writer that passes all bytes on and shortens the footer.

    `state_statistics`: whether the footer has statistics. `finish` must be called before the writer is closed.
    """

    def __init__(self, sink: Any, state_statistics: bool) -> None:
        column = {_META_DATA: {_ENCODING_STATS: True, _SIZE_STATISTICS: True}}
        self._omitted: Omitted = {_ROW_GROUPS: {_COLUMNS: column}, _COLUMN_ORDERS: not state_statistics}
        self._sink, self._written = sink, 0
        self._end: bytearray | None = None
        self.closed = False

    def write(self, data: Any) -> int:
        """Write the bytes; after `finish`, buffer them."""
        count = memoryview(data).nbytes
        self._written += count
        if self._end is None:
            self._sink.write(data)
        else:
            self._end += data
        return count

    def tell(self) -> int:
        """Return the number of bytes that Arrow has written."""
        return self._written

    def flush(self) -> None:
        """Do nothing: the caller that opened the sink flushes and closes it."""

    def close(self, metadata: pq.FileMetaData | None = None) -> None:
        """Write the end of the file, with the shorter footer. `metadata`: the footer as Arrow's writer states it."""
        if self._end is not None and not self.closed:
            assert metadata is not None, "a shorter footer is compared with what Arrow wrote"
            self.closed = True
            try:
                before = bytes(self._end)
                end = short_footer(before, self._omitted)
                different = footer_difference(end, before, self._omitted, metadata)
            except (ValueError, IndexError, OSError, pa.ArrowException) as problem:
                different = str(problem)
            if different:
                raise WrongFooter(
                    f"A shortened Parquet footer must state what Arrow's own states, got: {different}. The file is not "
                    "written. Use the pinned version of pyarrow, and report this error"
                )
            self._sink.write(end)
        self.closed = True

    def finish(self) -> None:
        """Buffer all further bytes: Arrow writes the footer next."""
        self._end = bytearray()


def short_footer(end: bytes, omitted: Omitted) -> bytes:
    """Return the end of a Parquet file without some fields of its footer.

    >>> end = bytes([0x15, 4, 0x18, 1, 65, 0]) + struct.pack("<I", 6) + b"PAR1"
    >>> short_footer(end, {2: True})
    b'\\x15\\x04\\x00\\x03\\x00\\x00\\x00PAR1'
    """
    length = struct.unpack_from("<I", end, len(end) - 8)[0]
    start = len(end) - 8 - length
    footer = bytearray()
    read = _Reader(end, start)
    read.copy_struct(footer, omitted)
    if read.at != len(end) - 8 or not end.endswith(_ENDS_WITH):
        raise ValueError(f"a Parquet footer of {length} bytes must end at byte {len(end) - 8}, got {read.at}")
    return end[:start] + bytes(footer) + struct.pack("<I", len(footer)) + _ENDS_WITH


def footer_difference(end: bytes, before: bytes, omitted: Omitted, metadata: pq.FileMetaData) -> str:
    """Return what is wrong with the footer at the end of a file, which was `before`; "" if nothing.

    Both footers are decoded, by functions that share nothing with the copying ones: they may differ in the fields that
    are left out, and in nothing else. Then Arrow parses the footer and serialises it again.
    This takes 1 ms for 30 columns, and 8 ms for ten row groups of them.
    """
    if end[: _start(end)] != before[: _start(before)]:
        return "other bytes before the footer"
    (found, found_end), (wanted, wanted_end) = (_decode_struct(one, _start(one)) for one in (end, before))
    if (found_end, wanted_end) != (len(end) - 8, len(before) - 8):
        return f"a footer that ends at byte {found_end} of {len(end) - 8}"
    if found != _without(wanted, omitted):
        names = [
            number
            for number in {**wanted, **found}
            if found.get(number) != _without(wanted, omitted).get(number)
        ]
        return f"other values in the fields {names} of FileMetaData"
    # parse after the comparison: Arrow may abort the process if a value is in no enumeration of Parquet
    alone = _ENDS_WITH + end[_start(end) :]
    parsed, serialised = pq.read_metadata(pa.BufferReader(alone)), pa.BufferOutputStream()
    parsed.write_metadata_file(serialised)
    if serialised.getvalue().to_pybytes() != alone:
        return "bytes that Arrow writes otherwise"
    counts = [(one.num_rows, one.num_row_groups, one.num_columns) for one in (parsed, metadata)]
    if counts[0] != counts[1]:
        return f"(rows, row groups, columns) {counts[0]} in the place of {counts[1]}"
    return "" if parsed.schema.equals(metadata.schema) else "another schema"


def _start(end: bytes) -> int:
    """Return where the footer begins."""
    return len(end) - 8 - int(struct.unpack_from("<I", end, len(end) - 8)[0])


def _without(fields: Mapping[int, Any], omitted: Omitted) -> dict[int, Any]:
    """Return a decoded struct without the fields that are left out."""
    found = {}
    for number, (kind, value) in fields.items():
        what = omitted.get(number)
        if what is True:
            continue
        if isinstance(what, Mapping):
            value = (
                _without(value, what) if kind == _STRUCT else [(one, _without(it, what)) for one, it in value]
            )
        found[number] = kind, value
    return found


def _decode_struct(data: bytes, at: int) -> tuple[dict[int, Any], int]:
    """Return type and value of each field of a struct, by number, and where it ends."""
    fields: dict[int, Any] = {}
    number = 0
    while head := data[at]:
        at += 1
        if head > 15:
            number += head >> 4
        else:
            step, at = _decode_number(data, at)
            number = _signed(step)
        if number in fields:
            raise ValueError(f"a Parquet footer has field {number} once, got it twice")
        fields[number], at = _decode(data, at, head & 15)
    return fields, at + 1


def _decode(data: bytes, at: int, kind: int) -> tuple[tuple[int, Any], int]:
    if kind in (_TRUE, _FALSE):
        return (kind, None), at
    if kind == _STRUCT:
        fields, at = _decode_struct(data, at)
        return (kind, fields), at
    if kind in (_LIST, _SET):
        count, inside = data[at] >> 4, data[at] & 15
        at += 1
        if count == 15:
            count, at = _decode_number(data, at)
        items: list[Any] = []
        for _ in range(count):
            # in a list, a boolean is a byte
            one, at = _decode(data, at, _BYTE if inside in (_TRUE, _FALSE) else inside)
            items.append(one)
        return (kind, items), at
    if kind in (_BINARY, _BYTE, _DOUBLE):
        length = 8 if kind == _DOUBLE else 1
        if kind == _BINARY:
            length, at = _decode_number(data, at)
        return (kind, data[at : at + length]), at + length
    number, at = _decode_number(data, at)
    return (kind, number), at


def _decode_number(data: bytes, at: int) -> tuple[int, int]:
    found = shift = 0
    while data[at] > 127:
        found |= (data[at] & 127) << shift
        shift, at = shift + 7, at + 1
    return found | data[at] << shift, at + 1


class _Reader:
    """Copies values of Thrift's compact protocol."""

    def __init__(self, data: bytes, at: int) -> None:
        self.data, self.at = data, at

    def copy_struct(self, into: bytearray, omitted: Omitted) -> None:
        """Copy a struct without the omitted fields. A field's number is written as the difference to the one before."""
        read = written = 0
        while (head := self._byte()) != 0:
            step, kind = head >> 4, head & 15
            read = read + step if step else _signed(self._number())
            what = omitted.get(read)
            value = bytearray()
            self._copy(value, kind, what if isinstance(what, Mapping) else {})
            if what is True:
                continue
            if 0 < read - written < 16:
                into.append((read - written) << 4 | kind)
            else:
                into.append(kind)
                into += _varint(read << 1)
            into += value
            written = read
        into.append(0)

    def _copy(self, into: bytearray, kind: int, omitted: Omitted) -> None:
        if kind in (_TRUE, _FALSE):
            return  # the type is the value
        if kind == _STRUCT:
            self.copy_struct(into, omitted)
        elif kind in (_LIST, _SET):
            head = self._byte()
            into.append(head)
            count, inside = head >> 4, head & 15
            if count == 15:
                count = self._number(into)
            for _ in range(count):
                if inside in (_TRUE, _FALSE):
                    self._bytes(into, 1)
                else:
                    self._copy(into, inside, omitted)
        elif kind == _BINARY:
            self._bytes(into, self._number(into))
        elif kind == _BYTE:
            self._bytes(into, 1)
        elif kind == _DOUBLE:
            self._bytes(into, 8)
        elif kind < _DOUBLE:
            self._number(into)
        else:
            raise ValueError(f"a Parquet footer has no value of type {kind}")

    def _byte(self) -> int:
        self.at += 1
        return self.data[self.at - 1]

    def _bytes(self, into: bytearray, count: int) -> None:
        into += self.data[self.at : self.at + count]
        self.at += count

    def _number(self, into: bytearray | None = None) -> int:
        start, found, shift = self.at, 0, 0
        while (one := self._byte()) & 128:
            found |= (one & 127) << shift
            shift += 7
        if into is not None:
            into += self.data[start : self.at]
        return found | one << shift


def _signed(number: int) -> int:
    return number >> 1 ^ -(number & 1)


def _varint(number: int) -> bytes:
    found = bytearray()
    while number > 127:
        found.append(number & 127 | 128)
        number >>= 7
    found.append(number)
    return bytes(found)


ROWS_IN_A_GROUP = 1 << 19
"""Compared on 1,048,576 rows: row groups of 65,536 rows take 6 % more bytes, row groups of 4,096 rows 70 % more, one
row group of all rows 0.4 % fewer."""
COMPRESSION_LEVEL = 9
"""Of zstd. Level 6 takes 0 to 1.6 % more bytes for 0.7 to 0.8 of the processor time, level 12 takes 0 to 0.3 % fewer
for 1.5 to 2.6 times, level 19 takes 1 to 5 % fewer for 8 to 10 times. Level 3 takes 2 to 5 % more."""
PAGE_BYTES = 1 << 23
"""Each page is compressed by itself. Pages of 64 KiB take 1 to 3 % more bytes, pages above 1 MiB the same number.
Data page version 1 is written; version 2 takes 0 to 0.1 % more."""
SAMPLE_ROWS = 1 << 16
"""Number of rows on which the encodings and the orders of a file are compared."""
DICTIONARY_MARGIN = 1.3
"""If a dictionary takes at most this many times the bytes of the best encoding in the sample, it is compared on all
rows."""
MOST_BYTES_TAKEN = 1 << 30
"""Bytes of rows that change places at once."""
LEAST_SAVING = 0.03
"""Share of the bytes that another order of rows must save; readers pay for it by sorting."""
DICTIONARY, PLAIN, INTEGERS, LENGTHS, PREFIXES = (
    "DICTIONARY",
    "PLAIN",
    "DELTA_BINARY_PACKED",
    "DELTA_LENGTH_BYTE_ARRAY",
    "DELTA_BYTE_ARRAY",
)
"""The encodings that Spark's vectorised reader, DuckDB, Polars and delta-rs read. `BYTE_STREAM_SPLIT` is not one."""
_EMPTY_STATISTICS_BYTES = 2

_KEYS = b"spillway.rows_by"

Encodings = Mapping[str, str]
"""Encoding by column. A column that is not named gets a dictionary."""


def best_encodings(rows: pa.Table) -> dict[str, str]:
    """Return the encoding of each column that takes the fewest bytes; of equal ones, the first in `_candidates`.

    The encodings are compared on `SAMPLE_ROWS` rows. More rows repeat more values, so that a dictionary takes
    relatively fewer bytes. If it takes at most `DICTIONARY_MARGIN` times the bytes of the best encoding in the sample,
    both are compared on all rows. The choice depends on the rows alone, so that the same rows always become the same
    bytes.
    """
    return _best(rows, _compared(_sample(rows)))


def best_layout(
    rows: pa.Table, keys: Sequence[str], order_stays: bool = False
) -> tuple[tuple[str, ...], dict[str, str]]:
    """Return the keys by which to store rows, and the best encodings of the columns in that order.

    `keys` are returned if storing rows by key (see `group_by_key`) saves at least `LEAST_SAVING` of the bytes, `seq`
    included, or if `order_stays` is true: the rows are stored by key already. Otherwise `()` is returned: the order of
    arrival. On the evidence's streams, batches of 10,000 rows become up to 13 % smaller, or 26 % if measures are
    rounded. Batches of 1,000 rows become up to 5 % smaller. Rows without measures become larger on most streams.

    >>> key = [at % 100 for at in range(10_000)]
    >>> counter = [(one + 1) ** 3 % 997 + at // 100 * (one % 7) for at, one in enumerate(key)]
    >>> rows = pa.table({"seq": range(10_000), "key": key, "counter": counter})
    >>> best_layout(rows, ["key"])[0]
    ('key',)
    """
    sample = _sample(rows)
    ordered = group_by_key(sample, keys)
    if keys and order_stays:
        return tuple(keys), _best(group_by_key(rows, keys), _compared(ordered))
    arrival = _compared(sample)
    if ordered is not sample:
        found = _compared(ordered)
        before, after = (sum(min(sizes.values()) for sizes in one.values()) for one in (arrival, found))
        if after <= (1 - LEAST_SAVING) * before:
            return tuple(keys), _best(group_by_key(rows, keys), found)
    return (), _best(rows, arrival)


def group_by_key(rows: pa.Table, keys: Sequence[str]) -> pa.Table:
    """Return the rows grouped by key; the same table object if they are grouped already.

    Keys come in the order of their first row. Rows of one key keep their order. If the senders of a stream report in
    turn, `seq` then advances by equal steps within each key, and takes almost no bytes.

    >>> group_by_key(pa.table({"key": ["b", "a", "b"], "seq": [1, 2, 3]}), ["key"])["seq"].to_pylist()
    [1, 3, 2]
    """
    if rows.num_rows < 2:
        return rows
    codes = np.zeros(rows.num_rows, np.int64)
    for name in keys:
        values = rows[name].combine_chunks().dictionary_encode(null_encoding="encode")
        one = np.asarray(values.indices, np.int64)
        codes = np.asarray(pa.array(codes * (one.max() + 1) + one).dictionary_encode().indices, np.int64)
    return rows if (codes[1:] >= codes[:-1]).all() else _take(rows, np.argsort(codes, kind="stable"))


def in_arrival_order(rows: pa.Table, arrival: str) -> pa.Table:
    """Return the rows in the order of the column `arrival`."""
    return _take(rows, pc.sort_indices(rows[arrival]).to_numpy())


def _take(rows: pa.Table, places: np.ndarray) -> pa.Table:
    """Return the rows at these places.

    Arrow joins the chunks of a column before it takes rows of it, and refuses if they have more than 2 GiB of text.
    """
    if rows.nbytes <= MOST_BYTES_TAKEN:
        return rows.take(places)
    large = {pa.string(): pa.large_string(), pa.binary(): pa.large_binary()}
    wide = pa.schema([field.with_type(large.get(field.type, field.type)) for field in rows.schema])
    whole = rows.cast(wide).combine_chunks()
    lengths = [pc.binary_length(whole[field.name]) for field in wide if field.type in large.values()]
    sizes = np.full(rows.num_rows, 8 * rows.num_columns, np.int64)
    for one in lengths:
        sizes += np.asarray(pc.fill_null(one, 0), np.int64)
    pieces = np.cumsum(sizes[places]) // MOST_BYTES_TAKEN
    edges = [0, *(np.flatnonzero(np.diff(pieces)) + 1).tolist(), rows.num_rows]
    return pa.concat_tables(
        [whole.take(places[low:high]).cast(rows.schema) for low, high in itertools.pairwise(edges)]
    )


def _sample(rows: pa.Table) -> pa.Table:
    return rows.slice(max(0, (rows.num_rows - SAMPLE_ROWS) // 2), SAMPLE_ROWS)


def _best(rows: pa.Table, sizes: Mapping[str, Mapping[str, int]]) -> dict[str, str]:
    """Return the best encoding of each column, by the sizes in a sample of the rows."""
    best = {name: min(found, key=found.__getitem__) for name, found in sizes.items()}
    if rows.num_rows > SAMPLE_ROWS:
        doubtful = {
            name: (DICTIONARY, best[name])
            for name, found in sizes.items()
            if best[name] != DICTIONARY and found[DICTIONARY] <= DICTIONARY_MARGIN * found[best[name]]
        }
        best |= {name: min(found, key=found.__getitem__) for name, found in _compared(rows, doubtful).items()}
    return best


def _compared(
    rows: pa.Table, candidates: Mapping[str, Sequence[str]] | None = None
) -> dict[str, dict[str, int]]:
    """Return the bytes of each column in each of its candidate encodings, by default all for its type."""
    if candidates is None:
        candidates = {field.name: _candidates(field.type) for field in rows.schema}
    trials = [(name, one) for name, some in candidates.items() for one in some]
    if not trials:
        return {}
    table = pa.table([rows[name] for name, _ in trials], names=[str(at) for at in range(len(trials))])
    sizes = compressed_widths(table, {str(at): encoding for at, (_, encoding) in enumerate(trials)})
    found: dict[str, dict[str, int]] = {}
    for at, (name, encoding) in enumerate(trials):
        found.setdefault(name, {})[encoding] = sizes[str(at)]
    return found


@contextmanager
def parquet_writer(
    sink: Any,
    schema: pa.Schema,
    encodings: Encodings,
    has_row_groups: bool = False,
    footers: list[pq.FileMetaData] | None = None,
    keys: Sequence[str] = (),
    **other: Any,
) -> Iterator[pq.ParquetWriter]:
    """Open a Parquet writer with the options of every table.

    `has_row_groups`: the file may have more than one row group. Only then the footer states the smallest and largest
    value of each column by which row groups are skipped; for the whole file the table's log states them. A page index
    holds them too, because Arrow would otherwise repeat them in the page headers. So a column takes the same bytes in
    a file of one row group and in a file of several, and a compaction changes no plan.
    `footers`: the list to which the writer appends the footer when it is closed.
    `keys`: the columns by which the rows of each row group are stored (`group_by_key`). The footer states them.
    `other`: options of Arrow's writer that replace the constants, for comparisons.
    """
    shortened, collected = ShortFooterSink(sink, has_row_groups), [] if footers is None else footers
    with _arrow_writer(
        shortened, schema, encodings, has_row_groups, metadata_collector=collected, **other
    ) as writer:
        yield writer
        if keys:
            writer.add_key_value_metadata({_KEYS: json.dumps(list(keys))})
        shortened.finish()
    shortened.close(collected[-1])


def _arrow_writer(
    sink: Any, schema: pa.Schema, encodings: Encodings, has_row_groups: bool = False, **other: Any
) -> pq.ParquetWriter:
    options: dict[str, Any] = {
        "compression_level": COMPRESSION_LEVEL,
        "data_page_size": PAGE_BYTES,
        "max_rows_per_page": ROWS_IN_A_GROUP,
    }
    return pq.ParquetWriter(
        sink,
        schema,
        compression="zstd",
        use_dictionary=[name for name in schema.names if encodings.get(name, DICTIONARY) == DICTIONARY],
        column_encoding={
            name: encodings[name] for name in schema.names if encodings.get(name, DICTIONARY) != DICTIONARY
        }
        or None,
        write_statistics=[field.name for field in schema if has_row_groups and skips_groups(field.type)],
        write_page_index=has_row_groups,
        # Parquet's types are enough; Arrow's copy of the schema would add a kilobyte to every small batch
        store_schema=False,
        **options | other,
    )


def stored_keys(metadata: pq.FileMetaData) -> tuple[str, ...]:
    """Return the keys by which the rows of each row group are stored; `()`: the footer states none (arrival order)."""
    stated = (metadata.metadata or {}).get(_KEYS)
    return () if stated is None else tuple(json.loads(stated))


def compressed_widths(rows: pa.Table, encodings: Encodings | None = None) -> dict[str, int]:
    """Return the compressed bytes of each column, as a table's file of these rows would have them."""
    chosen, footers = best_encodings(rows) if encodings is None else encodings, list[pq.FileMetaData]()
    with _arrow_writer(pa.MockOutputStream(), rows.schema, chosen, metadata_collector=footers) as writer:
        writer.write_table(rows, row_group_size=ROWS_IN_A_GROUP)
    return chunk_bytes(footers[0])


def empty_bytes(schema: pa.Schema) -> int:
    """Return the bytes of a file of these columns that has no row."""
    sink = io.BytesIO()
    with parquet_writer(sink, schema, {}):
        pass
    return len(sink.getvalue())


def chunk_bytes(metadata: pq.FileMetaData, group: int | None = None) -> dict[str, int]:
    """Return the compressed bytes of each column of a file (or of one of its row groups), by its footer."""
    found: dict[str, int] = {}
    for place in range(metadata.num_row_groups) if group is None else [group]:
        row_group = metadata.row_group(place)
        for index in range(metadata.num_columns):
            chunk = row_group.column(index)
            name = chunk.path_in_schema.split(".")[0]
            # without a page index, the page header has an empty struct of statistics
            header = _EMPTY_STATISTICS_BYTES if chunk.has_offset_index else 0
            found[name] = found.get(name, 0) + chunk.total_compressed_size + header
    return found


def _candidates(kind: pa.DataType) -> tuple[str, ...]:
    """Return the encodings to compare for a type; none if there is no choice."""
    if pa.types.is_integer(kind) or pa.types.is_timestamp(kind) or pa.types.is_date32(kind):
        return DICTIONARY, INTEGERS, PLAIN
    if pa.types.is_floating(kind):
        return DICTIONARY, PLAIN
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return DICTIONARY, LENGTHS, PREFIXES, PLAIN
    return ()


def skips_groups(kind: pa.DataType) -> bool:
    """Return whether Spillway's readers skip row groups by a column of this type: row and batch numbers, and times.

    Not floats: Arrow ignores NaN, which Spark sorts after every number. Not text and bytes: Arrow writes whole values.
    """
    return pa.types.is_integer(kind) or pa.types.is_timestamp(kind) or pa.types.is_date(kind)

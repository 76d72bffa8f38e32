"""Shorten the footer of a Parquet file that Arrow writes: leave out optional fields that no reader here needs.

Arrow writes three of them. For each column of each row group: how often each page encoding occurs, and size statistics.
For each column: its sort order. In a small batch they take a quarter of the footer. Readers need the first two only to
plan reads of pages. They need the sort order only to compare statistics, so it stays if the footer has statistics.

The footer is a struct in Thrift's compact protocol (`parquet.thrift` of Apache Parquet names the fields).
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any

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

    def close(self) -> None:
        """Write the end of the file, with the shorter footer."""
        if self._end is not None and not self.closed:
            self._sink.write(short_footer(bytes(self._end), self._omitted))
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
            return  # the kind is the value
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

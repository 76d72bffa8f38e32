"""Split a large file into slices that tasks read in parallel.

A slice begins with a record and has the number of lines before it. The split points depend only on the bytes of the
file. Text is split at the end of a record. CSV is split only up to the first misplaced quote (`csv_lines.QuoteIndex`):
the rest is one slice, and its task reads it record by record. Parquet is split between row groups. A wrapped file is
one slice, because it can only be read from its beginning. A file whose lines have parity is one slice as well.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from spillway.contracts.stream import StreamContract
from spillway.records.csv_lines import FIELD_CHARACTERS, QuoteIndex, header_of
from spillway.records.lines import BLOCK_BYTES, Lines
from spillway.records.parquet import open_parquet
from spillway.records.rejects import WholeFile
from spillway.records.wrapper import SeekableBytes, detect_wrapper, open_decompressed

PIECE_BYTES = 32 << 20


@dataclass(frozen=True)
class FileSlice:
    """A slice of a file: a range of its bytes, or some of its row groups.

    `size` None: to the end of the file. `before`: the number of lines, or rows, before the slice.
    """

    start: int = 0
    size: int | None = None
    before: int = 0
    header: tuple[str, ...] | None = None
    groups: tuple[int, ...] | None = None


WHOLE = FileSlice()


@dataclass(frozen=True)
class MeasuredFile:
    """The digest of a file, and an upper bound of its line numbers."""

    digest: str
    records: int


class _HashingReader:
    """Hashes the bytes while they are read, in the order of the file."""

    def __init__(self, source: SeekableBytes) -> None:
        self._source, self._hash = source, hashlib.sha256()
        source.seek(0)

    def read(self, count: int) -> bytes:
        found = self._source.read(count)
        self._hash.update(found)
        return found

    def digest(self) -> str:
        """Return the digest of the whole file; read the rest of it first."""
        while self.read(BLOCK_BYTES):
            pass
        return self._hash.hexdigest()


def measure_file(contract: StreamContract, source: SeekableBytes) -> MeasuredFile:
    """Return the digest of a file and an upper bound of its line numbers, in bounded memory.

    This is cheap: it lets the caller assign `seq` numbers before any file is parsed.
    """
    if contract.source.format == "parquet" or detect_wrapper(source) is not None:
        digest = _HashingReader(source).digest()
        return MeasuredFile(digest, _count_lines(contract, source))
    hashed = _HashingReader(source)
    count, last = 0, b"\n"
    while part := hashed.read(BLOCK_BYTES):
        count, last = count + part.count(b"\n"), part[-1:]
    return MeasuredFile(hashed.digest(), count + (last != b"\n"))


def _count_lines(contract: StreamContract, source: SeekableBytes) -> int:
    if not source.size():
        return 0
    try:
        if contract.source.format == "parquet":
            return int(open_parquet(source).metadata.num_rows)
        plain, count, last = open_decompressed(source), 0, b"\n"
        while part := plain.read(BLOCK_BYTES):
            count, last = count + part.count(b"\n"), part[-1:]
        return count + (last != b"\n")
    except WholeFile:
        return 1  # the one rejection that stands for the file


def split_file(
    contract: StreamContract, source: SeekableBytes, piece_bytes: int = PIECE_BYTES
) -> tuple[FileSlice, ...]:
    """Split the file into slices of about `piece_bytes` bytes; one slice if it is smaller or cannot be split."""
    if source.size() <= piece_bytes:
        return (WHOLE,)
    try:
        if contract.source.format == "parquet":
            return tuple(_row_groups(open_parquet(source).metadata, piece_bytes))
        if detect_wrapper(source) is not None or contract.source.parity != "none":
            return (WHOLE,)
        return _text(contract, source, piece_bytes)
    except WholeFile:
        return (WHOLE,)


def _row_groups(metadata: Any, piece_bytes: int) -> Iterator[FileSlice]:
    groups: list[int] = []
    size = before = rows = 0
    for index in range(metadata.num_row_groups):
        group = metadata.row_group(index)
        weight = sum(group.column(i).total_compressed_size for i in range(group.num_columns))
        if groups and size + weight > piece_bytes:
            yield FileSlice(before=before, groups=tuple(groups))
            groups, size, before = [], 0, rows
        groups.append(index)
        size, rows = size + weight, rows + group.num_rows
    yield FileSlice(before=before, groups=tuple(groups))


def _text(contract: StreamContract, source: SeekableBytes, piece_bytes: int) -> tuple[FileSlice, ...]:
    header, quoted = None, contract.source.format == "csv"
    source.seek(0)
    held = source.read(BLOCK_BYTES)
    if quoted:
        if len(contract.source.options.delimiter.encode()) != 1:
            return (WHOLE,)
        if contract.source.options.header:
            found = header_of(contract, Lines.of(held))
            if found is None:
                return (WHOLE,)
            header = found[0]
    pieces, offset, lines, begun, before = [], 0, 0, 0, 0
    while held:
        lines_here = Lines.of(held[: held.rfind(b"\n") + 1], lines)
        if not lines_here.count:
            break  # a line longer than a block: the task that reads the rest finds its end
        end, count = _records_end(contract, lines_here) if quoted else (lines_here.count, lines_here.count)
        if not end:
            break
        size = int(lines_here.ends[end - 1]) + 1
        offset, lines, held = offset + size, lines + end, held[size:]
        if offset - begun >= piece_bytes:
            pieces.append(FileSlice(begun, offset - begun, before, header if begun else None))
            begun, before = offset, lines
        if end < count:
            break  # a misplaced quote: from here on only the exact reader finds the ends of records
        part = source.read(BLOCK_BYTES)
        if not part:
            break
        held += part
    if not pieces:
        return (WHOLE,)
    last = FileSlice(begun, None, before, header)
    return (*pieces, last) if begun < source.size() else tuple(pieces)


def _records_end(contract: StreamContract, lines: Lines) -> tuple[int, int]:
    """Return the line after the last record with a known end, and the line expected there.

    If the first is smaller, a quote is misplaced, and the rest must be read record by record.
    """
    stretch = QuoteIndex(lines, contract.source.options.delimiter).next_range(0)
    # more than FIELD_CHARACTERS bytes without a known end: a quote is misplaced; fewer: the record goes on
    pending = len(lines.content) - (int(lines.ends[stretch.end - 1]) + 1 if stretch.end else 0)
    count = lines.count if pending > FIELD_CHARACTERS else stretch.end
    return stretch.end, count


class SliceReader:
    """Reads a slice of a file as if it were a whole file."""

    def __init__(self, source: SeekableBytes, piece: FileSlice) -> None:
        self._source, self._left = source, piece.size
        source.seek(piece.start)

    def read(self, count: int) -> bytes:
        wanted = count if self._left is None else min(count, self._left)
        found = self._source.read(wanted)
        if self._left is not None:
            self._left -= len(found)
        return found

"""Read CSV (RFC 4180): a header by default, quotes doubled inside quotes, line feeds allowed inside quotes.

The text is UTF-8; a record with a line that is not (`Lines.lacking_utf8`) is rejected. The options of a contract
(delimiter, header) are `contracts.sections.Options`.

The file is read in blocks of lines. There are two readers:

- The fast reader handles records with well-placed quotes (`QuoteIndex`). It counts delimiters, rejects records with a
  wrong number of fields, and lets Arrow split the others.
- The exact reader (Python's `csv`) handles all other records, one by one.

Both give the same result, so the result does not depend on the block boundaries. The line number of a record is that of
its first line. If a quote never closes, only its own line is rejected, not the rest of the file. A quoted field may
span at most 1000 lines, and a field may have at most 131,072 characters.

A column that the contract does not know is noted and left out, or refuses the file (`unknown_fields`). A missing column
is noted, or refuses the file if it is required.

Ends of records. A well-placed quote opens a field (after a delimiter or a line end), closes a field (before one), or is
doubled inside a field. If all quotes are well placed, a line feed after an even number of quotes ends a record, and a
delimiter after an even number of quotes ends a field. All readers of CSV agree on this. The fast reader stops at the
first misplaced quote, lone carriage return or record that is too long. The exact reader continues from there.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import takewhile
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from spillway.contracts.fields import suggest
from spillway.contracts.stream import StreamContract
from spillway.records.convert import ParsedRecords, assemble, no_records
from spillway.records.lines import BOM, RECORD_BYTES, LineReader, Lines, refuse_long
from spillway.records.rejects import TO_UTF8, Rejects, absent_column, unknown_column
from spillway.records.wrapper import ByteReader

FIELD_CHARACTERS = 131_072
RECORD_LINES = 1000
_QUOTE, _FEED, _RETURN = 34, 10, 13

_Lines = npt.NDArray[np.int64]


@dataclass(frozen=True)
class RecordRange:
    """Consecutive records with well-placed quotes.

    `first` and `last`: the lines (from 0) at which each begins and ends. `fields`: its number of fields.
    """

    first: _Lines
    last: _Lines
    fields: _Lines

    @property
    def end(self) -> int:
        """The line after the last record."""
        return int(self.last[-1]) + 1 if len(self.last) else 0


class QuoteIndex:
    """The positions of the quotes, delimiters and lone carriage returns of some lines."""

    def __init__(self, lines: Lines, delimiter: str) -> None:
        self.lines = lines
        data = np.frombuffer(lines.content, dtype=np.uint8)
        self._quotes = np.flatnonzero(data == _QUOTE)
        self._delimiters = np.flatnonzero(data == ord(delimiter))
        self._data, self._delimiter = data, ord(delimiter)
        returns = np.flatnonzero(data == _RETURN)
        follows = data[np.minimum(returns + 1, len(data) - 1)] if len(data) else returns
        self._lone = returns[(follows != _FEED) | (returns + 1 >= len(data))]

    @property
    def is_empty(self) -> bool:
        """Whether the lines have no quote."""
        return not len(self._quotes)

    def next_range(self, start: int) -> RecordRange:
        """Return the records from line `start` up to the first that is misquoted, too long or not complete."""
        lines = self.lines
        begin = int(lines.starts[start])
        quotes = self._quotes[np.searchsorted(self._quotes, begin) :]
        odd = self._first_odd(quotes, begin)
        ends = lines.ends[start:]
        before = np.searchsorted(quotes, ends)
        stop = int(np.searchsorted(ends, odd)) if odd is not None else len(ends)
        last = np.flatnonzero(before[:stop] % 2 == 0) + start
        first = np.concatenate([[start], last[:-1] + 1]) if len(last) else last
        length = lines.ends[last] - lines.starts[first]
        wide = np.flatnonzero((length > FIELD_CHARACTERS) | (last - first >= RECORD_LINES))
        if len(wide):
            first, last = first[: wide[0]], last[: wide[0]]
        # a delimiter inside quotes is text
        outside = self._delimiters[np.searchsorted(quotes, self._delimiters) % 2 == 0]
        fields = (
            np.searchsorted(outside, lines.ends[last]) - np.searchsorted(outside, lines.starts[first]) + 1
        )
        return RecordRange(first.astype(np.int64), last.astype(np.int64), fields.astype(np.int64))

    def _first_odd(self, quotes: _Lines, begin: int) -> int | None:
        """Return the position of the first byte on which CSV readers may differ; None if there is none."""
        lone = self._lone[np.searchsorted(self._lone, begin) :][:1]
        found = [int(lone[0])] if len(lone) else []
        data, many = self._data, len(quotes)
        if many:
            before = np.where(quotes > begin, data[np.maximum(quotes - 1, 0)], _FEED)
            after = np.where(quotes + 1 < len(data), data[np.minimum(quotes + 1, len(data) - 1)], _FEED)
            doubled = np.zeros(many, dtype=np.bool_)
            doubled[1:] = quotes[1:] == quotes[:-1] + 1
            opens = (before == self._delimiter) | (before == _FEED) | doubled
            followed = np.zeros(many, dtype=np.bool_)
            followed[:-1] = doubled[1:]
            closes = (after == self._delimiter) | (after == _FEED) | (after == _RETURN) | followed
            wrong = np.where(np.arange(many) % 2 == 0, ~opens, ~closes)
            if wrong.any():
                found.append(int(quotes[np.argmax(wrong)]))
        return min(found) if found else None


_ONE_BY_ONE = 64
"""The number of records that the exact reader reads before the fast reader is tried again; doubled at each retry."""


class CsvRecord(NamedTuple):
    """A record from the exact reader; its lines count from 0."""

    first: int
    last: int
    fields: list[str]
    problem: str = ""


def csv_blocks(
    contract: StreamContract,
    file_name: str,
    plain: ByteReader,
    lines_before: int = 0,
    header: tuple[str, ...] | None = None,
) -> Iterator[ParsedRecords]:
    """Yield the records of CSV in blocks. `header`: the file's header, if these bytes are not its beginning."""
    reader, held, before = LineReader(plain), b"", lines_before
    names = header
    if names is None and not contract.source.options.header:
        names = tuple(attribute.source_name for attribute in contract.attributes)
    while not reader.done or held:
        held += reader.next()
        rejects = Rejects(file_name)
        block = _Block(contract, Lines.of(held, before), reader.done, rejects)
        start = 0
        if names is None:
            found = block.header()
            if found is None:
                if not reader.done:
                    continue
                yield no_records(contract, rejects)
                return
            names, start = tuple(name.strip() for name in found.fields), found.last + 1
            if not _header_fits(contract, block.lines, found, names, rejects):
                yield no_records(contract, rejects)
                return
        tables, start = block.read(names, start)
        yield _with_notes(contract, names, tables, rejects)
        if block.last:
            return  # all bytes are read, also if they are only a byte order mark and have no line
        lines = block.lines
        if start:
            held = held[lines.starts[start] :] if start < lines.count else b""
        before += start


def header_of(contract: StreamContract, lines: Lines) -> tuple[tuple[str, ...], int] | None:
    """Return the names in the header and the line (from 0) after it; None if the header is missing or not valid."""
    rejects = Rejects("")
    found = _Block(contract, lines, True, rejects).header()
    if found is None:
        return None
    names = tuple(name.strip() for name in found.fields)
    return (names, found.last + 1) if _header_fits(contract, lines, found, names, rejects) else None


def _with_notes(
    contract: StreamContract, names: tuple[str, ...], tables: list[pa.Table], rejects: Rejects
) -> ParsedRecords:
    if not tables:
        return no_records(contract, rejects)
    table = pa.concat_tables(tables)
    known = {attribute.source_name for attribute in contract.attributes}
    notes = {unknown_column(name): table.num_rows for name in names if name not in known}
    notes |= {absent_column(name): table.num_rows for name in known if name not in names}
    return ParsedRecords(table, rejects.table(), notes | rejects.notes if table.num_rows else {})


def _header_fits(
    contract: StreamContract, lines: Lines, header: CsvRecord, found: tuple[str, ...], rejects: Rejects
) -> bool:
    line, original = lines.number(header.first), lines.bytes_of(header.first, header.last)
    known = [a.source_name for a in contract.attributes]
    if header.problem:
        remedy = TO_UTF8 if header.problem == "not UTF-8" else "correct the first line"
        rejects.add(line, "the header", "be readable", header.problem, remedy, original)
        return False
    strict = contract.unknown_fields == "refuse"
    seen = set()
    for name in found:
        if name not in known and strict:
            remedy = suggest(name, known) + ", or add it to the contract; the whole file waits for it"
            rejects.add(line, name, "be an attribute of the contract", name, remedy, original)
            return False
        if name in seen and (strict or name in known):
            rejects.add(line, name, "stand once in the header", name, "rename one", original)
            return False
        seen.add(name)
    for attribute in contract.attributes:
        if attribute.required and attribute.source_name not in found:
            remedy = _other_delimiter(contract, original) or (
                "add the column, or header: false to the source's options if there is no header"
            )
            rejects.add(line, attribute.source_name, "be a column", ", ".join(found), remedy, original)
            return False
    return True


def _other_delimiter(contract: StreamContract, header: bytes) -> str:
    """Return the remedy for a header with another delimiter; empty if there is none."""
    known = {a.source_name for a in contract.attributes}
    mine = contract.source.options.delimiter

    def names(delimiter: str) -> int:
        fields = header.decode("utf-8", "replace").strip("\ufeff\r\n").split(delimiter)
        return len(known & {field.strip().strip('"') for field in fields})

    best = max((";", ",", "\t", "|"), key=names)
    if names(best) <= names(mine):
        return ""
    return f"the delimiter is {best!r}: write options: {{delimiter: {json.dumps(best)}}} under source in the contract"


class _Block:
    """A block of lines that starts with a record. Unless it is the `last` block, its last record may be incomplete."""

    def __init__(self, contract: StreamContract, lines: Lines, last: bool, rejects: Rejects) -> None:
        self.contract, self.lines, self.last, self.rejects = contract, lines, last, rejects
        self.bad_text = lines.lacking_utf8()
        self.long = lines.too_long()
        self.clean = not (self.bad_text.any() or self.long.any())
        delimiter = contract.source.options.delimiter
        self.quotes = QuoteIndex(lines, delimiter) if len(delimiter.encode()) == 1 else None

    def header(self) -> CsvRecord | None:
        """Return the first record; None if it does not end in this block."""
        return next(iter(self._exactly(0)), None)

    def read(self, names: tuple[str, ...], start: int) -> tuple[list[pa.Table], int]:
        """Return tables of the records from line `start`, and the line of the first record that is incomplete here."""
        tables: list[pa.Table] = []
        step = _ONE_BY_ONE
        while start < self.lines.count:
            stretch = self.quotes.next_range(start) if self.quotes is not None else None
            if stretch is not None and len(stretch.last):
                tables += self._fast(names, stretch)
                start = stretch.end
            if start >= self.lines.count:
                break
            found = self._some(start, step)
            if not found:
                break
            tables += self._slow(names, found)
            start = found[-1].last + 1
            step *= 2
        # in the last block, all remaining lines are blank
        return tables, self.lines.count if self.last else start

    def _fast(self, names: tuple[str, ...], stretch: RecordRange) -> list[pa.Table]:
        lines, first, last = self.lines, stretch.first, stretch.last
        usable = ~(lines.blank[first] & (first == last))
        if self.bad_text.any():
            counted = np.concatenate([[0], np.cumsum(self.bad_text)])
            bad = usable & (counted[last + 1] > counted[first])
            for i in np.flatnonzero(bad):
                self._not_utf8(int(first[i]), lines.bytes_of(int(first[i]), int(last[i])))
            usable &= ~bad
        wrong = usable & (stretch.fields != len(names))
        for i in np.flatnonzero(wrong):
            original = lines.bytes_of(int(first[i]), int(last[i]))
            self._wrong_count(int(first[i]), len(names), int(stretch.fields[i]), original)
        usable &= ~wrong
        first, last = first[usable], last[usable]
        if not len(first):
            return []
        columns = self._split(names, first, last)
        if columns is None:
            end = int(last[-1])
            return self._slow(names, list(takewhile(lambda r: r.first <= end, self._exactly(int(first[0])))))
        return self._assemble(columns, first, last)

    def _split(
        self, names: tuple[str, ...], first: npt.NDArray[np.int64], last: npt.NDArray[np.int64]
    ) -> dict[str, pa.Array] | None:
        """Split the records into columns by attribute, with Arrow; None if Arrow found other records."""
        options = self.contract.source.options
        content = _select_records(self.lines, first, last)
        if bytes(content[:3]) == BOM:
            content = BOM + content  # this BOM is text, and Arrow drops one BOM at the beginning
        numbers = [str(i) for i in range(len(names))]
        wanted = [
            (a.name, names.index(a.source_name)) for a in self.contract.attributes if a.source_name in names
        ]
        quoted: Any = False if self.quotes is None or self.quotes.is_empty else '"'
        try:
            table = pyarrow.csv.read_csv(
                pa.BufferReader(content),
                read_options=pyarrow.csv.ReadOptions(
                    use_threads=False, column_names=numbers, block_size=len(content) + 1
                ),
                parse_options=pyarrow.csv.ParseOptions(
                    delimiter=options.delimiter,
                    quote_char=quoted,
                    newlines_in_values=bool(quoted),
                    ignore_empty_lines=False,
                ),
                convert_options=pyarrow.csv.ConvertOptions(
                    column_types={number: pa.string() for number in numbers},
                    include_columns=[str(place) for _, place in wanted],
                    null_values=list(options.null_values),
                    strings_can_be_null=True,
                ),
            )
        except pa.ArrowInvalid:
            return None
        if table.num_rows != len(first):
            return None
        return {name: _whole(table.column(str(place))) for name, place in wanted}

    def _slow(self, names: tuple[str, ...], found: list[CsvRecord]) -> list[pa.Table]:
        lines, rejects = self.lines, self.rejects
        nulls = pa.array(self.contract.source.options.null_values, pa.string())
        kept: list[CsvRecord] = []
        for row in found:
            if not row.problem and len(row.fields) == len(names):
                kept.append(row)
                continue
            original = lines.bytes_of(row.first, row.last)
            if self.long[row.first]:
                refuse_long(lines, row.first, rejects)
            elif row.problem == "not UTF-8":
                self._not_utf8(row.first, original)
            elif row.problem:
                remedy = "quote the field and double the quotes inside it"
                rejects.add(
                    lines.number(row.first), "the record", "be readable CSV", row.problem, remedy, original
                )
            else:
                self._wrong_count(row.first, len(names), len(row.fields), original)
        if not kept:
            return []
        columns = {}
        for attribute in self.contract.attributes:
            if attribute.source_name in names:
                place = names.index(attribute.source_name)
                column = pa.array([row.fields[place] for row in kept], pa.string())
                columns[attribute.name] = pc.if_else(pc.is_in(column, nulls), None, column)
        first = np.array([row.first for row in kept], dtype=np.int64)
        last = np.array([row.last for row in kept], dtype=np.int64)
        return self._assemble(columns, first, last)

    def _assemble(
        self, columns: dict[str, pa.Array], first: npt.NDArray[np.int64], last: npt.NDArray[np.int64]
    ) -> list[pa.Table]:
        original: Callable[[int], bytes] = lambda i: self.lines.bytes_of(int(first[i]), int(last[i]))  # noqa: E731
        numbers = first + self.lines.before + 1
        return [assemble(self.contract, numbers, columns, original, self.rejects)]

    def _some(self, start: int, most: int) -> list[CsvRecord]:
        """Return at most `most` records from the exact reader."""
        found: list[CsvRecord] = []
        for row in self._exactly(start):
            found.append(row)
            if len(found) == most:
                break
        return found

    def _exactly(self, start: int) -> Iterator[CsvRecord]:
        """Yield record by record with the exact reader, without blank lines.

        If a record cannot be read, only its first line is rejected. Stop before a record that may continue after this
        block.
        """
        lines, delimiter = self.lines, self.contract.source.options.delimiter
        content, starts, ends, blank = self.python_lists
        position = first = start

        def feed() -> Iterator[str]:
            nonlocal position
            begin = starts[first]
            while position < min(lines.count, first + RECORD_LINES):
                if position > first and ends[position] - begin > RECORD_BYTES:
                    return
                raw = content[starts[position] : ends[position] + 1]
                position += 1
                yield raw.decode("utf-8", "surrogateescape")

        reader = csv.reader(feed(), delimiter=delimiter, strict=True)
        while position < lines.count:
            first = position
            if not self.clean and self.long[first]:
                position = first + 1
                reader = csv.reader(feed(), delimiter=delimiter, strict=True)
                yield CsvRecord(first, first, [], "too long")
                continue
            try:
                fields = next(reader)
            except csv.Error as error:
                if position == lines.count and not self.last and not self._full(first):
                    return
                position = first + 1
                reader = csv.reader(feed(), delimiter=delimiter, strict=True)
                problem = "not UTF-8" if self.bad_text[first] else str(error)
                yield CsvRecord(first, first, [], problem)
                continue
            if not blank[first]:
                odd = not self.clean and self.bad_text[first:position].any()
                problem = "not UTF-8" if odd else ""
                yield CsvRecord(first, position - 1, fields, problem)

    @cached_property
    def python_lists(self) -> tuple[bytes, list[int], list[int], list[bool]]:
        """Content, starts, ends and blank lines as Python objects, which are faster to access one by one."""
        lines = self.lines
        return lines.content, lines.starts.tolist(), lines.ends.tolist(), lines.blank.tolist()

    def _full(self, first: int) -> bool:
        """Return whether a record that begins with this line has reached the limit of lines or bytes."""
        lines = self.lines
        return (
            lines.count - first >= RECORD_LINES
            or len(lines.content) - int(lines.starts[first]) > RECORD_BYTES
        )

    def _wrong_count(self, line: int, wanted: int, got: int, original: bytes) -> None:
        remedy = (
            "send every field once; quote fields that hold the delimiter; a last line cut short is sent again"
        )
        number = self.lines.number(line)
        self.rejects.add(number, "the record", f"have {wanted} fields", f"{got} fields", remedy, original)

    def _not_utf8(self, line: int, original: bytes) -> None:
        shown = original[:60].decode("utf-8", "backslashreplace")
        number = self.lines.number(line)
        self.rejects.add(number, "the record", "be UTF-8 text", shown, TO_UTF8, original)


def _whole(column: pa.ChunkedArray) -> pa.Array:
    combined = column.combine_chunks()
    return combined.chunk(0) if isinstance(combined, pa.ChunkedArray) else combined


def _select_records(
    lines: Lines, first: npt.NDArray[np.int64], last: npt.NDArray[np.int64]
) -> memoryview | bytes:
    """Return the content of these records only."""
    begin, end = int(first[0]), int(last[-1])
    if end - begin + 1 == int((last - first + 1).sum()):
        return memoryview(lines.content)[lines.starts[begin] : lines.ends[end]]
    edges = np.append(lines.starts, len(lines.content))[begin : end + 2]
    usable = np.zeros(end - begin + 2, dtype=np.int64)
    np.add.at(usable, first - begin, 1)
    np.add.at(usable, last - begin + 1, -1)
    wanted = np.cumsum(usable)[:-1] > 0
    data = np.frombuffer(lines.content, dtype=np.uint8)[edges[0] : edges[-1]]
    return data[np.repeat(wanted, np.diff(edges))].tobytes()

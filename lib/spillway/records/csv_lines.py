"""CSV (RFC 4180): a header by default, quotes doubled inside quotes, line feeds allowed inside quotes.

A file without quotes is split by Arrow, after the lines with a wrong number of fields are taken out by counting
delimiters; a file with quotes is split by the exact reader. The values of both go the same way from there.
A record is named by its first line. A quote that never closes costs its own line, not the rest of the file.
A quoted field may span at most 1000 lines, and a field may hold 131,072 characters.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from spillway.contracts.model import StreamContract
from spillway.contracts.shapes import suggest
from spillway.records.assemble import Parsed, assemble, nothing
from spillway.records.lines import Lines
from spillway.records.rejects import Rejects

_FIELD_CHARACTERS = 131_072
_RECORD_LINES = 1000


@dataclass(frozen=True)
class _Row:
    first: int  # lines, counted from 0
    last: int
    fields: list[str]
    problem: str = ""


def parse_csv(contract: StreamContract, file_name: str, content: bytes) -> Parsed:
    """The records of a CSV file."""
    rejects = Rejects(file_name)
    lines = Lines.of(content)
    names = [a.source_name for a in contract.attributes]
    start = 0
    if contract.source.options.header:
        header = next(_rows(contract, lines, 0), None)
        if header is None:
            return nothing(contract, rejects)
        if not _header_fits(contract, lines, header, rejects):
            return nothing(contract, rejects)
        names, start = [name.strip() for name in header.fields], header.last + 1
    if _plain(contract, lines):
        return _fast(contract, lines, names, start, rejects)
    return _exact(contract, lines, names, start, rejects)


def _header_fits(contract: StreamContract, lines: Lines, header: _Row, rejects: Rejects) -> bool:
    line, original = header.first + 1, lines.bytes_of(header.first, header.last)
    found = [name.strip() for name in header.fields]
    known = [a.source_name for a in contract.attributes]
    if header.problem:
        rejects.add(line, "the header", "be readable", header.problem, "mend the first line", original)
        return False
    for i, name in enumerate(found):
        if name not in known:
            remedy = suggest(name, known) + ", or add it to the contract; the whole file waits for it"
            rejects.add(line, name, "be an attribute of the contract", name, remedy, original)
            return False
        if name in found[:i]:
            rejects.add(line, name, "stand once in the header", name, "rename one", original)
            return False
    for attribute in contract.attributes:
        if attribute.required and attribute.source_name not in found:
            remedy = "add the column, or header: false to the source's options if there is no header"
            rejects.add(line, attribute.source_name, "be a column", ", ".join(found), remedy, original)
            return False
    return True


def _plain(contract: StreamContract, lines: Lines) -> bool:
    """Whether every line is a record and every delimiter a boundary."""
    content = lines.content
    return (
        b'"' not in content
        and content.count(b"\r") == content.count(b"\r\n")
        and len(contract.source.options.delimiter.encode()) == 1
        and (lines.count == 0 or int((lines.ends - lines.starts).max()) <= _FIELD_CHARACTERS)
    )


def _wrong_count(rejects: Rejects, line: int, wanted: int, got: int, original: bytes) -> None:
    remedy = (
        "send every field once; quote fields that hold the delimiter; a last line cut short is sent again"
    )
    rejects.add(line, "the record", f"have {wanted} fields", f"{got} fields", remedy, original)


def _not_utf8(rejects: Rejects, line: int, original: bytes) -> None:
    rejects.add(
        line,
        "the record",
        "be UTF-8 text",
        original[:60].decode("utf-8", "backslashreplace"),
        "send it as UTF-8",
        original,
    )


def _fast(contract: StreamContract, lines: Lines, names: list[str], start: int, rejects: Rejects) -> Parsed:
    data = np.frombuffer(lines.content, dtype=np.uint8)
    delimiters = np.flatnonzero(data == ord(contract.source.options.delimiter))
    fields = np.searchsorted(delimiters, lines.ends) - np.searchsorted(delimiters, lines.starts) + 1
    usable = ~lines.blank
    usable[:start] = False
    bad_text = lines.lacking_utf8() & usable
    for i in np.flatnonzero(bad_text):
        _not_utf8(rejects, int(i) + 1, lines.bytes_of(int(i)))
    usable &= ~bad_text
    wrong = usable & (fields != len(names))
    for i in np.flatnonzero(wrong):
        _wrong_count(rejects, int(i) + 1, len(names), int(fields[i]), lines.bytes_of(int(i)))
    usable &= ~wrong
    kept = np.flatnonzero(usable).astype(np.int64)
    if not len(kept):
        return nothing(contract, rejects)
    options = contract.source.options
    table = pyarrow.csv.read_csv(
        pa.BufferReader(_without(lines, usable)),
        read_options=pyarrow.csv.ReadOptions(use_threads=False, column_names=names, block_size=1 << 24),
        parse_options=pyarrow.csv.ParseOptions(
            delimiter=options.delimiter, quote_char=False, newlines_in_values=False, ignore_empty_lines=False
        ),
        convert_options=pyarrow.csv.ConvertOptions(
            column_types={name: pa.string() for name in names},
            null_values=list(options.null_values),
            strings_can_be_null=True,
        ),
    ).combine_chunks()
    if table.num_rows != len(kept):
        return _exact(contract, lines, names, start, rejects)
    columns = {}
    for attribute in contract.attributes:
        if attribute.source_name in names:
            column = table.column(names.index(attribute.source_name)).combine_chunks()
            columns[attribute.name] = column.chunk(0) if isinstance(column, pa.ChunkedArray) else column
    return assemble(contract, kept + 1, columns, lambda i: lines.bytes_of(int(kept[i])), rejects)


def _without(lines: Lines, usable: npt.NDArray[np.bool_]) -> memoryview | bytes:
    """The content of the usable lines alone."""
    kept = np.flatnonzero(usable)
    first, last = int(kept[0]), int(kept[-1])
    if usable[first : last + 1].all():
        return memoryview(lines.content)[lines.starts[first] : lines.ends[last]]
    edges = np.append(lines.starts, len(lines.content))
    data = np.frombuffer(lines.content, dtype=np.uint8)[edges[0] :]
    return data[np.repeat(usable, np.diff(edges))].tobytes()


def _exact(contract: StreamContract, lines: Lines, names: list[str], start: int, rejects: Rejects) -> Parsed:
    nulls = pa.array(contract.source.options.null_values, pa.string())
    values: list[list[str]] = []
    kept: list[_Row] = []
    for row in _rows(contract, lines, start):
        original = lines.bytes_of(row.first, row.last)
        if row.problem == "not UTF-8":
            _not_utf8(rejects, row.first + 1, original)
        elif row.problem:
            remedy = "quote the field and double the quotes inside it"
            rejects.add(row.first + 1, "the record", "be readable CSV", row.problem, remedy, original)
        elif len(row.fields) != len(names):
            _wrong_count(rejects, row.first + 1, len(names), len(row.fields), original)
        else:
            values.append(row.fields)
            kept.append(row)
    if not kept:
        return nothing(contract, rejects)
    by_name = dict(zip(names, zip(*values, strict=True), strict=True))
    columns = {}
    for attribute in contract.attributes:
        if attribute.source_name in by_name:
            column = pa.array(by_name[attribute.source_name], pa.string())
            columns[attribute.name] = pc.if_else(pc.is_in(column, nulls), None, column)
    firsts = np.array([row.first for row in kept], dtype=np.int64)
    return assemble(
        contract, firsts + 1, columns, lambda i: lines.bytes_of(kept[i].first, kept[i].last), rejects
    )


def _rows(contract: StreamContract, lines: Lines, start: int) -> Iterator[_Row]:
    """Record by record, blank lines left out; a record that cannot be read costs its first line alone."""
    content, delimiter = lines.content, contract.source.options.delimiter
    starts, ends, blank = lines.starts.tolist(), lines.ends.tolist(), lines.blank.tolist()
    not_text = lines.lacking_utf8().tolist()
    position = first = start

    def feed() -> Iterator[str]:
        nonlocal position
        while position < min(lines.count, first + _RECORD_LINES):
            raw = content[starts[position] : ends[position] + 1]
            position += 1
            yield raw.decode("utf-8", "surrogateescape")

    reader = csv.reader(feed(), delimiter=delimiter, strict=True)
    while position < lines.count:
        first = position
        try:
            fields = next(reader)
        except csv.Error as error:
            position = first + 1
            reader = csv.reader(feed(), delimiter=delimiter, strict=True)
            yield _Row(first, first, [], "not UTF-8" if not_text[first] else str(error))
            continue
        if not blank[first]:
            problem = "not UTF-8" if any(not_text[first:position]) else ""
            yield _Row(first, position - 1, fields, problem)

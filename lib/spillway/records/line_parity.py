"""Lines that carry the parity of their own bytes (Ahuja 2006, section 3.2.1.1 and Appendix A).

The sender appends a tab and check digits to each line (`spillway parity add FILE`). The receiver corrects one flipped
bit in a line, and refuses a line with more. Parity covers the delivered bytes: a flipped bit in the text 81.77 changes
one bit of the line, but many bits of the parsed number.

    line = payload, tab, digits of (CRC-32 of the payload, then its extended Hamming parity over payload and CRC)

A digit is one of `@ABCDEFGHIJKLMNO` and holds four bits. The upper four bits of such a byte are constant, so a flipped
bit of a digit is one flipped bit of the code. The CRC-32 (4 bytes) detects half a line, or two lines in one, after a
flipped bit made or removed a line feed.

Guarantee: a line with one flipped bit is never read wrongly. A flipped bit inside a line is corrected. If a line feed
is made or lost, the affected lines are refused. A line with two flipped bits is refused. A line with more is read
wrongly with a probability of about 2^-32.

>>> sent = line_with_parity(b"r1,2026-03-02T08:00:00Z,81.77")
>>> sent
b'r1,2026-03-02T08:00:00Z,81.77\\tFCI@DBHDCJ@@'
>>> damaged = sent.replace(b"81.77", b"81.67")  # one bit
>>> check_lines([sent, damaged, damaged.replace(b"r1", b"r2")])
[CheckedLine(payload=b'r1,2026-03-02T08:00:00Z,81.77', corrected=False), \
CheckedLine(payload=b'r1,2026-03-02T08:00:00Z,81.77', corrected=True), CheckedLine(payload=None, corrected=False)]
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from spillway.errors import Refused
from spillway.records.assemble import Parsed
from spillway.records.hamming import check_tuples, merge_parity, parity_bits, parity_of_tuples
from spillway.records.lines import LineReader
from spillway.records.rejects import Rejects, WholeFile
from spillway.records.wrapper import PlainBytes

MOST_PAYLOAD_BYTES = 64 << 10
"""Longer lines are refused: one correctable bit in half a million bits is little protection."""
FIELD, RULE = "the line", "have at most one flipped bit, by its parity"
REMEDY = "send it again as `spillway parity add` writes it"
CORRECTED = "a bit corrected by parity"
"""The note of a record whose line was corrected."""

_TAB, _DIGIT = 0x09, 0x40
_CRC_BYTES = 4
_AT_ONCE_BYTES = 4 << 20
_REFUSED = b"\xffparity "
"""Replacement of a refused line: it is not UTF-8, so every reader refuses the record."""

_Bytes = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class CheckedLine:
    """A line as the sender wrote it, without its parity; `payload` is None if two or more bits are flipped."""

    payload: bytes | None
    corrected: bool = False


def line_with_parity(payload: bytes) -> bytes:
    """Return a line (without line feed) with its parity appended."""
    return lines_with_parity([payload])[0]


def lines_with_parity(payloads: Sequence[bytes]) -> list[bytes]:
    """Return the lines (without line feeds) with their parity appended."""
    found: list[bytes] = [b""] * len(payloads)
    for places, rows in _by_length(payloads, range(len(payloads))):
        if rows.shape[1] > MOST_PAYLOAD_BYTES:
            raise Refused(
                "the line",
                f"be at most {MOST_PAYLOAD_BYTES:,} bytes long to carry parity",
                f"{rows.shape[1]:,} bytes",
                "send its record as several",
            )
        covered = _with_crc(rows)
        check = np.hstack([covered[:, rows.shape[1] :], parity_of_tuples(covered)])
        digits = np.empty((len(rows), 2 * check.shape[1]), np.uint8)
        digits[:, 0::2], digits[:, 1::2] = check >> 4, check & 0x0F
        tabs = np.full((len(rows), 1), _TAB, np.uint8)
        for place, line in zip(places, np.hstack([rows, tabs, digits | _DIGIT]), strict=True):
            found[place] = line.tobytes()
    return found


def check_lines(lines: Sequence[bytes]) -> list[CheckedLine]:
    """Return the lines that the sender wrote, with single flipped bits corrected; None for lines that cannot be
    corrected."""
    found = [CheckedLine(None)] * len(lines)
    for places, rows in _by_length(lines, range(len(lines))):
        payload_bytes = _payload_bytes(rows.shape[1])
        if payload_bytes is None:
            continue
        payloads, corrected, sound = _checked(rows, payload_bytes)
        for place, payload, mended, good in zip(places, payloads, corrected, sound, strict=True):
            if good:
                found[place] = CheckedLine(payload.tobytes(), bool(mended))
    return found


def _checked(rows: _Bytes, payload_bytes: int) -> tuple[_Bytes, npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
    """Return the payloads, which of them were corrected, and which are valid."""
    digits = rows[:, payload_bytes + 1 :]
    check: _Bytes = ((digits[:, 0::2] & 0x0F) << 4 | (digits[:, 1::2] & 0x0F)).astype(np.uint8)
    crc, parity = check[:, :_CRC_BYTES], check[:, _CRC_BYTES:]
    # constant bits: of the tab, of digits, and the padding of the last digit
    spare = 8 * parity.shape[1] - _code_bits(payload_bytes)
    outside = _ones(rows[:, payload_bytes : payload_bytes + 1] ^ np.uint8(_TAB))
    outside = outside + _ones((digits ^ np.uint8(_DIGIT)) & np.uint8(0xF0))
    outside = outside + _ones(parity[:, -1:] & np.uint8((1 << spare) - 1))
    covered = np.hstack([rows[:, :payload_bytes], crc])
    checked = check_tuples(merge_parity(covered, parity))
    flips = outside + checked.corrected
    sound = ~checked.uncorrectable & (flips <= 1)
    payloads, sent = checked.tuples[:, :payload_bytes], checked.tuples[:, payload_bytes:]
    sound &= (_with_crc(payloads)[:, payload_bytes:] == sent).all(axis=1)
    return np.ascontiguousarray(payloads), flips == 1, sound


def _code_bits(payload_bytes: int) -> int:
    return parity_bits(8 * (payload_bytes + _CRC_BYTES)) + 1


def _parity_bytes(payload_bytes: int) -> int:
    return -(-_code_bits(payload_bytes) // 8)


def _payload_bytes(line_bytes: int) -> int | None:
    """Return the length of the payload of a protected line; None: no protected line has this length.

    >>> [_payload_bytes(len(line_with_parity(b"x" * size))) for size in (0, 7, 300)], _payload_bytes(5)
    ([0, 7, 300], None)
    """
    for parity_bytes in range(1, 5):
        size = line_bytes - 1 - 2 * (_CRC_BYTES + parity_bytes)
        if 0 <= size <= MOST_PAYLOAD_BYTES and _parity_bytes(size) == parity_bytes:
            return size
    return None


def _with_crc(payloads: _Bytes) -> _Bytes:
    crcs = b"".join(zlib.crc32(row.tobytes()).to_bytes(_CRC_BYTES, "big") for row in payloads)
    return np.hstack([payloads, np.frombuffer(crcs, np.uint8).reshape(-1, _CRC_BYTES)])


def _ones(values: _Bytes) -> npt.NDArray[np.int64]:
    return np.bitwise_count(values).sum(axis=1, dtype=np.int64)


def _by_length(lines: Sequence[bytes], places: Sequence[int]) -> Iterator[tuple[list[int], _Bytes]]:
    """Yield lines of equal length as rows of bytes, with their places."""
    groups: dict[int, list[int]] = {}
    for place in places:
        groups.setdefault(len(lines[place]), []).append(place)
    for size, mine in groups.items():
        step = max(1, _AT_ONCE_BYTES // (size + 1))
        for start in range(0, len(mine), step):
            some = mine[start : start + step]
            content = b"".join(lines[place] for place in some)
            yield some, np.frombuffer(content, np.uint8).reshape(len(some), size)


def file_with_parity(plain: PlainBytes) -> Iterator[bytes]:
    """Yield a file's lines with their parity appended, some at a time; line feeds are unchanged."""
    yield from _in_lines(plain, lines_with_parity)


def _in_lines(plain: PlainBytes, make: Callable[[Sequence[bytes]], Sequence[bytes]]) -> Iterator[bytes]:
    reader = LineReader(plain)
    while not reader.done:
        block = reader.next()
        if not block:
            continue
        lines = block.split(b"\n")
        # no line starts after the last line feed
        last = [] if lines[-1] else [lines.pop()]
        yield b"\n".join([*make(lines), *last])


@dataclass(frozen=True)
class CheckedFile:
    """The result of a parity check: the number of lines, of corrected lines, and the refused lines."""

    lines: int
    corrected: int
    refused: tuple[int, ...]
    """Line numbers, from 1."""


def check_file(plain: PlainBytes) -> CheckedFile:
    """Check the parity of a file's lines."""
    lines, corrected, refused = 0, 0, list[int]()

    def check(some: Sequence[bytes]) -> list[bytes]:
        nonlocal lines, corrected
        found = check_lines(some)
        refused.extend(
            lines + place
            for place, (one, line) in enumerate(zip(found, some, strict=True), 1)
            if line and one.payload is None
        )
        lines, corrected = lines + len(found), corrected + sum(one.corrected for one in found)
        return []

    for _ in _in_lines(plain, check):
        pass
    return CheckedFile(lines, corrected, tuple(refused))


class CheckedBytes:
    """A file as its sender wrote it: corrected lines without their parity.

    A refused line is replaced by a line that every reader refuses, so that the line numbers of the others stay.
    `quoting`: a record may span several lines (CSV). After a refused line it is unknown whether a quote is open, so a
    line that opens or closes one is refused as well: it may be the rest of a record whose first line was refused.
    """

    def __init__(self, plain: PlainBytes, has_header: bool = False, quoting: bool = False) -> None:
        self._parts = _in_lines(plain, self._unwrapped)
        self._held = b""
        self._header = has_header
        self._quoting, self._doubtful = quoting, False
        self._corrected = 0

    def read(self, count: int) -> bytes:
        """Return the next bytes, at most `count`; none at the end."""
        while not self._held and (part := next(self._parts, None)) is not None:
            self._held = part
        found, self._held = self._held[:count], self._held[count:]
        return found

    def take_corrected(self) -> int:
        """Return the number of lines corrected since the last call."""
        found, self._corrected = self._corrected, 0
        return found

    def _unwrapped(self, lines: Sequence[bytes]) -> list[bytes]:
        checked = check_lines(lines)
        first = next((place for place, line in enumerate(lines) if line), None)
        if self._header and first is not None:
            if checked[first].payload is None:
                raise WholeFile("the header", RULE, _shown(lines[first]), REMEDY)
            self._header = False
        self._corrected += sum(one.corrected for one in checked)
        return [self._believed(one, line) for one, line in zip(checked, lines, strict=True)]

    def _believed(self, one: CheckedLine, line: bytes) -> bytes:
        if not line:
            return line  # blank lines are nothing, with parity as without
        if one.payload is None:
            self._doubtful = self._quoting
        elif not self._doubtful or one.payload.count(b'"') % 2 == 0:
            return one.payload
        return _REFUSED + line[:MOST_PAYLOAD_BYTES].hex().encode()


def note_parity(file_name: str, part: Parsed, corrected: int) -> Parsed:
    """Return the parsed records of checked lines; rejects name the parity, and have the bytes as they were
    delivered."""
    rejects = Rejects(file_name)
    for row in part.rejected.to_pylist():
        pieces = row["original"].split(b"\n")
        delivered = b"\n".join(_delivered(piece) for piece in pieces)
        refused = next((piece for piece in pieces if piece.startswith(_REFUSED)), None)
        if refused is None:
            told = row["field"], row["rule"], row["value"], row["remedy"]
        else:
            told = FIELD, RULE, _shown(_delivered(refused)), REMEDY
        rejects.add(row["line"], *told, delivered)
    notes = {**part.notes, **({CORRECTED: corrected} if corrected else {})}
    return Parsed(part.table, rejects.table(), notes)


def _delivered(piece: bytes) -> bytes:
    if piece.startswith(_REFUSED):
        return bytes.fromhex(piece.removeprefix(_REFUSED).decode())
    return line_with_parity(piece)


def _shown(line: bytes) -> str:
    return line[:60].decode("utf-8", "backslashreplace")

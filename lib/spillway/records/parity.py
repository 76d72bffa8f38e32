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

The code is an extended Hamming code. The sender inserts parity bits into each word (in Ahuja 2006: each tuple). The
receiver corrects one flipped bit and detects two. Positions count from 1. Position 2^i has the parity bit P_{i+1}. This
bit makes the number of ones at all positions with bit i set even. The check flags, read in reverse, are the binary
number of the position of the flipped bit.

A plain Hamming code cannot distinguish two flipped bits from one. Of the 55 double errors of the word in Appendix A, 39
are "corrected" to a third word (errata A28). An additional overall parity bit after the word distinguishes them: an odd
number of flips violates it, two flips do not. Guarantee: every single error is corrected, and every double error is
detected.

>>> encode_words(bits_of("0110101"), extended=False).tolist() == bits_of("10001100101").tolist()
True
>>> damaged = encode_words(bits_of("0110101"))
>>> damaged[10] ^= 1
>>> checked = check_words(damaged)
>>> "".join(map(str, checked.data)), int(checked.position), bool(checked.corrected)
('0110101', 11, True)
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from spillway.errors import InvalidValue
from spillway.records.convert import ParsedRecords
from spillway.records.lines import LineReader
from spillway.records.rejects import Rejects, WholeFile
from spillway.records.wrapper import ByteReader

Bits = npt.NDArray[np.uint8]


def bits_of(text: str) -> Bits:
    """Return the bits that a text of zeros and ones shows.

    >>> bits_of("011").tolist()
    [0, 1, 1]
    """
    if set(text) - {"0", "1"}:
        raise InvalidValue("text", "hold zeros and ones only", text, "write bits such as 0110")
    return np.array([int(bit) for bit in text], dtype=np.uint8)


def parity_bits(data_bits: int) -> int:
    """Return the number of parity bits, without the overall one: the least r with 2^r >= data_bits + r + 1.

    >>> parity_bits(7), parity_bits(64)
    (4, 7)
    """
    if data_bits < 1:
        raise InvalidValue("data_bits", "be positive", data_bits, "encode at least one bit")
    parity = 1
    while 2**parity < data_bits + parity + 1:
        parity += 1
    return parity


def _data_bits_of_word(word_bits: int) -> int:
    parity = word_bits.bit_length()
    data = word_bits - parity
    if data < 1 or parity_bits(data) != parity:
        raise InvalidValue(
            "words", "have a number of bits that the code makes", word_bits, "encode them with encode_words"
        )
    return data


@lru_cache(maxsize=64)
def _layout(data_bits: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return the zero-based positions of the data bits and of the parity bits."""
    places = np.arange(1, data_bits + parity_bits(data_bits) + 1)
    is_parity = (places & (places - 1)) == 0
    return np.flatnonzero(~is_parity), np.flatnonzero(is_parity)


def _syndrome(words: Bits) -> npt.NDArray[np.int64]:
    """Return the syndrome of each word: the one-based position of a single flipped bit, 0 if the checks hold."""
    places = np.arange(1, words.shape[-1] + 1)
    syndrome = np.zeros(words.shape[:-1], dtype=np.int64)
    for bit in range(words.shape[-1].bit_length()):
        odd = np.bitwise_xor.reduce(words[..., (places >> bit) & 1 == 1], axis=-1)
        syndrome |= odd.astype(np.int64) << bit
    return syndrome


def encode_words(data: Bits, *, extended: bool = True) -> Bits:
    """Insert parity bits into words of data bits (last axis); the overall parity bit is the last one."""
    data = np.asarray(data, dtype=np.uint8)
    if data.size and data.max() > 1:
        raise InvalidValue("data", "hold bits", int(data.max()), "use encode_tuples for bytes")
    at_data, at_parity = _layout(data.shape[-1])
    words = np.zeros((*data.shape[:-1], len(at_data) + len(at_parity) + extended), dtype=np.uint8)
    words[..., at_data] = data
    plain = words[..., :-1] if extended else words
    syndrome = _syndrome(plain)
    for bit, place in enumerate(at_parity):
        plain[..., place] = syndrome >> bit & 1
    if extended:
        words[..., -1] = np.bitwise_xor.reduce(plain, axis=-1)
    return words


@dataclass(frozen=True)
class CheckedWords:
    """Words after the check: the data, and for each word whether it was corrected or cannot be corrected."""

    data: Bits
    corrected: npt.NDArray[np.bool_]
    uncorrectable: npt.NDArray[np.bool_]
    position: npt.NDArray[np.int64]
    """One-based position of the flipped bit (the overall parity bit is the last); 0 if no bit was corrected."""


def check_words(words: Bits, *, extended: bool = True) -> CheckedWords:
    """Correct single flipped bits and detect double ones.

    | syndrome | overall parity | meaning |
    | 0 | holds | no error |
    | 0 | violated | the overall parity bit flipped |
    | a position | violated | the bit at this position flipped: corrected |
    | beyond the word | violated | three flips or more: uncorrectable |
    | not 0 | holds | two flips: uncorrectable |

    Without the overall bit (`extended=False`, the form in Ahuja 2006), every syndrome within the word is corrected as a
    single flip.
    """
    words = np.array(words, dtype=np.uint8)
    plain = words[..., :-1] if extended else words
    bits = plain.shape[-1]
    at_data, _ = _layout(_data_bits_of_word(bits))
    syndrome = _syndrome(plain)
    broken = np.bitwise_xor.reduce(words, axis=-1).astype(np.bool_) if extended else np.asarray(syndrome != 0)
    corrected = broken & (syndrome <= bits)
    uncorrectable = (broken & (syndrome > bits)) | (~broken & (syndrome != 0))
    position = np.where(corrected, np.where(syndrome == 0, bits + 1, syndrome), 0)
    plain ^= (np.arange(1, bits + 1) == np.where(corrected, syndrome, 0)[..., None]).astype(np.uint8)
    return CheckedWords(plain[..., at_data], corrected, uncorrectable, position)


def encode_tuples(tuples: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    """Encode tuples (rows of bytes, each one data word) on the sender's side; zero bits fill the last byte.

    >>> encode_tuples(np.array([[1, 2, 3]], dtype=np.uint8)).shape
    (1, 4)
    """
    return np.packbits(encode_words(np.unpackbits(tuples, axis=-1)), axis=-1)


@dataclass(frozen=True)
class CheckedTuples:
    """Tuples after the check, with a mask of corrected tuples and one of uncorrectable tuples."""

    tuples: npt.NDArray[np.uint8]
    corrected: npt.NDArray[np.bool_]
    uncorrectable: npt.NDArray[np.bool_]


def check_tuples(words: npt.NDArray[np.uint8]) -> CheckedTuples:
    """Check and decode the words of `encode_tuples` on the receiver's side.

    A flipped bit in the padding is corrected as well. A second flipped bit, also in the padding, makes the tuple
    uncorrectable.
    """
    word_bytes = words.shape[-1]
    data_bytes = next(
        (size for size in range(word_bytes, 0, -1) if _word_bytes(size) == word_bytes),
        0,
    )
    if not data_bytes:
        raise InvalidValue(
            "words", "have a number of bytes that the code makes", word_bytes, "encode with encode_tuples"
        )
    bits = np.unpackbits(words, axis=-1)
    word_bits = 8 * data_bytes + parity_bits(8 * data_bytes) + 1
    checked = check_words(bits[..., :word_bits])
    fill = bits[..., word_bits:].sum(axis=-1)
    one_in_fill = (fill == 1) & ~checked.corrected & ~checked.uncorrectable
    lost = checked.uncorrectable | (fill > 1) | ((fill == 1) & checked.corrected)
    return CheckedTuples(np.packbits(checked.data, axis=-1), (checked.corrected | one_in_fill) & ~lost, lost)


def parity_of_tuples(tuples: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    """Return only the parity bits (the overall one last), packed, for formats with a separate field for them.

    >>> parity_of_tuples(np.array([[1, 2, 3]], dtype=np.uint8)).shape
    (1, 1)
    """
    bits = np.unpackbits(tuples, axis=-1)
    _, at_parity = _layout(bits.shape[-1])
    return np.packbits(encode_words(bits)[..., [*at_parity, -1]], axis=-1)


def merge_parity(tuples: npt.NDArray[np.uint8], parity: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    """Return the words of `encode_tuples`, from tuples and their separately sent parity.

    >>> tuples = np.array([[1, 2, 3]], dtype=np.uint8)
    >>> bool((merge_parity(tuples, parity_of_tuples(tuples)) == encode_tuples(tuples)).all())
    True
    """
    bits = np.unpackbits(tuples, axis=-1)
    at_data, at_parity = _layout(bits.shape[-1])
    count = len(at_parity) + 1
    if parity.shape[-1] != -(-count // 8) or parity.shape[:-1] != tuples.shape[:-1]:
        raise InvalidValue(
            "parity",
            f"hold {count} bits for each tuple of {tuples.shape[-1]} bytes",
            parity.shape,
            "encode with parity_of_tuples",
        )
    words = np.zeros((*bits.shape[:-1], bits.shape[-1] + count), dtype=np.uint8)
    words[..., at_data] = bits
    words[..., [*at_parity, -1]] = np.unpackbits(parity, axis=-1)[..., :count]
    return np.packbits(words, axis=-1)


def _word_bytes(data_bytes: int) -> int:
    return -(-(8 * data_bytes + parity_bits(8 * data_bytes) + 1) // 8)


MOST_PAYLOAD_BYTES = 64 << 10
"""The maximum length of a line. One correctable bit in half a million bits is little protection."""
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
            raise InvalidValue(
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
    """Return the lines as the sender wrote them, with single flipped bits corrected.

    The payload of a line that cannot be corrected is None.
    """
    found = [CheckedLine(None)] * len(lines)
    for places, rows in _by_length(lines, range(len(lines))):
        payload_bytes = _payload_bytes(rows.shape[1])
        if payload_bytes is None:
            continue
        payloads, corrected, sound = _check_equal_lengths(rows, payload_bytes)
        for place, payload, mended, good in zip(places, payloads, corrected, sound, strict=True):
            if good:
                found[place] = CheckedLine(payload.tobytes(), bool(mended))
    return found


def _check_equal_lengths(
    rows: _Bytes, payload_bytes: int
) -> tuple[_Bytes, npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
    """Return the payloads, which of them were corrected, and which are valid."""
    digits = rows[:, payload_bytes + 1 :]
    check: _Bytes = ((digits[:, 0::2] & 0x0F) << 4 | (digits[:, 1::2] & 0x0F)).astype(np.uint8)
    crc, parity = check[:, :_CRC_BYTES], check[:, _CRC_BYTES:]
    # flips of constant bits: of the tab, of the digits, and of the padding of the last digit
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


def file_with_parity(plain: ByteReader) -> Iterator[bytes]:
    """Yield a file's lines with their parity appended, some at a time; line feeds are unchanged."""
    yield from _in_lines(plain, lines_with_parity)


def _in_lines(plain: ByteReader, make: Callable[[Sequence[bytes]], Sequence[bytes]]) -> Iterator[bytes]:
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


def check_file(plain: ByteReader) -> CheckedFile:
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

    def __init__(self, plain: ByteReader, has_header: bool = False, quoting: bool = False) -> None:
        self._parts = _in_lines(plain, self._without_parity)
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

    def _without_parity(self, lines: Sequence[bytes]) -> list[bytes]:
        checked = check_lines(lines)
        first = next((place for place, line in enumerate(lines) if line), None)
        if self._header and first is not None:
            if checked[first].payload is None:
                raise WholeFile("the header", RULE, _shown(lines[first]), REMEDY)
            self._header = False
        self._corrected += sum(one.corrected for one in checked)
        return [self._trusted_line(one, line) for one, line in zip(checked, lines, strict=True)]

    def _trusted_line(self, one: CheckedLine, line: bytes) -> bytes:
        if not line:
            return line  # a blank line has no parity and is ignored
        if one.payload is None:
            self._doubtful = self._quoting
        elif not self._doubtful or one.payload.count(b'"') % 2 == 0:
            return one.payload
        return _REFUSED + line[:MOST_PAYLOAD_BYTES].hex().encode()


def note_parity(file_name: str, part: ParsedRecords, corrected: int) -> ParsedRecords:
    """Return the parsed records of checked lines.

    Rejections of refused lines name the parity. All rejections have the original bytes as they were delivered.
    """
    rejects = Rejects(file_name)
    for row in part.rejected.to_pylist():
        pieces = row["original"].split(b"\n")
        delivered = b"\n".join(_delivered_bytes(piece) for piece in pieces)
        refused = next((piece for piece in pieces if piece.startswith(_REFUSED)), None)
        if refused is None:
            told = row["field"], row["rule"], row["value"], row["remedy"]
        else:
            told = FIELD, RULE, _shown(_delivered_bytes(refused)), REMEDY
        rejects.add(row["line"], *told, delivered)
    notes = {**part.notes, **({CORRECTED: corrected} if corrected else {})}
    return ParsedRecords(part.table, rejects.table(), notes)


def _delivered_bytes(piece: bytes) -> bytes:
    if piece.startswith(_REFUSED):
        return bytes.fromhex(piece.removeprefix(_REFUSED).decode())
    return line_with_parity(piece)


def _shown(line: bytes) -> str:
    return line[:60].decode("utf-8", "backslashreplace")

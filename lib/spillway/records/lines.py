"""Split bytes into physical lines, block by block, without a Python loop over the lines.

A line ends with the byte of a line feed; a carriage return before it belongs to the line end. Lines count from 1. A
byte order mark at the start of a file is ignored. Bytes are not decoded here, so every encoding in which a line feed is
this one byte (UTF-8, Latin-1) can be split, and UTF-16 cannot. `Lines.lacking_utf8` finds the lines that are not UTF-8.

>>> lines = Lines.of(b"a\\r\\n\\nbc")
>>> [lines.bytes_of(i) for i in range(lines.count)], lines.blank.tolist()
([b'a\\r', b'', b'bc'], [False, True, False])
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from spillway.records.rejects import Rejects
from spillway.records.wrapper import ByteReader

BLOCK_BYTES = 8 << 20
BLOCK_LINES = 1 << 16
RECORD_BYTES = 4 << 20
"""The maximum length of a record and of a line. It limits the memory that one record takes in a task."""
BOM = b"\xef\xbb\xbf"
_SPACES = np.frombuffer(b" \t\r\v\f", dtype=np.uint8)


@dataclass(frozen=True)
class Lines:
    """The positions of the lines in `content`: `starts` and `ends` (line feed excluded).

    `before`: the number of lines of the file before `content`.
    """

    content: bytes
    starts: npt.NDArray[np.int64]
    ends: npt.NDArray[np.int64]
    blank: npt.NDArray[np.bool_]
    before: int = 0

    @staticmethod
    def of(content: bytes, before: int = 0) -> Lines:
        offset = len(BOM) if not before and content.startswith(BOM) else 0
        data = np.frombuffer(content, dtype=np.uint8)
        ends = np.flatnonzero(data[offset:] == 10).astype(np.int64) + offset
        if offset < len(content) and (not len(ends) or ends[-1] != len(content) - 1):
            ends = np.append(ends, len(content))
        starts = np.concatenate([[offset], ends[:-1] + 1]).astype(np.int64) if len(ends) else ends
        blank = starts == ends
        if len(starts):
            firsts = data[np.minimum(starts, len(data) - 1)]
            for i in np.flatnonzero(~blank & np.isin(firsts, _SPACES)):
                blank[i] = not content[starts[i] : ends[i]].strip()
        return Lines(content, starts, ends, blank, before)

    @property
    def count(self) -> int:
        return len(self.starts)

    def number(self, index: int) -> int:
        """Return the line's number in its file."""
        return self.before + index + 1

    def bytes_of(self, index: int, last: int | None = None) -> bytes:
        """Return the bytes of the line `index` (from 0), or of the lines from `index` to `last`."""
        return self.content[self.starts[index] : self.ends[index if last is None else last]]

    def lacking_utf8(self) -> npt.NDArray[np.bool_]:
        """Return which lines are not UTF-8."""
        bad = np.zeros(self.count, dtype=np.bool_)
        try:
            self.content.decode("utf-8")
        except UnicodeDecodeError:
            data = np.frombuffer(self.content, dtype=np.uint8)
            # no byte of a multi-byte UTF-8 character is a line feed, so each line can be checked alone
            suspects = np.unique(np.searchsorted(self.starts, np.flatnonzero(data >= 0x80), side="right") - 1)
            for i in suspects[suspects >= 0]:
                try:
                    self.bytes_of(i).decode("utf-8")
                except UnicodeDecodeError:
                    bad[i] = True
        return bad

    def too_long(self) -> npt.NDArray[np.bool_]:
        """Return which lines are longer than `RECORD_BYTES`."""
        return self.ends - self.starts > RECORD_BYTES


class LineReader:
    """Reads whole lines, about `BLOCK_BYTES` bytes or `BLOCK_LINES` lines at a time; only these are in memory.

    A line that is longer than `RECORD_BYTES` may be truncated, but stays longer than that, so the caller refuses it.
    """

    def __init__(self, plain: ByteReader) -> None:
        self._plain = plain
        self._held = b""
        self._drained = False

    @property
    def done(self) -> bool:
        """Whether all lines were returned."""
        return self._drained and not self._held

    def next(self) -> bytes:
        """Return the next whole lines; empty at the end."""
        while not self._drained and self._last(self._held) is None:
            part = self._plain.read(BLOCK_BYTES)
            self._drained = not part
            if b"\n" not in part and len(self._held) > RECORD_BYTES:
                continue  # this part belongs to a line that is too long: drop it
            self._held = self._shortened(self._held) + part
        found = self._held if self._drained else self._held[: self._last(self._held)]
        ends = np.flatnonzero(np.frombuffer(found, dtype=np.uint8) == 10)
        if len(ends) > BLOCK_LINES:
            found = found[: int(ends[BLOCK_LINES - 1]) + 1]
        self._held = self._held[len(found) :]
        return found

    @staticmethod
    def _last(held: bytes) -> int | None:
        return held.rfind(b"\n") + 1 or None

    @staticmethod
    def _shortened(held: bytes) -> bytes:
        return held if len(held) <= RECORD_BYTES else held[: RECORD_BYTES + 1]


def refuse_long(lines: Lines, index: int, rejects: Rejects) -> None:
    """Reject a line that is longer than `RECORD_BYTES`."""
    original = lines.bytes_of(index)
    shown = original[:60].decode("utf-8", "backslashreplace") + "..."
    rule, remedy = f"be at most {RECORD_BYTES:,} bytes long", "send it as several records"
    rejects.add(lines.number(index), "the record", rule, shown, remedy, original)

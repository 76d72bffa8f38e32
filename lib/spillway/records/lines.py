"""Physical lines of bytes, found and measured without a loop per line, and read a block at a time.

A line ends with a line feed; a carriage return before it belongs to the line end. Lines count from 1. A byte
order mark at the start of a file is no content.

>>> lines = Lines.of(b"a\\r\\n\\nbc")
>>> [lines.bytes_of(i) for i in range(lines.count)], lines.blank.tolist()
([b'a\\r', b'', b'bc'], [False, True, False])
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from spillway.records.rejects import Rejects
from spillway.records.wrapper import PlainBytes

BLOCK_BYTES = 8 << 20
BLOCK_LINES = 1 << 16
RECORD_BYTES = 4 << 20
"""A longer record is refused, and so is a longer line: what one record may take of a task's memory."""
BOM = b"\xef\xbb\xbf"
_SPACES = np.frombuffer(b" \t\r\v\f", dtype=np.uint8)


@dataclass(frozen=True)
class Lines:
    """Where the lines are: `starts` and `ends` (line feed excluded) into `content`; `before` it there were so many."""

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
        """The line's number in its file."""
        return self.before + index + 1

    def bytes_of(self, index: int, last: int | None = None) -> bytes:
        """The bytes of a line (counted from 0), or of all lines up to `last`."""
        return self.content[self.starts[index] : self.ends[index if last is None else last]]

    def lacking_utf8(self) -> npt.NDArray[np.bool_]:
        """Which lines are not UTF-8."""
        bad = np.zeros(self.count, dtype=np.bool_)
        try:
            self.content.decode("utf-8")
        except UnicodeDecodeError:
            data = np.frombuffer(self.content, dtype=np.uint8)
            # no byte of a character in UTF-8 is a line feed, so lines can be judged one by one
            suspects = np.unique(np.searchsorted(self.starts, np.flatnonzero(data >= 0x80), side="right") - 1)
            for i in suspects[suspects >= 0]:
                try:
                    self.bytes_of(i).decode("utf-8")
                except UnicodeDecodeError:
                    bad[i] = True
        return bad

    def too_long(self) -> npt.NDArray[np.bool_]:
        """Which lines are longer than a record may be."""
        return self.ends - self.starts > RECORD_BYTES


class LineReader:
    """Whole lines of a stream, about `BLOCK_BYTES` or `BLOCK_LINES` at a time, in memory for those alone.

    A line that is longer than a record may be comes cut, one byte too long: whoever judges it refuses it.
    """

    def __init__(self, plain: PlainBytes) -> None:
        self._plain = plain
        self._held = b""
        self._drained = False

    @property
    def done(self) -> bool:
        """Whether nothing comes any more."""
        return self._drained and not self._held

    def next(self) -> bytes:
        """The next lines, the last one whole; nothing when nothing is left."""
        while not self._drained and self._last(self._held) is None:
            part = self._plain.read(BLOCK_BYTES)
            self._drained = not part
            if b"\n" not in part and len(self._held) > RECORD_BYTES:
                continue  # of a line that is too long anyway
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
    """Say of a line that it is longer than a record may be."""
    original = lines.bytes_of(index)
    shown = original[:60].decode("utf-8", "backslashreplace") + "..."
    rule, remedy = f"be at most {RECORD_BYTES:,} bytes long", "send it as several records"
    rejects.add(lines.number(index), "the record", rule, shown, remedy, original)

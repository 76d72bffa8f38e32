"""Physical lines of a file's bytes, found and measured without a loop per line.

A line ends with a line feed; a carriage return before it belongs to the line end. Lines count from 1. A byte
order mark at the start is no content.

>>> lines = Lines.of(b"a\\r\\n\\nbc")
>>> [lines.bytes_of(i) for i in range(lines.count)], lines.blank.tolist()
([b'a\\r', b'', b'bc'], [False, True, False])
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

_BOM = b"\xef\xbb\xbf"
_SPACES = np.frombuffer(b" \t\r\v\f", dtype=np.uint8)


@dataclass(frozen=True)
class Lines:
    """Where the lines are: `starts` and `ends` (line feed excluded) into `content`."""

    content: bytes
    starts: npt.NDArray[np.int64]
    ends: npt.NDArray[np.int64]
    blank: npt.NDArray[np.bool_]

    @staticmethod
    def of(content: bytes) -> Lines:
        offset = len(_BOM) if content.startswith(_BOM) else 0
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
        return Lines(content, starts, ends, blank)

    @property
    def count(self) -> int:
        return len(self.starts)

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

"""Where records of CSV end, found for all lines at once as long as every quote stands where one may.

A quote may open a field (after a delimiter or a line end), close it (before one), or be doubled inside. While all do,
a line feed after an even number of them ends a record, a delimiter after an even number ends a field, and every reader
of CSV agrees. The first quote, carriage return or record for which that is not so ends the stretch: from there the
exact reader goes on, a record at a time.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from spillway.records.lines import Lines

FIELD_CHARACTERS = 131_072
RECORD_LINES = 1000
_QUOTE, _FEED, _RETURN = 34, 10, 13

_Lines = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Stretch:
    """Records whose quotes all stand right: the lines (from 0) that each begins and ends with, and its fields."""

    first: _Lines
    last: _Lines
    fields: _Lines

    @property
    def end(self) -> int:
        """The line after the last record."""
        return int(self.last[-1]) + 1 if len(self.last) else 0


class Quotes:
    """The quotes, delimiters and lone carriage returns of some lines, found once."""

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
    def none(self) -> bool:
        """Whether there is no quote at all."""
        return not len(self._quotes)

    def stretch(self, start: int) -> Stretch:
        """From the record that begins with line `start`: all records before the first that is odd or not at its end."""
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
        return Stretch(first.astype(np.int64), last.astype(np.int64), fields.astype(np.int64))

    def _first_odd(self, quotes: _Lines, begin: int) -> int | None:
        """Where the first byte stands for which readers of CSV may differ."""
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

"""Rejected records: what could not be used, why, and its original bytes."""

from __future__ import annotations

from dataclasses import dataclass, field

import pyarrow as pa

from spillway.errors import Problem, safely

REJECTED_SCHEMA = pa.schema(
    [
        pa.field("line", pa.int64(), nullable=False),
        pa.field("field", pa.string(), nullable=False),
        pa.field("rule", pa.string(), nullable=False),
        pa.field("value", pa.string(), nullable=False),
        pa.field("remedy", pa.string(), nullable=False),
        pa.field("reason", pa.string(), nullable=False),
        pa.field("original", pa.binary(), nullable=False),
    ]
)
WHOLE_FILE = 0
"""The line number of a rejection that concerns the file and no line of it."""
ORIGINAL_BYTES_AT_MOST = 1 << 20
"""A whole file's bytes are kept up to here; the file itself is still where it landed."""


class WholeFile(Exception):
    """A file that is refused as a whole, as nothing of it can be trusted: field, rule, value, remedy."""

    def __init__(self, name: str, rule: str, value: str, remedy: str) -> None:
        super().__init__(f"{name} must {rule}")
        self.why = (name, rule, value, remedy)


TO_UTF8 = "convert the file to UTF-8, e.g. with: iconv -f LATIN1 -t UTF-8 FILE"
"""The remedy for text that is not UTF-8."""
MOST_VALUE = 200
"""Characters of a value at fault that are told; its original bytes are kept beside it."""


@dataclass
class Rejects:
    """Collects the rejections of one file, one per record."""

    file_name: str
    notes: dict[str, int] = field(default_factory=dict)
    """Counts of oddities of accepted records."""
    _rows: dict[int, tuple[str | bytes, ...]] = field(default_factory=dict)

    def add(self, line: int, name: str, rule: str, value: object, remedy: str, original: bytes) -> None:
        if line in self._rows:
            return
        text = safely(value if isinstance(value, str) else repr(value), MOST_VALUE)
        name, rule, remedy = safely(name), safely(rule), safely(remedy)
        where = f"{self.file_name}:{line}" if line != WHOLE_FILE else self.file_name
        reason = str(Problem(where, name, rule, text, remedy))
        words = (_writable(word) for word in (name, rule, text, remedy, reason))
        self._rows[line] = (*words, original[:ORIGINAL_BYTES_AT_MOST])

    def __len__(self) -> int:
        return len(self._rows)

    def table(self) -> pa.Table:
        rows = [(line, *self._rows[line]) for line in sorted(self._rows)]
        columns = list(zip(*rows, strict=True)) if rows else [()] * len(REJECTED_SCHEMA)
        arrays = [pa.array(c, f.type) for c, f in zip(columns, REJECTED_SCHEMA, strict=True)]
        return pa.Table.from_arrays(arrays, schema=REJECTED_SCHEMA)


def _writable(word: str) -> str:
    """Half a surrogate pair, which JSON can spell, cannot be written."""
    return word.encode("utf-8", "backslashreplace").decode("utf-8")

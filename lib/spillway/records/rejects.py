"""Rejected records with reason and original bytes, and the counts of reasons and notes.

Reasons for rejection are counted by a bounded vocabulary, which does not depend on the data. A reason is a field of the
contract (or a general word, if the contract has no such field) and a rule without its figures. So the number of reasons
is at most the number of fields times about ten rules, and at most `MOST_REASONS` in a ledger.

>>> bounded_reasons({f"r{i:03}": 1 for i in range(300)} | {"temp must be there": 9}, most=3)
{'temp must be there': 9, 'r000': 1, 'r001': 1, 'other reasons': 298}

Notes count oddities of accepted records: unknown fields, absent columns, and times in a repeated hour. The number of
notes and the length of each are bounded, because the names come from the data.

>>> bounded_notes({unknown_column(f"x{i}"): 1 for i in range(40)} | {absent_column("temp"): 5}, most=3)
{'column temp absent': 5, 'field x0 unknown': 1, 'field x1 unknown': 1, 'other fields unknown': 38}
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from spillway.contracts.stream import StreamContract
from spillway.errors import Problem, escape_text

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
"""The line number of a rejection of a whole file."""
ORIGINAL_BYTES_AT_MOST = 1 << 20
"""The maximum number of original bytes stored with a rejection. A rejected file itself stays in the landing folder."""


class WholeFile(Exception):
    """The refusal of a whole file, because no part of it can be trusted: field, rule, value, remedy."""

    def __init__(self, name: str, rule: str, value: str, remedy: str) -> None:
        super().__init__(f"{name} must {rule}")
        self.why = (name, rule, value, remedy)


TO_UTF8 = "convert the file to UTF-8, e.g. with: iconv -f LATIN1 -t UTF-8 FILE"
"""The remedy for text that is not UTF-8."""
MOST_VALUE = 200
"""The maximum number of characters of a bad value in a reason. The original bytes are stored in their own column."""


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
        text = escape_text(value if isinstance(value, str) else repr(value), MOST_VALUE)
        name, rule, remedy = escape_text(name), escape_text(rule), escape_text(remedy)
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
    """Escape lone surrogates, which JSON can express and UTF-8 cannot."""
    return word.encode("utf-8", "backslashreplace").decode("utf-8")


MOST_REASONS = 200
OTHER_REASONS = "other reasons"
_WHOLE = ("the line", "the record", "the header", "the file")
_FIGURE = re.compile(r"[0-9][0-9,]*")


def reason_of(contract: StreamContract, field: str, rule: str) -> str:
    """Return the reason by which a rejection is counted."""
    known = {escape_text(attribute.source_name) for attribute in contract.attributes}
    name = field if field in known or field in _WHOLE else "an unknown field"
    counted = rule.startswith(("have ", "hold ", "be at most "))
    return f"{name} must {_FIGURE.sub('n', rule) if counted else rule}"


def bounded_reasons(reasons: Mapping[str, int], most: int = MOST_REASONS) -> dict[str, int]:
    """Return the counts of the most frequent reasons, and one count for the rest; the total is unchanged."""
    ordered = sorted(reasons, key=lambda reason: (-reasons[reason], reason))
    rest = sum(reasons[reason] for reason in ordered[most:])
    return {reason: reasons[reason] for reason in ordered[:most]} | ({OTHER_REASONS: rest} if rest else {})


MOST_NOTES = 32
MOST_NAME = 60
OTHERS = "other fields unknown"


def unknown_column(name: str) -> str:
    """Return the note of a field or column that the contract does not know, and that was left out."""
    return f"field {escape_text(name, MOST_NAME)} unknown"


def absent_column(name: str) -> str:
    """Return the note of a column of the contract that is absent, and thus null."""
    return f"column {escape_text(name, MOST_NAME)} absent"


_TWICE = " in an hour that clocks show twice, read as the earlier"


def repeated_hour(name: str) -> str:
    """Return the note of times without an offset in an hour that clocks showed twice."""
    return f"{escape_text(name, MOST_NAME)}{_TWICE}"


def is_repeated_hour(note: str) -> bool:
    """Return whether a note counts times of a repeated hour.

    >>> is_repeated_hour(repeated_hour("at")), is_repeated_hour(absent_column("at"))
    (True, False)
    """
    return note.endswith(_TWICE)


def is_absent_column(note: str) -> bool:
    """Return whether a note counts records without a column of the contract."""
    return note.endswith(" absent")


def bounded_notes(notes: Mapping[str, int], most: int = MOST_NOTES) -> dict[str, int]:
    """Return all notes of absent columns and repeated hours, and the most frequent notes of unknown fields.

    The contract bounds the number of the former.
    """
    told = {note: count for note, count in notes.items() if is_absent_column(note) or is_repeated_hour(note)}
    unknown = sorted((-count, note) for note, count in notes.items() if note not in told and note != OTHERS)
    left = max(0, most - len(told))
    others = notes.get(OTHERS, 0) - sum(count for count, _ in unknown[left:])
    told |= {note: -count for count, note in unknown[:left]}
    return told | ({OTHERS: others} if others else {})


def sum_counts(parts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """Return the sums of several counts by name."""
    found: dict[str, int] = {}
    for part in parts:
        for name, count in part.items():
            found[name] = found.get(name, 0) + count
    return found

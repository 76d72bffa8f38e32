"""What is odd about records that are taken all the same: fields nobody asked for, and columns that are not there.

Notes are counted by a few words each, and few of them: names come from outside.

>>> bounded_notes({unknown_column(f"x{i}"): 1 for i in range(40)} | {absent_column("temp"): 5}, most=3)
{'column temp absent': 5, 'field x0 unknown': 1, 'field x1 unknown': 1, 'other fields unknown': 38}
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from spillway.errors import safely

MOST_NOTES = 32
MOST_NAME = 60
OTHERS = "other fields unknown"


def unknown_column(name: str) -> str:
    """A field or column that the contract does not know, and that was left out."""
    return f"field {safely(name, MOST_NAME)} unknown"


def absent_column(name: str) -> str:
    """A column of the contract that is not there, and is null."""
    return f"column {safely(name, MOST_NAME)} absent"


_TWICE = " in an hour that clocks show twice, read as the earlier"


def repeated_hour(name: str) -> str:
    """Return the note of times without an offset in an hour that clocks showed twice."""
    return f"{safely(name, MOST_NAME)}{_TWICE}"


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
    """What is absent, as the contract bounds it, and the most frequent of what is unknown."""
    told = {note: count for note, count in notes.items() if is_absent_column(note) or is_repeated_hour(note)}
    unknown = sorted((-count, note) for note, count in notes.items() if note not in told and note != OTHERS)
    left = max(0, most - len(told))
    others = notes.get(OTHERS, 0) - sum(count for count, _ in unknown[left:])
    told |= {note: -count for count, note in unknown[:left]}
    return told | ({OTHERS: others} if others else {})


def counted_together(parts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """Counts by name of several parts, added up."""
    found: dict[str, int] = {}
    for part in parts:
        for name, count in part.items():
            found[name] = found.get(name, 0) + count
    return found

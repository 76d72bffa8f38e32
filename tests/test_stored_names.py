"""No name that others use changes by accident: contract fields, tables and columns, commands, metrics."""

from __future__ import annotations

import json

from tests.stored_names import ADVICE, SNAPSHOT, differences, stored_names


def test_stored_names_equal_their_snapshot() -> None:
    """A rename needs a migration: files, tables and scripts of users hold the old name."""
    expected = json.loads(SNAPSHOT.read_text(encoding="utf-8"))
    found = json.loads(json.dumps(stored_names()))
    lines = differences(expected, found)
    assert not lines, "\n".join([ADVICE, *lines])


def test_renamed_column_is_reported_by_both_of_its_names() -> None:
    expected = json.loads(SNAPSHOT.read_text(encoding="utf-8"))
    renamed = json.loads(json.dumps(expected))
    columns = renamed["tables"]["certificates"]["columns"]
    columns["renamed"] = columns.pop("batch")
    assert differences(expected, renamed) == [
        "gone: tables / certificates / columns / batch (bigint, not null)",
        "new:  tables / certificates / columns / renamed (bigint, not null)",
    ]


def test_changed_default_of_a_field_is_reported() -> None:
    expected = json.loads(SNAPSHOT.read_text(encoding="utf-8"))
    changed = json.loads(json.dumps(expected))
    changed["fields of contract"]["mode"] = "observe"
    (line,) = differences(expected, changed)
    assert line.startswith("changed: fields of contract / mode: ")

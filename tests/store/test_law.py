"""The law of tables: whatever is replaced, added and taken out in whatever order, a table is what a dictionary is."""

from __future__ import annotations

import tempfile
from pathlib import Path
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as some
from tests.store.rows_of_tables import fact, in_tables, on_disk, told

from spillway.settings import Settings
from spillway.store.tables import Tables

STREAMS = some.sampled_from(["a", "b", "a/b", "ß"])
VERSIONS = some.sets(some.integers(1, 4), max_size=3)
STEPS = some.lists(
    some.tuples(
        some.sampled_from(["replace", "delete", "append", "delete versions", "open anew"]),
        STREAMS,
        VERSIONS,
        some.sets(some.integers(1, 4)),
    ),
    max_size=12,
)
Oracle = dict[tuple[str, int], list[str]]


def follow(lake: Settings, steps: list[tuple[str, str, set[int], set[int]]]) -> None:
    tables, oracle = Tables(lake), Oracle()
    for number, (step, stream, versions, among) in enumerate(steps):
        table = tables.at("models")
        rows = [fact(stream, version, str(number)) for version in sorted(versions & among)]
        if step == "open anew":
            tables = tables.now()
        elif step == "append":
            table.append(rows)
        elif step == "delete versions":
            table.delete(version=versions)
            oracle = {key: found for key, found in oracle.items() if key[1] not in versions}
        else:
            if step == "replace":
                table.replace(rows, stream=stream, version=versions)
            else:
                table.delete(stream=stream, version=versions)
            oracle = {
                key: found for key, found in oracle.items() if key[0] != stream or key[1] not in versions
            }
        if step in ("append", "replace"):
            for row in rows:
                oracle.setdefault((stream, row["version"]), []).append(str(number))
        expected = sorted((*key, value) for key, values in oracle.items() for value in values)
        assert told(tables) == expected
    assert told(tables.now()) == told(tables)
    # nothing is left lying beside the table but what commits have taken out of it
    assert in_tables(tables.at("models")) <= on_disk(tables)


@given(STEPS)
@settings(max_examples=60, deadline=None)
def test_a_table_in_memory_is_what_a_dictionary_is(steps: list[tuple[str, str, set[int], set[int]]]) -> None:
    lake = Settings.in_memory(str(uuid4()))
    try:
        follow(lake, steps)
    finally:
        Tables(lake).forget()


@given(STEPS)
@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_a_delta_table_is_what_a_dictionary_is(steps: list[tuple[str, str, set[int], set[int]]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        follow(
            Settings.from_environment({"SPILLWAY_HOME": folder, "SPILLWAY_LAKE": str(Path(folder, "lake"))}),
            steps,
        )


def test_the_law_would_notice_a_row_too_many() -> None:
    lake = Settings.in_memory(str(uuid4()))
    Tables(lake).at("models").append([fact("c")])
    with pytest.raises(AssertionError):
        follow(lake, [("append", "a", {1}, {1})])
    Tables(lake).forget()

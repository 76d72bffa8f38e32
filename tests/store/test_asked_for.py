"""A step reads what it asks for: files that cannot hold an answer may be gone, and nobody notices."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.store.rows_of_tables import FILE, batch, fact

from spillway.batch import DONE, INGESTED, PENDING, PLANNED, Batch
from spillway.errors import InvalidValue
from spillway.levers.attributes.scheme import SCHEMES, state_before
from spillway.pipeline.validate import changed_batches
from spillway.settings import Settings
from spillway.store import blobs
from spillway.store.batches import (
    MOST_FILES,
    RATED,
    batches_of_files,
    compact_batches,
    load_batches,
    newest_batch,
    save_batches,
)
from spillway.store.tables import Between, Table, Tables
from spillway.streams.facts import newest_facts


@pytest.fixture
def lake(tmp_path: Path) -> Settings:
    return Settings.from_environment({"SPILLWAY_HOME": str(tmp_path)})


def lose(table: Table, **where: Any) -> None:
    """Take the files from the disk that may hold what is asked for; the table still lists them."""
    for file in table.files(**where):
        blobs.remove(file.path)


def saved(tables: Tables, batches: Iterable[Batch]) -> None:
    """Each by a commit of its own, as runs do."""
    for one in batches:
        save_batches(tables, [one])


def test_waiting_batches_are_loaded_without_those_that_are_done(lake: Settings) -> None:
    tables = Tables(lake)
    saved(tables, [batch(n, status=DONE, rows=3) for n in range(1, 5)] + [batch(5, status=PLANNED, rows=3)])
    lose(tables.at("batches"), batch=Between(high=4))
    assert [one.batch for one in load_batches(tables.now(), "s", status=PENDING)] == [5]
    with pytest.raises(InvalidValue, match="exist and be complete"):
        load_batches(tables.now(), "s")


def test_the_newest_batch_that_answers_is_found_from_the_end(lake: Settings) -> None:
    tables = Tables(lake)
    rated = [batch(n, status=DONE, rows=3, seconds_covered=1.0) for n in range(1, 5)]
    saved(tables, [*rated, batch(5, status=DONE, rows=0), batch(6, status=DONE, rows=3)])
    lose(tables.at("batches"), batch=Between(high=3))
    found = newest_batch(tables.now(), "s", rows=Between(1), seconds_covered=RATED)
    assert found is not None
    assert found.batch == 4
    assert newest_batch(tables.now(), "other") is None


def test_the_facts_in_force_are_read_without_earlier_versions(lake: Settings) -> None:
    tables = Tables(lake)
    for version in (1, 2, 10, 3):
        tables.at("models").replace([fact(version=version, value=str(version))], stream="s", version=version)
    lose(tables.at("models"), version=Between(high=9))
    found = newest_facts(tables.now(), "s", "thin")
    assert found is not None
    assert (found.version, found.value("share")) == (10, 10)


def scheme(number: int) -> dict[str, Any]:
    columns = Tables(Settings.in_memory("columns")).contract(SCHEMES).columns
    blank: dict[str, Any] = {"string": "", "bigint": 0, "double": 0.0}
    row = {one.name: blank.get(one.type, []) for one in columns}
    day = {"batch_date": date(2026, 1, 1) + timedelta(number), "batch": number, "from_seq": number * 10}
    return row | day | {"stream": "s", "state": f'{{"at": {number}}}'}


def test_the_planner_goes_on_from_the_last_state_and_reads_no_other(lake: Settings) -> None:
    tables = Tables(lake)
    for number in range(1, 6):
        tables.at(SCHEMES).replace([scheme(number)], stream="s", batch=number)
    lose(tables.at(SCHEMES), batch=Between(high=3))
    assert state_before(tables.now(), "s", 9) == (5, {"at": 5})
    assert state_before(tables.now(), "s", 5) == (4, {"at": 4})
    assert state_before(tables.now(), "s", 1) == (0, None)


def test_what_is_to_be_validated_is_told_by_batches_alone(lake: Settings) -> None:
    tables = Tables(lake)
    held = [batch(n, status=DONE, rows=3) for n in (1, 2, 3)]
    marked = [replace(one, validated_revision=0) for one in held[:2]]
    saved(tables, [*marked, held[2]])
    assert [one.batch for one in changed_batches(tables.now(), "s")] == [3]
    save_batches(tables, [replace(marked[0], revision=1)])
    assert [one.batch for one in changed_batches(tables.now(), "s")] == [1, 3]
    assert [one.batch for one in changed_batches(tables.now(), "s", every=True)] == [1, 2, 3]


def test_a_file_is_known_by_its_name_among_all_batches(lake: Settings) -> None:
    tables = Tables(lake)
    named = [replace(FILE, name=f"s/{number}.json") for number in range(4)]
    saved(tables, [batch(n, status=DONE, rows=3, files=(named[n], named[n - 1])) for n in (1, 2, 3)])
    found = batches_of_files(tables.now(), "s", {"s/2.json", "s/nobody.json"})
    assert [one.batch for one in found] == [2, 3]
    assert batches_of_files(tables.now(), "s", {"s/nobody.json"}) == []
    assert batches_of_files(Tables(lake), "other", {"s/2.json"}) == []


def test_runs_leave_few_files_of_what_is_through_and_touch_nothing_that_waits(lake: Settings) -> None:
    tables = Tables(lake)
    saved(tables, [batch(n, status=DONE, rows=3) for n in range(1, MOST_FILES)])
    compact_batches(tables.now(), "s")
    assert len(tables.now().at("batches").files()) == MOST_FILES - 1
    saved(tables, [batch(n, status=DONE, rows=3) for n in range(MOST_FILES, MOST_FILES + 3)])
    saved(tables, [batch(1, "other", status=DONE, rows=3), batch(MOST_FILES + 3, status=PLANNED)])
    before = load_batches(tables)
    compact_batches(tables.now(), "s")
    files = tables.now().at("batches").files()
    assert sorted(file.records for file in files) == [1, 1, MOST_FILES + 2]
    assert load_batches(tables.now()) == before


def test_runs_leave_few_files_of_batches_that_wait_and_none_of_them_holds_one_in_work(lake: Settings) -> None:
    """A day of small batches may wait to be sent together; each is a row, and every step opens all files."""
    tables = Tables(lake)
    saved(tables, [batch(1, status=DONE, rows=3), batch(2, status=INGESTED), batch(3, status=PLANNED)])
    waiting = [batch(n, status=INGESTED, rows=3) for n in range(4, 4 + MOST_FILES)]
    saved(tables, waiting[:-1])
    compact_batches(tables.now(), "s")
    assert len(tables.now().at("batches").files()) == 3 + MOST_FILES - 1
    saved(tables, waiting[-1:])
    before = load_batches(tables)
    compact_batches(tables.now(), "s")
    assert sorted(file.records for file in tables.now().at("batches").files()) == [1, 1, 1, MOST_FILES]
    assert load_batches(tables.now()) == before

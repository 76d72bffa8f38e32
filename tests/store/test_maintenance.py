"""Upkeep: the same rows in fewer files, whoever writes comes first, and nothing goes that anybody may still need."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from tests.store.rows_of_tables import (
    ATTRIBUTES,
    DAY,
    batch,
    counted,
    fact,
    on_disk,
    send,
    tell,
    told,
    transmitted,
)

from spillway.batch import DONE
from spillway.errors import ConcurrentRun
from spillway.settings import Settings
from spillway.store.batches import load_batches, save_batches
from spillway.store.files import DataFile, batch_bytes
from spillway.store.maintenance import MaintenanceResult, compact, shorten_log, vacuum
from spillway.store.tables import Between, Table, Tables

LONG_AGO = 1_500_000_000


def every(_: DataFile) -> bool:
    return True


def up_to(number: int) -> Callable[[DataFile], bool]:
    return lambda file: bool(file.high("batch") <= number)


def weights(table: Table, *numbers: int) -> list[tuple[dict[str, int], int]]:
    columns = ["seq", *(name for name, _ in ATTRIBUTES)]
    return [batch_bytes(table.files(batch=number), columns, number) for number in numbers]


def test_small_files_become_one_of_the_same_rows_in_order_and_say_what_is_in_it(lake: Settings) -> None:
    tables = Tables(lake)
    for number in (3, 1, 2):
        save_batches(tables, [batch(number, status=DONE, rows=number)])
    before = load_batches(tables, "s")
    assert compact(tables.at("batches"), every, dry_run=True) == MaintenanceResult(3, 1)
    assert len(tables.now().at("batches").files()) == 3
    assert compact(tables.at("batches"), every) == MaintenanceResult(3, 1)
    (file,) = tables.now().at("batches").files()
    assert (file.low("batch"), file.high("batch"), file.low("rows"), file.high("rows")) == (1, 3, 1, 3)
    assert load_batches(tables.now(), "s") == load_batches(tables, "s") == before
    assert tables.now().at("batches").rows(["batch"])["batch"].to_pylist() == [1, 2, 3]
    assert compact(tables.now().at("batches"), every) == MaintenanceResult()


def test_what_is_not_closed_stays_a_file_of_its_own(lake: Settings) -> None:
    tables = Tables(lake)
    for number in range(1, 5):
        save_batches(tables, [batch(number)])
    compact(tables.at("batches"), up_to(3))
    assert sorted(file.records for file in tables.now().at("batches").files()) == [1, 3]


def test_a_batch_weighs_the_same_when_its_date_is_one_file(lake: Settings) -> None:
    tables = Tables(lake)
    for number, count in ((1, 900), (2, 40), (3, 500)):
        send(tables, number, count)
    before = weights(transmitted(tables), 1, 2, 3)
    compact(transmitted(tables), every)
    table = transmitted(tables.now())
    (file,) = table.files()
    after = weights(table, 1, 2, 3)
    assert [columns for columns, _ in after] == [columns for columns, _ in before]
    assert sum(sum(columns.values()) + around for columns, around in after) == pytest.approx(
        file.size, abs=9000
    )
    assert counted(tables.now()) == {1: 900, 2: 40, 3: 500}
    # a backfill of one leaves the others' row groups theirs
    send(tables, 2, 60)
    again = transmitted(tables.now())
    assert [columns for columns, _ in weights(again, 1, 3)] == [before[0][0], before[2][0]]
    assert counted(tables.now()) == {1: 900, 2: 60, 3: 500}


def test_where_others_have_mixed_batches_in_a_row_group_each_has_its_share(tmp_path: Path) -> None:
    from spillway.store.schemas import TableContract

    tables = Tables(Settings.from_environment({"SPILLWAY_HOME": str(tmp_path)}))
    for number in (1, 2):
        send(tables, number, 300)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TableContract, "row_group_column", property(lambda _: None))
        compact(transmitted(tables), every)
    table = transmitted(tables.now())
    (file,) = table.files()
    assert pq.ParquetFile(file.path).num_row_groups == 1
    (first, around), (second, _) = weights(table, 1, 2)
    assert first == second
    assert 2 * sum(first.values()) < file.size
    assert around > 0


def test_whoever_writes_meanwhile_comes_first_and_nothing_is_left_behind(lake: Settings) -> None:
    tables = Tables(lake)
    for version in (1, 2):
        tell(tables, version=version)
    stale = tables.now()
    stale.at("models").files()
    tell(tables, version=2, value="8")
    there = on_disk(tables)
    with pytest.raises(ConcurrentRun, match="the next spillway_keep tries again"):
        compact(stale.at("models"), every)
    assert on_disk(tables) == there
    assert told(tables.now()) == [("s", 1, "9"), ("s", 2, "8")]


def test_other_rows_that_are_written_meanwhile_are_kept(lake: Settings) -> None:
    tables = Tables(lake)
    for version in (1, 2):
        tell(tables, version=version)
    stale = tables.now()
    stale.at("models").files()
    tell(tables, version=3)
    compact(stale.at("models"), every)
    assert [version for _, version, _ in told(tables.now())] == [1, 2, 3]
    assert len(tables.now().at("models").files()) == 2


def test_no_reader_of_changes_sees_one(tmp_path: Path) -> None:
    tables = Tables(Settings.from_environment({"SPILLWAY_HOME": str(tmp_path)}))
    for version in (1, 2):
        tell(tables, version=version)
    compact(tables.at("models"), every)
    last = max(Path(tables.path("models"), "_delta_log").glob("*.json"))
    actions = [json.loads(line) for line in last.read_text().splitlines()]
    told_of = [one[kind]["dataChange"] for one in actions for kind in ("add", "remove") if kind in one]
    assert told_of == [False] * 3


def test_only_old_files_of_no_table_are_removed(tmp_path: Path) -> None:
    tables = Tables(Settings.from_environment({"SPILLWAY_HOME": str(tmp_path)}))
    odd = {**fact(), "stream": "a b=c%/ü"}
    tables.at("models").append([odd])
    for version in (1, 2):
        tell(tables, version=version)
    before = on_disk(tables)
    compact(tables.at("models"), every)
    folder = Path(tables.path("models"), "stream=s")
    orphan, young = folder / "part-orphan.parquet", folder / "part-young.parquet"
    orphan.write_bytes(b"12345")
    young.write_bytes(b"123")
    for path in [*map(Path, on_disk(tables))]:
        if path != young:
            os.utime(path, (LONG_AGO, LONG_AGO))
    # what a commit of today took out is old on the disk, and stays all the same
    assert vacuum(tables.now().at("models"), dry_run=True) == MaintenanceResult(
        files_removed=1, bytes_freed=5
    )
    assert orphan.exists()
    assert vacuum(tables.now().at("models")) == MaintenanceResult(files_removed=1, bytes_freed=5)
    assert young.exists()
    assert before < on_disk(tables)
    assert len(told(tables.now())) == 3
    log = Path(tables.path("models"), "_delta_log")
    for commit in log.glob("*.json"):
        lines = [json.loads(line) for line in commit.read_text().splitlines()]
        for one in (line["remove"] for line in lines if "remove" in line):
            one["deletionTimestamp"] = LONG_AGO * 1000
        commit.write_text("".join(json.dumps(line) + "\n" for line in lines))
    vacuum(tables.now().at("models"))
    live = {file.path for file in tables.now().at("models").files()}
    assert on_disk(tables) == live | {str(young)}
    assert len(told(tables.now())) == 3


def test_a_log_that_was_shortened_opens_at_its_checkpoint(tmp_path: Path) -> None:
    tables = Tables(Settings.from_environment({"SPILLWAY_HOME": str(tmp_path)}))
    for version in range(5):
        tell(tables, version=version)
    shorten_log(tables.at("models"))
    log = Path(tables.path("models"), "_delta_log")
    version = tables.at("models").version
    assert (log / f"{version:020}.checkpoint.parquet").exists()
    for commit in log.glob("*.json"):
        if int(commit.stem) < version:
            commit.unlink()
    assert len(told(tables.now())) == 5


def test_days_are_put_together_apart(lake: Settings) -> None:
    tables = Tables(lake)
    send(tables, 1, 10)
    send(tables, 2, 10)
    table = transmitted(tables)
    assert compact(table, lambda file: file.value("batch_date") < DAY) == MaintenanceResult()
    assert compact(table, lambda file: file.value("batch_date") <= DAY) == MaintenanceResult(2, 1)
    assert table.rows(["seq"], batch=Between(2))["seq"].to_pylist() == list(range(200, 210))

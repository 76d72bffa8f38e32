"""Delta tables on a disk: how often a log is opened, what others and the killed leave, writers in two processes."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError
from tests.store.rows_of_tables import DAY, counted, fact, in_tables, on_disk, send, tell, told, transmitted

from spillway.errors import ConcurrentRun, InvalidValue, SpillwayError
from spillway.settings import Settings
from spillway.store import delta_log
from spillway.store.tables import Table, Tables
from spillway.streams.migrate import migrate

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def lake(tmp_path: Path) -> Settings:
    return Settings.from_environment(
        {"SPILLWAY_HOME": str(tmp_path), "SPILLWAY_LAKE": str(tmp_path / "lake")}
    )


def counting(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str) -> list[str]:
    """The first argument of every call of a function from now on."""
    calls: list[str] = []
    was: Callable[..., Any] = getattr(owner, name)

    def call(first: Any, *more: Any, **named: Any) -> Any:
        calls.append(str(first))
        return was(first, *more, **named)

    monkeypatch.setattr(owner, name, call)
    return calls


def test_each_table_is_opened_once_however_often_it_is_read_and_written(
    lake: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    tell(Tables(lake))
    send(Tables(lake), 1, 3)
    opened = counting(monkeypatch, delta_log, "open_delta")
    tables = Tables(lake)
    for value in "ab":
        assert told(tables)
        tell(tables, value=value)
        send(tables, 1, 4)
        assert counted(tables) == {1: 4}
        transmitted(tables).stored_files(batch=1)
    assert sorted(opened) == sorted([tables.path("models"), tables.path("transmitted", "s")])


def test_a_table_is_looked_for_once_where_there_was_none(
    lake: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = counting(monkeypatch, delta_log, "open_delta")
    tables = Tables(lake)
    assert told(tables) == []
    tell(tables)
    tell(tables, version=2)
    assert told(tables) == [("s", 1, "9"), ("s", 2, "9")]
    assert opened == [tables.path("models")]


def test_the_files_of_a_version_are_listed_once(lake: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    send(Tables(lake), 1, 3)
    listed = counting(monkeypatch, DeltaTable, "get_add_actions")
    tables = Tables(lake)
    for _ in range(3):
        assert counted(tables) == {1: 3}
        transmitted(tables).files(batch=1)
    assert len(listed) == 1
    send(tables, 2, 3)
    for _ in range(3):
        assert counted(tables) == {1: 3, 2: 3}
    assert len(listed) == 2


def test_what_somebody_has_compacted_keeps_the_rows_of_other_batches(lake: Settings) -> None:
    tables = Tables(lake)
    for number, count in ((1, 10), (2, 7), (3, 5)):
        send(tables, number, count)
    DeltaTable(tables.path("transmitted", "s")).optimize.compact()
    tables = tables.now()
    assert len(transmitted(tables).files()) == 1
    send(tables, 2, 8)
    assert counted(tables.now()) == {1: 10, 2: 8, 3: 5}
    assert len(transmitted(tables.now()).files()) == 2


@pytest.mark.parametrize("name", ["a b", "a/b", "a%20b", "ß", "a=b"])
def test_what_somebody_has_compacted_in_an_odd_partition_is_found_and_replaced(
    lake: Settings, name: str
) -> None:
    tables = Tables(lake)
    for version in (1, 2, 3):
        tell(tables, name, version)
    DeltaTable(tables.path("models")).optimize.compact()
    tables = tables.now()
    assert len(tables.at("models").files()) == 1
    tell(tables, name, 2, "new")
    assert told(tables.now()) == [(name, 1, "9"), (name, 2, "new"), (name, 3, "9")]


def test_whoever_is_overtaken_by_a_compaction_is_told(lake: Settings) -> None:
    tables = Tables(lake)
    for number in (1, 2):
        send(tables, number, 3)
    DeltaTable(tables.path("transmitted", "s")).optimize.compact()
    with pytest.raises(ConcurrentRun):
        send(tables, 2, 4)
    send(tables.now(), 2, 4)
    assert counted(tables.now()) == {1: 3, 2: 4}


def test_rows_are_counted_in_files_of_which_the_log_says_nothing(lake: Settings) -> None:
    tables = Tables(lake)
    tell(tables)
    path = tables.path("models")
    rows = DeltaTable(path).to_pyarrow_table()
    from deltalake import write_deltalake

    DeltaTable(path).alter.set_table_properties({"delta.dataSkippingNumIndexedCols": "0"})
    write_deltalake(path, rows, mode="append")
    tables = tables.now()
    assert tables.at("models").rows(["stream"])["stream"].to_pylist() == ["s", "s"]
    tables.at("models").delete(version=1)
    assert told(tables.now()) == []


def test_a_log_folder_that_a_killed_process_left_empty_stops_nobody(lake: Settings) -> None:
    tables = Tables(lake)
    folder = Path(tables.path("models"), "_delta_log")
    for left in ((), ("_commit_1f2e.json.tmp",), ("00000000000000000000.json#1",)):
        folder.mkdir(parents=True, exist_ok=True)
        for name in left:
            (folder / name).write_text('{"protocol":', encoding="utf-8")
        tables = tables.now()
        assert told(tables) == []
        tell(tables)
        assert told(tables.now()) == [("s", 1, "9")]
        for file in folder.iterdir():
            file.unlink()


@pytest.mark.parametrize("content", ["", '{"protocol":{"minRea', '{"commitInfo":{}}\n'])
def test_a_table_of_which_only_a_broken_first_commit_is_there_is_made_anew(
    lake: Settings, content: str
) -> None:
    folder = Path(Tables(lake).path("models"), "_delta_log")
    folder.mkdir(parents=True)
    (folder / "00000000000000000000.json").write_text(content, encoding="utf-8")
    tables = Tables(lake)
    assert told(tables) == []
    tell(tables)
    assert told(Tables(lake)) == [("s", 1, "9")]
    assert [path.read_text() for path in folder.glob("_broken_*")] == [content]


def test_of_two_who_find_a_half_made_table_the_slower_takes_nothing_away(
    lake: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = Path(Tables(lake).path("models"), "_delta_log")
    folder.mkdir(parents=True)
    first = folder / "00000000000000000000.json"
    first.write_text("", encoding="utf-8")
    looked = delta_log.read_bytes

    def while_the_other_heals(path: str) -> bytes:
        monkeypatch.setattr(delta_log, "read_bytes", looked)
        content = looked(path)
        tell(Tables(lake))
        return content

    monkeypatch.setattr(delta_log, "read_bytes", while_the_other_heals)
    assert told(Tables(lake)) == [("s", 1, "9")]


@pytest.mark.parametrize("content", ["", '{"protocol":{"minRea'])
def test_a_log_that_cannot_be_read_is_a_sentence(lake: Settings, content: str) -> None:
    folder = Path(Tables(lake).path("models"), "_delta_log")
    tell(Tables(lake))
    (folder / "00000000000000000000.json").write_text(content, encoding="utf-8")
    with pytest.raises(
        InvalidValue, match=r"models: `_delta_log` must be a log that can be read, .*; restore"
    ) as found:
        Tables(lake).at("models")
    assert "\n" not in str(found.value)


def test_a_commit_whose_answer_was_lost_counts_once(lake: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    tables = Tables(lake)
    tables.at("models").append([fact(version=version) for version in (1, 2)])
    commit = DeltaTable.create_write_transaction

    def answerless(table: DeltaTable, *given: Any, **named: Any) -> None:
        monkeypatch.setattr(DeltaTable, "create_write_transaction", commit)
        commit(table, *given, **named)
        raise CommitFailedError("somebody has written version 2")

    monkeypatch.setattr(DeltaTable, "create_write_transaction", answerless)
    tell(tables, value="new")
    assert told(tables) == told(tables.now()) == [("s", 1, "new"), ("s", 2, "9")]
    tell(tables, value="newer")
    assert on_disk(tables) >= in_tables(tables.now().at("models"))


def test_a_store_that_takes_no_commit_is_no_other_writer(
    lake: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables = Tables(lake)
    tell(tables)
    before = on_disk(tables)

    def refuse(table: DeltaTable, *given: Any, **named: Any) -> None:
        raise CommitFailedError("read-only file system")

    monkeypatch.setattr(DeltaTable, "create_write_transaction", refuse)
    with pytest.raises(
        SpillwayError, match="must take the commit, got read-only file system; see whether"
    ) as found:
        tell(tables, value="new")
    assert not isinstance(found.value, ConcurrentRun)
    assert on_disk(tables) == before


WRITER = """
import sys
from tests.store.rows_of_tables import tell
from spillway.settings import Settings
from spillway.store.tables import Tables

lake, stream, *versions = sys.argv[1:]
tables = Tables(Settings.from_environment({"SPILLWAY_HOME": lake, "SPILLWAY_LAKE": lake}))
tables.at("models")
print("ready", flush=True)
sys.stdin.readline()
for version in versions:
    tell(tables, stream, int(version))
print("done", flush=True)
"""


def writer(lake: Settings, stream: str, versions: range) -> subprocess.Popen[str]:
    """A process of its own that writes versions of a stream's fact when it is told to."""
    command = [sys.executable, "-c", WRITER, lake.lake, stream, *map(str, versions)]
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def test_processes_that_write_other_rows_from_the_first_on_both_win(lake: Settings) -> None:
    processes = [writer(lake, stream, range(5)) for stream in ("a", "b")]
    ends = []
    threads = [threading.Thread(target=lambda p=p: ends.append(p.communicate("go\n"))) for p in processes]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [out for out, _ in ends] == ["done\n"] * 2, ends
    assert told(Tables(lake)) == sorted((stream, version, "9") for stream in "ab" for version in range(5))


def test_a_process_that_is_killed_while_it_writes_leaves_whole_commits(lake: Settings) -> None:
    process = writer(lake, "s", range(1000))
    assert process.stdin is not None
    process.stdin.write("go\n")
    process.stdin.flush()
    tables = Tables(lake)
    while len(told(tables)) < 3:
        tables = tables.now()
    process.kill()
    process.communicate()
    versions = [version for _, version, _ in told(tables.now())]
    assert versions == list(range(len(versions)))
    tell(tables.now(), version=len(versions))
    assert len(told(tables.now())) == len(versions) + 1
    assert in_tables(tables.now().at("models")) <= on_disk(tables)


def test_a_process_that_ends_right_after_reading_ends_well(lake: Settings) -> None:
    for version in range(9):
        tell(Tables(lake), version=version)
    code = (
        "import sys; from spillway.settings import Settings; from spillway.store.tables import Tables;"
        "lake = Settings.from_environment({'SPILLWAY_LAKE': sys.argv[1]});"
        "print(Tables(lake).at('models').rows().num_rows)"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code, lake.lake], capture_output=True, text=True, check=False, cwd=ROOT
    )
    assert (ran.returncode, ran.stdout) == (0, "9\n"), ran.stderr


def asked_of(lake: Settings, readers: list[str], writers: list[str]) -> None:
    """A program of others has asked for features of `models`: its protocol lists them from now on."""
    folder = Path(Tables(lake).path("models"), "_delta_log")
    asked = {
        "minReaderVersion": 3,
        "minWriterVersion": 7,
        "readerFeatures": readers,
        "writerFeatures": writers,
    }
    text = json.dumps({"protocol": asked}) + "\n"
    number = len(list(folder.glob("*.json")))
    (folder / f"{number:020d}.json").write_text(text, encoding="utf-8")


@pytest.mark.parametrize("feature", ["deletionVectors", "columnMapping", "somethingNew"])
def test_a_table_that_says_more_than_its_files_is_refused_by_the_name_of_what_says_it(
    lake: Settings, feature: str
) -> None:
    tell(Tables(lake))
    opened = Tables(lake)
    assert told(opened)
    asked_of(lake, [feature], [feature, "appendOnly"])
    said = rf"models: `protocol` must ask for no feature that Spillway does not know to read, got '{feature}'; drop it"
    for act in (lambda: told(Tables(lake)), lambda: migrate(lake), lambda: tell(opened, version=2)):
        with pytest.raises(InvalidValue, match=said):
            act()


def test_a_table_with_rules_for_writers_is_read_and_not_written(lake: Settings) -> None:
    tell(Tables(lake))
    asked_of(lake, [], ["appendOnly", "checkConstraints"])
    assert told(Tables(lake)) == [("s", 1, "9")]
    before = on_disk(Tables(lake))
    with pytest.raises(InvalidValue, match="does not know to write, got 'checkConstraints'; drop it"):
        tell(Tables(lake), version=2)
    assert on_disk(Tables(lake)) == before


def recovered(lake: Settings) -> Table:
    return Tables(lake).at("recovered", "s").with_attributes([("v", "double")])


def recover_one(lake: Settings, seq: int) -> None:
    recovered(lake).append([{"seq": seq, "batch": 1, "batch_date": DAY, "v": 1.5}])


def has_feed(lake: Settings) -> bool:
    return DeltaTable(recovered(lake).path).metadata().configuration["delta.enableChangeDataFeed"] == "true"


def test_a_table_with_a_change_feed_is_written_until_somebody_adds_a_constraint(lake: Settings) -> None:
    """Writer version 4 includes constraints; only one that is there stops a writer."""
    for seq in range(2):
        recover_one(lake, seq)
    table = DeltaTable(recovered(lake).path)
    assert (table.protocol().min_reader_version, table.protocol().min_writer_version) == (1, 4)
    table.alter.add_constraint({"positive": "v > 0"})
    with pytest.raises(InvalidValue, match="does not know to write, got 'checkConstraints'; drop it"):
        recover_one(lake, 2)
    assert sorted(recovered(lake).rows(["seq"])["seq"].to_pylist()) == [0, 1]


def test_a_migration_begins_the_change_feed_of_an_older_table(lake: Settings) -> None:
    recover_one(lake, 0)
    DeltaTable(recovered(lake).path).alter.set_table_properties({"delta.enableChangeDataFeed": "false"})
    assert not has_feed(lake)
    recover_one(lake, 1)
    assert not has_feed(lake), "a run changes no properties"
    (done,) = migrate(lake)
    assert (done.name, done.changes) == ("recovered/s", ("a change data feed from now on",))
    assert has_feed(lake)
    assert migrate(lake) == []

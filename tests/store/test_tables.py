"""Tables: refused when they break the column contract, repeatable, one winner at a time; in memory as on a disk."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, date, datetime
from typing import Any

import pyarrow as pa
import pytest
from tests.store.rows_of_tables import (
    DAY,
    batch,
    counted,
    drafted,
    fact,
    in_tables,
    making,
    on_disk,
    send,
    tell,
    told,
    transmitted,
    tuples,
)

from spillway.batch import DONE, RECORDED, Batch
from spillway.engine import ProcessEngine
from spillway.engine.protocol import Step, run_together
from spillway.errors import ConcurrentRun, InvalidValue, SpillwayError
from spillway.ledger import LedgerRow
from spillway.settings import Settings
from spillway.store.batches import load_batches, save_batches, save_together, write_ledger
from spillway.store.blobs import open_for_writing
from spillway.store.schemas import TableColumn, TableContract
from spillway.store.tables import Between, FileTask, Tables


def with_columns(tables: Tables, table: str, *columns: TableColumn, without: str = "") -> Tables:
    """The same tables after the contract of one has changed."""
    changed = tables.now()
    contract: TableContract = changed.contracts[table]
    kept = tuple(column for column in contract.columns if column.name != without)
    changed.contracts = {**changed.contracts, table: replace(contract, columns=(*kept, *columns))}
    return changed


def test_a_batch_comes_back_as_it_was_saved_lists_and_maps_and_all(lake: Settings) -> None:
    tables = Tables(lake)
    given = [batch(1), batch(2, models={}, files=(), levers=("a", "b"), raw_leaving=("a.parquet",))]
    saved = save_batches(tables, given)
    assert saved == [replace(one, revision=1) for one in given]
    assert load_batches(tables.now(), "s") == saved
    assert load_batches(tables, "s") == load_batches(tables.now())


def test_saving_no_batch_makes_no_table(lake: Settings) -> None:
    tables = Tables(lake)
    save_batches(tables, [])
    tables.at("batches").replace([], stream="s", batch=[1])
    assert tables.at("batches").delete(stream="s") == []
    assert not tables.now().at("batches").exists


def test_a_table_that_is_not_there_has_no_rows_and_the_columns_of_its_contract(lake: Settings) -> None:
    found = Tables(lake).at("models").rows(["version", "stream"], stream="s")
    assert (found.num_rows, found.column_names, found.schema.types) == (
        0,
        ["version", "stream"],
        [pa.int64(), pa.string()],
    )


def test_an_emptied_table_is_still_a_table(lake: Settings) -> None:
    tables = Tables(lake)
    tell(tables)
    gone = tables.at("models").delete(stream="s")
    assert len(gone) == 1
    now = tables.now().at("models")
    assert (now.exists, now.files(), now.rows().num_rows) == (True, [], 0)
    assert now.delete(stream="s") == []


def test_a_write_replaces_its_own_rows_and_no_others(lake: Settings) -> None:
    tables = Tables(lake)
    _, two = save_batches(tables, [batch(1), batch(2)])
    save_batches(tables, [batch(1, "other")])
    (two,) = save_batches(tables, [replace(two, status=DONE)])
    save_batches(tables.now(), [two])
    assert [(b.stream, b.batch, b.status) for b in load_batches(tables.now())] == [
        ("other", 1, RECORDED),
        ("s", 1, RECORDED),
        ("s", 2, DONE),
    ]


def test_a_stage_replaces_its_own_lines_of_the_ledger(lake: Settings) -> None:
    tables = Tables(lake)

    def line(stage: str, number: int, rows: int) -> LedgerRow:
        return LedgerRow("stream", "s", number, DAY, stage, 0, "rows", offered=rows, kept=rows)

    write_ledger(tables, "s", [1, 2], ["intake"], [line("intake", 1, 5), line("intake", 2, 6)])
    write_ledger(tables, "s", [1], ["thin"], [line("thin", 1, 5)])
    write_ledger(tables, "s", [1], ["intake"], [line("intake", 1, 7)])
    rows = tables.now().at("ledger").rows(["stage", "batch", "kept"]).to_pylist()
    assert sorted(tuple(row.values()) for row in rows) == [("intake", 1, 7), ("intake", 2, 6), ("thin", 1, 5)]


def test_rows_that_break_the_column_contract_are_refused_before_writing(lake: Settings) -> None:
    tables = Tables(lake)
    table = tables.at("batches")
    with pytest.raises(SpillwayError, match=r"`colour` is not in the contract; `.*` must not be null"):
        table.replace([{"stream": "s", "colour": "red"}], stream="s")
    for wrong in ({"rows": "many"}, {"rows": 2**63}, {"files": [("a", 1)]}, {"created_at": "noon"}):
        with pytest.raises(
            SpillwayError, match=rf"batches must be written as .* says: `{next(iter(wrong))}`"
        ):
            table.replace([{**batch(1).row(), **wrong}], stream="s")
    assert not tables.now().at("batches").exists
    assert not on_disk(tables)


def test_rows_outside_of_what_they_replace_are_refused(lake: Settings) -> None:
    tables = Tables(lake)
    with pytest.raises(
        SpillwayError, match=r"models: rows must match stream s, version 1, 2, which they replace"
    ):
        tables.at("models").replace([fact(version=1), fact(version=3)], stream="s", version=[2, 1])
    assert not on_disk(tables)


def test_a_table_nobody_has_a_contract_for_and_a_stream_too_many_or_too_few_are_refused(
    lake: Settings,
) -> None:
    tables = Tables(lake)
    with pytest.raises(
        InvalidValue, match=r"`table` must have a column contract, got 'nothing'; write nothing.yaml"
    ):
        tables.at("nothing")
    with pytest.raises(SpillwayError, match="table raw must name a stream, got None"):
        tables.at("raw")
    with pytest.raises(SpillwayError, match="table models must name no stream, got 's'"):
        tables.at("models", "s")


def test_a_column_nobody_has_is_refused_by_name(lake: Settings) -> None:
    tables = Tables(lake)
    tell(tables)
    for asked in (
        lambda: tables.at("models").rows(["colour"]),
        lambda: tables.at("models").rows(colour="red"),
    ):
        with pytest.raises(InvalidValue, match=r"`column` must be one of stream, .*, got 'colour'"):
            asked()


def test_every_type_comes_back_as_it_was_sent(lake: Settings) -> None:
    tables = Tables(lake)
    send(tables, 1, 10)
    found = transmitted(tables.now()).rows().to_pylist()
    wanted = [{**row, "batch_date": DAY} for row in tuples(1, 10)]
    for row in found:
        row["at"] = row["at"] and row["at"].astimezone(UTC).replace(tzinfo=UTC)
    assert [repr(sorted(row.items())) for row in found] == [repr(sorted(row.items())) for row in wanted]


@pytest.mark.parametrize(
    ("where", "wanted"),
    [
        ({"batch": 1}, range(100, 110)),
        ({"batch": [1, 2, 3]}, [*range(100, 110), *range(200, 204)]),
        ({"batch": []}, []),
        ({"batch_date": DAY, "seq": [105, 999, 203]}, [105, 203]),
        ({"batch_date": date(2026, 1, 2)}, []),
        ({"batch_date": Between(date(2025, 1, 1), date(2026, 1, 1)), "batch": 2}, range(200, 204)),
        ({"seq": Between(108, 201)}, [108, 109, 200, 201]),
        ({"seq": Between(low=202)}, [202, 203]),
        ({"seq": Between(high=100)}, [100]),
        ({"seq": Between(), "batch": 2}, range(200, 204)),
        ({"text": "ß\0", "batch": 1}, [103, 107]),
        ({"text": None, "batch": 1}, [102, 106]),
        ({"text": Between(""), "batch": 2}, [200, 201, 203]),
        ({"flag": False, "batch": 2}, [201, 203]),
        ({"day": Between(date(2026, 1, 9))}, [108, 109]),
        ({"at": Between(datetime(2026, 1, 1, 12, 0, 0, 1242, tzinfo=UTC))}, [108]),
        ({"at": Between(high=datetime(2026, 1, 1, 12, 0, 0, 1235, tzinfo=UTC))}, [101, 201]),
    ],
)
def test_a_question_is_answered_by_its_rows_alone(lake: Settings, where: dict[str, Any], wanted: Any) -> None:
    tables = Tables(lake)
    send(tables, 1, 10)
    send(tables, 2, 4)
    found = transmitted(tables.now()).rows(["seq"], **where)["seq"].to_pylist()
    assert sorted(found) == list(wanted)
    transmitted(tables).delete(**where)
    left = transmitted(tables.now()).rows(["seq"])["seq"].to_pylist()
    assert sorted(left) == sorted({*range(100, 110), *range(200, 204)} - set(wanted))


def test_columns_a_table_is_partitioned_by_are_counted_without_its_files_and_with_them(
    lake: Settings,
) -> None:
    tables = Tables(lake)
    send(tables, 1, 10)
    assert transmitted(tables).rows(["batch_date"])["batch_date"].to_pylist() == [DAY] * 10
    assert transmitted(tables).rows(["batch_date"], seq=[101, 102])["batch_date"].to_pylist() == [DAY] * 2


def test_a_reader_of_stored_files_gives_a_stretch_of_a_date(lake: Settings) -> None:
    tables = Tables(lake)
    send(tables, 1, 10)
    send(tables, 2, 4)
    stored = transmitted(tables).stored_files(batch=[1, 2])
    assert stored.reader_for(DAY)(["flag"], 108, 201).to_pylist() == [
        {"seq": 108, "flag": True},
        {"seq": 109, "flag": False},
        {"seq": 200, "flag": True},
        {"seq": 201, "flag": False},
    ]
    assert stored.reader_for(date(2026, 1, 2))(["flag"], 0, 999).num_rows == 0


def test_a_column_the_contract_has_gained_is_added_and_is_null_in_older_rows(lake: Settings) -> None:
    tables = Tables(lake)
    tell(tables, version=1)
    gained = with_columns(
        tables,
        "models",
        TableColumn("weight", "double", False, "how much it counts"),
        TableColumn("of", "array<struct<name:string,rows:bigint>>", True, "what it is of"),
    )
    # before anything is written by the new contract, the columns are null
    assert gained.at("models").rows(["weight", "of"], weight=None).to_pylist() == [
        {"weight": None, "of": None}
    ]
    assert gained.at("models").rows(["version"], weight=Between(0.0)).num_rows == 0
    new = {**fact(version=2), "weight": 0.5, "of": [("a", 3)]}
    gained.at("models").replace([new], stream="s", version=2)
    now = gained.now()
    found = now.at("models").rows(["version", "weight", "of"]).sort_by("version").to_pylist()
    assert found == [
        {"version": 1, "weight": None, "of": None},
        {"version": 2, "weight": 0.5, "of": [{"name": "a", "rows": 3}]},
    ]
    assert now.at("models").rows(["version"], weight=0.5).to_pylist() == [{"version": 2}]
    assert now.at("models").types()["of"] == "array<struct<name:string,rows:bigint>>"


def test_a_field_that_structs_have_gained_is_added_and_is_null_in_older_rows(lake: Settings) -> None:
    of, kinds = [{"name": "a", "rows": 3}], ("string,rows:bigint", "string,rows:bigint,weight:double")
    old, new = (TableColumn("of", f"array<struct<name:{kind}>>", True, "what it is of") for kind in kinds)
    tables = with_columns(Tables(lake), "models", old)
    tables.at("models").replace([{**fact(version=1), "of": of}], stream="s", version=1)
    gained = with_columns(tables, "models", new, without="of")
    assert gained.at("models").rows(["of"]).to_pylist() == [{"of": of}]  # nothing is written by it yet
    gained.at("models").replace([{**fact(version=2), "of": [("a", 3, 0.5)]}], stream="s", version=2)
    now = gained.now()
    assert now.at("models").rows(["version", "of"]).sort_by("version").to_pylist() == [
        {"version": 1, "of": [{**of[0], "weight": None}]},
        {"version": 2, "of": [{**of[0], "weight": 0.5}]},
    ]
    assert now.at("models").types()["of"] == new.type
    with pytest.raises(SpillwayError, match="column `of` must stay"):
        with_columns(now, "models", old, without="of").at("models").replace(
            [{**fact(version=3), "of": of}], stream="s", version=3
        )


def test_a_column_the_contract_has_lost_is_null_in_newer_rows(lake: Settings) -> None:
    tables = Tables(lake)
    table = tables.at("raw", "s")
    for number, name in ((1, "old"), (2, "new")):
        mine = table.with_attributes([(name, "double")])

        def make(of: int, counts: dict[str, int], name: str = name) -> Iterator[pa.Table]:
            yield pa.table({"seq": [of], "batch": [of], name: [float(of)]})

        draft = mine.draft(ProcessEngine(), [FileTask({"batch_date": str(DAY)}, number, number)], make)
        mine.publish(draft.written, batch_date=DAY, batch=number)
    now = tables.now().at("raw", "s")
    assert now.rows(["seq", "old", "new"]).sort_by("seq").to_pylist() == [
        {"seq": 1, "old": 1.0, "new": None},
        {"seq": 2, "old": None, "new": 2.0},
    ]
    # a rewrite of one batch's rows keeps what the other has
    assert (
        now.stored_files().reader_for(DAY)(["old", "new"], 1, 2).to_pylist()
        == now.rows(["seq", "old", "new"]).sort_by("seq").to_pylist()
    )


def test_a_column_whose_type_the_contract_has_changed_is_refused_by_name_and_nothing_is_added(
    lake: Settings,
) -> None:
    tables = Tables(lake)
    tell(tables)
    before = on_disk(tables)
    changed = with_columns(
        tables,
        "models",
        TableColumn("value", "double", False, "a number now"),
        TableColumn("weight", "double", True, "new"),
        without="value",
    )
    with pytest.raises(SpillwayError, match="column `value` must stay string, got double; give the changed"):
        changed.at("models").replace([{**fact(), "value": 9.0}], stream="s", version=1)
    assert "weight" not in tables.now().at("models").schema.names
    assert told(tables.now()) == [("s", 1, "9")]
    assert on_disk(tables) == before


@pytest.mark.parametrize(
    "name", ["a b", "a/b", "../a", "a%20b", "a=b", "ß", "a'b\"c", "a\0b", "a\nb", "{}", "None", "1"]
)
def test_a_partition_may_be_called_anything(lake: Settings, name: str) -> None:
    tables = Tables(lake)
    tell(tables, name, 1)
    tell(tables, name, 2)
    tell(tables, "a_b", 1, "other")
    tell(tables, name, 1, "again")
    assert told(tables.now()) == sorted([(name, 1, "again"), (name, 2, "9"), ("a_b", 1, "other")])
    assert tables.now().at("models").rows(["value"], stream=name, version=1).to_pylist() == [
        {"value": "again"}
    ]
    tables.now().at("models").delete(stream=name, version=[1, 2])
    assert told(tables.now()) == [("a_b", 1, "other")]
    assert in_tables(tables.now().at("models")) <= on_disk(tables)


def test_a_partition_without_a_name_is_refused(lake: Settings) -> None:
    tables = Tables(lake)
    with pytest.raises(SpillwayError, match=r"models.*`stream` must not be empty"):
        tell(tables, "")
    assert not on_disk(tables)


def test_rows_that_only_seem_to_match_stay(lake: Settings) -> None:
    tables = Tables(lake)
    tables.at("models").append([fact(version=1), fact(version=9)])
    assert tables.at("models").delete(stream="s", version=5) == []
    assert told(tables.now()) == [("s", 1, "9"), ("s", 9, "9")]
    assert on_disk(tables) == in_tables(tables.at("models"))


def test_a_file_that_holds_rows_of_other_batches_keeps_them_in_the_same_commit(lake: Settings) -> None:
    tables = Tables(lake)
    tables.at("models").append([fact(version=version) for version in (1, 2, 3)])
    version = tables.at("models").version
    tell(tables, version=2, value="new")
    assert tables.at("models").version == version + 1
    assert told(tables.now()) == [("s", 1, "9"), ("s", 2, "new"), ("s", 3, "9")]
    assert tables.at("models").rows().schema == tables.now().at("models").rows().schema


def test_a_draft_is_measured_and_thrown_away_without_a_trace(lake: Settings) -> None:
    tables = Tables(lake)
    table = transmitted(tables)
    draft = drafted(table, 1, 10)
    assert (draft.rows(1), draft.rows(2), draft.counts) == (10, 0, {1: {"rows": 10}})
    assert draft.column_bytes(1, ["v", "flag", "nothing"])["v"] > 0
    assert 0 < sum(draft.column_bytes(1, ["v", "text"]).values()) < draft.file_bytes(1)
    assert len(on_disk(tables)) == 1
    table.discard(draft)
    assert not on_disk(tables)
    assert not tables.now().at("transmitted", "s").exists


def test_a_piece_without_rows_leaves_no_file_and_takes_out_what_was_there(lake: Settings) -> None:
    tables = Tables(lake)
    send(tables, 1, 10)
    send(tables, 2, 7)
    assert counted(tables.now()) == {1: 10, 2: 7}
    send(tables, 1, 0)
    assert counted(tables.now()) == {2: 7}


def test_a_refused_task_leaves_the_table_as_it_was_and_no_file(lake: Settings) -> None:
    tables = Tables(lake)
    send(tables, 1, 10)
    before = on_disk(tables)

    def make(of: int, counts: dict[str, int]) -> Iterator[pa.Table]:
        yield from making(of, counts, 3)
        if of == 3:
            raise InvalidValue("row", "be one", of, "mend it")

    pieces = [FileTask({"batch_date": str(DAY)}, number, number) for number in (2, 3, 4)]
    with pytest.raises(InvalidValue, match="`row` must be one, got 3; mend it"):
        transmitted(tables).draft(ProcessEngine(), pieces, make)
    assert counted(tables.now()) == {1: 10}
    assert on_disk(tables) == before


def test_a_task_that_breaks_leaves_no_half_a_file(lake: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    tables = Tables(lake)
    monkeypatch.setattr("spillway.store.file_writer.ROWS_IN_A_GROUP", 3)

    def make(of: int, counts: dict[str, int]) -> Iterator[pa.Table]:
        yield from making(of, counts, 9)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        transmitted(tables).draft(ProcessEngine(), [FileTask({"batch_date": str(DAY)}, 1, 1)], make)
    assert not on_disk(tables)


def test_of_two_who_replace_the_same_rows_the_second_is_told(lake: Settings) -> None:
    tell(Tables(lake), value="before")
    first, second = Tables(lake), Tables(lake)
    assert told(first) == told(second)
    tell(first, value="first")
    before = on_disk(first)
    with pytest.raises(
        ConcurrentRun, match=r"models: another run wrote stream s, version 1 at the same time; nothing"
    ):
        tell(second, value="second")
    assert told(Tables(lake)) == [("s", 1, "first")]
    assert on_disk(second) == before


def test_of_two_who_write_the_first_rows_of_a_table_the_second_is_told(lake: Settings) -> None:
    first, second = Tables(lake), Tables(lake)
    assert told(first) == told(second) == []
    tell(first, value="first")
    with pytest.raises(ConcurrentRun):
        tell(second, value="second")
    assert told(Tables(lake)) == [("s", 1, "first")]


def test_what_was_read_counts_as_read_until_the_tables_are_opened_anew(lake: Settings) -> None:
    tell(Tables(lake), version=1, value="before")
    slow, quick = Tables(lake), Tables(lake)
    assert told(slow) == [("s", 1, "before")]
    tell(quick, version=1, value="quick")
    tell(slow, version=2)  # learns here of the other's commit, which is none of its business
    with pytest.raises(ConcurrentRun):
        tell(slow, version=1, value="slow, from what was before")
    tell(slow.now(), version=1, value="slow")
    assert told(Tables(lake)) == [("s", 1, "slow"), ("s", 2, "9")]


def test_whoever_writes_again_is_not_in_its_own_way(lake: Settings) -> None:
    tables = Tables(lake)
    for value in "abc":
        tell(tables, value=value)
        tables.at("models").with_attributes([]).replace([fact(version=2, value=value)], stream="s", version=2)
    assert told(tables) == told(tables.now()) == [("s", 1, "c"), ("s", 2, "c")]


def test_two_who_take_out_the_same_rows_are_not_both_told_that_they_did(lake: Settings) -> None:
    tell(Tables(lake))
    first, second = Tables(lake), Tables(lake)
    assert told(second)
    first.at("models").delete(stream="s")
    with pytest.raises(ConcurrentRun):
        second.at("models").delete(stream="s")


def test_two_who_widen_a_table_at_the_same_time_both_have_their_columns(lake: Settings) -> None:
    tables = Tables(lake)
    tell(tables)
    weight = TableColumn("weight", "double", True, "")
    one = with_columns(tables, "models", weight)
    two = with_columns(tables, "models", weight, TableColumn("colour", "string", True, ""))
    assert told(one) == told(two)
    one.at("models").replace([{**fact("one"), "weight": 1.0}], stream="one")
    two.at("models").replace([{**fact("two"), "weight": 2.0, "colour": "red"}], stream="two")
    tell(tables, "three")
    found = two.now().at("models").rows(["stream", "weight", "colour"]).sort_by("stream").to_pylist()
    assert [tuple(row.values()) for row in found] == [
        ("one", 1.0, None),
        ("s", None, None),
        ("three", None, None),
        ("two", 2.0, "red"),
    ]


def test_of_threads_that_write_the_same_rows_one_wins_and_the_others_are_told(lake: Settings) -> None:
    tell(Tables(lake), version=7)
    start = threading.Barrier(4)

    def write(number: int) -> str:
        tables = Tables(lake)
        assert told(tables)
        start.wait()
        try:
            tell(tables, value=f"run {number}")
        except ConcurrentRun as problem:
            return str(problem)
        return f"run {number}"

    with ThreadPoolExecutor(4) as pool:
        outcomes = list(pool.map(write, range(4)))
    (winner,) = [outcome for outcome in outcomes if outcome.startswith("run ")]
    assert sum("nothing was doubled" in outcome for outcome in outcomes) == 3
    assert told(Tables(lake)) == [("s", 1, winner), ("s", 7, "9")]


@pytest.mark.parametrize("shared", [False, True], ids=["tables of their own", "the same tables"])
def test_threads_that_write_other_rows_from_the_first_on_all_win(lake: Settings, shared: bool) -> None:
    one = Tables(lake)
    start = threading.Barrier(6)

    def write(number: int) -> None:
        tables = one if shared else Tables(lake)
        tables.at("models")
        start.wait()
        for version in range(3):
            tell(tables, f"s{number}", version)

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(write, range(6)))
    assert told(Tables(lake)) == sorted((f"s{n}", version, "9") for n in range(6) for version in range(3))


def test_numbers_that_are_none_are_told_apart_from_those_that_are_missing(lake: Settings) -> None:
    tables = Tables(lake)
    send(tables, 1, 10)
    values = transmitted(tables.now()).rows(["v"])["v"].to_pylist()
    assert [value is not None and math.isnan(value) for value in values] == [i % 5 == 1 for i in range(10)]
    assert [value is None for value in values] == [i % 5 == 2 for i in range(10)]


def test_tables_in_memory_that_were_forgotten_are_gone_and_no_neighbours() -> None:
    lake = Settings.in_memory("forgotten")
    neighbour = replace(lake, lake=f"{lake.lake}2", destination=f"{lake.lake}2")
    tell(Tables(lake))
    tell(Tables(neighbour), value="stays")
    Tables(lake).forget()
    assert told(Tables(lake)) == []
    assert told(Tables(neighbour)) == [("s", 1, "stays")]
    Tables(neighbour).forget()


def test_batches_of_two_streams_in_one_commit_are_refused(lake: Settings) -> None:
    with pytest.raises(
        SpillwayError, match=r"batches: rows must match stream a, batch 1, which they replace"
    ):
        save_batches(Tables(lake), [batch(1, "a"), batch(1, "b")])


def saving(tables: Tables, *batches: Batch) -> Step[list[Batch]]:
    return save_together(tables, list(batches))


def test_batches_of_several_streams_are_saved_in_one_commit(lake: Settings) -> None:
    tables = Tables(lake)
    save_batches(tables, [batch(1, "a")])
    before = tables.at("batches").version
    steps = {
        "a": saving(tables, batch(1, "a", revision=1)),
        "b": saving(tables, batch(1, "b")),
        "c": saving(tables),
    }
    found = dict(run_together(ProcessEngine(), steps))
    assert found == {"a": [batch(1, "a", revision=2)], "b": [batch(1, "b", revision=1)], "c": []}
    assert tables.at("batches").version == tables.now().at("batches").version == before + 1
    assert load_batches(tables.now()) == load_batches(tables) == [*found["a"], *found["b"]]


def test_a_stream_that_another_run_has_saved_is_refused_alone(lake: Settings) -> None:
    tables = Tables(lake)
    tables.at("batches").has_rows()
    save_batches(tables.now(), [batch(1, "a")])
    before = tables.now().at("batches").version
    steps = {name: saving(tables, batch(1, name)) for name in "abc"}
    found = dict(run_together(ProcessEngine(), steps))
    assert isinstance(found["a"], ConcurrentRun)
    assert (found["b"], found["c"]) == ([batch(1, "b", revision=1)], [batch(1, "c", revision=1)])
    assert tables.now().at("batches").version == before + 1
    assert in_tables(tables.now().at("batches")) == on_disk(tables)


def test_a_stream_whose_file_cannot_be_read_fails_alone(lake: Settings) -> None:
    """Rows of a batch are replaced in a file that it shares with another, which is damaged."""
    tables = Tables(lake)
    save_batches(tables, [batch(1, "a"), batch(2, "a")])
    (file,) = tables.at("batches").files(stream="a")
    steps = {"a": saving(tables, batch(1, "a", revision=1)), "b": saving(tables, batch(1, "b"))}
    waiting = {name: next(step) for name, step in steps.items()}
    with open_for_writing(file.path) as sink:
        sink.write(b"PAR1")
    removed, refused = waiting["b"].answer_all([waiting["b"], waiting["a"]])  # type: ignore[union-attr]
    assert removed == []
    assert isinstance(refused, InvalidValue)
    assert load_batches(tables.now(), "b") == [batch(1, "b", revision=1)]

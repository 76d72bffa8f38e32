"""Rows delivered twice are found by their values, exactly or by a filter that says how often it was wrong."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.intake.landing_world import LandingWorld, lines
from tests.intake.landing_world import contract as landed

from spillway.batch import INGESTED, RETIRED, Batch, LandingFile
from spillway.contracts import StreamContract, read_stream
from spillway.engine import ProcessEngine
from spillway.engine.spark import SparkEngine
from spillway.errors import InvalidValue, SpillwayError
from spillway.intake import dedupe, raw
from spillway.intake.dedupe import (
    DELIVERED_BEFORE,
    compared_attributes,
    filter_before,
    filter_spec,
    find_repeated_seqs,
    find_repeats,
    rejected_repeats,
    save_filter_states,
)
from spillway.intake.rate import time_covered
from spillway.settings import Settings
from spillway.sketches.kinds.stream_filters import UNSEEN
from spillway.sketches.query import read_sketch
from spillway.store.batches import save_batches
from spillway.store.files import DataFile, RowReader
from spillway.store.tables import Tables
from spillway.streams.stored_sketches import load_sketch

NAN = float("nan")
HERE = ProcessEngine()
TYPES = {"site": pa.string(), "at": pa.timestamp("us", "UTC"), "temp": pa.float64(), "level": pa.int64()}
Row = tuple[str | None, float | None]


def contract(**duplicates: Any) -> StreamContract:
    return read_stream(
        {
            "stream": "sites",
            "channel": "uplink",
            "source": {"kind": "files", "path": "sites", "format": "json"},
            "attributes": [
                {"name": "site", "type": "string", "role": "key"},
                {"name": "at", "type": "timestamp", "role": "order"},
                {"name": "temp", "type": "double"},
                {"name": "level", "type": "integer"},
            ],
            "rate": {"from": "declared", "tuples_per_second": 10},
            "duplicates": {"on": ["site", "temp"], **duplicates},
        }
    )


def batch(number: int, first: int, last: int) -> Batch:
    """A batch whose rows came in two files, the first of ten rows."""
    now = datetime(2026, 1, 1, tzinfo=UTC)
    files = (
        LandingFile("sites/a.json", 1, "d1", 10, first - 1, "ingested"),
        LandingFile("sites/b.json", 1, "d2", last - first - 9, first + 9, "ingested"),
    )
    return Batch("sites", number, date(2020, 1, number), INGESTED, files, first, last, "run", now, now)


def table(first: int, rows: Sequence[Row]) -> pa.Table:
    at = [datetime(2020, 1, 1, 0, 0, second % 60, 1500, tzinfo=UTC) for second in range(len(rows))]
    columns = {"site": [site for site, _ in rows], "at": at, "temp": [temp for _, temp in rows]}
    columns["level"] = [None if place % 2 else place for place in range(len(rows))]
    arrays = {name: pa.array(values, TYPES[name]) for name, values in columns.items()}
    return pa.table({"seq": pa.array(range(first, first + len(rows)), pa.int64()), **arrays})


def stored(folder: Path, rows: pa.Table, files: int = 1) -> list[DataFile]:
    """The rows in so many files, in their order."""
    found, size = [], -(-rows.num_rows // files)
    for low in range(0, rows.num_rows, size):
        part = rows.slice(low, size)
        path = folder / f"{part['seq'][0]}-{files}.parquet"
        pq.write_table(part, path, row_group_size=50)
        seq = part["seq"].to_pylist()
        found.append(
            DataFile(str(path), path.stat().st_size, (), (("seq", seq[0]),), (("seq", seq[-1]),), len(seq))
        )
    return found


def slowly(rows: Sequence[Row], history: Sequence[Row] = (), within: int | None = None) -> list[int]:
    """Which places repeat an earlier row that stayed and lies within reach, by comparing with all."""
    stayed = {plain(row): place - len(history) for place, row in enumerate(history)}
    found = []
    for place, row in enumerate(rows):
        last = stayed.get(plain(row))
        if last is not None and (within is None or place - last <= within):
            found.append(place)
        else:
            stayed[plain(row)] = place
    return found


def plain(row: Row) -> tuple[Any, ...]:
    return tuple("nan" if value != value else value for value in row)


AWKWARD: list[Row] = [
    ("a", 1.0), ("a", None), (None, 1.0), ("a", NAN), (None, None), ("a", 0.0), ("", None), ("a", -0.0), ("b", 1.0),
]  # fmt: skip


def some_rows(seed: int, count: int) -> list[Row]:
    rng = np.random.default_rng(seed)
    return [AWKWARD[place] if place < 9 else (f"s{place}", 7.0) for place in rng.integers(0, 40, count)]


@pytest.mark.parametrize("within", [None, 3, 40, 1000])
@pytest.mark.parametrize("cores", [1, 3])
def test_those_whose_values_came_within_reach_are_found_by_either_way(
    cores: int, within: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(RowReader, "AT_A_TIME", 32)
    monkeypatch.setattr(dedupe, "_ROWS_AT_A_TIME", 25)
    before, rows = some_rows(1, 60), some_rows(2, 150)
    files, history = stored(tmp_path, table(60, rows), 3), stored(tmp_path, table(0, before), 4)
    truth = [60 + place for place in slowly(rows, before, within)]
    for way in ("exact", "filter") if within else ("exact",):
        asked = contract(rows=way, within=within, false_positive_pct=20, shards=2)
        found = find_repeats(ProcessEngine(cores), asked, batch(2, 60, 209), files, history)
        assert found.rows.tolist() == truth
        assert found.reason.startswith(
            "row delivered before" + (f", within {within:,} rows" if within else "")
        )
        assert (found.state is None) == (way == "exact")
        alone = find_repeats(ProcessEngine(cores), asked, batch(2, 60, 209), files, [])
        assert alone.rows.tolist() == [60 + place for place in slowly(rows, (), within)]


def test_a_new_row_that_the_filter_suspects_stays_and_one_fingerprint_of_two_values_drops_neither(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = dedupe.keys_of
    monkeypatch.setattr(dedupe, "keys_of", lambda *asked: real(*asked) % np.uint64(3))
    before, rows = some_rows(3, 40), some_rows(4, 80)
    files, history = stored(tmp_path, table(40, rows)), stored(tmp_path, table(0, before))
    for way in ("exact", "filter"):
        found = find_repeats(HERE, contract(rows=way, within=30), batch(2, 40, 119), files, history)
        # three fingerprints in all: the filter suspects nearly everything
        assert found.rows.tolist() == [40 + place for place in slowly(rows, before, 30)]
    assert re.search(r"suspected (9\d|100)[.\d]* % of the new rows too", found.reason)


def test_a_batch_of_any_length_is_hashed_some_rows_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(RowReader, "AT_A_TIME", 32)
    monkeypatch.setattr(dedupe, "_ROWS_AT_A_TIME", 32)
    # a stretch is never shorter than what is read at a time
    monkeypatch.setattr(dedupe, "_split_range", lambda first, last, _: ((first, last),))
    real, sizes = dedupe.keys_of, []
    monkeypatch.setattr(
        dedupe, "keys_of", lambda rows, *rest: sizes.append(rows.num_rows) or real(rows, *rest)
    )
    files = stored(tmp_path, table(100, some_rows(1, 400)))
    history = stored(tmp_path, table(0, some_rows(2, 100)))
    for way in ("exact", "filter"):
        found = find_repeats(HERE, contract(rows=way, within=200), batch(2, 100, 499), files, history)
        assert len(found.rows) > 100
    assert max(sizes) == 32


def test_only_the_window_is_looked_at(tmp_path: Path) -> None:
    old, near = table(0, [("x", 1.0)] * 5), table(5, [("y", 1.0)] * 5)
    history = [*stored(tmp_path, old), *stored(tmp_path, near)]
    Path(history[0].path).unlink()
    files = stored(tmp_path, table(10, [("x", 1.0), ("y", 1.0), ("z", 1.0)]))
    for way in ("exact", "filter"):
        found = find_repeats(HERE, contract(rows=way, within=5), batch(2, 10, 12), files, history)
        assert found.rows.tolist() == [11]


def test_what_came_later_or_lies_in_the_same_files_is_no_history(tmp_path: Path) -> None:
    rows = [("x", 1.0), ("y", 1.0), ("x", 1.0), ("y", 1.0)]
    files = stored(tmp_path, table(0, rows))
    found = find_repeats(HERE, contract(rows="exact"), batch(1, 0, 1), files, files)
    assert found.rows.tolist() == []


@pytest.mark.parametrize("within", [None, 3, 40, 1000])
def test_a_batch_that_comes_late_is_compared_with_what_stands_before_and_after_it(
    within: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dedupe, "_ROWS_AT_A_TIME", 25)
    before, rows, after = some_rows(1, 60), some_rows(2, 30), some_rows(3, 90)
    gone = table(90, some_rows(4, 20))
    batches = [batch(1, 0, 59), batch(2, 60, 89), batch(3, 90, 109), batch(4, 110, 199)]
    # a batch whose rows lie in the table, and do not stand, is between: that run died
    history = [
        file for part in (table(0, before), gone, table(110, after)) for file in stored(tmp_path, part, 3)
    ]
    for way in ("exact", "filter") if within else ("exact",):
        asked = contract(rows=way, within=within)
        found = find_repeats(
            ProcessEngine(2),
            asked,
            batches[1],
            stored(tmp_path, table(60, rows)),
            history,
            None,
            [batches[0], batches[3]],
        )
        truth, stayed = [], [(place, plain(row)) for place, row in enumerate(before)]
        stayed += [(110 + place, plain(row)) for place, row in enumerate(after)]
        for place, row in enumerate(rows, 60):
            reach = within or 1000
            if any(values == plain(row) and abs(place - other) <= reach for other, values in stayed):
                truth.append(place)
            else:
                stayed.append((place, plain(row)))
        assert found.rows.tolist() == truth
        reached = way == "filter" and within in (1000,)
        assert (found.state is not None) == reached
        if found.state is not None:
            # the newest batch's state is made again: it forgets nothing that stands in its window
            assert (found.state["batch"], found.state["rows"], found.state["started_from"]) == (4, 180, None)
            held: Any = read_sketch(found.state["payload"])
            keys = [
                compared_attributes(asked).keys(one)
                for one in (table(0, before), table(60, rows), table(110, after))
            ]
            assert held.holds(np.concatenate(keys)).all()


def looked_up(folder: Path, rows: dict[int, str], within: int, together: bool = False) -> list[int]:
    """Which of the batch's rows 50 to 59 repeat one that stays; the others (by `seq`) lie in a file each, or in one."""
    folder.mkdir()
    mine = table(50, [(rows.get(seq, f"own {seq}"), 1.0) for seq in range(50, 60)])
    others = [table(seq, [(site, 1.0)]) for seq, site in rows.items() if not 50 <= seq < 60]
    history = [
        file for one in ([pa.concat_tables(others)] if together else others) for file in stored(folder, one)
    ]
    around = dedupe.window_around((50, 59), stored(folder, mine), history, ((0, 49), (60, 99)), within, 1)
    on = dedupe.ComparedAttributes(("site", "temp"), ("string", "double"))
    return dedupe.find_repeats_exactly(HERE, on, around).tolist()


def test_a_row_as_far_as_is_said_is_within_reach_before_the_batch_and_after_it(tmp_path: Path) -> None:
    assert looked_up(tmp_path / "within", {43: "a", 50: "a", 59: "b", 66: "b"}, 7) == [50, 59]
    assert looked_up(tmp_path / "beyond", {42: "a", 50: "a", 59: "b", 67: "b"}, 7) == []


@pytest.mark.parametrize("together", [False, True])
def test_what_lies_out_of_a_rows_reach_on_one_side_hides_nothing_on_the_other(
    together: bool, tmp_path: Path
) -> None:
    assert looked_up(tmp_path / "before", {44: "a", 58: "a", 62: "a"}, 7, together) == [58]
    assert looked_up(tmp_path / "after", {46: "a", 51: "a", 64: "a"}, 7, together) == [51]


def test_batches_that_are_taken_in_at_once_are_compared_with_each_other_in_their_order(
    tmp_path: Path,
) -> None:
    world = LandingWorld(tmp_path, landed(duplicates={"rows": "exact", "on": ["at"]}))
    for day, ats in enumerate(([1, 2], [2, 3, 4], [1, 4]), 1):
        world.deliver(f"2026-01-0{day}/{day}.json", lines(ats))
    assert [one.batch for one in world.take_in()] == [1, 2, 3]
    assert world.ats() == [1, 2, 3, 4]
    assert world.totals() == [(2, 2, 0, 0), (3, 2, 0, 1), (2, 0, 0, 2)]


def test_what_is_retired_is_no_history_though_its_rows_are_there_still(tmp_path: Path) -> None:
    files = stored(tmp_path, table(20, [("a", 1.0), ("b", 1.0)]))
    history = stored(tmp_path, table(0, [("a", 1.0)]))
    for status, repeated in ((INGESTED, [20]), (RETIRED, [])):
        before = replace(batch(1, 0, 19), status=status).row_numbers
        found = find_repeats(HERE, contract(rows="exact"), batch(2, 20, 21), files, history, None, [before])
        assert found.rows.tolist() == repeated


def test_a_batch_that_comes_late_is_put_into_the_state_of_the_newest_one_which_reaches_as_far(
    tmp_path: Path,
) -> None:
    mine, later = table(20, [("a", 1.0)]), [table(first, [(f"s{first}", 1.0)]) for first in (40, 60)]
    history = [file for one in later for file in stored(tmp_path, one)]
    after = [batch(3, 40, 59).row_numbers, batch(4, 60, 79).row_numbers]
    asked = contract(rows="filter", within=60)
    for standing in (after, after[::-1]):
        found = find_repeats(HERE, asked, batch(2, 20, 39), stored(tmp_path, mine), history, None, standing)
        assert found.state is not None
        assert (found.state["batch"], found.state["rows"]) == (4, 3)


def test_no_rows_and_no_repeats_find_nothing(tmp_path: Path) -> None:
    files = stored(tmp_path, table(0, [("x", 1.0), ("y", 1.0)]))
    for way in ("exact", "filter"):
        found = find_repeats(HERE, contract(rows=way, within=9), batch(1, 0, 1), files, [])
        assert found.rows.tolist() == []
        nothing = find_repeats(HERE, contract(rows=way, within=9), batch(2, 2, 1), [], files)
        assert nothing.rows.tolist() == []


def test_an_attribute_that_older_files_lack_is_null_there(tmp_path: Path) -> None:
    old = table(0, [("x", None), ("y", None)]).drop_columns(["temp"])
    files, history = stored(tmp_path, table(2, [("x", 1.0), ("x", None)])), stored(tmp_path, old)
    found = find_repeats(HERE, contract(rows="exact"), batch(2, 2, 3), files, history)
    assert found.rows.tolist() == [3]


def test_rows_are_compared_by_all_attributes_unless_some_are_named() -> None:
    assert compared_attributes(contract(rows="exact")).names == ("site", "temp")
    assert compared_attributes(contract(rows="exact", on=None)).names == ("site", "at", "temp", "level")


def test_dates_texts_and_truths_are_compared_too() -> None:
    rows = pa.table(
        {
            "seq": [3, 2, 1, 0],
            "day": pa.array([date(2020, 1, 1)] * 4),
            "yes": [True, None, True, None],
            "text": ["x", "x", "x", "y"],
        }
    )
    names, types = ("day", "yes", "text"), ("date", "boolean", "string")
    assert find_repeated_seqs([rows], names, types).tolist() == [3]
    assert find_repeated_seqs([rows.slice(0, 0)], names, types).tolist() == []


@pytest.mark.parametrize("shards", [1, 3])
def test_a_filter_in_shards_and_over_batches_is_the_filter_of_the_stream(
    shards: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spark: Any
) -> None:
    monkeypatch.setattr(RowReader, "AT_A_TIME", 64)
    asked = contract(rows="filter", within=250, shards=shards, false_positive_pct=30)
    rows = [(f"s{place}", 1.0) for place in np.random.default_rng(5).integers(0, 2000, 700).tolist()]
    files, spec = stored(tmp_path, table(0, rows), 3), filter_spec(asked)
    kernel: Any = spec.empty()
    keys = compared_attributes(asked).keys(table(0, rows))
    suspected = np.flatnonzero(kernel.observe(keys)).tolist()
    truth = slowly(rows, (), 250)
    assert set(truth) < set(suspected)
    for engine in (HERE, ProcessEngine(2), SparkEngine(lambda: spark)):
        first = find_repeats(engine, asked, batch(1, 0, 299), files, [])
        kept = stored(tmp_path, table(0, rows).slice(0, 300).filter(
            pa.array([place not in first.rows for place in range(300)])
        ))  # fmt: skip
        second = find_repeats(engine, asked, batch(2, 300, 699), files, kept, first.state)
        assert second.state is not None
        assert [*first.rows.tolist(), *second.rows.tolist()] == truth
        assert read_sketch(second.state["payload"]).to_bytes() == kernel.to_bytes()
        assert (second.state["rows"], second.state["started_from"]) == (400, 1)
        assert first.state is not None
        assert second.state["started_digest"] == first.state["digest"]
        told = re.search(r"([\d.e-]+) % of the new rows too, at most ([\d.]+) % expected", second.reason)
        assert told is not None
        mine, new = [place for place in suspected if place >= 300], 400 - len(second.rows)
        assert float(told[1]) == pytest.approx(100 * (len(mine) - len(second.rows)) / new, rel=0.01)
        assert 25 < float(told[2]) <= 30
        # where no state is kept, the window's rows make one, and the same rows are found
        anew = find_repeats(engine, asked, batch(2, 300, 699), files, kept)
        assert anew.state is not None
        assert (anew.rows.tolist(), anew.state["started_from"]) == (second.rows.tolist(), None)


def test_a_filter_goes_on_from_the_last_batch_with_rows_and_its_own_shape() -> None:
    asked, wider = contract(rows="filter", within=100), contract(rows="filter", within=200)
    tables = Tables(Settings.in_memory("repeats"))
    assert filter_before(tables, asked, 9) is None

    def state(shaped: StreamContract, number: int, start: int | None) -> dict[str, Any]:
        spec = filter_spec(shaped)
        return spec.row("sites", number, date(2020, 1, number), 5, spec.empty().to_bytes(), start)

    def found(shaped: StreamContract, number: int) -> Any:
        row = filter_before(tables, shaped, number)
        return row and row["batch"]

    def kept() -> list[int]:
        return sorted(tables.at("sketches").rows(["batch"])["batch"].to_pylist())

    save_filter_states(tables, asked, [1, 2], [state(asked, 1, None), state(asked, 2, 1)])
    save_filter_states(tables, asked, [3], [state(asked, 3, 2)])
    assert kept() == [2, 3], "the newest, and what it went on from"
    save_filter_states(tables, contract(rows="exact"), [4], [])
    assert kept() == [2, 3], "they are of rows before batch 4"
    assert [found(asked, number) for number in (2, 3, 4, 9)] == [None, 2, 3, 3]
    assert found(wider, 9) is None
    save_batches(tables, [replace(batch(5, 0, 20), rows=20)])
    assert [found(asked, number) for number in (5, 6)] == [3, None], "it has not seen batch 5"
    assert filter_before(tables, contract(rows="exact"), 4) is None
    save_filter_states(tables, contract(rows="none"), [3, 4], [])
    assert kept() == [2], "what comes late is not in the state of a later batch"
    tables.forget()


def test_a_no_is_certain_only_where_the_filter_has_seen_all_of_its_window(tmp_path: Path) -> None:
    filtered = landed(duplicates={"rows": "filter", "on": ["at"], "within": 8})
    world = LandingWorld(tmp_path, landed())
    for name, ats in (("a", range(4)), ("b", range(4, 8))):
        world.deliver(f"{name}.json", lines(ats))
        world.take_in()
    first = world.batches()[0]
    world.tables.at("raw", "delays").delete(batch=1)
    save_batches(world.tables, [replace(first, status=RETIRED)])

    def asked(at: int) -> tuple[float, float]:
        found: Any = load_sketch(world.tables, "delays", "at", "alternating_bloom")
        return found.seen(at).estimate, found.seen(at).high

    # a retired row is within reach of the third batch, and none of the fourth; the fifth is in no filter
    for contract_now, ats, one, never in (
        (filtered, (8, 9), (1.0, 1.0), (0.0, 1.0)),
        (filtered, (10, 11), (1.0, 1.0), (0.0, 0.0)),
        (landed(duplicates={"rows": "exact", "on": ["at"]}), (12, 13), (0.0, 1.0), (0.0, 1.0)),
    ):
        world.contract = contract_now
        world.deliver(f"{ats[0]}.json", lines(ats))
        world.take_in()
        assert (asked(ats[0]), asked(99)) == (one, never)
    with pytest.raises(InvalidValue, match="`dates` must be omitted"):
        load_sketch(world.tables, "delays", "at", "alternating_bloom", from_date=date(2026, 3, 2))


@pytest.mark.parametrize("way", ["exact", "none", "filter"])
def test_no_row_that_came_late_past_the_filter_is_denied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    world = LandingWorld(tmp_path, landed(duplicates={"rows": "filter", "on": ["at"], "within": 30}))

    def failing(tables: Any, of: Any, batch: Any, *more: Any) -> Any:
        if batch.batch == 2:
            raise SpillwayError("`at` must be kind, got unkind; mend it")
        return time_covered(tables, of, batch, *more)

    with monkeypatch.context() as patch:
        patch.setattr(raw, "time_covered", failing)
        for day, ats in enumerate((range(3), range(3, 6), range(6, 9)), 1):
            world.deliver(f"2026-01-0{day}/{day}.json", lines(ats))
        assert "batch 2 could not be written" in world.fails()
        assert "batch 2 failed a second time" in world.fails()
    world.contract = landed(
        duplicates={"rows": way, **({} if way == "none" else {"on": ["at"], "within": 30})}
    )
    world.replay()
    assert sorted(world.ats()) == list(range(9))
    if way == "filter":
        found: Any = load_sketch(world.tables, "delays", "at", "alternating_bloom")
        assert (found.seen(4).high, found.covers.missing) == (1.0, 0), "the filter was made anew with it"
    else:
        with pytest.raises(InvalidValue, match="`sketch` must be one that the stream has"):
            load_sketch(world.tables, "delays", "at", "alternating_bloom")


def test_a_no_stays_certain_when_rows_are_retired_that_the_filter_has_seen(tmp_path: Path) -> None:
    """As of every stream that retires: its filter went on from batch to batch, and knows the retired rows."""
    world = LandingWorld(tmp_path, landed(duplicates={"rows": "filter", "on": ["at"], "within": 30}))
    for name, ats in (("a", range(4)), ("b", range(4, 8)), ("c", (2, 8))):
        if name == "c":
            first = world.batches()[0]
            world.tables.at("raw", "delays").delete(batch=1)
            save_batches(world.tables, [replace(first, status=RETIRED)])
        world.deliver(f"{name}.json", lines(ats))
        world.take_in()
    found: Any = load_sketch(world.tables, "delays", "at", "alternating_bloom")
    assert [(found.seen(at).estimate, found.seen(at).high) for at in (2, 8, 99)] == [
        (1.0, 1.0), (1.0, 1.0), (0.0, 0.0),
    ]  # fmt: skip


def test_a_state_that_is_made_again_for_a_late_batch_says_what_is_retired_of_its_window(
    tmp_path: Path,
) -> None:
    batches = [batch(1, 0, 59), batch(2, 60, 89), batch(3, 90, 129)]
    history = stored(tmp_path, table(90, some_rows(3, 40)))
    late = stored(tmp_path, table(60, some_rows(2, 30)))
    for status, within, unseen in ((RETIRED, 100, 59), (RETIRED, 70, None), (INGESTED, 100, None)):
        standing = [replace(batches[0], status=status, rows=60), batches[2]]
        asked = contract(rows="filter", within=within)
        found = find_repeats(HERE, asked, batches[1], late, history, None, standing)
        assert found.state is not None
        assert read_sketch(found.state["payload"]).context.get(UNSEEN) == unseen


def test_a_state_made_of_a_window_that_is_partly_retired_says_so_until_it_has_passed() -> None:
    gone = replace(batch(1, 0, 9), rows=10, status=RETIRED)
    state: Any = filter_spec(contract(rows="filter", within=8)).empty()
    found = []
    for last, others in ((11, [gone]), (16, []), (17, [])):
        dedupe._mark_unseen(state, last - 8, others)
        found.append(state.context.get(UNSEEN))
    assert found == [9, 9, None]
    assert read_sketch(state.to_bytes()).context == state.context


def test_repeated_rows_are_kept_aside_with_file_line_and_their_values() -> None:
    asked, taken = contract(rows="exact"), batch(2, 100, 119)
    rows = table(100, [('quoted "ä"', 0.5), (None, NAN)] * 10)
    aside = rejected_repeats(asked, taken, rows.take([0, 9, 10, 19]))
    found = aside.to_pylist()
    assert [(row["seq"], row["file"], row["line"]) for row in found] == [
        (100, "sites/a.json", 1), (109, "sites/a.json", 10), (110, "sites/b.json", 1), (119, "sites/b.json", 10),
    ]  # fmt: skip
    assert {(row["stream"], row["batch"], row["batch_date"], row["reason"]) for row in found} == {
        ("sites", 2, date(2020, 1, 2), DELIVERED_BEFORE)
    }
    assert {row["rule"] for row in found} == {"differ from every earlier row in site, temp"}
    assert found[0]["original"] == (
        '{"site":"quoted \\"ä\\"","at":"2020-01-01T00:00:00.001Z","temp":0.5,"level":0}'.encode()
    )
    assert json.loads(found[1]["original"]) == {"at": "2020-01-01T00:00:09.001Z", "temp": "NaN"}
    assert aside.schema.types[:6] == [
        pa.string(), pa.int64(), pa.date32(), pa.int64(), pa.string(), pa.int64(),
    ]  # fmt: skip
    assert rejected_repeats(asked, taken, rows.slice(0, 0)).schema == aside.schema

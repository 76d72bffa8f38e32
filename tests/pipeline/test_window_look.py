"""What is looked at when windows are pinned: every batch once, what is late, what is there no more, another grid."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.levers.joins.lake import JOIN, alarms
from tests.levers.joins.lake import begun as join_begun
from tests.levers.quality.worlds import MEAN, OTHERS, PLAIN, ROWS, begun, coverage, put_queries, query, run
from tests.pipeline.streams import World, json_lines, sites

from spillway.batch import RETIRED
from spillway.clock import utc_now
from spillway.contracts import read_workload
from spillway.engine import ProcessEngine
from spillway.errors import SpillwayError, UsageError
from spillway.levers.windows import DONE, GONE, OPEN, Window
from spillway.pipeline.validate import retire_raw_dates
from spillway.report.explain import explain_workload
from spillway.report.status import status
from spillway.store import files
from spillway.store.batches import save_batches
from spillway.streams.retention import maintain_lake
from spillway.workloads.grid import WindowGrid, times_within
from spillway.workloads.what_if import RuleChanges, what_if
from spillway.workloads.windows import find_windows, pinned_windows

PAIRED = query(
    "paired",
    "SELECT count(*) AS n FROM sites s JOIN others o ON s.at = o.at AND s.site = o.site",
    inputs=["sites", "others"],
    window={"seconds": 2400, "rows_of": "all"},
    portion_tuples=1000,
)


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The files that are opened."""
    found: list[str] = []
    real = files.open_for_reading
    monkeypatch.setattr(files, "open_for_reading", lambda path: (found.append(path), real(path))[1])
    return found


@given(
    st.integers(min_value=1, max_value=10**13),
    st.integers(min_value=-(10**15), max_value=10**17),
)
def test_a_moment_lies_in_the_window_whose_edges_it_is_between(step: int, micros: int) -> None:
    grid = WindowGrid(step)
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=micros)
    number = grid.at(moment)
    begin, end = grid.span(number)
    assert begin <= moment < end
    assert grid.cells_of_times(pa.array([micros], pa.timestamp("us"))).tolist() == [number]


def test_the_last_moment_there_is_has_a_window() -> None:
    begin, end = WindowGrid(3_600_000_000).span(
        WindowGrid(3_600_000_000).at(datetime.max.replace(tzinfo=UTC))
    )
    assert begin < end == datetime.max.replace(tzinfo=UTC)


def test_a_file_whose_statistics_are_cut_to_the_millisecond_is_read_where_a_window_ends_within_it() -> None:
    first = datetime(1970, 1, 1, tzinfo=UTC)
    file = files.DataFile("a", 1, (), (("at", first),), (("at", first),), 2)
    assert [WindowGrid(step).only_cell_of_file(file, "at") for step in (500, 1000)] == [None, 0]


def test_of_a_file_with_several_batches_only_those_that_are_asked_for_are_looked_at(tmp_path: Path) -> None:
    at = [datetime(1970, 1, 1, hour, tzinfo=UTC) for hour in (1, 2, 3, 3)]
    rows = pa.table({"batch": [1, 1, 2, 2], "at": pa.array(at, pa.timestamp("us", "UTC"))})
    pq.write_table(rows, tmp_path / "a.parquet")
    edges = tuple((name, min(rows[name].to_pylist())) for name in ("batch", "at"))
    ends = tuple((name, max(rows[name].to_pylist())) for name in ("batch", "at"))
    file = files.DataFile(str(tmp_path / "a.parquet"), 1, (), edges, ends, 4)
    hours = WindowGrid(3_600_000_000)
    assert hours.of_batches(file, "at", {2}) == {(2, 3)}
    assert hours.of_batches(file, "at", {1, 2}) == {(1, 1), (1, 2), (2, 3)}


def test_a_window_of_the_first_day_there_is_begins_no_earlier() -> None:
    grid = WindowGrid.of(read_workload(query("means", MEAN, window={"seconds": 1e10})))
    first = datetime.min.replace(tzinfo=UTC)
    begin, end = grid.span(grid.at(first))
    assert begin == first < end


@given(st.integers(min_value=1, max_value=3 * 10**11), st.integers(min_value=-700_000, max_value=2_000_000))
def test_a_date_is_read_in_the_window_that_its_midnight_lies_in(step: int, day: int) -> None:
    """Also where windows are no whole days, so that a date begins in one and goes on in the next."""
    grid, one = WindowGrid(step), date(1970, 1, 1) + timedelta(days=day)
    number = grid.at(one)
    for near in (number - 1, number, number + 1):
        first, last = times_within("date", *grid.span(near))
        assert (first <= one <= last) == (near == number)


def test_a_window_that_wants_rows_of_all_is_there_as_soon_as_the_last_one_has_them(tmp_path: Path) -> None:
    world = World.begin(ProcessEngine(), tmp_path, PLAIN, OTHERS, capacity="9000 kbps")
    put_queries(world, PAIRED)
    world.deliver("sites/2020-01-01/a.json", json_lines(sites(0, ROWS * 9)))
    world.deliver("others/2020-01-01/a.json", json_lines(sites(ROWS * 4, ROWS * 5)))
    world.shed()
    assert run(world) == 1
    world.deliver("others/2020-01-02/a.json", json_lines(sites(0, ROWS * 4)))
    world.shed()
    assert run(world) == 1
    assert sorted(row["n"] for row in world.rows("results", "paired")) == [ROWS * 4, ROWS * 4]


def test_windows_of_another_length_are_refused_and_nothing_stands_twice(tmp_path: Path) -> None:
    world = begun(tmp_path, query("means", MEAN))
    run(world)
    before = world.rows("results", "means")
    put_queries(world, query("means", MEAN, window={"seconds": 1200}))
    with pytest.raises(SpillwayError, match=r"window.seconds.*stay the length.*2400.*write 2400 again"):
        run(world)
    assert world.rows("results", "means") == before
    short = {(one.stream, one.kind): one for one in status(world.tables.now()).shortages}
    told = short["means", "refused"]
    assert told.wrong
    assert "`window.seconds` must stay the length of the windows" in told.sentence
    assert "write 2400 again" in told.remedy
    explained = explain_workload(world.tables.now(), "means")
    assert explained is not None
    assert "write 2400 again" in str(explained.refused)
    put_queries(world, query("means", MEAN))
    explained = explain_workload(world.tables.now(), "means")
    assert explained is not None
    assert explained.refused is None


def without_its_rows(folder: Path) -> World:
    """Two windows worked out, and then retention has removed what they were worked out of."""
    short = {**PLAIN, "retain": {"transmitted_days": 30}, "retain_raw": {"days": 0, "retire": True}}
    world = begun(folder, query("means", MEAN), stream=short)
    run(world)
    world.validate()
    retire_raw_dates(world.tables.now(), world.contracts.streams["sites"], (), world.said.append)
    for path in (folder / "landing").rglob("*.json"):
        path.unlink()
    kept(world)
    return world


def kept(world: World, days: int = 60) -> None:
    maintain_lake(world.tables, world.contracts, world.said.append, now=utc_now() + timedelta(days=days))
    world.tables = world.tables.now()


def late(world: World) -> None:
    """Three rows of the first window, and something that closes it again."""
    world.deliver("sites/2020-02-01/late.json", json_lines(sites(0, 3)))
    world.shed()


@pytest.mark.long
def test_what_comes_when_the_rest_was_removed_replaces_no_answer_and_makes_none_of_a_part(
    tmp_path: Path,
) -> None:
    world = without_its_rows(tmp_path)
    assert world.at("transmitted", "sites").rows().num_rows < 4 * ROWS
    answers, covered = world.rows("results", "means"), coverage(world)
    late(world)
    assert run(world) == 0
    assert world.rows("results", "means") == answers
    assert coverage(world) == covered
    (said,) = (line for line in world.said if "is not recomputed" in line)
    assert "batch 10 of sites arrived after retention had removed some of its rows" in said
    first = min(world.rows("windows"), key=lambda row: row["window"])
    assert (first["status"], first["too_late"]) == ("done", [{"stream": "sites", "batch": 10}])
    query_of = world.contracts.queries["means"]
    assert not find_windows(world.tables.now(), world.contracts, query_of).finds_work, "it is looked at once"
    (waiting,) = (row for row in world.rows("windows") if row["status"] == OPEN)
    world.deliver("sites/2020-03-01/a.json", json_lines(sites(12 * ROWS, 3)))
    world.shed()
    assert run(world) == 0
    (ended,) = (row for row in world.rows("windows") if row["window"] == waiting["window"])
    assert (ended["status"], ended["inputs"]) == (GONE, waiting["inputs"])
    assert any(f"window {waiting['window']} " in line and "is given up" in line for line in world.said)
    assert coverage(world) == covered


@pytest.mark.long
def test_windows_whose_rows_are_gone_are_not_replayed(tmp_path: Path) -> None:
    world = without_its_rows(tmp_path)
    with pytest.raises(UsageError, match="`dates` must hold windows whose rows are still there"):
        what_if(world.tables, world.engine, world.contracts, "desk", RuleChanges(capacity=100))


@pytest.mark.long
def test_what_a_planned_window_reads_is_not_removed(tmp_path: Path) -> None:
    short = {**PLAIN, "retain": {"transmitted_days": 30}, "retain_raw": {"days": 0, "retire": True}}
    world = begun(tmp_path, query("means", MEAN), stream=short)
    planned = pinned_windows(world.tables.now(), world.contracts, world.contracts.queries["means"])
    world.validate()
    retire_raw_dates(world.tables.now(), world.contracts.streams["sites"], (), world.said.append)
    for path in (tmp_path / "landing").rglob("*.json"):
        path.unlink()
    kept(world)
    assert run(world) == len(planned) == 2
    assert all(row["sic"] == 1.0 and row["arrived"] == 4 * ROWS for row in world.rows("coverage"))


@pytest.mark.long
def test_no_look_grows_with_what_was_looked_at(tmp_path: Path, opened: list[str]) -> None:
    world = World.begin(ProcessEngine(), tmp_path, PLAIN, capacity="9000 kbps")
    put_queries(world, query("means", MEAN, window={"seconds": 600}, portion_tuples=60))
    for number in range(12):
        world.deliver(f"sites/2020-01-01/{number:02d}.json", json_lines(sites(number * ROWS, ROWS)))
        world.shed()
    assert run(world) == 11
    kept(world, days=10)
    assert len(world.at("transmitted", "sites").files()) == 1, "it holds several batches now"
    sent = {file.path for file in world.at("transmitted", "sites").files()}
    opened.clear()
    contract = world.contracts.queries["means"]
    assert not find_windows(world.tables.now(), world.contracts, contract).finds_work
    assert not sent & set(opened)
    world.deliver("sites/2020-02-01/a.json", json_lines(sites(12 * ROWS, ROWS)))
    world.shed()
    assert len(find_windows(world.tables.now(), world.contracts, contract).closed) == 1
    world.deliver("sites/2020-02-02/late.json", json_lines(sites(0, 3)))
    world.shed()
    assert run(world) == 2, "and the first one again, whose rows are there in a file with those of others"


def test_a_lake_of_before_windows_were_kept_open_goes_on(tmp_path: Path) -> None:
    world = begun(tmp_path, query("means", MEAN, portion_tuples=1000))
    run(world)
    # rows of the second window, which is worked out again, and as many of the third, of which nothing is known yet
    world.deliver("sites/2020-01-20/both.json", json_lines(sites(8 * ROWS - 30, 60)))
    world.shed()
    assert run(world) == 1
    rows = world.at("windows").rows(subject="means", status=DONE).to_pylist()
    before = [Window.from_row({**row, "looked_back": None, "too_late": None}).row() for row in rows]
    world.tables.at("windows").replace(before, subject="means")
    contract = world.contracts.queries["means"]
    world.tables = world.tables.now()
    assert not find_windows(world.tables, world.contracts, contract).finds_work
    world.deliver("sites/2020-02-01/a.json", json_lines(sites(9 * ROWS, 4 * ROWS)))
    world.deliver("sites/2020-02-01/b.json", json_lines(sites(0, 1)))
    world.shed()
    assert run(world) == 2, "one is closed, one is opened again"
    last = max(world.rows("coverage"), key=lambda row: row["window"])
    assert last["arrived"] == ROWS + 30 + 3 * ROWS, (
        "a batch that stands in a window may have rows of the next"
    )


@pytest.mark.long
def test_windows_that_look_back_read_no_more_than_they_look_back_at(tmp_path: Path) -> None:
    world = join_begun(tmp_path, ProcessEngine())
    for number in range(1, 6):
        for stream, seed in (("east", 1), ("west", 2)):
            rows = alarms(0, 250, seed=seed + 10 * number, begin=50.0 * number)
            world.deliver(f"{stream}/2026-02-{number:02d}/a.json", json_lines(rows))
        world.shed()
        run(world)
    back = JOIN["levers"][0]["left"]["lasts_seconds"]
    rows = [row for row in world.rows("windows") if row["status"] == DONE]
    assert len(rows) > 20
    spans = {
        (stream, batch): span for stream in ("east", "west") for batch, span in _spans(world, stream).items()
    }
    for row in rows:
        reads = {(one["stream"], one["batch"]) for one in row["inputs"]}
        early = row["from_time"] - timedelta(seconds=back)
        assert reads == {one for one, (low, high) in spans.items() if low < row["to_time"] and high >= early}


def _spans(world: World, stream: str) -> dict[int, tuple[datetime, datetime]]:
    rows = world.at("transmitted", stream).rows(["batch", "at"]).to_pylist()
    found: dict[int, list[datetime]] = {}
    for row in rows:
        found.setdefault(row["batch"], []).append(row["at"])
    return {batch: (min(times), max(times)) for batch, times in found.items()}


def test_open_windows_turn_planned_with_what_came_for_them_so_far(tmp_path: Path) -> None:
    world = begun(tmp_path, query("means", MEAN), files=5)
    run(world)
    for numbers, batches in (((), [5, 6]), ((6,), [5, 6, 7])):
        for number in numbers:
            world.deliver(f"sites/2020-01-{number + 1:02d}/a.json", json_lines(sites(number * ROWS, ROWS)))
        world.shed()
        assert run(world) == 0
        (waiting,) = (row for row in world.rows("windows") if row["status"] == OPEN)
        assert [one["batch"] for one in waiting["inputs"]] == batches
    for number in (7, 8):
        world.deliver(f"sites/2020-01-{number + 1:02d}/a.json", json_lines(sites(number * ROWS, ROWS)))
    world.shed()
    retired = [replace(batch, status=RETIRED) for batch in world.batches("sites")]
    save_batches(world.tables.now(), retired)
    assert run(world) == 1, "what was sent is there, whether its raw tuples are or not"
    (done,) = (row for row in world.rows("windows") if row["window"] == waiting["window"])
    assert (done["status"], [one["batch"] for one in done["inputs"]]) == (DONE, [5, 6, 7, 8])


def counting(other: str, **window: Any) -> dict[str, Any]:
    sql = f"SELECT (SELECT count(*) FROM sites) AS n, (SELECT count(*) FROM {other}) AS m"
    return query("counted", sql, inputs=["sites", other], window={"seconds": 600, **window})


def one_falls_silent(folder: Path, **window: Any) -> World:
    """`sites` sends nine times ten minutes, `others` the first two of them."""
    world = World.begin(ProcessEngine(), folder, PLAIN, OTHERS, capacity="9000 kbps")
    put_queries(world, counting("others", **window))
    for number in range(9):
        for stream in ("sites", "others") if number < 2 else ("sites",):
            rows = json_lines(sites(number * ROWS, ROWS))
            world.deliver(f"{stream}/2020-01-{number + 1:02d}/a.json", rows)
    world.shed()
    return world


def short_of(world: World) -> list[str]:
    found = status(world.tables.now()).shortages
    return [one.sentence for one in found if one.kind == "waits"]


def test_an_input_that_falls_silent_is_named_with_what_waits_for_it(tmp_path: Path) -> None:
    world = one_falls_silent(tmp_path)
    said = "7 windows wait for rows of others"
    assert short_of(world) == [said], "nothing was worked out yet"
    assert run(world) == 1
    assert short_of(world) == [said]


def test_a_window_waits_no_longer_than_its_contract_says_and_what_comes_then_counts(tmp_path: Path) -> None:
    world = one_falls_silent(tmp_path, waits_seconds=1500)
    assert run(world) == 5, "the ninth is three after the sixth"
    assert short_of(world) == []
    world.deliver("others/2020-02-01/a.json", json_lines(sites(3 * ROWS, ROWS)))
    world.shed()
    assert run(world) == 1, "the fourth, again"
    first = min(row["window"] for row in world.rows("windows"))
    (again,) = (row for row in world.rows("windows") if row["window"] == first + 3)
    assert {one["stream"] for one in again["inputs"]} == {"sites", "others"}
    world.deliver("others/2020-02-02/a.json", json_lines(sites(6 * ROWS, 3 * ROWS)))
    world.shed()
    assert run(world) == 3, "the sixth to the eighth: all have come as far, and nothing is waited for"


def test_an_input_that_never_sent_anything_is_named_and_need_not_be_waited_for(tmp_path: Path) -> None:
    world = one_falls_silent(tmp_path)
    third = {**PLAIN, "stream": "third", "source": {"path": "third", "format": "json"}}
    world.contract_becomes(PLAIN, OTHERS, third)
    put_queries(world, counting("third"))
    assert run(world) == 0
    assert short_of(world) == ["waits for third, which has sent nothing yet"]
    put_queries(world, counting("third", waits_seconds=600))
    assert run(world) == 7

"""The lever on the protocol: coverage on every row, shedding that reads nothing, windows that stay as they are."""

from __future__ import annotations

from datetime import UTC, timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.levers.quality.worlds import (
    COUNT,
    MEAN,
    OTHERS,
    PLAIN,
    ROWS,
    begun,
    coverage,
    put_queries,
    query,
    run,
)
from tests.pipeline.streams import BEGIN, SITES, World, attribute, json_lines, sites

from evidence.quality.row_group_reads import record_row_groups
from spillway.engine import ProcessEngine, statements
from spillway.errors import SpillwayError
from spillway.ledger import total_imbalance
from spillway.levers.quality.checks import check_answer
from spillway.levers.quality.intervals import BEYOND, CHOSEN, UNEVEN_SIZES
from spillway.levers.quality.overload import RoomHistory
from spillway.levers.quality.room_plan import (
    RoomRules,
    _load_of_other_queries,
    _used_capacity,
    _weights,
    starting_coverages,
)
from spillway.levers.quality.settings import QualitySettings
from spillway.levers.quality.sources import NumbersBefore
from spillway.levers.windows import Portion
from spillway.report.status import status
from spillway.store import files as store_files
from spillway.store.files import row_groups
from spillway.store.maintenance import compact
from spillway.workloads import inputs as window_inputs
from spillway.workloads.losses import window_offers
from spillway.workloads.run import MOST_TOO_LONG
from spillway.workloads.windows import StoredWindows

ENDLESS = (
    "SELECT count(*) AS n FROM sites a, sites b, sites c, sites d, sites e, sites f "
    "WHERE (a.seq + b.seq * 3 + c.seq * 5 + d.seq * 7 + e.seq + f.seq) % 11 = 3"
)
TOP = "SELECT site, temp FROM sites ORDER BY temp DESC LIMIT 5"


def test_whatever_the_sql_every_row_says_what_it_rests_on(tmp_path: Path) -> None:
    steps = [
        {"name": "warm", "sql": "SELECT site, temp FROM sites WHERE temp > 60"},
        {"name": "cold", "sql": "SELECT site, temp FROM sites WHERE temp <= 60"},
        {
            "name": "both",
            "sql": "SELECT w.site, count(*) AS n FROM warm w LEFT JOIN cold c USING (site) GROUP BY 1",
        },
    ]
    queries = [query("means", MEAN), query("tops", TOP), query("paired", "", steps=steps)]
    world = begun(tmp_path, *queries)
    assert run(world) == 6
    for name in ("means", "tops", "paired"):
        rows = world.rows("results", name)
        for window in {row["window"] for row in rows}:
            mine = [row for row in rows if row["window"] == window]
            assert sum(row["sic"] for row in mine) == pytest.approx(1.0)
            assert [row["row"] for row in mine] == list(range(1, len(mine) + 1))
    assert {row["sic"] for row in world.rows("coverage")} == {1.0}
    assert total_imbalance(world.rows("ledger")) == 0


def test_a_small_room_is_shared_fairly_and_never_passed(tmp_path: Path) -> None:
    world = begun(
        tmp_path, query("means", MEAN, capacity={"tuples": 300}), query("warm", COUNT), query("tops", TOP)
    )
    assert run(world) == 6
    found = coverage(world)
    for window in (0, 1):
        assert sum(found[name, window]["tuples_kept"] for name in ("means", "warm", "tops")) <= 300
    reached = [sum(found[name, window]["sic"] for window in (0, 1)) for name in ("means", "warm", "tops")]
    assert max(reached) - min(reached) <= 0.25 + 1e-9
    ledger = [row for row in world.rows("ledger") if row["scope"] == "query" and row["unit"] == "batches"]
    assert sum(row["offered"] for row in ledger) == 24
    assert sum(row["kept"] for row in ledger) == 10
    assert total_imbalance(world.rows("ledger")) == 0


def test_files_of_what_is_shed_are_never_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = begun(tmp_path, query("means", MEAN, capacity={"tuples": 120}))
    opened: set[str] = set()
    real = store_files.open_for_reading

    def noting(path: str) -> Any:
        opened.add(path)
        return real(path)

    monkeypatch.setattr(store_files, "open_for_reading", noting)
    run(world)
    kept = world.rows("coverage")
    assert sum(row["portions_kept"] for row in kept) == 4
    sent = {file.path: file for file in world.at("transmitted", "sites").files()}
    assert len([path for path in opened if path in sent]) == 4


def test_spark_never_reads_a_file_that_is_left_out_for_it_may_be_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engine: Any
) -> None:
    """Which files are opened is seen in this process; where the others are deleted, Spark answers the same."""
    small = query("means", MEAN, capacity={"tuples": 120})
    here, there = begun(tmp_path / "here", small), begun(tmp_path / "there", small)
    opened: set[str] = set()
    real = store_files.open_for_reading

    def noting(path: str) -> Any:
        opened.add(path)
        return real(path)

    with monkeypatch.context() as noted:
        noted.setattr(store_files, "open_for_reading", noting)
        run(here)
    read = {file.low("batch") for file in here.at("transmitted", "sites").files() if file.path in opened}
    gone = [file for file in there.at("transmitted", "sites").files() if file.low("batch") not in read]
    assert (len(read), len(gone)) == (4, 5)
    for file in gone:
        Path(file.path).unlink()
    there.engine = engine
    assert run(there) == 2
    mine, theirs = ([row["mean_temp"] for row in one.rows("results", "means")] for one in (here, there))
    assert theirs == pytest.approx(mine)


def test_windows_are_worked_out_once_and_what_is_late_opens_its_own(tmp_path: Path) -> None:
    world = begun(tmp_path, query("means", MEAN))
    assert run(world) == 2
    assert run(world) == 0
    before = world.rows("results", "means")
    world.deliver("sites/2020-01-20/late.json", json_lines(sites(0, 12)))
    world.shed()
    assert run(world) == 1
    after = world.rows("results", "means")
    assert len(after) == len(before)
    assert coverage(world)["means", 0]["late"] == 12
    assert coverage(world)["means", 1]["late"] == 0
    world.deliver("sites/2020-01-21/later.json", json_lines(sites(0, 7)))
    world.shed()
    run(world)
    assert coverage(world)["means", 0]["late"] == 19, "what came late before is still late"
    world.tables.at("windows").delete(subject="means")
    run(world)
    assert coverage(world)["means", 0]["late"] == 19, "nor is it in time when it is worked out again"


def test_none_found_in_some_portions_is_no_proof_of_none(tmp_path: Path) -> None:
    rare = "SELECT count(*) AS n, avg(temp) AS warmest FROM sites WHERE temp > 1000"
    world = begun(tmp_path, query("rare", rare, capacity={"tuples": 160}, portion_tuples=10))
    run(world)
    for row in world.rows("results", "rare"):
        assert row["coverage"] < 1
        assert (row["n"], row["n__estimate"], row["n__low"], row["n__high"]) == (0, 0.0, 0.0, 80.0), (
            "any of the rest"
        )
        assert (row["warmest"], row["warmest__estimate"], row["warmest__low"]) == (None, None, None)
    _reasons_are_said(world, "rare")


def _reasons_are_said(world: World, *names: str) -> None:
    """An estimate without an interval says why; of a window that was read whole not that portions were left out."""
    for of in (row for row in coverage(world).values() if row["subject"] in names):
        said = check_answer(world.at("results", of["subject"]).rows(window=of["window"]))
        assert said["withheld_unsaid"] == 0
        if of["portions_kept"] == of["portions_offered"]:
            assert said["withheld_of_few"] + said["withheld_of_some"] == 0


def test_an_input_that_must_be_kept_is_one_of_the_query(tmp_path: Path) -> None:
    world = begun(tmp_path, files=0, both=True)
    numbered = [{"input": "others", "attribute": "pulses"}]
    for settings in ({"must_keep": ["others"]}, {"numbered": numbered}):
        with pytest.raises(
            SpillwayError, match="must be an input of the query, got 'others'; write one of sites"
        ):
            put_queries(world, query("means", MEAN, **settings))


def test_what_must_be_kept_and_was_not_is_said(tmp_path: Path) -> None:
    world = begun(tmp_path, query("means", MEAN, must_keep=["sites"], capacity={"tuples": 120}))
    run(world)
    lines = [row for row in world.rows("ledger") if row["stage"] == "quality" and row["shed"]]
    assert lines
    assert all("also of sites, which must be kept" in row["reason"] for row in lines)


@pytest.mark.long
def test_where_portions_differ_much_an_answer_is_scaled_up_and_only_what_is_sure_is_said(
    tmp_path: Path,
) -> None:
    counted = "SELECT count(*) AS n, avg(temp) AS mean_temp FROM sites WHERE temp > 20"
    world = begun(tmp_path, query("some", counted, capacity={"tuples": 120}), files=-1)
    for number in range(36):  # a window of 240: eight files of 12 and one of 144
        low, rows = 240 * (number // 9) + 12 * (number % 9), 12 if number % 9 < 8 else 144
        world.deliver(
            f"sites/2020-{number // 9 + 1:02d}-{number % 9 + 1:02d}/a.json", json_lines(sites(low, rows))
        )
    world.deliver("sites/2020-12-20/a.json", json_lines(sites(960, 1)))
    world.shed()
    run(world)
    scaled = world.rows("results", "some")
    assert scaled
    for row in scaled:
        assert row["n__estimate"] > row["n"]
        left = 240 - round(240 * row["coverage"])
        assert (row["n__low"], row["n__high"]) == (row["n"], row["n"] + left)
        assert (row["mean_temp__low"], row["mean_temp__high"]) == (None, None)
        assert row["mean_temp__no_interval"] in (UNEVEN_SIZES, CHOSEN)
    _reasons_are_said(world, "some")


def test_a_death_before_the_ledger_ends_in_the_same_tables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from spillway.workloads import run as workloads

    queries = [query("means", MEAN, capacity={"tuples": 300}), query("warm", COUNT)]
    one, other = begun(tmp_path / "one", *queries), begun(tmp_path / "other", *queries)

    def die(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as killed:
        killed.setattr(workloads, "write_ledger", die)
        with pytest.raises(KeyboardInterrupt):
            run(one)
    run(one)
    run(other)
    for name in ("means", "warm"):
        assert one.rows("results", name) == other.rows("results", name)
    assert one.rows("coverage") == other.rows("coverage")


def test_what_earlier_levers_shed_is_read_as_given_back(tmp_path: Path) -> None:
    stream = {
        **SITES,
        "levers": [{"lever": "attributes", "training": {"tuples": 240}, "treatments": ["keep", "shed"]}],
    }
    sql = "SELECT count(temp) AS n, count(temp__bound_pct) AS given_back, max(temp__bound_pct) AS bound FROM sites"
    world = begun(tmp_path, query("means", sql), stream=stream)
    world.contract_becomes(stream, capacity="9 kbps")
    put_queries(world, query("means", sql))
    world.train("sites")
    world.shed()
    run(world)
    rows = world.rows("results", "means")
    assert rows
    assert sum(row["given_back"] for row in rows) > 0
    assert all(row["bound"] is None or row["bound"] <= 2.0 for row in rows)
    _intervals_hold_for_what_was_given_back(world)


def _intervals_hold_for_what_was_given_back(world: World) -> None:
    """The bounds of values widen an interval; where they decide which rows count, there is none."""
    mean = "SELECT avg(temp) AS m, sum(temp) AS s, count(temp) AS n FROM sites"
    part = {"capacity": {"tuples": 160}, "portion_tuples": 20, "starve_slices": 0}
    put_queries(
        world,
        query("whole", mean, capacity_group="wide"),
        query("part", mean, capacity_group="tight", assume_alike=True, **part),
        query("strict", mean, capacity_group="alone", **part),
        query("warm", COUNT, capacity_group="wide"),
        query("plus", "SELECT avg(temp + 1) AS m, count(*) AS n FROM sites", capacity_group="wide"),
    )
    run(world)
    _reasons_are_said(world, "whole", "part", "strict", "warm", "plus")
    for row in world.rows("results", "strict"):
        assert (row["m__low"], row["m__no_interval"]) == (None, BEYOND), (
            "no rule says how far temperatures may lie"
        )
        assert row["n__low"] < row["n__estimate"] < row["n__high"] <= 240
    truth = {at: [row["temp"] for row in sites(240 * at, 240) if row["temp"] is not None] for at in (0, 1)}
    for at, (whole, part_of, warm, plus) in enumerate(
        zip(*(world.rows("results", name) for name in ("whole", "part", "warm", "plus")), strict=True)
    ):
        total, count = sum(truth[at]), len(truth[at])
        for row in (whole, part_of):
            assert row["s__low"] < row["s__estimate"] < row["s__high"]
            assert row["s__low"] <= total <= row["s__high"]
            assert row["m__low"] <= total / count <= row["m__high"]
        assert whole["m"] != pytest.approx(total / count, rel=1e-6), "values were given back, not kept"
        assert whole["m__high"] - whole["m__low"] <= 2 * 0.021 * whole["m"], "no wider than the bounds"
        assert part_of["s__high"] - part_of["s__low"] > whole["s__high"] - whole["s__low"]
        assert (whole["n__low"], whole["n__high"]) == (count, count)
        assert (warm["warm__estimate"], warm["warm__low"], warm["warm__high"]) == (warm["warm"], None, None)
        assert (plus["m__estimate"], plus["m__low"]) == (plus["m"], None)
        assert (plus["n__low"], plus["n__high"]) == (240, 240)


@pytest.mark.long
def test_lost_tuples_are_known_where_the_source_numbers_them(tmp_path: Path) -> None:
    numbered = {**PLAIN, "attributes": [*PLAIN["attributes"], attribute("poll", "integer", "protected")]}
    rule = [{"input": "sites", "attribute": "poll", "by": "site"}]
    world = begun(tmp_path, query("means", MEAN, numbered=rule), stream=numbered, files=-1)
    for number in range(9):
        rows = [
            {**row, "poll": (number * ROWS + at) // 6} for at, row in enumerate(sites(number * ROWS, ROWS))
        ]
        gone = rows[:24] + rows[36:] if number == 1 else rows
        world.deliver(f"sites/2020-01-{number + 1:02d}/a.json", json_lines(gone))
    world.shed()
    run(world)
    first, second = (coverage(world)["means", window] for window in (0, 1))
    assert (first["produced"], first["arrived"], first["lost"], first["relative"]) == (240, 228, 12, False)
    assert first["sic"] == pytest.approx(228 / 240)
    assert (second["lost"], second["sic"]) == (0, 1.0)


@pytest.mark.long
def test_tuples_lost_over_the_edge_of_windows_are_known_in_this_run_and_later(tmp_path: Path) -> None:
    """A source that falls silent over an edge, or for a whole window, takes its tuples with it."""
    numbered = {**PLAIN, "attributes": [*PLAIN["attributes"], attribute("poll", "integer", "protected")]}
    rule = [{"input": "sites", "attribute": "poll"}]
    world = begun(
        tmp_path, query("means", MEAN, window={"seconds": 600}, numbered=rule), stream=numbered, files=-1
    )
    for day in (range(7), range(7, 11)):
        for number in day:
            rows = [{**row, "poll": number * ROWS + at} for at, row in enumerate(sites(number * ROWS, ROWS))]
            here = {1: rows[20:], 3: [], 8: rows[10:]}.get(number, rows)
            if here:
                world.deliver(f"sites/2020-01-{number + 1:02d}/a.json", json_lines(here))
        world.shed()
        run(world)
    found = {window: row for (_, window), row in coverage(world).items()}
    lost = {window: row["lost"] for window, row in found.items() if row["lost"]}
    assert lost == {1: 20, 4: ROWS, 8: 10}
    assert [found[window]["sic"] for window in (0, 1, 4)] == [1.0, pytest.approx(40 / 60), 0.5]


def test_after_a_window_that_was_not_worked_out_nobody_knows_what_was_lost() -> None:
    before = NumbersBefore({5: 4, 9: 8}, {4: {"last.sites.poll.": 7}})
    assert before.of(5, {}) == {"last.sites.poll.": 7}
    assert before.of(5, {4: {"last.sites.poll.": 8, "rows": 3}}) == {"last.sites.poll.": 8}
    assert before.of(9, {}) == before.of(7, {}) == {}


@pytest.mark.long
def test_refused_lines_were_produced_and_repeats_were_not(tmp_path: Path) -> None:
    world = begun(tmp_path, query("means", MEAN), files=-1)
    for number in range(9):
        content = json_lines(sites(number * ROWS, ROWS))
        broken = b'{"site": \n' * 6 if number == 0 else b""
        world.deliver(f"sites/2020-01-{number + 1:02d}/a.json", content + broken)
    world.shed()
    run(world)
    row = coverage(world)["means", 0]
    assert (row["produced"], row["arrived"], row["lost"], row["relative"]) == (246, 240, 6, True)


def test_an_interval_stands_where_it_is_honest(tmp_path: Path) -> None:
    by_site = "SELECT site, count(*) AS n, avg(temp) AS mean_temp FROM sites WHERE temp > 20 GROUP BY site"
    queries = [
        query("by_site", by_site, capacity={"tuples": 300}, portion_tuples=20),
        query("tops", TOP, portion_tuples=20),
    ]
    world = begun(tmp_path, *queries)
    run(world)
    whole = begun(tmp_path / "whole", query("by_site", by_site))
    run(whole)
    truth = {(row["window"], row["site"]): row for row in whole.rows("results", "by_site")}
    assert all(row["n__low"] == row["n"] == row["n__high"] for row in truth.values())
    rows = world.rows("results", "by_site")
    shed = [row for row in rows if row["coverage"] < 1]
    assert len(shed) >= 6
    inside = sum(row["n__low"] <= truth[row["window"], row["site"]]["n"] <= row["n__high"] for row in shed)
    assert inside >= len(shed) - 2
    assert all(row["n__estimate"] > row["n"] for row in shed)
    assert "temp__low" not in world.rows("results", "tops")[0]


def test_spark_and_this_process_answer_alike(tmp_path: Path, engine: Any) -> None:
    join = (
        "SELECT s.site, count(*) AS n, avg(s.temp - o.temp) AS gap FROM sites s JOIN others o "
        "ON s.site = o.site AND s.at = o.at GROUP BY s.site ORDER BY s.site"
    )
    queries = [
        query("means", MEAN, capacity={"tuples": 480}),
        query("tops", TOP),
        query("joined", join, inputs=["sites", "others"]),
    ]
    here, there = begun(tmp_path / "a", *queries, both=True), begun(tmp_path / "b", *queries, both=True)
    there.engine = engine
    assert run(here) == run(there) == 6
    for name in ("means", "tops", "joined"):
        mine, theirs = here.rows("results", name), there.rows("results", name)
        assert len(mine) == len(theirs)
        for one, other in zip(mine, theirs, strict=True):
            assert one.keys() == other.keys()
            for key, value in one.items():
                assert other[key] == (pytest.approx(value) if isinstance(value, float) else value), key
    assert here.rows("coverage") == there.rows("coverage")


@pytest.mark.long
def test_spark_reads_delta_itself_where_no_value_must_be_recovered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engine: Any
) -> None:
    """A narrow channel sheds `temp` of the first stream; `others` has no lever, and keeps every value."""
    warm = (
        "SELECT site, max(temp) AS top, count(sky) AS n FROM {} WHERE temp > 45 GROUP BY site ORDER BY site"
    )
    queries = [
        query("shed", warm.format("sites")),
        query("whole", warm.format("others"), inputs=["others"]),
        query("mean", "SELECT avg(temp) AS mean_temp FROM others", inputs=["others"]),
    ]
    plans: list[str | None] = []
    real = statements._delta_frame

    def noting(spark: Any, view: statements.SqlView) -> Any:
        spark.conf.set("spark.sql.maxMetadataStringLength", "10000")
        frame = real(spark, view)
        plan = (
            None
            if frame is None
            else frame.where("temp > 45")._jdf.queryExecution().executedPlan().toString()
        )
        plans.append(plan)
        return frame

    here, there = (World.begin(ProcessEngine(), tmp_path / name, SITES, OTHERS) for name in "ab")
    for world in (here, there):
        put_queries(world, *queries)
        for number in range(3):
            for stream in ("sites", "others"):
                rows = json_lines(sites(number * 4 * ROWS, 4 * ROWS))
                world.deliver(f"{stream}/2020-02-{number + 1:02d}/a.json", rows)
            world.shed()
            if not number:
                world.train("sites")
    there.engine = engine
    with monkeypatch.context() as noted:
        noted.setattr(statements, "_delta_frame", noting)
        noted.setattr(window_inputs, "FEWEST_IN_DELTA", 0)
        assert run(here) == run(there) > 0
    for name in ("shed", "whole", "mean"):
        assert there.rows("results", name) == here.rows("results", name)
    native = [plan for plan in plans if plan is not None]
    assert 0 < len(native) < len(plans)
    for plan in native:
        scan = next(line for line in plan.splitlines() if "FileScan parquet" in line)
        assert "/transmitted/others" in scan
        for pushed in ("PartitionFilters: [", "batch_date", "PushedFilters: [", "GreaterThan(temp,45.0)"):
            assert pushed in scan
        assert "pulses" not in scan, "only the columns of the query are read"


@pytest.mark.long
def test_two_jobs_that_share_a_room_come_to_one_level(tmp_path: Path) -> None:
    """Each works out its own queries alone; what the other was given and is likely to want is left to it."""
    names = ("a", "b", "c")
    queries = [
        query(name, MEAN, capacity={"tuples": 360}, window={"seconds": 600}, portion_tuples=6)
        for name in names
    ]
    world = begun(tmp_path, *queries, files=0)
    for number in range(1, 7):
        world.deliver(
            f"sites/2020-01-{number + 1:02d}/a.json", json_lines(sites(number * 2 * ROWS, 2 * ROWS))
        )
        world.shed()
        run(world, "a")
        run(world, "b", "c")
    found = coverage(world)
    windows = sorted({window for _, window in found})
    for window in windows[-3:]:
        assert sum(found[name, window]["tuples_kept"] for name in names) <= 360
    late = {name: sum(found[name, window]["sic"] for window in windows[-3:]) / 3 for name in names}
    assert max(late.values()) - min(late.values()) <= 0.1, late


def test_weights_teams_priorities_and_floors_are_read_from_contracts(tmp_path: Path) -> None:
    many = {"window": {"seconds": 2400}, "portion_tuples": 6, "remember_slices": 1}
    ops = {"team": "ops", "team_weight": 1.0}
    queries = [
        query("first", MEAN, capacity={"tuples": 240}, team="growth", team_weight=2.0, **many),
        query("second", MEAN, **ops, **many),
        query("third", MEAN, **ops, **many),
    ]
    world = begun(tmp_path, *queries)
    run(world)
    found = coverage(world)
    assert found["first", 0]["sic"] == pytest.approx(0.667, abs=0.03)
    assert found["second", 0]["sic"] == pytest.approx(found["third", 0]["sic"], abs=0.03)
    put_queries(
        world,
        query("first", MEAN, capacity={"tuples": 240}, **many),
        query("second", MEAN, priority=2, **many),
        query("third", MEAN, floor=0.5, **many),
    )
    world.tables.at("windows").delete(subject=["first", "second", "third"])
    run(world)
    found = coverage(world)
    assert found["third", 0]["sic"] == pytest.approx(0.5, abs=0.03)
    assert found["second", 0]["sic"] == pytest.approx(0.5, abs=0.03)
    assert found["first", 0]["sic"] <= 0.03


@pytest.mark.long
def test_seconds_are_a_capacity_once_a_tuple_was_measured(tmp_path: Path) -> None:
    world = begun(tmp_path, query("means", MEAN, capacity={"seconds": 0.000001}), query("warm", COUNT))
    run(world, "means")
    rows = coverage(world)
    assert rows["means", 0]["sic"] == 1.0, "nothing was measured yet, so nothing is discarded"
    measured = world.at("coverage").rows(["seconds"])["seconds"].to_pylist()
    assert min(measured) > 0
    world.tables.at("windows").delete(subject="means", window=rows["means", 1]["window"])
    run(world)
    assert coverage(world)["means", 1]["sic"] == 0.25, "one answer may mislead: the cheapest portion is tried"


def test_one_fault_stays_one_fault(tmp_path: Path) -> None:
    world = begun(tmp_path, query("means", MEAN), query("wrong", "SELECT no_such_column FROM sites"))
    with pytest.raises(SpillwayError, match=r"wrong.*`sql` must name columns that its inputs have"):
        run(world)
    assert [row["subject"] for row in world.rows("coverage")] == ["means", "means"]


def test_a_query_that_fails_leaves_its_room_to_the_others(tmp_path: Path) -> None:
    pair = [query("means", MEAN, capacity={"tuples": 240}), query("warm", COUNT)]
    alone, world = (begun(tmp_path / name, *pair) for name in ("alone", "with"))
    run(alone)
    put_queries(world, *pair, query("wrong", "SELECT no_such_column FROM sites"))
    with pytest.raises(SpillwayError, match="`sql` must name columns that its inputs have"):
        run(world)
    kept = {place: row["tuples_kept"] for place, row in coverage(alone).items()}
    assert kept == {place: row["tuples_kept"] for place, row in coverage(world).items()}
    assert kept["means", 0] + kept["warm", 0] == 240
    put_queries(world, *pair, query("wrong", "SELECT max(temp) AS top FROM sites"))
    world.tables.at("windows").delete(subject=["means", "warm"])
    world.tables.at("coverage").delete(subject=["means", "warm"])
    run(world)
    assert coverage(world)["wrong", 0]["tuples_kept"] > 0
    put_queries(world, *pair, query("wrong", "SELECT [temp] AS temps FROM sites"))
    world.deliver("sites/2020-03-01/more.json", json_lines(sites(540, 300)))
    world.shed()
    with pytest.raises(SpillwayError, match=r"got 'ARRAY\(sites\.temp\)'; run it with --engine spark"):
        run(world)
    later = {place: row["tuples_kept"] for place, row in coverage(world).items() if place[1] == 2}
    assert set(later) == {("means", 2), ("warm", 2)}
    assert sum(later.values()) == 240, "nor is any left to one that answered before, and does not any more"


@pytest.mark.long
def test_a_query_that_fails_on_its_rows_leaves_its_room_to_the_others_and_is_told_when_it_is_mended(
    tmp_path: Path,
) -> None:
    pair = [query("means", MEAN, capacity={"tuples": 240}), query("warm", COUNT)]
    alone, world = (begun(tmp_path / name, *pair) for name in ("alone", "with"))
    run(alone)
    put_queries(world, *pair, query("numbers", "SELECT max(CAST(site AS INT)) AS top FROM sites"))
    with pytest.raises(SpillwayError, match=r"numbers.*`sql` must be answered by the process engine"):
        run(world)
    kept = {place: row["tuples_kept"] for place, row in coverage(alone).items()}
    assert kept == {place: row["tuples_kept"] for place, row in coverage(world).items()}
    assert kept["means", 0] + kept["warm", 0] == 240
    ended = {(row["subject"], row["status"]) for row in world.rows("windows") if row["status"] != "open"}
    assert ended == {("means", "done"), ("warm", "done"), ("numbers", "planned")}
    put_queries(world, *pair, query("numbers", "SELECT max(temp) AS top FROM sites"))
    run(world)
    assert {row["sic"] for row in world.rows("coverage") if row["subject"] == "numbers"} == {0.0}
    told = [row["reason"] for row in world.rows("ledger") if row["subject"] == "numbers" and row["shed"]]
    assert told
    assert all("others were given all of its slice" in reason for reason in told)
    assert total_imbalance(world.rows("ledger")) == 0


@pytest.mark.long
def test_what_is_shed_is_not_read_also_where_files_were_put_together(tmp_path: Path) -> None:
    """Batches of one date, each of three row groups: of those that are shed nothing is read, before and after."""
    stream = {**PLAIN, "row_group_tuples": 20}
    small = query("means", MEAN, capacity={"tuples": 100}, starve_slices=0)
    world = begun(tmp_path, small, stream=stream, files=-1)
    for number in range(9):
        world.deliver(f"sites/2020-01-01/{number}.json", json_lines(sites(number * ROWS, ROWS)))
        world.shed()
    table = world.at("transmitted", "sites")
    assert len(table.files()) == 9
    for put_together in (False, True):
        if put_together:
            assert compact(world.at("transmitted", "sites"), lambda _: True).files_after == 1
            world.tables.at("windows").delete(subject="means")
        with record_row_groups() as read:
            run(world)
        kept = [row["portions_kept"] for row in world.rows("coverage")]
        assert kept == [5, 5], "of twelve row groups each, as many as the room holds"
        files = {file.path: file for file in world.at("transmitted", "sites").files()}
        assert sum(path in files for path, _ in read) == 10, (put_together, read)
        sizes = {
            (path, group.place): group.size for path in files for group in row_groups(files[path], ["seq"])
        }
        assert sum(size for place, size in sizes.items() if place in read) == sum(
            row["bytes_kept"] for row in world.rows("coverage")
        )


@pytest.mark.long
def test_rows_that_come_late_make_no_answer_poorer(tmp_path: Path) -> None:
    world = begun(tmp_path, query("means", MEAN, capacity={"tuples": 240}))
    run(world)
    assert coverage(world)["means", 0]["tuples_kept"] == 240
    for number in range(3):
        world.deliver(f"sites/2020-01-2{number}/late.json", json_lines(sites(12 * number, 6)))
        world.shed()
        assert run(world) == 1
        row = coverage(world)["means", 0]
        assert (row["tuples_kept"], row["late"]) == (240, 6 * (number + 1))


def test_what_a_window_had_is_its_own_whoever_comes_before_it_now(tmp_path: Path) -> None:
    means = query("means", MEAN, capacity={"tuples": 240})
    world = begun(tmp_path, means)
    run(world)
    put_queries(world, means, query("warm", COUNT, priority=1))
    world.deliver("sites/2020-01-20/late.json", json_lines(sites(12, 6)))
    world.shed()
    run(world)
    found = coverage(world)
    assert (found["means", 0]["tuples_kept"], found["warm", 0]["tuples_kept"]) == (240, 0)


def test_a_window_whose_rows_cannot_be_asked_keeps_no_other_back(tmp_path: Path) -> None:
    numbers = "SELECT sum(CAST(site AS INT)) AS total FROM sites"
    world = begun(
        tmp_path, query("numbers", numbers), query("means", MEAN, capacity={"tuples": 360}), files=-1
    )
    for number in range(9):
        rows = [{**row, "site": "7"} if number < 4 else row for row in sites(number * ROWS, ROWS)]
        world.deliver(f"sites/2020-01-{number + 1:02d}/a.json", json_lines(rows))
    world.shed()
    with pytest.raises(SpillwayError, match=r"numbers, window of 2026-01-01 00:40: `sql` must be answered"):
        run(world)
    found = coverage(world)
    assert set(found) == {("numbers", 0), ("means", 0), ("means", 1)}
    assert found["means", 1]["tuples_kept"] == 240, "what the other window would have had is not lost"
    assert world.rows("results", "numbers")[0]["total"] > 0


def test_a_window_that_failed_is_told_until_its_query_is_another_though_its_room_went_to_others(
    tmp_path: Path,
) -> None:
    """Nothing of it is asked any more: that is no answer."""
    numbers = "SELECT sum(CAST(site AS INT)) AS total FROM sites"
    others = query("means", MEAN, capacity={"tuples": 240})
    world = begun(tmp_path, query("numbers", numbers), others)
    told = "must be answered by the process engine"
    with pytest.raises(SpillwayError, match=told):
        run(world)
    assert {name for name, _ in coverage(world)} == {"means"}
    for _ in range(2):
        with pytest.raises(
            SpillwayError, match=f"{told}.*the window waits, because no capacity is left in its slice"
        ):
            run(world)
    windows = [row for row in world.rows("windows") if row["subject"] == "numbers" and row["failed"]]
    assert [row["status"] for row in windows] == ["planned", "planned"]
    assert all("again" not in row["failed"] for row in windows), "as it was said at first"
    (short,) = [one for one in status(world.tables.now()).shortages if one.kind == "failed"]
    assert (short.stream, short.sentence[:40]) == ("numbers", "2 windows could not be computed, the las")

    put_queries(world, query("numbers", numbers.replace("CAST", "TRY_CAST")), others)
    assert run(world) == 2, "worked out as any other: others were given its room, which its coverage says"
    assert [row["sic"] for (name, _), row in coverage(world).items() if name == "numbers"] == [0.0, 0.0]
    assert not [row for row in world.rows("windows") if row["failed"] or row["failed_by"]]


def test_a_query_without_end_keeps_no_other_back(tmp_path: Path) -> None:
    world = begun(tmp_path, query("endless", ENDLESS, most_seconds=0.2), query("means", MEAN))
    with pytest.raises(SpillwayError, match=r"endless.*must answer a window within 0\.2 seconds"):
        run(world)
    assert {name for name, _ in coverage(world)} == {"means"}
    assert {row["status"] for row in world.rows("windows") if row["subject"] == "endless"} >= {"planned"}


@pytest.mark.long
def test_a_run_waits_for_a_few_windows_of_a_query_without_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each takes its time, and all that is asked besides waits for it; the next run waits for one, and says so."""
    asked: list[str] = []
    ask = ProcessEngine.ask
    monkeypatch.setattr(ProcessEngine, "ask", lambda *told: asked.append(told[2][-1][1]) or ask(*told))
    short = {"window": {"seconds": 600}, "bounds": False}
    world = begun(tmp_path, query("endless", ENDLESS, most_seconds=0.05, **short), files=8)
    with pytest.raises(SpillwayError, match="endless") as told:
        run(world)
    windows = len([row for row in world.rows("windows") if row["status"] == "planned"])
    assert windows > 6
    first = asked.count(ENDLESS)
    assert MOST_TOO_LONG <= first < MOST_TOO_LONG + 3 < windows
    assert "must answer a window within 0.05 seconds" in str(told.value)
    assert all(row["failed"] for row in world.rows("windows") if row["status"] == "planned")
    # those that have never been asked come before those that were asked in vain
    with pytest.raises(SpillwayError, match="endless"):
        run(world)
    slow = [row for row in world.rows("windows") if "no answer by then" in (row["failed"] or "")]
    assert len(slow) > first
    put_queries(world, query("endless", "SELECT count(*) AS n FROM sites", **short))
    assert run(world) == windows


def test_groups_of_any_key_are_estimated(tmp_path: Path) -> None:
    """No name of a column, and no value of one, is taken for another."""
    stream = {**PLAIN, "attributes": [*PLAIN["attributes"], attribute("n0", "double", nullable=True)]}
    by = "SELECT n0, count(*) AS n FROM sites GROUP BY n0"
    world = begun(
        tmp_path, query("by", by, capacity={"tuples": 120}, portion_tuples=12), stream=stream, files=-1
    )
    for number in range(9):
        rows = [{**row, "n0": (None, 2.5, 1.5)[at % 3]} for at, row in enumerate(sites(number * ROWS, ROWS))]
        world.deliver(f"sites/2020-01-{number + 1:02d}/a.json", json_lines(rows))
    world.shed()
    run(world)
    answers = world.rows("results", "by")
    assert len(answers) == 6
    for row in answers:
        assert row["n__estimate"] == pytest.approx(2 * row["n"])
        assert row["n__low"] <= 80 <= row["n__high"]


def test_where_a_query_begins_does_not_depend_on_who_else_is_planned_now() -> None:
    """One without a past begins where all others of the room on average got, also when they have been worked out."""
    queries = {name: QualitySettings(sql=MEAN) for name in ("a", "b", "c")}
    rules = RoomRules(queries, None, "fair", 600.0, dict.fromkeys(queries, 1.0))
    history = RoomHistory()
    for number, (first, second) in enumerate([(1.0, 0.2), (1.0, 0.4)]):
        history.add("a", number, first, 100.0, 100.0)
        history.add("b", number, second, 100.0, 20.0)
    before = starting_coverages(rules, history, 2)
    assert before == pytest.approx({"a": 2.0, "b": 0.6, "c": 1.3})
    history.add("a", 2, 1.0, 100.0, 100.0)
    assert starting_coverages(rules, history, 2) == before


def test_what_a_query_had_before_is_told_by_slices_that_it_was_in() -> None:
    history = RoomHistory()
    windows = [(0, 1.0, 80.0, 80.0), (2, 0.5, 40.0, 20.0), (2, 0.1, 60.0, 6.0), (3, 0.0, 30.0, 0.0)]
    for number, sic, offered, given in [*windows, (4, 1.0, 0.0, 0.0), (6, 0.0, 9.0, 0.0)]:
        history.add("a", number, sic, offered, given)
    assert history.coverage_by_slice("a", 4, 3) == [0.3, 0.0], (
        "of the two slices right before it, windows of one together"
    )
    assert history.coverage_by_slice("a", 4, 5) == [1.0, 0.3, 0.0]
    assert [history.slices_waited("a", number) for number in (3, 4, 5, 7)] == [0, 1, 0, 1], (
        "nothing offered is no wait"
    )
    assert [history.last_load("a", number) for number in (0, 2, 3, 5, 7)] == [0.0, 80.0, 100.0, 0.0, 9.0]
    assert [history.windows_in_last_slice("a", number) for number in (0, 2, 3, 4)] == [0, 1, 2, 1]
    assert history.load(2, ["a", "b"]) == 100.0


def test_a_teams_weight_is_divided_among_its_queries_by_theirs() -> None:
    one, two = (
        QualitySettings(sql=MEAN, team="ops", team_weight=6.0, weight=weight) for weight in (1.0, 3.0)
    )
    assert _weights({"one": one, "two": two, "own": QualitySettings(sql=MEAN, weight=2.0)}) == {
        "one": 1.5, "two": 4.5, "own": 2.0,
    }  # fmt: skip


def test_what_queries_are_likely_to_ask_for_yet_is_left_to_them_and_not_to_those_that_fail() -> None:
    queries = {name: QualitySettings(sql=MEAN) for name in ("a", "b", "c")}
    rules = RoomRules(queries, None, "fair", 600.0, dict.fromkeys(queries, 1.0), frozenset({"c"}))
    history = RoomHistory()
    for name, windows in (("a", 4), ("b", 2), ("c", 2)):
        for _ in range(windows):
            history.add(name, 0, 1.0, 100.0, 100.0)
    history.add("b", 1, 1.0, 100.0, 100.0)
    found = _load_of_other_queries(rules, history, 1, ["a"], {"a": 1}, starting_coverages(rules, history, 1))
    assert (found.sic.tolist(), found.cost.tolist()) == ([0.75, 0.5], [300.0, 100.0])
    assert _used_capacity(rules, history, 1) == 100.0


def test_a_slice_begins_where_its_windows_do() -> None:
    rules = RoomRules({}, None, "fair", 0.1, {})
    begins = [BEGIN.replace(tzinfo=UTC) + timedelta(microseconds=100_000 * at) for at in range(2_000)]
    slices = [rules.slice_of(moment) for moment in begins]
    assert [one - slices[0] for one in slices] == list(range(2_000))


@pytest.mark.long
def test_a_file_that_lies_in_two_windows_is_cut(tmp_path: Path) -> None:
    short = {"window": {"seconds": 420}}
    world = begun(tmp_path, query("means", MEAN, **short))
    assert run(world) > 5
    assert {row["sic"] for row in world.rows("coverage")} == {1.0}
    arrived = sum(row["arrived"] for row in world.rows("coverage"))
    put_queries(world, query("means", MEAN, portion_tuples=12, **short))
    world.tables.at("windows").delete(subject="means")
    assert run(world) > 5
    assert arrived == sum(row["arrived"] for row in world.rows("coverage"))
    contract = world.contracts.queries["means"]
    windows = list(StoredWindows(world.tables.now(), contract).with_status("done").values())
    found = window_offers(world.tables.now(), world.contracts, contract, windows, 12).portions
    assert sum(one.tuples for some in found.values() for one in some) == sum(
        row["arrived"] for row in world.rows("coverage")
    )
    assert all(isinstance(one, Portion) and one.tuples <= 18 for some in found.values() for one in some)


@pytest.mark.long
def test_inputs_of_different_size_are_kept_level_and_so_a_join_answers(tmp_path: Path) -> None:
    """By what they carry for their cost, all of the smaller input would go first, and a join would find no pair."""
    join = "SELECT count(*) AS n FROM sites s JOIN others o ON s.at = o.at AND s.site = o.site"
    both = {"inputs": ["sites", "others"], "window": {"seconds": 2400}, "portion_tuples": 20}
    world = begun(tmp_path, query("paired", join, capacity={"tuples": 100}, **both), both=True, files=-1)
    for number in range(9):
        rows = sites(number * ROWS, ROWS)
        world.deliver(f"sites/2020-01-{number + 1:02d}/a.json", json_lines(rows))
        world.deliver(f"others/2020-01-{number + 1:02d}/a.json", json_lines(rows[::3]))
    world.shed()
    run(world)
    answers = world.rows("results", "paired")
    assert len(answers) == 2
    for row in answers:
        assert 0.2 <= row["coverage"] <= 0.4
        assert row["n"] >= 10, "portions of one stretch of time are kept of both"


def test_what_must_be_kept_is_kept_by_contract_whoever_else_shares_the_room(tmp_path: Path) -> None:
    join = "SELECT count(*) AS n FROM sites s, (SELECT max(temp) AS top FROM others) o WHERE s.temp <= o.top"
    own = {"inputs": ["sites", "others"], "portion_tuples": 30}
    queries = [
        query("kept", join, capacity={"tuples": 480}, must_keep=["others"], **own),
        query("means", MEAN, portion_tuples=30),
    ]
    world = begun(tmp_path, *queries, both=True)
    run(world)
    for window in (0, 1):
        row = coverage(world)["kept", window]
        assert 240 <= row["tuples_kept"] < 480, "all of what must be kept, and some of the other input"
        assert row["sic"] > 0.5
        assert coverage(world)["means", window]["tuples_kept"] > 0
        assert row["tuples_kept"] + coverage(world)["means", window]["tuples_kept"] <= 480

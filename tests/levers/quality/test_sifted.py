"""Queries over streams whose rows were dropped or refused: coverage, estimates and intervals against known truth."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC
from typing import Any

import numpy as np
import pytest

from evidence.attributes.lake import ENGINE
from evidence.quality.sifted_streams import (
    BEGIN,
    STATEMENTS,
    IntervalCounts,
    SiftedLake,
    compare_query,
    deliver_rows,
    meters_lake,
    sifted_lake,
    sifted_query,
    truth_of,
)
from spillway.levers.quality.checks import check_answer
from spillway.levers.quality.intervals import (
    DROPPED,
    Clusters,
    Estimate,
    SampledRows,
    ValueRange,
    WindowSample,
)
from spillway.levers.sifters.filter import sift_rows
from spillway.workloads.run import run_workloads

Row = dict[str, Any]


@pytest.fixture
def forgetting() -> Iterator[list[SiftedLake]]:
    made: list[SiftedLake] = []
    yield made
    for one in made:
        one.lake.forget()


def rows_at(begin: int, end: int, load: float, step: float = 1.0) -> list[Row]:
    """One row every `step` seconds, all with the same load."""
    return [
        {"site": "s0", "at": BEGIN + np.timedelta64(round(1e6 * at), "us").astype(object), "load": load,
         "level": float(round(at) % 100), "flow": 1.0}
        for at in np.arange(begin, end, step)
    ]  # fmt: skip


def answers(sifted: SiftedLake, name: str, sql: str, **more: Any) -> tuple[list[Row], list[Row]]:
    """The rows of `coverage` and of the answer, window by window."""
    lake = sifted.lake
    query = sifted_query(name, sql, **more)
    run_workloads(lake.tables, ENGINE, replace(lake.contracts, queries={name: query}), [name])
    found = (lake.tables.at("coverage").rows(subject=name), lake.tables.at("results", name).rows())
    coverage, results = (sorted(one.to_pylist(), key=lambda row: row["window"]) for one in found)
    return coverage, results


def two_windows(
    name: str, forgetting: list[SiftedLake], marked_pct: float = 1.0, **sifter: Any
) -> SiftedLake:
    """One batch over two windows: the sifter keeps all of the first, and few rows of the second."""
    lever = {
        "rows_per_second": 1.1,
        "queries": [{"where": "load < 12"}],
        "sample": {"marked_pct": marked_pct},
        **sifter,
    }
    made = meters_lake(name, lever, [[*rows_at(0, 300, 0.0), *rows_at(300, 600, 50.0)]], rate=2.0)
    deliver_rows(made.lake, "end.json", rows_at(700, 720, 0.0))
    forgetting.append(made)
    return made


def test_a_loss_counts_in_the_window_that_it_happened_in(forgetting: list[SiftedLake]) -> None:
    made = two_windows("loss-by-window", forgetting)
    kept = made.lake.tables.at("transmitted", "meters").rows(["load"])["load"].to_pylist().count(50.0)
    assert 0 < kept < 150
    coverage, rows = answers(made, "counted", "SELECT count(*) AS n FROM meters")
    assert [row["sic"] for row in coverage] == [1.0, pytest.approx(kept / 300)]
    assert [(row["produced"], row["lost"]) for row in coverage] == [(300, 0), (300, 300 - kept)]
    assert [row["n"] for row in rows] == [300, kept]
    for row in rows:
        assert (row["n__estimate"], row["n__low"], row["n__high"]) == (300.0, 300.0, 300.0)


def test_rows_of_a_region_that_is_dropped_whole_are_counted_and_their_values_need_a_rule(
    forgetting: list[SiftedLake],
) -> None:
    made = two_windows("dropped-whole", forgetting, marked_pct=0.0, rows_per_second=1.0)
    assert 50.0 not in made.lake.tables.at("transmitted", "meters").rows(["load"])["load"].to_pylist()
    deliver_rows(made.lake, "more.json", [*rows_at(300, 310, 0.0), *rows_at(800, 810, 0.0)])
    sql = "SELECT count(*) AS n, sum(level) AS s, avg(level) AS m, sum(flow) AS f, avg(flow) AS g FROM meters"
    coverage, rows = answers(made, "counted", sql)
    assert coverage[1]["produced"] == 310
    dropped = rows[1]
    assert (dropped["n__low"], dropped["n__high"]) == (310.0, 310.0)
    assert 0 < dropped["n"] <= 10
    truth = sum(row["level"] for row in [*rows_at(300, 600, 0.0), *rows_at(300, 310, 0.0)])
    assert dropped["s__low"] <= truth <= dropped["s__high"] <= dropped["s"] + 310 * 100.0
    assert dropped["m__low"] <= truth / 310 <= dropped["m__high"]
    examined = check_answer(made.lake.tables.at("results", "counted").rows(window=dropped["window"]))
    assert (examined["withheld_unsaid"], examined["withheld_of_few"], examined["withheld_of_some"]) == (
        0,
        0,
        0,
    )
    assert examined["odd_intervals"] == 0
    for measure in ("f", "g"):
        assert (dropped[f"{measure}__low"], dropped[f"{measure}__no_interval"]) == (None, DROPPED)
    _, cut = answers(made, "cut", "SELECT count(*) AS n FROM meters WHERE level < 50")
    true = sum(row["level"] < 50 for row in [*rows_at(300, 600, 0.0), *rows_at(300, 310, 0.0)])
    assert cut[1]["n__low"] < cut[1]["n__high"]
    assert cut[1]["n__low"] <= true <= cut[1]["n__high"]


@pytest.mark.parametrize("seconds", [300.0, 60.0])
def test_window_whose_rows_were_all_dropped_is_not_covered(
    forgetting: list[SiftedLake], seconds: float
) -> None:
    """Two windows of five minutes, the second one dropped whole: the first minute of it is among the windows too."""
    made = two_windows("nothing-left", forgetting, marked_pct=0.0, rows_per_second=1.0)
    assert 50.0 not in made.lake.tables.at("transmitted", "meters").rows(["load"])["load"].to_pylist()
    coverage, rows = answers(made, "counted", "SELECT count(*) AS n FROM meters", seconds=seconds)
    windows = round(600 / seconds)
    assert len(coverage) == windows
    assert [(row["sic"], row["produced"], row["arrived"]) for row in coverage[windows // 2 :]] == [
        (0.0, round(seconds), 0)
    ] * (windows // 2)
    assert len(rows) == windows // 2


def test_a_batch_sifted_before_times_were_counted_is_known_by_its_row_weights(
    forgetting: list[SiftedLake],
) -> None:
    made = two_windows("by-weights", forgetting)
    table = made.lake.tables.at("sifters")
    rows = [{**row, "spans": None} for row in table.rows().to_pylist()]
    table.replace(rows, stream="meters")
    sent = made.lake.tables.at("transmitted", "meters").rows(["load", "weight"]).to_pylist()
    weight = sum(row["weight"] for row in sent if row["load"] == 50.0)
    kept = sum(row["load"] == 50.0 for row in sent)
    coverage, answer = answers(made, "counted", "SELECT count(*) AS n FROM meters")
    assert coverage[0]["sic"] == 1.0
    assert coverage[1]["sic"] == pytest.approx(kept / weight, rel=1e-3)
    assert answer[1]["n__estimate"] == pytest.approx(weight, abs=1)
    assert answer[1]["n__low"] <= 300 <= answer[1]["n__high"]


@pytest.mark.long
@pytest.mark.parametrize("marked_pct", [1.0, pytest.param(0.0, marks=pytest.mark.long)])
def test_intervals_of_sifted_streams_hold_at_their_rate(
    forgetting: list[SiftedLake], marked_pct: float
) -> None:
    held = IntervalCounts()
    for seed in range(4):
        declared = {"x": sifted_query("x", "SELECT count(*) AS n FROM meters")} if seed % 2 else None
        made = sifted_lake("rates", seed, marked_pct, 0.2 + 0.2 * seed, declared)
        forgetting.append(made)
        for name in ("some", "by_site", "unknown"):
            compare_query(made, name, STATEMENTS[name], held)
        compare_query(made, "part", STATEMENTS["some"], held, portion_tuples=20, capacity={"tuples": 80})
    assert held.false_claims == []
    assert max(held.sic_errors) < 1e-9
    assert held.intervals > 250
    assert held.held >= 0.95 * held.intervals
    assert held.withheld > 0, "sums of values that no rule bounds"


@pytest.mark.parametrize(
    "where",
    [
        "site <> 'a--b'",
        "site <> 'from here'",
        'site <> "having"',
        r"site <> 'a\'' AND load >= 0 AND site <> 'b'",
        "site NOT LIKE 'x%'",
        "NOT isnull(site)",
    ],
)
def test_texts_of_a_condition_do_not_cost_the_interval(forgetting: list[SiftedLake], where: str) -> None:
    made = two_windows("texts", forgetting)
    _, rows = answers(made, "texts", f"SELECT count(*) AS n, mean(level) AS m FROM meters WHERE {where}")
    for row in rows:
        assert row["n__low"] <= 300 <= row["n__high"]
        assert row["m__low"] <= row["m"] <= row["m__high"]


def test_quoted_and_qualified_columns_keep_their_rules(forgetting: list[SiftedLake]) -> None:
    made = two_windows("quoted", forgetting)
    sql = "SELECT sum(level) AS a, sum(`level`) AS b, sum(meters.level) AS c FROM `meters`"
    for row in answers(made, "quoted", sql)[1]:
        for end in ("low", "high"):
            assert row[f"a__{end}"] == row[f"b__{end}"] == row[f"c__{end}"] is not None


def test_windows_that_cut_the_counts_say_a_range(forgetting: list[SiftedLake]) -> None:
    made = sifted_lake("cut-counts", 3, 1.0, 0.3)
    forgetting.append(made)
    _, rows = answers(made, "odd", "SELECT count(*) AS n FROM meters", seconds=77.0)
    assert any(row["n__low"] < row["n__high"] for row in rows)
    for row in rows:
        true = len(made.window(row["window"], 77.0))
        assert row["n__low"] <= true <= row["n__high"]


def test_rows_kept_aside_are_read_all_of_them(forgetting: list[SiftedLake]) -> None:
    made = sifted_lake("aside", 2, 0.0, 0.3, keep_at_source=True)
    forgetting.append(made)
    held = IntervalCounts()
    compare_query(made, "everything", STATEMENTS["everything"], held)
    compare_query(made, "part", STATEMENTS["everything"], held, portion_tuples=20, capacity={"tuples": 80})
    assert held.false_claims == []
    assert held.held == held.intervals
    for row in made.lake.tables.at("results", "everything").rows().to_pylist():
        assert row["n"] == truth_of(STATEMENTS["everything"], made.window(row["window"]))[None]["n"]


def test_bounds_of_rounded_values_add_to_the_doubt_of_sampling(forgetting: list[SiftedLake]) -> None:
    rows = [
        {**one, "load": float((37 * at) % 100), "level": round(50 + 40 * float(np.sin(at / 30)), 3)}
        for at, one in enumerate(rows_at(0, 600, 0.0, step=0.25))
    ]
    last = [{**row, "at": rows_at(700, 701, 0.0)[0]["at"]} for row in rows[:100]]
    sifter = {"rows_per_second": 2.0, "queries": [{"where": "load < 30"}], "takes": "rest"}
    behind = [{"lever": "attributes", "training": {"tuples": 240}, "treatments": ["keep", "round"]}]
    widths, kept, off = [], [], 0.0
    for minimize in ("error", "bytes"):
        made = meters_lake(f"rounded-{minimize}", sifter, [rows, last], 4.0, None, behind, minimize)
        forgetting.append(made)
        sent = made.lake.tables.at("transmitted", "meters").rows(["level"])["level"].to_pylist()
        exact = {row["level"] for row in rows}
        assert all(one in exact for one in sent) == (minimize == "error"), (
            "rounded by the second channel alone"
        )
        kept.append(sorted(made.lake.tables.at("transmitted", "meters").rows(["seq"])["seq"].to_pylist()))
        _, found = answers(made, "levels", "SELECT sum(level) AS s, avg(level) AS m FROM meters")
        for row in found:
            true = sum(one["level"] for one in made.window(row["window"]))
            assert row["s__low"] <= true <= row["s__high"]
            assert row["m__low"] <= true / 1200 <= row["m__high"]
        widths.append(found[0]["s__high"] - found[0]["s__low"])
        level = {row["at"]: row["level"] for row in made.window(found[0]["window"])}
        off = sum(
            row["weight"] * abs(row["level"] - level[at])
            for row in made.lake.tables.at("transmitted", "meters")
            .rows(["at", "level", "weight"])
            .to_pylist()
            if (at := row["at"].replace(tzinfo=UTC)) in level
        )
    assert kept[0] == kept[1], "the sampling is the same, so that only rounding widens the intervals"
    assert off > 10, "the second channel rounds"
    assert widths[1] > widths[0] + 2 * off


def test_refused_rows_and_batches_lower_the_coverage(forgetting: list[SiftedLake]) -> None:
    made = meters_lake("refused", None, [rows_at(0, 100, 0.0)])
    forgetting.append(made)
    broken = [{**row, "load": "broken"} for row in rows_at(100, 150, 0.0)]
    deliver_rows(made.lake, "half.json", [*broken[:2], *rows_at(150, 200, 0.0)])
    deliver_rows(made.lake, "whole.json", broken)
    deliver_rows(made.lake, "after.json", rows_at(200, 230, 0.0))
    deliver_rows(made.lake, "end.json", rows_at(320, 321, 0.0))
    coverage, _ = answers(made, "counted", "SELECT count(*) AS n FROM meters")
    assert coverage[0]["arrived"] == 180
    assert coverage[0]["produced"] == 180 + 2 + 50
    assert coverage[0]["sic"] == pytest.approx(180 / 232)


def test_row_sampling_by_a_sifter_is_covered_by_the_kernel_interval() -> None:
    """COUNT, SUM and AVG of a rare and a common domain: error diffusion as sifters do it, 400 seeds."""
    chance = np.random.default_rng(5)
    rows = 4000
    value = np.where(chance.random(rows) < 0.01, 100.0, chance.random(rows) * 10)
    regions = chance.integers(0, 6, rows).astype(np.int32)
    thresholds = np.array([0.0, 0.3, 0.6, 0.9, 0.97, 0.99])
    weights = 1 / (1 - thresholds)
    for domain in (chance.random(rows) < 0.5, chance.random(rows) < 0.02):
        held = np.zeros(3)
        for seed in range(400):
            kept, _ = sift_rows(np.arange(rows), regions, thresholds, 0.0, seed)
            mine = kept & domain
            w, y = weights[regions[mine]], value[mine]
            found = _estimates(w, y, int((~kept).sum()), 100.0)
            truths = (domain.sum(), value[domain].sum(), value[domain].mean())
            held += [
                one is not None
                and one.low is not None
                and one.high is not None
                and one.low <= true <= one.high
                for one, true in zip(found, truths, strict=True)
            ]
        assert (held >= 0.95 * 400).all(), held


def _estimates(w: np.ndarray, y: np.ndarray, dropped: int, largest: float) -> list[Estimate | None]:
    count = float(len(w))
    found = []
    for total, squares, cross, reach, mean in (
        (np.ones(len(w)), (w * (w - 1)).sum(), (w * (w - 1)).sum(), ValueRange(0.0, 1.0), False),
        (y, (w * (w - 1) * y**2).sum(), (w * (w - 1) * y).sum(), ValueRange(0.0, 100.0), False),
        (y, (w * (w - 1) * y**2).sum(), (w * (w - 1) * y).sum(), ValueRange(0.0, 100.0), True),
    ):
        one = np.ones(1)
        seen = Clusters(one * count, one * total.sum(), one * count)
        rows = SampledRows(
            seen, float(squares), float(cross), float((w * (w - 1)).sum()), dropped, dropped, 0, 0, largest
        )
        read = Clusters(one * w.sum(), one * (w * total).sum(), one * w.sum())
        sample = WindowSample(read, np.zeros(0), None, reach, False, rows)
        found.append(sample.mean() if mean else sample.total())
    return found

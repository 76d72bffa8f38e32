"""Rows that no query asks for are told by the queries themselves, exactly, and go before any other."""

from __future__ import annotations

import json
import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.levers.sifters.logs import LEVELS, LOGS, SIFTERS, contract_of, learned, logs, rows_like
from tests.pipeline.streams import World, json_lines

from evidence.sifters.contest import SHIPPED, contest
from evidence.sifters.workload import WorkloadSettings, generate
from spillway.engine import ProcessEngine
from spillway.levers.sifters import learn
from spillway.levers.sifters.choose import BuiltRegions, build_regions
from spillway.levers.sifters.configure import configure_filter
from spillway.levers.sifters.dimensions import Dimension
from spillway.levers.sifters.filter import MOST_ASKED, MUST_KEEP, QueryBoxIndex, SifterFilter
from spillway.levers.sifters.learn import count_rows_by_region
from spillway.levers.sifters.lever import LEVER
from spillway.levers.sifters.predicates import parse_predicate
from spillway.levers.sifters.regions import Axis, Layout, RegionTree


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**32 - 1), st.sampled_from([1, 7, 60]), st.booleans())
def test_a_row_is_asked_for_exactly_where_some_condition_is_true_of_it(
    seed: int, regions: int, more: bool
) -> None:
    """The oracle evaluates every predicate on every row, without regions and places."""
    queries = [*SIFTERS["queries"], {"where": "size = -1 or size between 2 and 3"}]
    if more:
        queries += [
            {"where": "latency is null and severity is null"},
            {"where": "latency >= 400 and size is null"},
        ]
    of = contract_of(queries=queries, regions=regions, keep=["severity > 'ERROR'"], dimensions=[
        {"attribute": "severity", "values": LEVELS}, {"attribute": "latency"}, {"attribute": "host"},
        {"attribute": "size"}])  # fmt: skip
    found = learned(of, rows_like(seed + 1, 300))
    rows = rows_like(seed, 2000)
    keys = [one.keys_of(rows[one.name]) for one in found.wanted.dimensions]
    asked = np.any([predicate.matches(keys) for _, predicate in found.wanted.queries], axis=0)
    for base in (found.base, SifterFilter.from_bytes(found.base.to_bytes())):
        lands = base.regions_of(rows)
        free = lands != MUST_KEEP
        assert np.array_equal((lands == base.tree.count)[free], ~asked[free])
        assert 0 < (~asked[free]).sum() < free.sum()


def test_a_row_just_below_a_querys_end_is_asked_for_though_it_lies_where_the_end_does() -> None:
    """The line is so long that both are at one place, and a region begins there that nothing else reaches into."""
    latency = Dimension("latency", "double")
    wanted, line = parse_predicate("latency < 400", {"latency": latency}).boxes, Axis(latency, -1e6, 1e6)
    below, end = (line.place_of_values(np.array([value]))[0] for value in (np.nextafter(400.0, 0.0), 400.0))
    assert below == end
    tree = RegionTree.from_splits(Layout((line,)).space, [(0, 0, end)])
    of = SifterFilter(Layout((line,)), tree, np.zeros(3), query_boxes=wanted)
    rows = pa.table({"latency": [399.0, np.nextafter(400.0, 0.0), 400.0]})
    assert of.regions_of(rows).tolist() == [0, 1, 2]


def test_every_query_has_all_of_its_rows_where_there_is_room_for_what_is_asked_for(tmp_path: Path) -> None:
    """100 rows a second come, 60 may go on, about half of them are asked for."""
    lever = {**SIFTERS, "rows_per_second": 60.0}
    world = World.begin(ProcessEngine(), tmp_path, {**LOGS, "levers": [lever]}, capacity="1 Mbps")
    world.deliver("logs/2020-01-01/a.json", json_lines(logs(0, 1500)))
    world.shed()
    world.train("logs")
    world.shed()
    (row,) = world.rows("sifters")
    assert row["quality"] == row["quality_planned"] == 1.0
    offered, kept = (sum(one[name] for one in row["regions"]) for name in ("offered", "kept"))
    assert 0.97 * 900 < kept <= 900 < offered == 1500
    of = {
        (one["dimension_kind"], one["dimension"]): one
        for one in world.rows("ledger")
        if one["stage"] == "sifters"
    }
    assert of["reason", "no query asks for them"]["shed"] == offered - kept
    assert of["reason", "worth least to queries"]["shed"] == 0
    raw, sent = (world.frame(table, "logs") for table in ("raw", "transmitted"))
    must = len(raw.query("severity in ('ERROR', 'FATAL')"))
    (held,) = (one for one in row["regions"] if one["region"] == -1)
    assert of["reason", "must be kept"]["offered"] == held["offered"] == held["kept"] == must > 0
    told = LEVER.explain(world.contracts.streams["logs"], "latency", None, world.tables.now()).numbers
    *inner, others, _ = row["regions"]
    assert told["regions"] == f"{len(inner)} by {row['partition']}"
    assert told["asked for by no query"] == [
        f"{100 * others['threshold']:.0f} % dropped of {others['offered']:,} rows"
    ]
    gone = raw[~raw["seq"].isin(sent["seq"])]
    wanted = "severity == 'WARN' or severity in ('ERROR', 'FATAL') or (latency > 400 and host == 'web-1') " \
        "or (latency >= 100 and latency <= 300 and host in ('web-0', 'web-2'))"  # fmt: skip
    assert len(gone.query(wanted)) == 0
    # what is left of the others stands for all of them
    others = sent[~sent["seq"].isin(sent.query(wanted)["seq"])]
    assert others["weight"].sum() == pytest.approx(
        len(raw) - len(raw.query(wanted)), abs=others["weight"].max()
    )
    # what the contract says applies from the next batch, though the filter in use would still do
    world.contract_becomes({**LOGS, "levers": [{**lever, "keep": ["host = 'web-3'"]}]}, capacity="1 Mbps")
    world.deliver("logs/2020-01-01/b.json", json_lines(logs(1500, 400)))
    world.shed()
    raw, sent = (world.frame(table, "logs").query("batch == 2") for table in ("raw", "transmitted"))
    assert len(sent.query("host == 'web-3'")) == len(raw.query("host == 'web-3'")) == 100
    # until it is trained again, and it says so
    assert "its regions were trained for another contract" in world.rows("sifters")[-1]["reason"]


@pytest.mark.parametrize("throttle", [0.03, 0.1, 0.9])
def test_regions_are_cut_for_the_room_that_is_left_to_what_is_asked_for(
    throttle: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the rows that no query asks for 2 % stay, as sample; where all others fit, regions are made for half."""
    given_: list[float] = []

    def spied(*args: Any) -> BuiltRegions:
        given_.append(args[5])
        return build_regions(*args)

    monkeypatch.setattr(learn, "build_regions", spied)
    found = learned(contract_of(keep=[]), rows_like(3, 2000), throttle)
    unqueried = found.frequencies[-1]
    assert found.sample_rows == round(2000 * (1.0 - unqueried)) < 800  # the others make no regions
    room = (throttle - 0.02 * unqueried) / (1.0 - unqueried)
    assert given_ == [pytest.approx(room if room < 1.0 else 0.5)]
    assert (room < 1.0) == (throttle < 0.9)


def test_regions_are_cut_and_set_among_the_rows_that_are_asked_for() -> None:
    """A tenth of what is asked for fits: nothing else goes on but the sample, and queries differ by their weights."""
    of, rows = contract_of(keep=[]), rows_like(3, 6000)
    found = learned(of, rows, 0.03)
    keys = [one.keys_of(rows[one.name]) for one in found.wanted.dimensions]
    asked = np.any([predicate.matches(keys) for _, predicate in found.wanted.queries], axis=0)
    assert found.frequencies[-1] == pytest.approx(1.0 - asked.mean())
    assert found.frequencies.sum() == pytest.approx(1.0)
    assert found.sample_rows == min(800, asked.sum())  # all of the sample are rows that a filter tells apart
    worth = found.worth(count_rows_by_region(found, rows))
    assert worth.worths[-1] == 0.0
    assert not worth.touched[-1]
    outcome = configure_filter(worth, 0.1, 0.0, 0.4, found.base.share)
    assert outcome.thresholds[-1] == pytest.approx(0.98)
    inner = outcome.thresholds[:-1][worth.frequencies[:-1] > 0]
    assert 0.3 < inner.max() - inner.min() <= 0.4 + 1e-9


def test_by_region_rows_go_as_their_region_does_and_too_many_boxes_are_not_sent() -> None:
    rows = rows_like(4, 2000)
    plain = learned(contract_of(unqueried="by_region"), rows)
    assert not plain.base.has_unrequested_region
    assert plain.base.regions_of(rows).max() < plain.base.tree.count == len(plain.frequencies)
    many = [{"where": f"latency between {i} and {i + 0.5}"} for i in range(MOST_ASKED + 1)]
    assert not learned(contract_of(queries=many), rows).base.has_unrequested_region
    assert learned(contract_of(queries=many[:-1]), rows).base.has_unrequested_region
    # a filter of before there were any
    told = json.loads(zlib.decompress(plain.base.to_bytes()))
    del told["asked"]
    old = SifterFilter.from_bytes(zlib.compress(json.dumps(told).encode()))
    assert np.array_equal(old.regions_of(rows), plain.base.regions_of(rows))


def test_it_is_better_than_regions_alone_and_than_telling_alone() -> None:
    """Three times as much is asked for as fits; tuned on nothing."""
    of = WorkloadSettings(throttle=0.1, regions=100, fairness=1.0, side=(0.01, 0.02), query_count=300)
    found = contest(generate(of, 7, 20_000), ("random", "demand", "index", SHIPPED, "optimum")).quality
    assert found["random"] < found["demand"] < found[SHIPPED] < found["optimum"]
    assert found["index"] < found[SHIPPED]
    easy = contest(
        generate(replace(of, side=(0.005, 0.01), throttle=0.5), 7, 20_000), ("demand", SHIPPED)
    ).quality
    assert easy["demand"] < easy[SHIPPED]


def test_rows_beyond_the_ends_of_what_was_sampled_are_asked_for_by_what_reaches_as_far() -> None:
    tree = RegionTree.from_splits(np.array([[0.0, 1.0]]), [(0, 0, 0.5)])
    keys, places = np.array([[[-20, -10]], [[110, 120]]]), np.array([[[-0.2, -0.1]], [[1.1, 1.2]]])
    asked = QueryBoxIndex.of(tree, keys, places)
    assert asked.hold(np.array([[-15, -5, 115, 105]]), np.array([0, 0, 1, 1])).tolist() == [
        True,
        False,
        True,
        False,
    ]

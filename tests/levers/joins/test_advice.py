"""Advice on a join: what is said holds of the join as it is, and what cannot be asked is refused by name."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.levers.joins.lake import JOIN, STREAM, alarms, as_rows, begun, run, truth
from tests.levers.joins.streams import Row, full_join, operand
from tests.pipeline.streams import World

from evidence.joins.driver import overlap, run_join
from spillway.cli import main
from spillway.engine import ProcessEngine
from spillway.errors import SpillwayError
from spillway.levers.joins.advice import estimate_join
from spillway.levers.joins.exploration import Memory
from spillway.levers.joins.settings import Budget
from spillway.pipeline.run import sketch_channel
from spillway.sketches.answers import Answer
from spillway.workloads.join_advice import JoinRequest, advise

EAST, WEST = alarms(0, 250, 0), alarms(0, 250, 1)
OVERLAP = {name: value for name, value in JOIN["levers"][0].items() if name != "lever"}
URGENCY = {
    "left": {"attribute": "urgency", "lasts_seconds": 1e6},
    "right": {"attribute": "urgency", "lasts_seconds": 1e6},
}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    kept = [
        {"kind": "count_min", "attributes": ["urgency"]},
        {"kind": "pair_count", "attributes": ["site", "urgency"], "at_least": 1},
    ]
    stream = {**STREAM, "sketches": kept}
    world = begun(tmp_path_factory.mktemp("lake"), ProcessEngine(), stream=stream)
    sketch_channel(world.tables, world.engine, world.contracts, "narrow")
    run(world)
    return world


@pytest.fixture
def here(world: World, monkeypatch: pytest.MonkeyPatch) -> World:
    """The lake as the command line finds it."""
    for name in ("home", "lake", "destination", "landing", "schemas", "build", "output"):
        monkeypatch.setenv(f"SPILLWAY_{name.upper()}", getattr(world.settings, name))
    return world


def said(world: World, settings: dict[str, Any], **options: Any) -> dict[str, Answer]:
    asked = JoinRequest("east", "west", settings)
    found = advise(world.tables.now(), world.contracts, asked, **options)
    return dict(found.findings)


def test_the_size_and_the_comparisons_are_those_of_the_join(world: World) -> None:
    found = said(world, OVERLAP)
    whole = truth(EAST, WEST, end=1e9)
    # all rows fit into the sample, so that nothing is left to guess
    assert (found["pairs"].low, found["pairs"].estimate, found["pairs"].high) == (len(whole),) * 3
    every = truth(
        [{**row, "tags": "t0 t1"} for row in EAST], [{**row, "tags": "t0 t1"} for row in WEST], end=1e9
    )
    assert found["comparisons"].estimate == len(every)
    for pct in (50, 20):
        # what is alike is alike at any lag there, so that a join by the index finds what whole rows do
        missed = found[f"% of pairs missed with {pct} % of the steps"]
        assert missed.low <= 100 - pct <= missed.high
        whole_rows = missed.note.startswith("rows are chosen at random")
        assert whole_rows == (missed.low == missed.high)
        missed = said(world, {**OVERLAP, "index": False})[f"% of pairs missed with {pct} % of the steps"]
        assert 0 <= missed.low < missed.estimate < missed.high <= 100
        assert missed.note == (
            f"once it has learned where matches lie; dropping rows at random would miss {100 - pct} %"
        )


def test_of_the_same_rows_the_same_is_said(world: World, tmp_path: Path) -> None:
    """In a lake of its own, of the same deliveries: all but what is measured in time."""
    other = begun(tmp_path, ProcessEngine())
    for index in (True, False):
        first, second = (
            {
                about: one
                for about, one in said(lake, {**OVERLAP, "index": index}).items()
                if "core" not in about
            }
            for lake in (world, other)
        )
        assert first == second


def test_who_splits_sets_where_nothing_splits_is_told(world: World) -> None:
    note = said(world, {**OVERLAP, "sets": {"separator": "|"}})["pairs"].note
    assert note.endswith("no row has more than one item: is the separator another?")
    assert "separator" not in said(world, OVERLAP)["pairs"].note


def test_a_sample_says_so_with_an_interval_that_holds(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    from spillway.levers.joins import advice

    monkeypatch.setattr(advice, "MOST_PICKED", 3_000.0)
    pairs = said(world, OVERLAP)["pairs"]
    assert pairs.low < pairs.estimate < pairs.high
    assert pairs.low <= len(truth(EAST, WEST, end=1e9)) <= pairs.high


def test_sketches_answer_for_all_rows_where_there_are_any(world: World) -> None:
    settings = {**URGENCY, "predicate": "equality", "basic_window_seconds": 1e5}
    assert "count_min" in {row["kind"] for row in world.rows("sketches")}
    found = said(world, settings)
    counts = [
        {kind: sum(row["urgency"] == kind for row in rows) for kind in ("high", "low", None)}
        for rows in (EAST, WEST)
    ]
    size = sum(counts[0][kind] * counts[1][kind] for kind in ("high", "low"))
    answer = found["pairs of the whole join, without windows"]
    nulls = counts[0][None] * counts[1][None]
    assert answer.low <= size <= answer.high < size + nulls, "nulls are no pairs"
    assert answer.estimate == pytest.approx(size, rel=0.01)
    assert found["rows of east with high"].estimate == counts[0]["high"]
    # a window that holds everything: counting sees the whole join, and so does the sketch
    assert found["pairs"].estimate == size
    asked = JoinRequest("east", "east", settings)
    with_itself = dict(advise(world.tables.now(), world.contracts, asked).findings)
    own = sum(counts[0][kind] * (counts[0][kind] - 1) for kind in ("high", "low"))
    whole = with_itself["pairs of the whole join, without windows"]
    assert whole.low <= own <= whole.high < own + len(EAST), "no row is its own partner"
    assert with_itself["pairs"].estimate == own


def test_of_rows_alike_in_several_attributes_a_pair_count_is_asked_for_all_rows(world: World) -> None:
    side = {"attributes": ["site", "urgency"], "lasts_seconds": 1e6}
    settings = {"left": side, "right": side, "predicate": "overlap", "basic_window_seconds": 1e5}
    whole = "pairs of the whole join, without windows"

    def alike(left: list[dict[str, Any]], right: list[dict[str, Any]], least: int) -> int:
        return sum(
            sum(one[name] == other[name] for name in ("site", "urgency")) >= least
            for one in left
            for other in right
        )

    for least in (1, 2):
        answer = said(world, {**settings, "threshold": least})[whole]
        assert answer.covers.rows == len(EAST)
        assert answer.low <= alike(EAST, WEST, least) <= answer.high, "nulls agree in a sketch"
        assert answer.estimate == pytest.approx(alike(EAST, WEST, least), rel=0.1)
        assert "nulls agree here, and are no items of a join" in str(answer.note)
        asked = JoinRequest("east", "east", {**settings, "threshold": least})
        own = dict(advise(world.tables.now(), world.contracts, asked).findings)[whole]
        meets = alike(EAST, EAST, least) - len(EAST)
        assert own.low <= meets <= own.high, "either row of a pair is the left one, and none its own partner"
        assert own.estimate == pytest.approx(meets, rel=0.1)
    # the right rows' attributes are others, and no sketch counts pairs by these
    other = {**settings, "threshold": 1, "right": {**side, "attributes": ["site", "tags"]}}
    assert whole not in said(world, other)


@pytest.mark.parametrize("rows", ["0", "-1"])
def test_advice_on_no_rows_is_refused_by_name(
    here: World, capsys: pytest.CaptureFixture[str], rows: str
) -> None:
    asked = ["join-advice", "east", "west", "--on", "urgency", f"--rows={rows}"]
    assert main(asked) == 2
    assert f"`rows` must be at least 1, got {rows}" in capsys.readouterr().err


def test_of_equal_values_the_size_is_counted_however_few_rows_are_looked_at(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    from spillway.levers.joins import advice

    side = {"attribute": "urgency", "lasts_seconds": 7}
    settings = {"left": side, "right": side, "predicate": "equality", "basic_window_seconds": 1}
    every = said(world, settings)["pairs"]
    monkeypatch.setattr(advice, "MOST_PICKED", 5.0)
    few = said(world, settings)["pairs"]
    ends = [
        (as_rows([{**row, "tags": {"high": "t1", "low": "t2", None: ""}[row["urgency"]]} for row in rows]))
        for rows in (EAST, WEST)
    ]
    whole = full_join(ends[0], ends[1], 7, 7, "equality", 0, end=1e9)
    assert (few.low, few.estimate, few.high, few.method) == (len(whole),) * 3 + ("counted",)
    assert few == every


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({**OVERLAP, "left": {"attribute": "tgas"}}, "`on` must be an attribute of east"),
        ({**OVERLAP, "threshold": None}, "threshold` must be there for overlap"),
        (
            {**OVERLAP, "left": {"attribute": "tags", "lasts_seconds": 0}},
            "lasts_seconds` must be a number above 0",
        ),
    ],
)
def test_what_cannot_be_asked_is_refused_by_name(
    world: World, settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(SpillwayError) as caught:
        said(world, settings)
    assert message in str(caught.value)


def test_a_stream_without_rows_or_contract_is_refused_by_name(tmp_path: Path) -> None:
    world = World.begin(
        ProcessEngine(),
        tmp_path,
        STREAM,
        {**STREAM, "stream": "west", "source": {"path": "west", "format": "json"}},
    )
    with pytest.raises(SpillwayError, match=r"must have rows to be looked at.* spillway run --stream east"):
        said(world, OVERLAP)
    with pytest.raises(SpillwayError, match="have a contract, got 'east'; draft one: spillway contracts new"):
        replace(world.contracts, streams={}).stream("east")
    with pytest.raises(SpillwayError, match="`stream` must have a contract, got 'eats'"):
        advise(world.tables.now(), world.contracts, JoinRequest("eats", "west", OVERLAP))


def test_the_command_line_prints_and_tells_programs(here: World, capsys: pytest.CaptureFixture[str]) -> None:
    asked = [
        "join-advice",
        "east",
        "west",
        "--on",
        "tags",
        "--predicate",
        "overlap",
        "--threshold",
        "2",
        "--lasts",
        "20",
    ]
    assert main(asked) == 0
    text = capsys.readouterr().out
    assert "pairs" in text
    assert "leaves nothing to choose by" in " ".join(text.split())
    assert main([*asked, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["left_rows"], found["right_rows"]) == (250, 250)
    assert {"about", "estimate", "low", "high", "method"} <= set(found["advice"][0])


def test_a_stream_with_itself_has_no_pair_of_a_row_and_itself(world: World) -> None:
    # `at` is another in every row: none has a partner, whatever the budget
    side = {"attribute": "at", "lasts_seconds": 1e6}
    asked = JoinRequest("east", "east", {"left": side, "right": side, "basic_window_seconds": 1000})
    found = dict(advise(world.tables.now(), world.contracts, asked).findings)
    assert found["pairs"].estimate == 0
    assert not [about for about in found if "% of pairs" in about or "equally frequent" in about]


def test_with_an_index_as_much_is_told_to_be_missed_as_the_join_misses_that_knows_where_matches_lie() -> None:
    """Where matches lie entries are, which cost: were costs less smooth than the curve, the peak would come last."""
    chance = np.random.default_rng(4)
    at = np.sort(chance.random((2, 1200)) * 60, axis=1)
    left, right = (
        operand(
            [Row(float(t), {100 + int(4 * (t - lag)): 1.0, 1100 + int(4 * (t - lag)): 1.0}) for t in mine]
        )
        for mine, lag in zip(at, (0.0, 4.7), strict=True)
    )
    join = overlap(5, True, 2, 0.5)
    said = {one.about: one.answer for one in estimate_join(left, right, join, False)}
    whole = run_join(left, right, join, 0, 60, adapts=60.0)
    knows = Memory.from_row(whole.outcomes[0].row)
    for pct in (50, 20, 10):
        answer = said[f"% of pairs missed with {pct} % of the steps"]
        budget = Budget(comparisons_per_second=whole.sum("steps") * pct / 100 / 60)
        ours = run_join(left, right, replace(join, budget=budget), 0, 60, adapts=60.0, memory=knows)
        missed = 100.0 - 100.0 * ours.sum("pairs") / whole.sum("pairs")
        # the join spends a hundredth on looking; a basic window more or less is as much again
        assert answer.low - 2 < missed < answer.high + 2

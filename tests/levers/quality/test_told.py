"""What `explain` says of a query that gets nothing: the true cause, and what to do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.levers.quality.worlds import COUNT, MEAN, begun, put_queries, query, run

from spillway.contracts import read_workload
from spillway.errors import SpillwayError
from spillway.levers.quality.explain import excessive_fixed_cost, oversized_portion
from spillway.workloads.windows import workload_problems


def window(
    tuples_shed: int, offered: int, kept: int, capacity: float | None = 300.0, **more: Any
) -> dict[str, Any]:
    return {
        "tuples_shed": tuples_shed,
        "portions_offered": offered,
        "portions_kept": kept,
        "capacity": capacity,
        "arrived": 800,
        "cost_offered": 800.0,
        **more,
    }


@pytest.mark.parametrize(
    ("settings", "windows", "said"),
    [
        # the file that was left out holds 490 tuples: no slice of 300 ever reads it
        ({}, [window(490, 2, 1)], "its files hold 490 tuples or more"),
        (
            {"portion_tuples": 490},
            [window(490, 2, 1)],
            "its portions (`portion_tuples: 490`) hold 490 tuples",
        ),
        ({}, [window(0, 2, 2), window(600, 4, 2)], None),
        ({"portion_tuples": 30}, [window(60, 4, 2)], None),
        ({}, [window(490, 2, 1, cost_offered=0.3)], None),
        ({}, [window(490, 2, 1, capacity=None)], None),
    ],
)
def test_portion_larger_than_the_capacity_is_the_cause(
    settings: dict[str, Any], windows: list[dict[str, Any]], said: str | None
) -> None:
    found = oversized_portion(read_workload(query("means", MEAN, **settings)), windows)
    assert (found is None) == (said is None)
    if found is not None:
        assert str(said) in found.why
        assert found.remedy.endswith("`portion_tuples: 30`")


@pytest.mark.parametrize(("capacity", "is_cause"), [(0.3, True), (0.6, False)])
def test_fixed_cost_above_the_capacity_is_the_cause(capacity: float, is_cause: bool) -> None:
    rows = [
        window(0, 8, 8, capacity, tuples_kept=tuples, seconds=0.5 + 0.0001 * tuples, cost_offered=0.58)
        for tuples in (800, 100, 400, 100)
    ]
    rows.append(window(800, 8, 0, capacity, tuples_kept=0, seconds=0.0, cost_offered=0.58))
    found = excessive_fixed_cost(read_workload(query("means", MEAN)), rows)
    assert (found is not None) == is_cause
    if found is not None:
        assert "the fixed cost of an answer, 0.5 s, exceeds" in found.why
        assert "tried every 8 slices" in found.why
        assert "raise the capacity above 0.5 seconds" in found.remedy


def test_portions_larger_than_the_capacity_are_refused_by_check_and_by_a_run(tmp_path: Path) -> None:
    """Whoever of the room states the capacity (review 5.4: 12 of 12 windows got nothing, and check found nothing)."""
    world = begun(tmp_path, query("means", MEAN, portion_tuples=60), query("warm", COUNT, portion_tuples=40))
    assert workload_problems(world.contracts) == []
    put_queries(
        world,
        query("means", MEAN, portion_tuples=60),
        query("warm", COUNT, portion_tuples=40, capacity={"tuples": 50}),
    )
    (problem,) = workload_problems(world.contracts)
    assert (problem.where, problem.field, problem.value) == (
        "queries/means.yaml",
        "levers[0].portion_tuples",
        60,
    )
    assert "be at most 50, the capacity of its group" in problem.rule
    assert problem.remedy == "write e.g. 5, or raise the capacity"
    with pytest.raises(SpillwayError, match=r"`levers\[0\]\.portion_tuples` must be at most 50"):
        run(world)
    assert {row["subject"] for row in world.rows("coverage")} == {"warm"}, "one fault stays one fault"


def test_no_portion_holds_more_than_stated(tmp_path: Path) -> None:
    """A file of 60 rows in portions of at most 45: two of 30, not one of 60."""
    world = begun(tmp_path, query("means", MEAN, portion_tuples=45))
    run(world)
    assert [row["portions_offered"] for row in world.rows("coverage")] == [8, 8]

"""On a lake: one slow answer, portions larger than the estimate, and lakes that were written before."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.levers.quality.worlds import MEAN, ROWS, begun, coverage, query
from tests.pipeline.streams import json_lines, sites

from spillway.report.explain import explain_workload
from spillway.workloads import run
from spillway.workloads.run import run_workloads


@pytest.mark.long
def test_one_cold_start_does_not_silence_a_query(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Review 5.1: a first answer of 8 s, a capacity of 0.3 s, and 23 of 23 windows got nothing.

    The row of the first answer is changed to say a million seconds; real answers take far less than the capacity of
    an hour. Windows are worked out one a run, as an hourly DAG does.
    """
    short = {"window": {"seconds": 600}, "portion_tuples": 15}
    world = begun(tmp_path, query("means", MEAN, capacity={"seconds": 3600}, **short), files=-1)
    for number in range(14):
        rows = json_lines(sites(number * ROWS, ROWS))
        world.deliver(f"sites/2020-01-{number + 1:02d}/a.json", rows)
    world.shed()
    real = run.pinned_windows

    def one_window(*arguments: Any, **named: Any) -> Sequence[Any]:
        return real(*arguments, **named)[:1]

    monkeypatch.setattr(run, "pinned_windows", one_window)
    for turn in range(12):
        assert len(run_workloads(world.tables, world.engine, world.contracts)) == 1
        if turn == 0:
            (row,) = world.at("coverage").rows().to_pylist()
            world.tables.at("coverage").replace([{**row, "seconds": 1e6}], subject="means")
    found = coverage(world)
    reached = [found["means", window]["sic"] for window in range(12)]
    assert reached[:2] == [1.0, 0.25], "an estimate above the capacity is tried at once, by one portion"
    assert reached[2:] == [1.0] * 10


def test_explain_says_that_a_fixed_cost_exceeds_the_capacity(tmp_path: Path) -> None:
    world = begun(
        tmp_path, query("means", MEAN, capacity={"seconds": 3600, "per_seconds": 2400}, portion_tuples=15)
    )
    run_workloads(world.tables, world.engine, world.contracts)
    rows = world.at("coverage").rows().to_pylist()
    silent = {
        "sic": 0.0, "tuples_kept": 0, "portions_kept": 0, "tuples_shed": 240, "seconds": 0.0, "cost": 0.0,
        "cost_offered": 1e5,
    }  # fmt: skip
    slow = [
        {**rows[0], "seconds": 1e4, "cost": 1e4, "cost_offered": 1e5},
        {**rows[1], **silent},
    ]
    slow[0] |= {"tuples_kept": 15, "window": rows[0]["window"] - 1}
    again = {**rows[0], "seconds": 1e4 + 1, "cost": 1e4 + 1, "cost_offered": 1e5}
    world.tables.at("coverage").replace([*slow, again], subject="means")
    told = explain_workload(world.tables.now(), "means")
    assert "the fixed cost of an answer, 1e+04 s, exceeds the capacity" in str(told)
    assert "wait for its next windows" not in str(told)

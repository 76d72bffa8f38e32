"""Nothing is shuffled where nothing needs to be: what Spark is asked to do, read from its physical plans."""

from __future__ import annotations

from typing import Any

import pytest
from tests.steps.streams import World

from spillway.lake.tables import Lake
from spillway.steps import recover as recovering

MOVING = ("Exchange", "Sort ", "SortMergeJoin", "BroadcastHashJoin", "BatchEvalPython")


def plan_of(frame: Any) -> str:
    return str(frame._jdf.queryExecution().executedPlan().toString())


def test_shedding_and_recovering_move_no_row_between_tasks(
    world: World, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    """Every frame that a backfill and a recovery write, as it is handed to the writer."""
    world = world.copy(tmp_path)
    plans: dict[str, str] = {}
    replace = Lake.replace

    def noting(lake: Lake, frame: Any, table: str, *given: Any, **more: Any) -> None:
        plans[table] = plan_of(frame)
        replace(lake, frame, table, *given, **more)

    monkeypatch.setattr(Lake, "replace", noting)
    days = {batch.batch_date for batch in world.batches("sites")}
    world.shed(dates=(min(days), max(days)))
    stream = world.contracts.streams["sites"]
    recovering.recover_batches(world.lake, stream, world.batches("sites"))

    assert set(plans) == {"synopsis", "transmitted", "recovered"}
    for table, plan in plans.items():
        assert not [word for word in MOVING if word in plan], (table, plan)
    # only what is rounded or recovered passes through Python
    assert plans["transmitted"].count("ArrowEvalPython") <= 1
    assert plans["recovered"].count("ArrowEvalPython") == 1

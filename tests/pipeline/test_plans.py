"""Nothing is shuffled: what Spark is asked to do while it sheds and recovers, read from its own records."""

from __future__ import annotations

from typing import Any

import pytest
from tests.pipeline.streams import World

from spillway.pipeline.recover import recover_batches
from spillway.store import tables
from spillway.store.task_files import write_pieces


def test_shedding_and_recovering_move_no_row_between_tasks(
    world: World, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    """Every table that a backfill and a recovery write is one job of one stage: there is no exchange in it."""
    world = world.copy(tmp_path)
    context = world.lake.spark.sparkContext
    stages: dict[str, list[int]] = {}

    def noted(spark: Any, folder: str, *given: Any) -> Any:
        group = f"noted {folder}"
        context.setJobGroup(group, "files of a table")
        try:
            added = write_pieces(spark, folder, *given)
        finally:
            context.setLocalProperty("spark.jobGroup.id", None)
        tracker = context.statusTracker()
        jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(group)]
        stages[folder] = [len(job.stageIds) for job in jobs if job is not None]
        return added

    monkeypatch.setattr(tables, "write_pieces", noted)
    days = {batch.batch_date for batch in world.batches("sites")}
    world.shed(dates=(min(days), max(days)))
    stream = world.contracts.streams["sites"]
    recover_batches(world.lake, stream, world.batches("sites"))

    written = ["transmitted/sites", "recovered/sites", "transmitted/meters", "synopsis"]
    assert set(stages) == {f"{world.lake.settings.lake}/{table}" for table in written}
    assert all(found and set(found) == {1} for found in stages.values()), stages

"""What the planner of the lever `attributes` reads of a lake."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.pipeline.streams import SITES, World, json_lines, sites

from spillway.engine import ProcessEngine
from spillway.levers.attributes import plan as plan_module
from spillway.levers.protocol import Rows

MEASURES = {"temp", "level", "pulses", "sky"}


class CountedRows:
    """The rows of a stage as the pipeline hands them to the planner, and what was read of them."""

    def __init__(self, rows: Rows, reads: list[tuple[set[str], int]]) -> None:
        self.rows, self.reads = rows, reads

    def __call__(self, columns: Sequence[str], from_seq: int, to_seq: int) -> pa.Table:
        found = self.rows(columns, from_seq, to_seq)
        self.reads.append((set(found.column_names), found.num_rows))
        return found


def planned(
    folder: Path, monkeypatch: pytest.MonkeyPatch, **settings: Any
) -> tuple[list[tuple[set[str], int]], list[dict[str, Any]]]:
    """What was read to plan a batch of 3,000 tuples, and the batch's runs."""
    (lever,) = SITES["levers"]
    world = World.begin(ProcessEngine(), folder, {**SITES, "levers": [{**lever, **settings}]})
    world.deliver("sites/2020-01-01/a.json", json_lines(sites(0, 300)))
    world.shed()
    world.train("sites")
    world.shed()
    reads: list[tuple[set[str], int]] = []
    plan_batch = plan_module.plan_batch
    with monkeypatch.context() as patch:
        patch.setattr(
            plan_module, "plan_batch", lambda rows, *rest: plan_batch(CountedRows(rows, reads), *rest)
        )
        world.deliver("sites/2020-01-02/b.json", json_lines(sites(300, 3000)))
        world.shed()
    number = world.batches("sites")[-1].batch
    return reads, [row for row in world.rows("schemes") if row["batch"] == number]


def test_default_ranking_reads_nothing_to_plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reads, runs = planned(tmp_path, monkeypatch)
    assert reads == []
    assert sum(run["windows"] for run in runs) > 0


def test_ranking_by_deviation_reads_the_measures_of_evaluated_windows_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    window = {"tuples_at_least": 12}
    reads, runs = planned(tmp_path, monkeypatch, rank_by="stddev", window=window)
    of_measures = [(names, rows) for names, rows in reads if names & MEASURES]
    evaluations = sum(run["evaluations"] for run in runs)
    drafts = len(of_measures) / evaluations
    assert evaluations > 3
    assert drafts in (1, 2, 3), "a batch is planned once a draft"
    # a window holds 12 tuples, up to a window more at the end of its frame
    assert sum(rows for _, rows in of_measures) <= drafts * evaluations * 24 < 0.25 * 3000 * drafts
    assert all(names == {"seq", "site"} for names, _ in reads if not names & MEASURES)

"""What was kept is proved as well: a value that nobody shed is as it came, or nothing may be retired."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.pipeline.streams import METERS, SITES, WATCHED, World

from spillway.checks import ExpectationsFailed
from spillway.levers.attributes.apply import AttributeDecision
from spillway.levers.attributes.scheme import Runs
from spillway.levers.protocol import FrameSlice
from spillway.pipeline.validate import exact_columns
from spillway.streams.recover import recovery_plans


def rolled(column: pa.ChunkedArray, by: int) -> pa.ChunkedArray:
    order = pa.array(np.roll(np.arange(len(column)), by))
    return pa.chunked_array([column.take(order).combine_chunks()])


def swapped(rows: pa.Table) -> pa.Table:
    """Two tuples in each other's place, but for their numbers."""
    order = np.arange(rows.num_rows)
    order[[2, 9]] = [9, 2]
    moved = rows.take(pa.array(order))
    return moved.set_column(moved.column_names.index("seq"), "seq", rows["seq"])


def column(name: str, change: Callable[[pa.ChunkedArray], Any]) -> Callable[[pa.Table], pa.Table]:
    return lambda rows: rows.set_column(rows.column_names.index(name), rows.field(name), change(rows[name]))


SPOILT: dict[str, tuple[str, Callable[[pa.Table], pa.Table], str]] = {
    "the order rolled by 7": ("sites", column("at", lambda c: rolled(c, 7)), "(at)"),
    "a kept measure rolled by 1": ("watched", column("level", lambda c: rolled(c, 1)), "(level)"),
    "a protected text nulled": ("watched", column("sky", lambda c: pa.nulls(len(c), c.type)), "(sky)"),
    "two rows swapped": ("watched", swapped, "(at, level, pulses, site, sky, temp)"),
}


@pytest.mark.parametrize("spoil", SPOILT)
def test_what_was_kept_and_is_another_is_found_and_nothing_is_retired(
    world: World, tmp_path: Path, spoil: str
) -> None:
    spoilt = world.copy(tmp_path)
    retain = {"retain_raw": {"days": 30, "retire": True}}
    spoilt.contract_becomes({**SITES, **retain}, METERS, {**WATCHED, **retain})
    stream, change, named = SPOILT[spoil]
    (file, *_) = sorted(spoilt.at("transmitted", stream).files(), key=lambda file: file.path)
    rows = pq.ParquetFile(file.path).read()
    pq.write_table(change(rows), file.path)

    with pytest.raises(ExpectationsFailed) as caught:
        spoilt.validate(stream, every=True)

    told = str(caught.value)
    assert f"transmitted: {stream}, batch" in told
    assert f"recovered: {stream}, batch" in told
    assert named in told
    assert spoilt.at("raw", stream).rows(batch=1).num_rows > 0, "raw is there to do it again"


def test_a_value_that_one_run_kept_and_another_shed_is_certified_to_the_bit(world: World) -> None:
    """Where a column is shed for a while only, its checksum says nothing: its certificate does."""
    (back, *_) = recovery_plans(
        world.tables.now(), world.contracts.streams["sites"], world.batches("sites")[:1]
    )
    (decision,), batch = back.decisions, back.batches[0]
    assert isinstance(decision, AttributeDecision)
    (run, *later), middle = [*decision.runs], 49
    kept, shed = (
        tuple(replace(one, way=way) if one.attribute == "temp" else one for one in run.ways)
        for way in ("keep", "shed")
    )
    first = replace(run, to_seq=middle, ways=kept)
    runs = Runs((first, replace(run, from_seq=middle + 1, ways=shed), *later))
    part = FrameSlice(batch.batch, batch.batch_date, 0, 0, min(99, run.to_seq))
    truth = back.down.rows_before(1, batch.batch_date)
    shed_later = replace(decision, runs=runs)

    def violations(seq: int) -> int:
        def given(columns: Sequence[str], low: int, high: int) -> pa.Table:
            rows = truth(columns, low, high)
            values = [
                v if v is None else v + 1e-9 * (n == seq) for n, v in enumerate(rows["temp"].to_pylist())
            ]
            return rows.set_column(rows.column_names.index("temp"), "temp", pa.array(values, pa.float64()))

        found = shed_later.certify(part, truth, given)  # type: ignore[arg-type]
        return next(one.certificate.violations for one in found if one.attribute == "temp")

    assert run.to_seq > middle
    assert violations(seq=10) == 1, "kept: any other value is another"
    assert violations(seq=60) == 0, "shed: within its bound"


def test_the_checksums_of_what_was_kept_are_on_record(world: World) -> None:
    found = [row for row in world.rows("validations") if row["expectation"] == "checksums_of_what_was_kept"]
    assert {(row["stream"], row["where_"]) for row in found} >= {("watched", "batch 1"), ("sites", "batch 2")}
    watched = next(row for row in found if row["stream"] == "watched")
    assert [part.partition("=")[0] for part in watched["observed"].split()] == sorted(
        ["site", "at", "temp", "level", "pulses", "sky"]
    )
    assert watched["observed"] == watched["expected"]


def test_only_what_a_batch_touched_is_left_to_its_certificate(world: World) -> None:
    tables = world.tables.now()
    kept = exact_columns(tables, world.contracts.streams["sites"], world.batches("sites")[:1])
    assert {"site", "at"} <= set(kept)
    assert set(kept) < set(world.contracts.streams["sites"].names)
    # what another batch did not touch has nothing but its checksum
    (first, *_) = world.batches("sites")
    both = exact_columns(tables, world.contracts.streams["sites"], [first, replace(first, batch=99)])
    assert both == list(world.contracts.streams["sites"].names)

"""Another program compacts the tables on a disk (delta-spark's OPTIMIZE), and the product goes on as if it had not."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Any

import pytest
from tests.pipeline.streams import World, csv_lines, json_lines, meters, sites

from spillway.batch import DONE
from spillway.ledger import total_imbalance

FIRST = date(2020, 1, 1)


def optimize(spark: Any, world: World) -> dict[str, int]:
    """Compact every table; the number of files that each of them lost."""
    lost = {}
    tables = world.tables.now()
    for name in tables.names():
        table = tables.at(*name)
        if table.exists:
            before = len(table.paths)
            spark.sql(f"OPTIMIZE delta.`{table.path}`").collect()
            lost["/".join(filter(None, name))] = before - len(world.at(*name).paths)
    return lost


def go_on(world: World) -> None:
    """Take in and shed more, shed a date again, recover and validate."""
    world.deliver("sites/2020-01-02/d.json", json_lines(sites(710, 200)))
    world.deliver("meters/2020-01-02/c.csv", csv_lines(meters(440, 120)))
    world.shed()
    world.shed(dates=(FIRST, FIRST))
    world.validate()


@pytest.mark.long
def test_the_product_goes_on_after_somebody_has_optimized_every_table(
    spark: Any, world: World, tmp_path: Path
) -> None:
    optimized, plain = world.copy(tmp_path / "optimized"), world.copy(tmp_path / "plain")
    lost = optimize(spark, optimized)
    assert {name for name, files in lost.items() if files} >= {"ledger", "raw/sites", "transmitted/sites"}
    go_on(optimized)
    go_on(plain)
    # a plan depends on the bytes of the files it measures, so that other runs may be shed; no row may differ
    for stream, rows in (("sites", 910), ("meters", 560)):
        assert optimized.rows("raw", stream) == plain.rows("raw", stream)
        for table in ("raw", "transmitted", "recovered"):
            seq = [row["seq"] for row in optimized.rows(table, stream)]
            assert len(seq) == len(set(seq)) == rows, (table, stream)
    for world in (optimized, plain):
        assert {batch.status for batch in world.batches("sites") + world.batches("meters")} == {DONE}
        assert all(batch.is_validated for batch in world.batches("sites"))
        assert sum(row["violations"] for row in world.rows("certificates")) == 0
        assert total_imbalance(world.rows("ledger")) == 0

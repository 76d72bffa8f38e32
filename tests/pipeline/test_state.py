"""What goes on from batch to batch is the same however many runs brought them through."""

from __future__ import annotations

from pathlib import Path

from tests.pipeline.streams import SITES, World, json_lines, sites

from spillway.engine import InProcess

DELIVERED = {
    "sites/2020-01-01/a.json": json_lines(sites(0, 240)),
    "sites/2020-01-02/nothing.json": b"not a tuple\n",
    "sites/2020-01-03/b.json": json_lines(sites(240, 240)),
}


def trained(folder: Path) -> World:
    lenient = {**SITES, "bad_records": {"action": "reject", "max_share_pct": 100}}
    world = World.begin(InProcess(), folder, lenient)
    world.deliver("sites/2020-01-01/a.json", DELIVERED["sites/2020-01-01/a.json"])
    world.shed()
    world.train("sites")
    return world


def test_a_batch_without_rows_between_two_others_changes_nothing(tmp_path: Path) -> None:
    once, thrice = trained(tmp_path / "once"), trained(tmp_path / "thrice")
    for name, content in DELIVERED.items():
        once.deliver(name, content)
    once.shed()
    for name, content in DELIVERED.items():
        thrice.deliver(name, content)
        thrice.shed()
    assert [batch.rows for batch in once.batches("sites")] == [240, 0, 240]
    assert once.rows("schemes") == thrice.rows("schemes")


def test_one_opening_of_the_tables_serves_run_after_run(tmp_path: Path) -> None:
    world = World.begin(
        InProcess(), tmp_path, {**SITES, "sketches": [{"kind": "count_min", "attributes": ["site"]}]}
    )
    for day in (1, 2):
        world.deliver(f"sites/2020-01-0{day}/a.json", json_lines(sites(240 * day, 240)))
        world.shed()
    assert {row["batch"] for row in world.rows("sketches")} == {1, 2}

"""Rows delivered twice leave the stream and stay aside; how often a filter was wrong is in the ledger."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from tests.pipeline.streams import SITES, World, day, json_lines, sites

from spillway.intake.repeats import DELIVERED_BEFORE
from spillway.intake.take_in import take_in
from spillway.store.batches import RECORDED, load_batches, save_batches
from spillway.store.files import read_table


def world(spark: Any, folder: Any, **duplicates: Any) -> World:
    """Two days of which the second delivers a third of the first again, and a row twice."""
    made = World.begin(spark, folder, {**SITES, "duplicates": {"on": ["site", "at"], **duplicates}})
    made.deliver("sites/2020-01-01/a.json", json_lines(sites(0, 90)))
    made.deliver(
        "sites/2020-01-02/b.json",
        json_lines(sites(60, 30)) + json_lines(sites(90, 60)) + json_lines(sites(95, 1)),
    )
    return made


def taken(made: World) -> None:
    take_in(made.lake, made.contracts.streams["sites"], "run", made.said.append)


def aside(made: World) -> list[dict[str, Any]]:
    found = read_table(made.lake.path("rejected"))
    rows: list[dict[str, Any]] = found.to_pylist() if found is not None else []
    return sorted((row for row in rows if row["reason"] == DELIVERED_BEFORE), key=lambda row: row["seq"])


def test_rows_of_an_earlier_delivery_are_dropped_once_and_kept_aside_with_their_values(
    spark: Any, tmp_path: Any
) -> None:
    made = world(spark, tmp_path, rows="exact")
    taken(made)

    first, second = load_batches(made.settings, "sites")
    assert [(b.rows, b.deduplicated, b.rejected) for b in (first, second)] == [(90, 0, 0), (60, 31, 0)]
    assert made.frame("raw", "sites")["seq"].tolist() == [*range(90), *range(120, 180)]
    rows = aside(made)
    assert [(row["seq"], row["line"]) for row in rows] == [*((90 + i, i + 1) for i in range(30)), (180, 91)]
    assert {row["file"] for row in rows} == {"sites/2020-01-02/b.json"}
    told = json.loads(rows[0]["original"])
    assert (told["site"], told["temp"], told["sky"]) == tuple(
        sites(60, 1)[0][k] for k in ("site", "temp", "sky")
    )
    ledger = [row for row in made.rows("ledger") if row["reason"] == "row delivered before"]
    assert [(row["batch"], row["offered"], row["deduplicated"]) for row in ledger] == [(1, 0, 0), (2, 31, 31)]
    assert "31 delivered before" in made.said[-1]


@pytest.mark.parametrize("shards", [1, 3])
def test_a_filter_drops_what_it_suspects_and_says_how_often_it_was_wrong(
    spark: Any, tmp_path: Any, shards: int
) -> None:
    made = world(spark, tmp_path, rows="stable_bloom", memory_kib=16, shards=shards)
    taken(made)

    second = load_batches(made.settings, "sites")[1]
    assert (second.rows, second.deduplicated) == (60, 31)
    assert len(aside(made)) == 31
    (line,) = [row for row in made.rows("ledger") if row["batch"] == 2 and row["deduplicated"]]
    assert "31 were truly delivered before; 0 % of the new rows taken for old, at most" in line["reason"]
    states = {row["batch"]: row for row in read_table(made.lake.path("sketches")).to_pylist()}
    assert {n: (row["started_from"], row["rows"]) for n, row in states.items()} == {1: (None, 90), 2: (1, 91)}
    assert states[2]["started_digest"] is not None

    before, there = made.everything("sites"), {n: row["digest"] for n, row in states.items()}
    save_batches(made.lake, [second.becomes(second.updated_at, status=RECORDED)])
    taken(made)
    assert made.everything("sites") == before
    again = {row["batch"]: row["digest"] for row in read_table(made.lake.path("sketches")).to_pylist()}
    assert again == there


def test_what_a_tiny_filter_takes_for_old_by_mistake_is_not_lost(spark: Any, tmp_path: Any) -> None:
    made = world(spark, tmp_path, rows="stable_bloom", memory_kib=1, false_positive_pct=50, on=None)
    for number in range(2, 5):
        made.deliver(f"sites/{day(number)}/c.json", json_lines(sites(200 * number, 200)))
    taken(made)

    delivered = 90 + 91 + 3 * 200
    seqs = sorted([*made.frame("raw", "sites")["seq"].tolist(), *(row["seq"] for row in aside(made))])
    assert seqs == list(range(delivered))
    wrong = sum(row["deduplicated"] for row in made.rows("ledger")) - 31
    assert wrong > 0
    shares = [re.search(r"; ([\d.e-]+) % of the new", row["reason"]) for row in made.rows("ledger")]
    assert max(float(share.group(1)) for share in shares if share) > 0

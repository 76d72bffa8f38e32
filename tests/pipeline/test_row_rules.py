"""A rule for rows that is broken stops its own stream: it is neither validated nor retired, and the others are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.pipeline.streams import WATCHED, World, parquet_bytes, sites

from spillway.batch import DONE, RETIRED
from spillway.engine import ProcessEngine
from spillway.errors import SpillwayError


def ruled(stream: str, *rules: dict[str, Any]) -> dict[str, Any]:
    """Sites, merely observed, to be retired as soon as they are validated."""
    return {
        **WATCHED,
        "stream": stream,
        "source": {"kind": "files", "path": stream, "format": "parquet"},
        "retain_raw": {"days": 0, "retire": True},
        "rules": list(rules),
    }


HELD = {"kind": "unique_with", "attributes": ["site", "at"]}
BROKEN = {"kind": "range", "attributes": ["temp"], "most": 80}
HOT = sum((row["temp"] or 0) > 80 for row in sites(0, 60))


@pytest.fixture(scope="module")
def ingested(tmp_path_factory: pytest.TempPathFactory) -> World:
    world = World.begin(ProcessEngine(), tmp_path_factory.mktemp("ruled"), ruled("calm"), ruled("wild"))
    for stream in ("calm", "wild"):
        world.deliver(f"{stream}/2020-01-01/a.parquet", parquet_bytes(sites(0, 60)))
    world.shed("wide")
    world.train("calm", "wild")
    world.shed("wide")
    return world


def stands(world: World) -> dict[str, str]:
    """How far the batch of each stream has come."""
    return {stream: world.batches(stream)[0].status for stream in ("calm", "wild")}


def judged(world: World) -> list[tuple[str, str, bool]]:
    rows = [row for row in world.rows("validations") if row["table"] == "raw"]
    return [(row["stream"], row["expectation"], row["success"]) for row in rows]


def test_a_broken_rule_stops_its_own_stream_alone_until_it_is_mended(ingested: World, tmp_path: Path) -> None:
    world = ingested.copy(tmp_path)
    world.contract_becomes(ruled("calm", HELD), ruled("wild", HELD, BROKEN))

    with pytest.raises(SpillwayError) as caught:
        world.validate()

    said = f"raw: wild, 2020-01-01: temp must be at most 80, got {HOT} of 60 rows that break it, such as batch 1, seq "
    assert said in str(caught.value)
    assert "calm" not in str(caught.value)
    assert sorted(judged(world)) == [
        ("calm", "site_at_unique_with", True),
        ("wild", "site_at_unique_with", True),
        ("wild", "temp_range", False),
    ]
    assert stands(world) == {"calm": RETIRED, "wild": DONE}
    assert not world.batches("wild")[0].is_validated
    docs = Path(world.settings.build, "data_docs", "expectations")
    assert {"rows_of_calm.html", "rows_of_wild.html"} <= {page.name for page in docs.iterdir()}

    world.contract_becomes(ruled("calm", HELD), ruled("wild", HELD, {**BROKEN, "most": 900}))
    world.validate()

    assert stands(world) == {"calm": RETIRED, "wild": RETIRED}


def test_a_rule_that_warns_is_reported_and_stops_nothing(ingested: World, tmp_path: Path) -> None:
    world = ingested.copy(tmp_path)
    world.contract_becomes(ruled("calm"), ruled("wild", {**BROKEN, "action": "warn"}))

    world.validate("wild")

    assert judged(world) == [("wild", "temp_range", True)]
    assert f"got {HOT} of 60 rows" in next(
        r["sentence"] for r in world.rows("validations") if r["table"] == "raw"
    )
    assert stands(world)["wild"] == RETIRED

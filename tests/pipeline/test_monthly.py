"""A monthly table of real estate, as a newcomer brought it: its measure `month` would make a cycle with the key."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.pipeline.streams import World, attribute, json_lines

from spillway.batch import DONE
from spillway.engine import ProcessEngine
from spillway.levers.attributes.cycle.identifier import find_cycle

CITIES, MONTHS, TRAINED = 25, 120, 2_000
ESTATE: dict[str, Any] = {
    "stream": "estate",
    "source": {"kind": "files", "path": "estate", "format": "json"},
    "attributes": [
        attribute("city", "string", "key", nullable=False),
        attribute("year", "integer", "order", nullable=False),
        attribute("month", "integer"),
        attribute("sales", "integer"),
        attribute("price", "double"),
    ],
    "channel": "narrow",
    "rate": {"from": "declared", "tuples_per_second": 10},
    "levers": [{"lever": "attributes", "error_pct": 4.5, "training": {"tuples": TRAINED}}],
}


def estate() -> list[dict[str, Any]]:
    """Every city once a month; months differ among the tuples of one year."""
    random = np.random.default_rng(1)
    base, rows = random.normal(0, 20, CITIES), []
    for turn in range(MONTHS):
        for city in range(CITIES):
            price = round(float(100 + base[city] + random.normal()), 1)
            rows.append({"city": f"city {city}", "year": 2000 + turn // 12, "month": turn % 12 + 1})
            rows[-1] |= {"sales": int(random.integers(40, 60)), "price": price}
    return rows


@pytest.fixture(scope="module", params=["key", "protected"])
def world(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> World:
    """Taken in, trained, shed and validated; the city is a key, or else nobody said that it is one."""
    role = attribute("city", "string", request.param, nullable=False)
    contract = {**ESTATE, "attributes": [role, *ESTATE["attributes"][1:]]}
    world = World.begin(ProcessEngine(), tmp_path_factory.mktemp("monthly"), contract, capacity="0.001 kbps")
    world.noted["role"] = request.param
    world.deliver("estate/2020-01-01/a.json", json_lines(estate()))
    world.shed()
    world.train("estate")
    world.shed()
    world.validate()
    return world


def cycle_of(world: World) -> list[str]:
    (fact,) = [row for row in world.rows("models") if row["fact"] == "cycle"]
    return list(json.loads(fact["value"])["attributes"])


def test_the_trap_is_set_key_and_measure_together_are_what_repeats() -> None:
    rows = estate()[:TRAINED]
    columns = {
        name: np.array([row[name] for row in rows], object if name == "city" else None)
        for name in ("city", "year", "month", "price")
    }
    bits = dict.fromkeys(columns, 64)
    assert find_cycle(columns, np.arange(TRAINED), bits, order="year").attributes == ("city", "month")


def test_what_the_cycle_is_made_of_is_never_shed_and_all_else_comes_back(world: World) -> None:
    assert [batch.status for batch in world.batches("estate")] == [DONE]
    cycle = cycle_of(world)
    assert "city" in cycle
    assert ("month" in cycle) == (world.noted["role"] != "key"), (
        "a declared key that repeats needs no measure"
    )
    shed = {
        way["attribute"]
        for row in world.rows("schemes")
        for way in row["attributes"]
        if way["treatment"] == "shed"
    }
    assert {"sales", "price"} <= shed
    assert not shed & set(cycle)
    raw, sent, given = (world.frame(table, "estate") for table in ("raw", "transmitted", "recovered"))
    for name in cycle:
        assert (sent[name] == raw[name]).all()
    for name in ("month", "sales", "price"):
        assert ((given[name] - raw[name]).abs() <= 0.045 * raw[name].abs()).all()


def test_it_is_validated_without_a_violation(world: World) -> None:
    assert {row["violations"] for row in world.rows("certificates")} == {0}
    assert all(batch.is_validated for batch in world.batches("estate"))
    found = {row["attribute"] for row in world.rows("certificates") if row["shed_values"]}
    assert not found & set(cycle_of(world))


def test_validated_again_it_is_the_same(world: World, tmp_path: Path) -> None:
    again = world.copy(tmp_path)
    before = again.rows("recovered", "estate")
    again.validate(every=True)
    assert again.rows("recovered", "estate") == before

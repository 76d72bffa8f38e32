"""Bounds in an attribute's own unit have a column of their own; infinite means absent alone (newcomer B9)."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.pipeline.streams import World, attribute, json_lines
from tests.report.page.pages import whole_report

import spillway
from spillway.engine import ProcessEngine
from spillway.report.explain import explain
from spillway.report.page import build_report
from spillway.store.tables import Tables

COUNT = 400
BOUND = 2.0


def ships() -> list[dict[str, Any]]:
    """Courses that cross 0 again and again, so that many are smaller than their bound."""
    return [
        {
            "ship": f"s{i % 4}",
            "at": f"2026-01-01T{i // 60 % 24:02}:{i % 60:02}:00Z",
            "cog": round(6 * math.sin(i / 5) + 0.3 * math.sin(i * 1.7), 1),
            "sog": round(10 + math.sin(i / 5), 2),
        }
        for i in range(COUNT)
    ]


def contract(**lever: Any) -> dict[str, Any]:
    return {
        "stream": "ais",
        "description": "Ships.",
        "source": {"kind": "files", "path": "ais", "format": "json"},
        "attributes": [
            attribute("ship", "string", "key", nullable=False),
            attribute("at", "timestamp", "order", nullable=False),
            attribute("cog", "double", error=BOUND, unit="deg"),
            attribute("sog", "double", error_pct=2.0),
        ],
        "channel": "narrow",
        "rate": {"from": "declared", "tuples_per_second": 100},
        "frame": {"tuples": 100},
        "levers": [{"lever": "attributes", "training": {"tuples": 240}, **lever}],
    }


def brought(folder: Path, **lever: Any) -> World:
    there = {"SPILLWAY_DESTINATION": str(folder / "there")}
    world = World.begin(ProcessEngine(), folder, contract(**lever), capacity="3.5 kbps", **there)
    world.deliver("ais/2026-01-01/a.json", json_lines(ships()))
    world.shed()
    world.train("ais")
    world.shed()
    world.validate()
    return world


@pytest.fixture(scope="module", params=["round", "shed", "hold"])
def world(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> World:
    levers: dict[str, dict[str, Any]] = {
        "round": {"treatments": ["keep", "round"], "rank_by": "stddev"},
        "shed": {"treatments": ["keep", "shed"], "synopsis": "send"},
        "hold": {"treatments": ["keep", "shed"], "synopsis": "hold"},
    }
    return brought(tmp_path_factory.mktemp(request.param), **levers[request.param])


def test_a_value_that_is_here_lies_within_a_finite_bound_in_its_own_unit(world: World) -> None:
    found = world.at("recovered", "ais").rows().sort_by("seq")
    truth = np.array([row["cog"] for row in ships()])
    given = np.asarray(found["cog"])
    pct, own = found["cog__bound_pct"], found["cog__bound"]
    inexact = np.asarray(own.is_valid())

    assert inexact.any()
    assert not np.isinf(np.asarray(pct.drop_null())).any(), "all of it is here"
    limits = np.asarray(own.fill_null(0.0))
    assert (limits[inexact] > 0).all()
    assert (limits <= BOUND).all(), "a plan may choose a tighter one"
    assert (np.abs(given - truth)[inexact] <= limits[inexact]).all()
    exact = np.asarray(pct.is_null()) | (np.asarray(pct.fill_null(1.0)) == 0.0)
    assert (given[exact] == truth[exact]).all()
    assert not (exact & inexact).any()
    assert any(one is not None and math.isnan(one) for one in pct.to_pylist()), "small values are among them"
    for one, bound_pct, true, limit in zip(given, pct.to_pylist(), truth, limits, strict=True):
        if bound_pct is not None and math.isfinite(bound_pct):
            assert abs(one - true) <= bound_pct / 100 * abs(true) * (1 + 1e-12)
        elif bound_pct is not None:
            assert abs(one) <= limit
    assert "sog__bound" not in found.column_names, "its bound is in per cent alone"


def test_a_reader_gets_both_bounds_and_without_the_source_infinity_means_absent(world: World) -> None:
    here = spillway.read("ais", lake=world.settings.lake, destination=world.settings.destination,
                         schemas=world.settings.schemas).read_all()  # fmt: skip
    there = spillway.read("ais", lake=str(world.folder / "none"), destination=world.settings.destination,
                          schemas=world.settings.schemas).read_all()  # fmt: skip
    written = world.at("recovered", "ais").rows().sort_by("seq")
    assert here["cog__bound"].to_pylist() == written["cog__bound"].to_pylist()
    for value, pct, own in zip(
        *(there[f"cog{name}"].to_pylist() for name in ("", "__bound_pct", "__bound")), strict=True
    ):
        assert (pct == math.inf) == (value is None)
        assert value is not None or own is None


def test_explain_gives_bound_and_errors_in_one_unit(world: World) -> None:
    for name, unit in (("cog", "in its own unit"), ("sog", "%")):
        (part,) = explain(world.tables, "ais", name).levers
        assert part.explanation is not None
        numbers = part.explanation.numbers
        assert {key.partition(" (")[0] for key in numbers["bound"]} >= {unit}
        assert unit in numbers["worst error"]
        if name == "cog":
            assert numbers["worst error"][unit] <= BOUND


def test_the_report_draws_the_band_of_small_values(world: World, tmp_path: Path) -> None:
    page = whole_report(build_report(world.tables.now(), tmp_path / "report.html"))
    assert re.search(r"<h3>ais\.cog: the largest error is (100|\d?\d) % of its bound</h3>", page)
    assert 'class="band"' in page


def test_a_lake_without_the_column_gains_it_with_the_next_batch(tmp_path: Path) -> None:
    """An older lake's `recovered` has no `__bound`."""
    plain = contract(treatments=["keep", "round"], rank_by="stddev")
    del plain["attributes"][2]["error"]
    plain["attributes"][2]["error_pct"] = 5.0
    world = World.begin(ProcessEngine(), tmp_path, plain, capacity="3.5 kbps")
    world.deliver("ais/2026-01-01/a.json", json_lines(ships()))
    world.shed()
    world.train("ais")
    world.shed()
    world.validate()
    assert "cog__bound" not in world.at("recovered", "ais").schema.names
    world.contract_becomes(contract(treatments=["keep", "round"], rank_by="stddev"), capacity="3.5 kbps")
    world.deliver(
        "ais/2026-01-02/b.json", json_lines([{**row, "ship": f"t{row['ship']}"} for row in ships()])
    )
    world.train("ais")
    world.shed()
    world.validate()
    found = Tables(world.settings).at("recovered", "ais").rows(["batch", "cog__bound"])
    assert found.num_rows == 2 * COUNT
    assert all(row["success"] for row in world.rows("validations"))

"""NaN and infinities through the whole pipeline: taken in, shed, rounded, given back and validated as what they are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.pipeline.streams import World, attribute

from spillway.engine import ProcessEngine
from spillway.store.tables import Tables

ROUNDS, SENSORS = 120, 8
ODD = (float("nan"), float("inf"), float("-inf"))
GAUGES: dict[str, Any] = {
    "stream": "gauges",
    "source": {"kind": "files", "path": "gauges", "format": "csv"},
    "attributes": [
        attribute("sensor", "double", "key", nullable=False),
        attribute("at", "integer", "order", nullable=False),
        attribute("celsius", "double", error=0.5),
        attribute("watts", "double", error_pct=5.0),
        attribute("volts", "double", "protected"),
    ],
    "channel": "narrow",
    "rate": {"from": "declared", "tuples_per_second": 100},
    "frame": {"tuples": 300},
    "levers": [{"lever": "attributes", "training": {"tuples": ROUNDS * SENSORS}}],
}


def gauges() -> bytes:
    """Rounds of sensors, one of which is called NaN and one infinity; every thirteenth reading is no number."""
    rng = np.random.default_rng(3)
    lines = ["sensor,at,celsius,watts,volts"]
    for i in range(ROUNDS * SENSORS):
        turn, place = divmod(i, SENSORS)
        sensor = [*map(str, range(SENSORS - 2)), "NaN", "inf"][place]
        values = [
            20 + 5 * np.sin(turn / 9 + place) + rng.normal(0, 0.3),
            100 + turn + rng.normal(0, 4),
            230.0,
        ]
        told = [str(ODD[(i + k) % 3]) if (i + 5 * k) % 13 == 0 else f"{v:.3f}" for k, v in enumerate(values)]
        lines.append(",".join([sensor, str(turn), *told]))
    return "\n".join(lines).encode() + b"\n"


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    made = World.begin(ProcessEngine(), tmp_path_factory.mktemp("gauges"), GAUGES, capacity="3 kbps")
    path = Path(made.settings.landing) / "gauges/2020-01-01/a.csv"
    path.parent.mkdir(parents=True)
    path.write_bytes(gauges())
    made.shed()
    made.train("gauges")
    made.shed()
    made.validate()
    return made


def column(world: World, table: str, name: str) -> np.ndarray:
    rows: pa.Table = Tables(world.settings).at(table, "gauges").rows(["seq", name]).sort_by("seq")
    assert rows[name].null_count == 0
    return np.asarray(rows[name], dtype=np.float64)


def classes(values: np.ndarray) -> list[str]:
    return [str(v) if not np.isfinite(v) else "number" for v in values.tolist()]


@pytest.mark.parametrize("name", ["sensor", "celsius", "watts", "volts"])
def test_what_is_no_number_comes_back_as_it_was_and_a_number_as_a_number(world: World, name: str) -> None:
    raw, given = column(world, "raw", name), column(world, "recovered", name)
    assert len(raw) == ROUNDS * SENSORS
    assert {"nan", "inf"} <= set(classes(raw))
    assert classes(given) == classes(raw)
    finite = np.isfinite(raw)
    gap = np.abs(raw[finite] - given[finite])
    most = {"celsius": 0.5, "watts": 0.05 * np.abs(raw[finite])}.get(name, 0.0)
    assert (gap <= most).all()


def test_something_of_it_was_shed_or_rounded_and_nothing_is_outside_its_bound(world: World) -> None:
    found = {row["attribute"]: row for row in world.rows("certificates")}
    assert {name for name, row in found.items() if row["treatment"] != "keep"} == {"celsius", "watts"}
    assert all(row["violations"] == 0 for row in found.values())
    assert all(row["max_error"] is None or np.isfinite(row["max_error"]) for row in found.values())

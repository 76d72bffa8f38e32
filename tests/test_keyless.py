"""The commonest file of a newcomer, `datetime,isig,glucose`: one sender that never says its name, drafted and run."""

from __future__ import annotations

import csv
import io
import json
import math
import os
import random
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from spillway.cli import main

ROOT = Path(__file__).resolve().parents[1]
TUPLES, LATER = 1_500, 400


def wandering(tuples: int, seed: int = 7) -> list[tuple[str, str, str]]:
    """A sensor under the skin, every five minutes, with gaps: nothing of it comes round."""
    chance, at, level, found = random.Random(seed), datetime(2021, 3, 1), 120.0, []
    for _ in range(tuples):
        at += timedelta(minutes=5 if chance.random() > 0.01 else chance.randrange(10, 90, 5))
        meal = 40 * math.exp(-(((at.hour + at.minute / 60 - 13) / 2) ** 2))
        level += 0.08 * (115 + meal - level) + chance.gauss(0, 3.5)
        glucose = "" if chance.random() < 0.02 else str(round(level))
        found.append((at.isoformat(sep=" "), f"{level / 6.1 + chance.gauss(0, 0.4):.2f}", glucose))
    return found


def as_csv(rows: list[tuple[str, str, str]]) -> str:
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerows([("datetime", "isig", "glucose"), *rows])
    return out.getvalue()


def land(folder: Path, name: str, rows: list[tuple[str, str, str]]) -> Path:
    path = folder / "landing" / "sensor" / "2021-03-01" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(as_csv(rows))
    os.utime(path, (1_700_000_000, 1_700_000_000))
    return path


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Drafted, trained, shed, recovered and validated by the commands of the README."""
    folder, rows = tmp_path_factory.mktemp("keyless"), wandering(TUPLES + LATER)
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("SPILLWAY_HOME", str(ROOT))
        for name in ("lake", "landing", "schemas", "build"):
            environment.setenv(f"SPILLWAY_{name.upper()}", str(folder / name))
        environment.delenv("SPILLWAY_DESTINATION", raising=False)
        sample = land(folder, "a.csv", rows[:TUPLES])
        contract = folder / "schemas" / "streams" / "sensor.yaml"
        contract.parent.mkdir(parents=True)
        (folder / "schemas" / "channels.yaml").write_text("channels: {my_link: {capacity: 0.1 bps}}\n")
        drafted = ["contracts", "new", str(sample), "--stream", "sensor", "--channel", "my_link"]
        assert main([*drafted, "--output", str(contract)]) == 0
        contract.write_text(contract.read_text().replace("mode: observe", "mode: shed"))
        assert main(["run"]) == 0
        land(folder, "b.csv", rows[TUPLES:])
        assert main(["run"]) == 0
        yield folder / "lake", rows


def numbers(lake: Path, table: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (
        DeltaTable(lake / table / "sensor").to_pyarrow_table().sort_by("seq").to_pylist()
    )
    return found


def test_it_is_shed_and_given_back_within_its_bounds(lake: Any) -> None:
    folder, rows = lake
    sent, given = numbers(folder, "transmitted"), numbers(folder, "recovered")
    assert [row["datetime"].replace(tzinfo=None).isoformat(sep=" ") for row in given] == [
        at for at, _, _ in rows
    ]
    checked = 0
    for truth, there, back in zip(rows, sent, given, strict=True):
        for name, word in zip(("isig", "glucose"), truth[1:], strict=True):
            bound = back[f"{name}__bound_pct"]
            if word == "":
                assert back[name] is None
            elif bound is not None and there[name] is None:
                checked += 1
                assert abs(back[name] - float(word)) <= bound / 100 * abs(float(word)) + 1e-9
    assert checked > TUPLES / 2, "hardly anything was shed: the channel is not narrow"


def test_nothing_identifies_and_nothing_is_asked(lake: Any, capsys: pytest.CaptureFixture[str]) -> None:
    folder, _ = lake
    facts = DeltaTable(folder / "models").to_pyarrow_table().to_pylist()
    cycles = [json.loads(row["value"]) for row in facts if row["fact"] == "cycle"]
    assert {(*one["attributes"], one["form"], one["length"]) for one in cycles} == {("one sender", 1)}
    certificates = DeltaTable(folder / "certificates").to_pyarrow_table().to_pylist()
    assert certificates
    assert {row["violations"] for row in certificates} == {0}
    for command in (["status"], ["explain", "sensor", "glucose"], ["plan", "sensor"]):
        assert main(command) == 0, capsys.readouterr()
        assert "role: key" not in capsys.readouterr().out
    assert main(["recover", "sensor", "--from-time", "2021-03-02", "--to-time", "2021-03-02T03:00"]) == 0
    assert "2021-03-02" in capsys.readouterr().out

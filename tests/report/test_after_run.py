"""When a run is over, whoever cannot be told keeps nobody else from being told."""

from __future__ import annotations

from pathlib import Path

import yaml
from tests.small_lake import small_settings

from spillway.contracts import Contracts, load_contracts
from spillway.report.metrics import alert_and_write_metrics
from spillway.settings import Settings
from spillway.store.tables import Tables

RED = ["river: `plan` must end; mend it"]


def listened_to(folder: Path) -> tuple[Settings, Contracts]:
    settings = small_settings(folder, {"river": "uplink"})
    path = Path(settings.schemas, "streams/river.yaml")
    path.write_text(path.read_text() + yaml.safe_dump({"alerts": [{"hook": "oncall"}]}))
    return settings, load_contracts(settings.schemas)


def test_an_address_that_fails_in_a_way_nobody_foresaw_is_not_shown_and_the_metrics_are_written(
    tmp_path: Path,
) -> None:
    settings, contracts = listened_to(tmp_path)

    def address(hook: str) -> str:
        raise RuntimeError("https://hooks.example/very-secret")

    said: list[str] = []
    found = alert_and_write_metrics(Tables(settings), contracts, said.append, RED, "run 7", address)
    assert said == ["alerts could not be sent: RuntimeError; report it"]
    assert found is not None
    assert "spillway_violations" in found.read_text()


def test_metrics_that_cannot_be_written_keep_no_hook_from_hearing(tmp_path: Path) -> None:
    settings, contracts = listened_to(tmp_path)
    Path(settings.build).write_text("a file stands where the folder should be")
    asked: list[str] = []
    said: list[str] = []

    def address(hook: str) -> None:
        asked.append(hook)

    assert alert_and_write_metrics(Tables(settings), contracts, said.append, RED, "run 7", address) is None
    assert asked == ["oncall"]
    assert said[0].startswith("hook oncall did not receive 1 alerts: `hook` must have an address")
    assert said[1].startswith("metrics could not be written: ")

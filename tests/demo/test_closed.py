"""What others on the machine, or in the container, may not: read the log-in, or be root."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from demo.airflow_home import environment
from demo.ui import open_private_log
from spillway.settings import Settings

HOME = Path(__file__).resolve().parents[2]


def test_the_log_that_holds_the_log_in_is_its_owners_alone(tmp_path: Path) -> None:
    log = tmp_path / "airflow.log"
    log.write_text("of an earlier start, for everybody to read")
    before = os.umask(0)
    try:
        with open_private_log(log) as sink:
            sink.write("password")
    finally:
        os.umask(before)
    assert (log.stat().st_mode & 0o777, log.read_text()) == (0o600, "password")


def test_containers_are_not_root_and_their_base_is_pinned() -> None:
    lines = (HOME / "infra/cluster/Dockerfile").read_text().splitlines()
    words = [line.split(None, 1) for line in lines if line and not line.startswith(("#", " "))]
    users = [rest for word, rest in words if word == "USER"]
    assert users
    assert users[-1] not in ("root", "0")
    (base,) = [rest for word, rest in words if word == "ARG"]
    assert re.fullmatch(r"BASE=python:3\.\d+\.\d+-slim-\w+@sha256:[0-9a-f]{64}", base)


def test_everything_that_listens_listens_on_this_machine_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AIRFLOW__API__HOST", raising=False)
    env = environment(
        Settings.from_environment({"SPILLWAY_HOME": str(HOME), "SPILLWAY_BUILD": str(tmp_path)})
    )
    assert env["AIRFLOW__API__HOST"] == "127.0.0.1"
    compose = (HOME / "infra/cluster/compose.yaml").read_text()
    published = re.findall(r"^\s+- ([\d.:]+)$", compose, re.MULTILINE)
    assert published
    assert all(port.startswith("127.0.0.1:") for port in published)

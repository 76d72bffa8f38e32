"""An Airflow home of the tests' own, made once; DAGs run in processes of their own.

Airflow configures logging and keeps its database session for a whole process, so nothing of it is imported
into the one that runs the tests.
"""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from spillway import airflow_home
from spillway.settings import Settings

HOME = Path(__file__).resolve().parents[2]
DESCRIBE = Path(__file__).with_name("describe_dags.py")
RUN_DAG = Path(__file__).with_name("run_dag.py")


def clean_environment() -> dict[str, str]:
    """What this process was given, without what Spillway or Airflow were told before."""
    return {n: v for n, v in os.environ.items() if not n.startswith(("SPILLWAY_", "AIRFLOW", "PYSPARK"))}


def settings_in(folder: Path, schemas: Path | None = None) -> Settings:
    return Settings.from_environment(
        {
            "SPILLWAY_HOME": str(HOME),
            "SPILLWAY_LAKE": str(folder / "lake"),
            "SPILLWAY_LANDING": str(folder / "landing"),
            "SPILLWAY_BUILD": str(folder / "build"),
            "SPILLWAY_SCHEMAS": str(schemas or HOME / "schemas"),
        }
    )


@pytest.fixture(scope="session")
def airflow_base(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment of a prepared Airflow home."""
    folder = tmp_path_factory.mktemp("airflow")
    env = airflow_home.environment(settings_in(folder), base=clean_environment())
    airflow_home.prepare(env)
    return env


@pytest.fixture(scope="session")
def dags(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Every fact the policies are about, by DAG, as Airflow parsed it."""
    folder = tmp_path_factory.mktemp("parse")
    env = airflow_home.environment(settings_in(folder), base=clean_environment())
    done = subprocess.run(
        [sys.executable, str(DESCRIBE)], env=env, capture_output=True, text=True, stdin=subprocess.DEVNULL
    )
    assert done.returncode == 0, done.stdout + done.stderr
    described: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return described


@pytest.fixture
def fake_spark(tmp_path: Path) -> Callable[[], list[list[str]]]:
    """A spark-submit that only writes down what it was told; returns what it was told so far."""
    folder = tmp_path / "fake-bin"
    folder.mkdir()
    told = tmp_path / "told.jsonl"
    program = folder / "spark-submit"
    program.write_text(
        f"#!{sys.executable}\nimport json, sys\n"
        f"open({str(told)!r}, 'a').write(json.dumps(sys.argv[1:]) + '\\n')\n"
        "print('spillway: written down')\n",
        encoding="utf-8",
    )
    program.chmod(program.stat().st_mode | stat.S_IXUSR)

    def calls() -> list[list[str]]:
        return [json.loads(line) for line in told.read_text().splitlines()] if told.exists() else []

    return calls


@pytest.fixture
def run_dag(airflow_base: Mapping[str, str], tmp_path: Path) -> Callable[..., dict[str, Any]]:
    """Run a DAG once through dag.test() with settings of the test's own; the states of its tasks."""

    def run(dag_id: str, settings: Settings, conf: Mapping[str, Any], **extra: str) -> dict[str, Any]:
        env = dict(airflow_base) | {
            "SPILLWAY_LAKE": settings.lake,
            "SPILLWAY_DESTINATION": settings.destination,
            "SPILLWAY_LANDING": settings.landing,
            "SPILLWAY_SCHEMAS": settings.schemas,
            "SPILLWAY_BUILD": settings.build,
        }
        env["PATH"] = os.pathsep.join([str(tmp_path / "fake-bin"), env["PATH"]])
        done = subprocess.run(
            [sys.executable, str(RUN_DAG), dag_id, json.dumps(dict(conf))],
            env=env | extra,
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
        )
        assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
        found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        found["log"] = done.stdout
        return found

    return run

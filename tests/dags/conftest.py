"""An Airflow home of the tests' own, made once; DAGs run in processes of their own.

Airflow configures logging and keeps its database session for a whole process, so nothing of it is imported
into the one that runs the tests.
"""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from demo import airflow_home
from demo.guard import guarded_process
from spillway.settings import Settings

HOME = Path(__file__).resolve().parents[2]
DESCRIBE = Path(__file__).with_name("describe_dags.py")
RUN_DAG = Path(__file__).with_name("run_dag.py")
PATIENCE_SECONDS = 60.0
SECRET = "hunter2-of-the-hook"
SECRETS = {
    "SPILLWAY_HOOK_ONCALL": f"https://chat.example/services/{SECRET}",
    "SPILLWAY_NOT_LISTED": SECRET,
}
"""Variables that must never leave Airflow's own processes."""


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
def prepare(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Mapping[str, str]], None]:
    """Gives an environment its Airflow home: made once, as the product makes it, and copied."""
    folder = tmp_path_factory.mktemp("prepared")
    first = airflow_home.environment(settings_in(folder), base=clean_environment())
    assert airflow_home.prepare(first)

    def copy(env: Mapping[str, str]) -> None:
        shutil.copytree(first["AIRFLOW_HOME"], env["AIRFLOW_HOME"])
        # Airflow writes where its home is into its settings: a copy that said so would write into the first's database
        told = Path(env["AIRFLOW_HOME"], "airflow.cfg")
        told.write_text(told.read_text().replace(first["AIRFLOW_HOME"], env["AIRFLOW_HOME"]))
        assert not airflow_home.prepare(env), "nothing is left to do"

    return copy


@pytest.fixture(scope="session")
def airflow_base(
    tmp_path_factory: pytest.TempPathFactory, prepare: Callable[[Mapping[str, str]], None]
) -> dict[str, str]:
    """The environment of a prepared Airflow home."""
    folder = tmp_path_factory.mktemp("airflow")
    env = airflow_home.environment(settings_in(folder), base=clean_environment())
    prepare(env)
    return env


@pytest.fixture(scope="session")
def dags(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Every fact the policies are about, by DAG, as Airflow parsed it."""
    folder = tmp_path_factory.mktemp("parse")
    env = airflow_home.environment(settings_in(folder), base=clean_environment() | SECRETS)
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


@pytest.fixture(scope="session")
def airflow_process(airflow_base: Mapping[str, str]) -> Iterator[subprocess.Popen[str]]:
    """One Airflow process for all runs: it takes ten seconds to start."""
    with guarded_process(
        [sys.executable, str(RUN_DAG)],
        env=dict(airflow_base),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        assert process.stdin is not None
        yield process
        process.stdin.close()
        process.wait(timeout=PATIENCE_SECONDS)


@pytest.fixture
def run_dag(
    airflow_base: Mapping[str, str], airflow_process: subprocess.Popen[str], tmp_path: Path
) -> Callable[..., dict[str, Any]]:
    """Run a DAG once through dag.test() with settings of the test's own; the states of its tasks."""

    def run(dag_id: str, settings: Settings, conf: Mapping[str, Any], **extra: str) -> dict[str, Any]:
        env = {
            "SPILLWAY_LAKE": settings.lake,
            "SPILLWAY_DESTINATION": settings.destination,
            "SPILLWAY_LANDING": settings.landing,
            "SPILLWAY_SCHEMAS": settings.schemas,
            "SPILLWAY_BUILD": settings.build,
            "SPILLWAY_OUTPUT": settings.output,
            # the real spark-submit is this environment's, unless a test put another one before it
            "PATH": os.pathsep.join([str(tmp_path / "fake-bin"), airflow_base["PATH"]]),
        }
        assert airflow_process.stdin is not None
        assert airflow_process.stdout is not None
        order = {"dag_id": dag_id, "conf": dict(conf), "env": env | extra}
        airflow_process.stdin.write(json.dumps(order) + "\n")
        airflow_process.stdin.flush()
        log = []
        for line in airflow_process.stdout:
            if line.startswith("RESULT "):
                found: dict[str, Any] = json.loads(line.removeprefix("RESULT "))
                return found | {"log": "".join(log)}
            log.append(line)
        raise AssertionError("Airflow ended: " + "".join(log)[-4000:])

    return run


class Listener(BaseHTTPRequestHandler):
    """Keeps what is posted."""

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.heard.append((self.path, json.loads(body)))  # type: ignore[attr-defined]
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        return


@pytest.fixture
def heard() -> Iterator[ThreadingHTTPServer]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Listener)
    server.heard = []  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()

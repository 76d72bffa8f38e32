"""The real scheduler and API server: triggered over REST, with real Spark, twice."""

from __future__ import annotations

import hashlib
import json
import random
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any

import psutil
import pytest
from tests.dags.conftest import clean_environment
from tests.small_lake import small_settings

from demo import airflow_home
from demo.guard import guarded_process
from demo.ui import is_healthy, passwords
from spillway.pipeline.pending import pending_channels
from spillway.settings import Settings
from spillway.store.batches import load_batches
from spillway.store.tables import Tables

CONSUMER = """
from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.sdk import DAG, Asset

with DAG("reads_the_river", schedule=[Asset("spillway/transmitted/river")]):
    EmptyOperator(task_id="read")
"""
"""Somebody's own DAG, which waits for a table of a stream."""
KILLED = """
import os, signal

from airflow.sdk import DAG, task

from spillway.airflow import TASK_DEFAULTS, Tell

with DAG("is_killed", schedule=None, default_args={**TASK_DEFAULTS, "retries": 0}):

    @task
    def dies():
        os.kill(os.getpid(), signal.SIGKILL)

    dies() >> Tell(task_id="tell").as_teardown()
"""
"""A task that ends as one does when the machine's memory is short."""
START_SECONDS = 400.0
RUN_SECONDS = 900.0


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def poll(what: str, look: Callable[[], Any], seconds: float, log: Path) -> Any:
    """Look until something is there; fail with the end of the log when the time is up."""
    deadline = time.monotonic() + seconds
    pause = threading.Event()
    while time.monotonic() < deadline:
        found = look()
        if found:
            return found
        pause.wait(0.5)
    raise AssertionError(f"no {what} within {seconds:.0f} s\n{log.read_text(errors='replace')[-4000:]}")


def lives(process: psutil.Process) -> bool:
    """Whether it still runs: one that has ended and waits for its new parent to hear of it (a zombie) does not."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


class Server:
    """Airflow's REST API, spoken by the standard library."""

    def __init__(self, address: str, home: Path, log: Path) -> None:
        self.address = address
        self.log = log
        (user, password), *_ = passwords(home).items()
        self.token = ""
        self.token = self("POST", "/auth/token", {"username": user, "password": password})["access_token"]

    def __call__(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        request = urllib.request.Request(
            self.address + path,
            method=method,
            data=None if body is None else json.dumps(dict(body)).encode(),
            headers={"Content-Type": "application/json"}
            | ({"Authorization": f"Bearer {self.token}"} if self.token else {}),
        )
        with urllib.request.urlopen(request, timeout=60) as answer:
            found: dict[str, Any] = json.loads(answer.read() or "{}")
            return found

    def known(self, dag_id: str) -> bool:
        try:
            return bool(self("GET", f"/api/v2/dags/{dag_id}")["dag_id"])
        except urllib.error.HTTPError:
            return False

    def run(self, dag_id: str, form: Mapping[str, Any] | None = None) -> dict[str, str]:
        """Trigger a DAG and wait for its end; the states of its tasks."""
        asked = {"logical_date": None, "conf": dict(form or {})}
        started = self("POST", f"/api/v2/dags/{dag_id}/dagRuns", asked)
        return self.states(dag_id, started["dag_run_id"])

    def every_run(self, dag_id: str) -> list[dict[str, str]]:
        """The states of the tasks of all its runs, the scheduled ones too."""
        runs = self("GET", f"/api/v2/dags/{dag_id}/dagRuns")["dag_runs"]
        return [self.states(dag_id, run["dag_run_id"]) for run in runs]

    def ended(self, dag_id: str) -> str:
        """Trigger a DAG and wait for its end; the state it ended in."""
        run = self("POST", f"/api/v2/dags/{dag_id}/dagRuns", {"logical_date": None})["dag_run_id"]
        where = f"/api/v2/dags/{dag_id}/dagRuns/{run}"
        states = ("success", "failed")
        return str(
            poll(
                f"end of {dag_id}",
                lambda: (state := self("GET", where)["state"]) in states and state,
                RUN_SECONDS,
                self.log,
            )
        )

    def states(self, dag_id: str, run_id: str) -> dict[str, str]:
        """The states of a run's tasks once it has ended."""
        where = f"/api/v2/dags/{dag_id}/dagRuns/{run_id}"

        def ended() -> str | None:
            state = str(self("GET", where)["state"])
            return state if state in ("success", "failed") else None

        state = poll(f"end of {dag_id}", ended, RUN_SECONDS, self.log)
        tasks = self("GET", f"{where}/taskInstances")["task_instances"]
        states = {f"{task['task_id']}[{task['map_index']}]": str(task["state"]) for task in tasks}
        assert state == "success", (states, self.log.read_text(errors="replace")[-6000:])
        return states


@pytest.fixture
def small(tmp_path: Path) -> Settings:
    """One stream of a few hundred readings from two sites, landed and never seen."""
    settings = small_settings(tmp_path, {"river": "uplink"})
    contract = Path(settings.schemas, "streams", "river.yaml")
    contract.write_text(contract.read_text() + "alerts: [{hook: oncall, on: [failure]}]\n")
    chance = random.Random(20260101)
    lines = []
    for hour in range(24 * 10):
        for site, base in (("north", 10.0), ("south", 20.0)):
            at = f"2026-01-{1 + hour // 24:02d}T{hour % 24:02d}:00:00Z"
            level = round(base + chance.gauss(0, 1), 3)
            lines.append(json.dumps({"site": site, "at": at, "level": level}))
    for number in (0, 1):
        half = lines[number * 240 : (number + 1) * 240]
        path = Path(settings.landing) / "river" / f"2026-01-{10 + number}" / "part-1.json"
        path.parent.mkdir(parents=True)
        path.write_text("\n".join(half) + "\n")
    return settings


@pytest.fixture
def server(
    tmp_path: Path,
    small: Settings,
    heard: ThreadingHTTPServer,
    prepare: Callable[[Mapping[str, str]], None],
) -> Iterator[Server]:
    port = free_port()
    dags = tmp_path / "dags"
    shutil.copytree(Path(small.home, "dags"), dags)
    (dags / "reads_the_river.py").write_text(CONSUMER)
    (dags / "is_killed.py").write_text(KILLED)
    told = {**clean_environment(), "AIRFLOW__CORE__DAGS_FOLDER": str(dags)}
    env = airflow_home.environment(small, port, told)
    # what is not under test must not take the machine's two cores meanwhile
    env["AIRFLOW__CORE__DAGS_ARE_PAUSED_AT_CREATION"] = "True"
    env["SPILLWAY_HOOK_ONCALL"] = f"http://127.0.0.1:{heard.server_port}/"
    prepare(env)
    address, log = f"http://127.0.0.1:{port}", Path(small.build) / "logs" / "airflow-standalone.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "demo.ui"]
    told = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.STDOUT}
    with guarded_process(command, env={**env, "PORT": str(port)}, **told) as guard:
        poll("healthy scheduler", lambda: is_healthy(address), START_SECONDS, log)
        found = Server(address, Path(env["AIRFLOW_HOME"]), log)
        for dag_id in (
            "spillway_train",
            "spillway_shed",
            "spillway_backfill",
            "reads_the_river",
            "is_killed",
        ):
            poll(dag_id, lambda dag_id=dag_id: found.known(dag_id), START_SECONDS, log)
            found("PATCH", f"/api/v2/dags/{dag_id}", {"is_paused": False})
        yield found
        # what `make ui` runs, interrupted as people do it, takes all of Airflow with it before it ends itself
        ui = psutil.Process(guard.pid)
        family = ui.children(recursive=True)
        assert len(family) > 5, "the scheduler, the server, their workers"
        ui.send_signal(signal.SIGINT)
        assert guard.wait(timeout=START_SECONDS) == 128 + signal.SIGINT
        assert [one for one in family if lives(one)] == []
    with socket.socket() as probe:
        assert probe.connect_ex(("127.0.0.1", port)) != 0, "nobody listens any more"


NO_SKETCHES = {"find_sketches[-1]": "skipped", "sketch.uplink[-1]": "skipped"}
"""The stream asks for none."""


def digests(lake: Path) -> dict[str, str]:
    """Every file of the lake by its content."""
    return {
        str(file.relative_to(lake)): hashlib.sha256(file.read_bytes()).hexdigest()
        for file in sorted(lake.rglob("*"))
        if file.is_file()
    }


def assert_links_lead_to_pages(small: Settings, server: Server) -> None:
    """Those of a run's last task, for who is logged in; and to no other file."""
    run, *_ = server("GET", "/api/v2/dags/spillway_shed/dagRuns")["dag_runs"]
    where = f"/api/v2/dags/spillway_shed/dagRuns/{run['dag_run_id']}/taskInstances/tell/links"
    links = server("GET", where)["extra_links"]
    assert links == {
        "Report": f"{server.address}/spillway/report.html",
        "Data Docs": f"{server.address}/spillway/data_docs/index.html",
    }
    plugins = server("GET", "/api/v2/plugins")["plugins"]
    (mine,) = [one for one in plugins if one["name"] == "spillway_pages"]
    entries = {one["name"]: one for one in mine["external_views"]}
    assert {name: one["href"] for name, one in entries.items()} == {
        "Spillway report": "/spillway/report.html",
        "Data Docs": "/spillway/data_docs/index.html",
    }
    # an entry of the menu that opens a tab: in a frame, a page without origin gets no cookie, and at the top level
    # Airflow 3.3 draws a button that opens nothing
    assert {(one["destination"], one["nav_top_level"], one["url_route"]) for one in entries.values()} == {
        ("nav", False, None)
    }
    Path(small.build, "report.html").write_text("<p>how it stands</p>")
    Path(small.build, "report").mkdir(exist_ok=True)
    Path(small.build, "report", "uplink.html").write_text("<p>how the channel stands</p>")

    def page(path: str, **headers: str) -> tuple[int, str]:
        asked = urllib.request.Request(f"{server.address}{path}", headers=headers)
        try:
            with urllib.request.urlopen(asked, timeout=60) as answer:
                assert answer.headers["Content-Security-Policy"].startswith("sandbox ")
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as refused:
            return refused.code, ""

    known = {"Cookie": f"_token={server.token}"}
    assert page("/spillway/report.html", **known) == (200, "<p>how it stands</p>")
    assert page("/spillway/report/uplink.html", **known) == (200, "<p>how the channel stands</p>")
    assert page("/spillway/report.html")[0] == 401
    assert page("/spillway/report/uplink.html")[0] == 401
    for elsewhere in (
        "data_docs/index.html",
        "metrics/spillway.prom",
        "data_docs/..%2fmetrics/spillway.prom",
        "report/..%2fmetrics/spillway.prom",
    ):
        assert page(f"/spillway/{elsewhere}", **known)[0] == 404, elsewhere


def assert_a_task_that_is_killed_is_told(server: Server, heard: ThreadingHTTPServer) -> None:
    assert heard.heard == []  # type: ignore[attr-defined]
    assert server.ended("is_killed") == "failed"
    ((_, body),) = heard.heard  # type: ignore[attr-defined]
    (alert,) = body["alerts"]
    assert alert["event"] == "failure"
    assert alert["sentence"].startswith("`is_killed.dies` must end with a message, got none: it was killed")


@pytest.mark.long
def test_a_stream_is_shed_over_rest_and_a_second_run_changes_nothing(
    small: Settings, server: Server, heard: ThreadingHTTPServer
) -> None:
    assert server.run("spillway_train")["train.uplink[-1]"] == "success"
    assert pending_channels(small) == ["uplink"]

    server.run("spillway_shed")
    # where a quarter of an hour has just begun, the scheduled run may have done it before the triggered one
    tasks = (
        "read_contracts[-1]",
        "find_work[-1]",
        "shed.uplink[-1]",
        "announce[-1]",
        "finished[-1]",
        "tell[-1]",
    )
    done = dict.fromkeys(tasks, "success") | NO_SKETCHES
    assert done in server.every_run("spillway_shed")
    poll(
        "run of who waits for the table", lambda: server.every_run("reads_the_river"), RUN_SECONDS, server.log
    )
    assert server.every_run("reads_the_river") == [{"read[-1]": "success"}]
    tables = Tables(small)
    assert [(b.status, b.rows, str(b.batch_date)) for b in load_batches(tables, "river")] == [
        ("done", 240, "2026-01-10"),
        ("done", 240, "2026-01-11"),
    ]
    transmitted = tables.at("transmitted", "river").rows().sort_by("seq")
    assert transmitted.num_rows == 480
    before = digests(Path(small.lake))

    second = server.run("spillway_shed")
    assert {second.pop(f"{task}[-1]") for task in ("read_contracts", "tell")} == {"success"}
    assert set(second.values()) == {"skipped"}
    assert digests(Path(small.lake)) == before
    assert len(server.every_run("reads_the_river")) == 1, "nothing was written"
    assert_links_lead_to_pages(small, server)

    where = "/api/v2/pools/spillway_uplink"
    pool = server("GET", where)
    assert (pool["slots"], pool["occupied_slots"]) == (1, 0)
    server("DELETE", where)  # by hand; the next run makes it again, and waits for nothing
    backfilled = server.run("spillway_backfill", {"from_date": "2026-01-10", "channels": ["uplink"]})
    tasks = ("find_dates[-1]", "shed.uplink[-1]", "announce[-1]", "finished[-1]", "tell[-1]")
    assert backfilled == dict.fromkeys(tasks, "success") | NO_SKETCHES
    assert server("GET", where)["slots"] == 1
    again = digests(Path(small.lake))
    written = {name for name in set(again) | set(before) if again.get(name) != before.get(name)}
    of_dates = {name.split("batch_date=")[1][:10] for name in written if "batch_date=" in name}
    assert of_dates == {"2026-01-10"}
    assert tables.now().at("transmitted", "river").rows().sort_by("seq") == transmitted
    assert_a_task_that_is_killed_is_told(server, heard)

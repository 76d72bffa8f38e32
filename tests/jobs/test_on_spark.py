"""Every job by `spark-submit` and over Spark Connect: the same rows as in this process, and tasks for each step.

The jobs run as the DAGs run them. The event log of Spark says which tasks ran.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.pipeline.streams import (
    METERS,
    ROOT,
    SITES,
    World,
    csv_lines,
    json_lines,
    meters,
    own_settings,
    sites,
)

from spillway.contracts import load_contracts
from spillway.engine import ProcessEngine
from spillway.engine.spark_conf import SHORT_LIVED_JVM, spark_conf
from spillway.scheduling import job_path
from spillway.store.tables import Tables

pytestmark = pytest.mark.long

SKETCHED = {**SITES, "sketches": [{"kind": "count_min", "attributes": ["site"]}]}
SIDE = {"attribute": "site", "lasts_seconds": 600}
JOIN = {
    "name": "same_site",
    "inputs": ["sites", "sites"],
    "window": {"seconds": 3600},
    "levers": [{"lever": "joins", "left": SIDE, "right": SIDE, "predicate": "equality"}],
}
QUERY = {
    "name": "by_site",
    "inputs": ["sites"],
    "window": {"seconds": 3600},
    "levers": [
        {
            "lever": "quality",
            "sql": "SELECT site, count(*) AS n, avg(temp) AS mean_temp FROM sites GROUP BY site",
        }
    ],
}
JOBS: Sequence[Sequence[str]] = (
    ("shed", "--channel", "narrow", "--run-id", "first"),
    ("train", "--run-id", "second"),
    ("shed", "--channel", "narrow", "--run-id", "third"),
    ("sketch", "--channel", "narrow"),
    ("workloads",),
    ("validate", "--run-id", "fourth"),
    ("recover", "--stream", "sites", "--from-seq", "10", "--to-seq", "20"),
)
SHARED = (
    "batches",
    "rejected",
    "models",
    "schemes",
    "synopsis",
    "sent_synopsis",
    "certificates",
    "ledger",
    "sketches",
    "windows",
)
MAY_BE_EMPTY = ("rejected", "synopsis", "sent_synopsis")
OF_ONE = (
    ("raw", "sites"), ("raw", "meters"), ("transmitted", "sites"), ("transmitted", "meters"), ("recovered", "sites"),
    ("recovered", "meters"), ("joined", "same_site"), ("results", "by_site"),
)  # fmt: skip
Rows = dict[str, list[dict[str, Any]]]


@pytest.fixture(scope="module")
def landed(tmp_path_factory: pytest.TempPathFactory) -> World:
    """Two streams have landed; a join and a query wait for them."""
    world = World.begin(
        ProcessEngine(), tmp_path_factory.mktemp("landed"), SKETCHED, METERS, capacity="5 kbps"
    )
    for folder, contract in (("joins", JOIN), ("queries", QUERY)):
        path = world.folder / "schemas" / folder / f"{contract['name']}.yaml"
        path.parent.mkdir()
        path.write_text(yaml.safe_dump(contract))
    world.deliver("sites/2020-01-01/a.json", json_lines(sites(0, 900)))
    world.deliver("meters/2020-01-01/a.csv", csv_lines(meters(0, 350)))
    Path(world.settings.lake).mkdir()
    load_contracts(world.folder / "schemas")
    return world


def environment(world: World, **more: str) -> dict[str, str]:
    settings = world.settings
    roots = ("home", "lake", "destination", "landing", "schemas", "build", "output")
    return {
        **{name: value for name, value in os.environ.items() if not name.startswith("PYSPARK_")},
        **{f"SPILLWAY_{name.upper()}": str(getattr(settings, name)) for name in roots},
        "PYTHONPATH": os.pathsep.join([str(ROOT / "lib"), str(ROOT)]),
        "SPILLWAY_JAVA_OPTIONS": SHORT_LIVED_JVM,
        **more,
    }


def run_jobs(world: World, command: Callable[[str], Sequence[str]], more: Mapping[str, str]) -> Rows:
    """Run every job as a process of its own; return the rows of all tables."""
    for job, *arguments in JOBS:
        done = subprocess.run(
            [*command(job), *arguments],
            env=environment(world, **more),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{job}: {done.stdout[-6000:]}"
    return rows_of(world)


def rows_of(world: World) -> Rows:
    fresh = World(world.folder, ProcessEngine(), Tables(own_settings(world.folder)), world.contracts)
    found = {name: fresh.rows(name) for name in SHARED}
    return found | {f"{table}/{one}": fresh.rows(table, one) for table, one in OF_ONE}


IN_PROCESS = """
import contextlib, runpy, sys
from spillway.engine import ProcessEngine, spark
spark.spark_engine = lambda name: contextlib.nullcontext(ProcessEngine())
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


@pytest.fixture(scope="module")
def expected(landed: World, tmp_path_factory: pytest.TempPathFactory) -> Rows:
    """The rows of all tables, computed by the engine of one process."""
    world = landed.copy(tmp_path_factory.mktemp("in_process"))
    script = world.folder / "in_process.py"
    script.write_text(IN_PROCESS)
    found = run_jobs(world, lambda job: [sys.executable, str(script), job_path(job)], {})
    empty = [name for name, rows in found.items() if not rows and name not in MAY_BE_EMPTY]
    assert not empty, f"every table has something to compare, got nothing in {empty}"
    return found


def assert_same(found: Rows, expected: Rows) -> None:
    for name, rows in expected.items():
        assert found[name] == rows, name


STEPS = {
    "take in": "shed narrow: raw/sites",
    "train by attribute": "train, by attribute",
    "shed": "shed narrow, draft 1",
    "sketch": "sketch narrow",
    "join": "workloads: joined/same_site",
    "query": "workloads: by_site",
    "recover": "validate: recover",
    "validate": "validate: summarise",
    "recover on request": "recover sites: recover",
}
"""What a DAG's run does, and how the descriptions of its Spark jobs begin."""


def logged(events: Path) -> Iterator[dict[str, Any]]:
    """Yield the events of all of Spark's event logs in a folder."""
    for log in events.rglob("events_*"):
        yield from map(json.loads, log.read_text(encoding="utf-8").splitlines())


def jobs_of(events: Path) -> Counter[str]:
    """Return the number of jobs by description, from Spark's event logs."""
    begun = [event for event in logged(events) if event["Event"] == "SparkListenerJobStart"]
    return Counter(event["Properties"].get("spark.job.description", "") for event in begun)


def tasks_of(events: Path) -> Counter[str]:
    """Return the number of finished tasks by the description of their job, from Spark's event logs."""
    found: Counter[str] = Counter()
    for log in events.rglob("events_*"):
        label: dict[int, str] = {}
        for event in map(json.loads, log.read_text(encoding="utf-8").splitlines()):
            if event["Event"] == "SparkListenerJobStart":
                said = event["Properties"].get("spark.job.description", "")
                label |= dict.fromkeys(event["Stage IDs"], said)
            elif event["Event"] == "SparkListenerTaskEnd":
                found[label[event["Stage ID"]]] += event["Task End Reason"]["Reason"] == "Success"
    return found


def test_jobs_submitted_as_by_the_dags_run_each_step_in_tasks_with_the_same_rows(
    landed: World, expected: Rows, tmp_path: Path
) -> None:
    world, events = landed.copy(tmp_path / "world"), tmp_path / "events"
    events.mkdir()
    conf = {
        **spark_conf(environment={**os.environ, "SPILLWAY_JAVA_OPTIONS": SHORT_LIVED_JVM}),
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": f"file:{events}",
        "spark.eventLog.compress": "false",
    }
    options = [text for name, value in conf.items() for text in ("--conf", f"{name}={value}")]
    submit = str(Path(sys.executable).parent / "spark-submit")
    found = run_jobs(world, lambda job: [submit, "--master", "local[2]", *options, job_path(job)], {})
    tasks = tasks_of(events)
    missing = {
        step
        for step, label in STEPS.items()
        if not sum(n for said, n in tasks.items() if said.startswith(label))
    }
    assert not missing, tasks
    assert tasks["train"] >= 1
    assert tasks["train, by attribute"] >= 2
    assert_same(found, expected)


JOBS_OF_A_CHANNEL = """
import sys
from pathlib import Path
from tests.pipeline.streams import SITES, World, json_lines, sites
from spillway.engine import ProcessEngine
from spillway.engine.spark import SparkEngine, spark_session
from spillway.intake.ingest import ingest
from spillway.streams.shed import shed_channel

folder, events = sys.argv[1:]
log = {"enabled": "true", "dir": f"file:{events}", "compress": "false"}
spark = spark_session("jobs", "local[2]", **{f"spark.eventLog.{name}": value for name, value in log.items()})
for count in (1, 6):
    names = [f"s{number}" for number in range(count)]
    streams = [{**SITES, "stream": one, "source": {**SITES["source"], "path": one}, "levers": []} for one in names]
    world = World.begin(ProcessEngine(), Path(folder, str(count)), *streams, capacity="900 kbps")
    for name in names:
        world.deliver(f"{name}/2020-01-01/a.json", json_lines(sites(0, 60)))
        ingest(world.tables.now(), world.engine, world.contracts.streams[name], "run")
    world.engine = SparkEngine(lambda: spark, f"{count} streams")
    assert len(shed_channel(world.tables.now(), world.engine, world.contracts, "narrow")) == count
    world.validate()
    assert all(batch.is_validated for name in names for batch in world.batches(name))
spark.stop()
"""


def test_the_number_of_jobs_of_a_channel_does_not_grow_with_its_streams(
    landed: World, tmp_path: Path
) -> None:
    script, events = tmp_path / "jobs.py", tmp_path / "events"
    script.write_text(JOBS_OF_A_CHANNEL)
    events.mkdir()
    done = subprocess.run(
        [sys.executable, str(script), str(tmp_path), str(events)],
        env=environment(landed),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-6000:]
    jobs = jobs_of(events)
    steps = ("shed narrow, draft 1", "recover", "summarise")
    assert {said: jobs[f"6 streams: {said}"] for said in steps} == dict.fromkeys(steps, 1), jobs
    assert {said: jobs[f"1 streams: {said}"] for said in steps} == dict.fromkeys(steps, 1), jobs
    assert jobs.total() <= 2 * len(steps) + 1, "and one that counts the cores"


@pytest.fixture(scope="module")
def connect_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server of Spark Connect on this machine, as the PySpark wheel has it; its URL."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    folder = tmp_path_factory.mktemp("connect")
    conf = {
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(port),
        "spark.driver.extraJavaOptions": SHORT_LIVED_JVM,
        "spark.ui.enabled": "false",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
    }
    options = [text for name, value in conf.items() for text in ("--conf", f"{name}={value}")]
    log = folder / "server.log"
    with (
        log.open("w") as out,
        subprocess.Popen(
            [
                str(Path(sys.executable).parent / "spark-submit"),
                "--master",
                "local[2]",
                "--class",
                "org.apache.spark.sql.connect.service.SparkConnectServer",
                *options,
                "spark-internal",
            ],
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join([str(ROOT / "lib"), str(ROOT)]),
                "PYSPARK_PYTHON": sys.executable,
                "SPARK_LOCAL_IP": "127.0.0.1",
            },
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
        ) as server,
    ):
        try:
            for _ in range(600):
                assert server.poll() is None, log.read_text()[-4000:]
                with socket.socket() as probe:
                    if probe.connect_ex(("127.0.0.1", port)) == 0:
                        break
                time.sleep(0.2)
            else:
                raise AssertionError(log.read_text()[-4000:])
            yield f"sc://127.0.0.1:{port}"
        finally:
            server.terminate()


def test_jobs_over_spark_connect_leave_the_same_rows(
    landed: World, expected: Rows, connect_server: str, tmp_path: Path
) -> None:
    world = landed.copy(tmp_path)
    found = run_jobs(world, lambda job: [sys.executable, job_path(job)], {"SPILLWAY_MASTER": connect_server})
    assert_same(found, expected)
    assert not [path for path in Path(world.settings.lake, ".tasks").rglob("*") if path.is_file()]


ENGINE = """
import sys
from functools import partial
import pyarrow as pa
from spillway.engine.protocol import map_each
from spillway.engine.spark import spark_engine
from spillway.engine.statements import SqlView
from spillway.errors import InvalidValue
from tests.engine.test_engines import dying, failing, repeated, Odd, odd

with spark_engine("spillway test") as engine:
    assert engine.cores == 2, engine.cores
    counts = [0, 1, 2_000_000, 125, 7]
    assert engine.map(repeated, counts) == [repeated(count) for count in counts]
    large = [b"x" * 3_000_000, b"y"]
    assert engine.map(bytes.upper, large, "a label, with a comma") == [b"X" * 3_000_000, b"Y"]
    for problem, kind in ((KeyError("site"), KeyError), (InvalidValue("a", "b", 1, "c"), InvalidValue)):
        try:
            engine.map(partial(failing, problems={1: problem}), range(3))
        except kind as found:
            assert str(found) == str(problem)
        else:
            raise AssertionError(kind)
    found = map_each(engine, partial(dying, at=3), range(5))
    assert [one for one in found if not isinstance(one, Exception)] == [0, 1, 2, 4], found
    assert "Python worker exited unexpectedly" in str(found[3]), found[3]
    seen = SqlView(pa.schema([("x", pa.int64())]), [partial(pa.table, {"x": [at, 2 * at]}) for at in range(9)])
    for _ in range(2):
        steps = [("big", "SELECT x FROM t WHERE x > 4"), ("s", "SELECT sum(x) AS s FROM big")]
        answer = engine.ask({"t": seen}, steps, 9)
        assert answer.to_pylist() == [{"s": 5 + 6 + 7 + 8 + 6 + 8 + 10 + 12 + 14 + 16}], answer
print("all of it held")
"""


def test_the_engine_keeps_its_promises_over_spark_connect(
    landed: World, connect_server: str, tmp_path: Path
) -> None:
    script = tmp_path / "engine.py"
    script.write_text(ENGINE)
    world = landed.copy(tmp_path / "world")
    done = subprocess.run(
        [sys.executable, str(script)],
        env=environment(world, SPILLWAY_MASTER=connect_server),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "all of it held" in done.stdout, done.stdout[-3000:] + done.stderr[-6000:]

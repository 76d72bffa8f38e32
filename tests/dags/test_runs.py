"""The DAGs run through Airflow, with a spark-submit that only writes down what it is told."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pyarrow.csv as pacsv
import pytest
from deltalake import DeltaTable
from tests.dags.conftest import SECRET, SECRETS
from tests.pipeline.streams import brought_through
from tests.small_lake import batch_row, deliver, small_settings, write_table

from spillway.batch import DONE
from spillway.clock import utc_now
from spillway.engine import ProcessEngine

Calls = Callable[[], list[list[str]]]
Run = Callable[..., dict[str, Any]]
TWO = {"river": "uplink", "harbour": "market"}


def states_of(done: dict[str, Any]) -> dict[str, str]:
    """The tasks of a run, each with how it ended."""
    return {task: state for task, _, state, _ in done["tasks"]}


def after(call: list[str], flag: str) -> str:
    return call[call.index(flag) + 1]


def test_each_channel_with_new_files_is_submitted_once_under_its_name(
    tmp_path: Path, run_dag: Run, fake_spark: Calls
) -> None:
    settings = small_settings(tmp_path, TWO)
    for stream in TWO:
        deliver(settings, f"{stream}/part-1.json")
    done = run_dag("spillway_shed", settings, {})
    assert done["state"] == "success"
    assert sorted(after(call, "--channel") for call in fake_spark()) == ["market", "uplink"]
    states = states_of(done)
    assert (states["shed.market"], states["shed.uplink"]) == ("success", "success")
    for call in fake_spark():
        assert after(call, "--master") == "local[*]"
        assert any(part.endswith("/jobs/shed.py") for part in call)


def test_a_run_with_nothing_new_skips_and_starts_no_spark(
    tmp_path: Path, run_dag: Run, fake_spark: Calls
) -> None:
    settings = small_settings(tmp_path, TWO)
    write_table(settings, "batches", [batch_row("river", 1, DONE, [deliver(settings, "river/part-1.json")])])
    done = run_dag("spillway_shed", settings, {})
    assert done["state"] == "success"
    states = states_of(done)
    assert (states.pop("read_contracts"), states.pop("tell")) == ("success", "success")
    assert set(states.values()) == {"skipped"}
    assert "nothing new in the landing zone" in done["log"]
    assert fake_spark() == []


def test_another_master_is_a_change_of_the_connection_and_of_nothing_else(
    tmp_path: Path, run_dag: Run, fake_spark: Calls
) -> None:
    settings = small_settings(tmp_path, TWO)
    deliver(settings, "river/part-1.json")
    cluster = {"conn_type": "spark", "host": "spark://master", "port": 7077}
    done = run_dag("spillway_shed", settings, {}, AIRFLOW_CONN_SPARK_DEFAULT=json.dumps(cluster))
    assert done["state"] == "success"
    assert [after(call, "--master") for call in fake_spark()] == ["spark://master:7077"]
    states = states_of(done)
    assert (states["shed.uplink"], states["shed.market"], states["announce"]) == (
        "success",
        "skipped",
        "success",
    )


def test_dates_in_the_form_reach_the_job(tmp_path: Path, run_dag: Run, fake_spark: Calls) -> None:
    settings = small_settings(tmp_path, TWO)
    write_table(settings, "batches", [batch_row("river", 1, DONE), batch_row("harbour", 2, DONE)])
    done = run_dag("spillway_backfill", settings, {"from_date": "2026-01-02"})
    assert done["state"] == "success"
    (call,) = fake_spark()
    assert (after(call, "--channel"), after(call, "--from-date"), after(call, "--to-date")) == (
        "market", "2026-01-02", "2026-01-02",
    )  # fmt: skip


RUNS_THE_JOB = """#!{python}
import contextlib, runpy, sys
from spillway.engine import ProcessEngine, spark
print("Exception in thread main java.lang.IllegalStateException: not of interest")
print("    at org.apache.spark.deploy.SparkSubmit.main(SparkSubmit.scala)")
(at,) = [i for i, one in enumerate(sys.argv) if one.endswith(".py") and "/jobs/" in one]
spark.spark_engine = lambda name: contextlib.nullcontext(ProcessEngine())
sys.argv = sys.argv[at:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""
"""A spark-submit whose Spark is the job's own process."""


def spark_submit(folder: Path, script: str) -> None:
    program = folder / "fake-bin" / "spark-submit"
    program.parent.mkdir(exist_ok=True)
    program.write_text(script)
    program.chmod(0o755)


FAILS_TO_SKETCH = """#!{python}
import sys
(job,) = [one for one in sys.argv if one.endswith(".py") and "/jobs/" in one]
sys.exit(job.endswith("/sketch.py"))
"""


def test_a_sketch_that_fails_turns_the_run_red_and_what_was_shed_is_announced(
    tmp_path: Path, run_dag: Run
) -> None:
    settings = small_settings(tmp_path, TWO)
    contract = Path(settings.schemas, "streams", "river.yaml")
    contract.write_text(contract.read_text() + "sketches: [{kind: count_min, attributes: [site]}]\n")
    write_table(settings, "batches", [batch_row("river", 1, DONE), batch_row("harbour", 1, DONE)])
    spark_submit(tmp_path, FAILS_TO_SKETCH.format(python=sys.executable))
    for dag_id, form in (("spillway_shed", {}), ("spillway_backfill", {"from_date": "2026-01-01"})):
        deliver(settings, f"river/{dag_id}.json")
        done = run_dag(dag_id, settings, form)
        states = states_of(done)
        assert done["state"] == "failed"
        assert (states["shed.uplink"], states["sketch.uplink"]) == ("success", "failed")
        assert (states["announce"], states["tell"]) == ("success", "success")
        assert states["sketch.market"] == "skipped", "it has none to make"


def test_a_broken_contract_turns_the_run_red_with_its_sentence_and_the_others_are_shed(
    tmp_path: Path, run_dag: Run, fake_spark: Calls
) -> None:
    settings = small_settings(tmp_path, TWO)
    for stream in TWO:
        deliver(settings, f"{stream}/part-1.json")
    contract = Path(settings.schemas) / "streams" / "river.yaml"
    contract.write_text(contract.read_text() + "mode: [")
    done = run_dag("spillway_shed", settings, {})
    assert done["state"] == "failed"
    assert "river.yaml" in done["log"]
    assert "`the file` must be YAML" in done["log"]
    assert [after(call, "--channel") for call in fake_spark()] == ["market"]


def test_a_recover_form_that_means_nothing_fails_by_name_before_any_spark(
    tmp_path: Path, run_dag: Run, fake_spark: Calls
) -> None:
    settings = small_settings(tmp_path, TWO)
    done = run_dag("spillway_recover", settings, {"stream": "river", "keys": ["a"]})
    assert done["state"] == "failed"
    assert "`key` must be NAME=VALUE with NAME one of site, got 'a'" in done["log"]
    assert fake_spark() == []


@pytest.mark.long
def test_the_recover_form_leaves_what_its_page_says_in_the_table_in_one_of_its_own_and_in_a_file(
    tmp_path: Path, run_dag: Run
) -> None:
    world = brought_through(ProcessEngine(), tmp_path)
    rows = world.rows("recovered", "sites")
    world.at("recovered", "sites").delete(batch=[1, 2, 3])
    done = run_dag("spillway_recover", world.settings, {"stream": "sites", "from_seq": 325, "to_seq": 335})
    assert (done["state"], [state for _, _, state, _ in done["tasks"]]) == ("success", ["success"] * 3), done
    assert world.rows("recovered", "sites") == [row for row in rows if row["batch"] in (1, 2)]

    spark_submit(tmp_path, RUNS_THE_JOB.format(python=sys.executable))
    form = {
        "stream": "sites",
        "attributes": ["temp"],
        "keys": ["site=site-0"],
        "from_time": "2026-01-01T06:10:00+05:00",
    }
    (truth,) = [row for row in rows if row["seq"] == 420]
    for output in ("of_site_0", "deep/temps.csv"):
        done = run_dag("spillway_recover", world.settings, {**form, "output": output})
        assert done["state"] == "success", done
        path = Path(world.settings.output, output)
        found = DeltaTable(path).to_pyarrow_table() if path.is_dir() else pacsv.read_csv(path)
        (given,) = found.to_pylist()
        assert {name: given[name] for name in ("seq", "temp", "temp__bound_pct")} == {
            name: truth[name] for name in ("seq", "temp", "temp__bound_pct")
        }


def failure_of(done: dict[str, Any]) -> str:
    """What Airflow says of the exception that a task failed with."""
    assert done["state"] == "failed"
    found = [line for line in done["log"].splitlines() if "AirflowException: " in line]
    assert found, done["log"][-3000:]
    return found[-1].split("AirflowException: ", 1)[1]


def test_a_failed_task_says_the_sentence_and_the_remedy_of_its_job(tmp_path: Path, run_dag: Run) -> None:
    settings = small_settings(tmp_path, TWO)
    spark_submit(tmp_path, RUNS_THE_JOB.format(python=sys.executable))
    write_table(settings, "batches", [batch_row("river", 1, DONE)])  # of which raw has no tuple
    done = run_dag("spillway_train", settings, {"streams": ["river"]})
    assert states_of(done)["train.market"] == "skipped"
    said = failure_of(done)
    assert said.startswith("river: training must have at least two tuples, got 0; deliver more to river"), (
        said
    )
    assert "Cannot execute" not in done["log"].replace("Spark-Submit cmd", "")


def test_a_form_that_names_no_stream_fails_by_name_before_any_spark(
    tmp_path: Path, run_dag: Run, fake_spark: Calls
) -> None:
    done = run_dag("spillway_validate", small_settings(tmp_path, TWO), {"streams": ["rivver"]})
    assert done["state"] == "failed"
    assert "`stream` must have a contract, got 'rivver'; did you mean river?" in done["log"]
    assert fake_spark() == []


@pytest.mark.long
def test_what_a_channel_has_and_what_all_share_is_kept_in_a_task_each(tmp_path: Path, run_dag: Run) -> None:
    world = brought_through(ProcessEngine(), tmp_path)
    done = run_dag("spillway_keep", world.settings, {"dry_run": True})
    assert states_of(done) == dict.fromkeys(
        ["keep.narrow", "keep.wide", "keep.what_all_share", "tell"], "success"
    )
    assert "spillway_tuples_ingested" in Path(world.settings.build, "metrics", "spillway.prom").read_text()


def test_a_task_whose_job_never_began_says_what_stood_in_its_way_and_where_to_look(
    tmp_path: Path, run_dag: Run
) -> None:
    settings = small_settings(tmp_path, TWO)
    lines = ("#!/bin/sh", "echo 'at org.apache.spark.X(Y.scala)'", "echo 'Error: no master'", "exit 1")
    spark_submit(tmp_path, "\n".join(lines))
    said = failure_of(run_dag("spillway_train", settings, {}))
    assert said.startswith("`spark-submit` must reach its job, got "), said
    assert "spillway doctor" in said


def test_a_red_run_stays_red_and_its_sentence_is_told_to_the_address_in_an_airflow_connection(
    tmp_path: Path, run_dag: Run, heard: ThreadingHTTPServer
) -> None:
    settings = small_settings(tmp_path, TWO)
    contract = Path(settings.schemas, "streams", "river.yaml")
    contract.write_text(contract.read_text() + "alerts: [{hook: oncall}]\n")
    failed = {"run_id": "r", "table": "ledger", "stream": "river", "expectation": "e", "success": False}
    failed |= {"sentence": "batch 1 is off by 2", "validated_at": utc_now()}
    write_table(settings, "validations", [failed])
    spark_submit(tmp_path, RUNS_THE_JOB.format(python=sys.executable))
    secret = f"http://127.0.0.1:{heard.server_port}/very-secret"
    connection = json.dumps({"conn_type": "generic", "password": secret})
    write_table(settings, "batches", [batch_row("river", 1, DONE)])  # of which raw has no tuple
    done = run_dag("spillway_train", settings, {}, AIRFLOW_CONN_ONCALL=connection)
    assert done["state"] == "failed"
    assert states_of(done) == {
        "read_form": "success", "train.market": "success", "train.uplink": "failed",
        "read_contracts": "success", "tell": "success",
    }  # fmt: skip
    ((path, body),) = heard.heard  # type: ignore[attr-defined]
    assert path == "/very-secret"
    assert sorted((one["event"], one["stream"]) for one in body["alerts"]) == [
        ("failure", "river"),
        ("violation", "river"),
    ]
    (failure,) = [one["sentence"] for one in body["alerts"] if one["event"] == "failure"]
    assert failure.startswith("training must have at least two tuples, got 0; deliver more to river")
    assert "very-secret" not in done["log"]
    assert "spillway_violations" in Path(settings.build, "metrics", "spillway.prom").read_text()


WRITES_DOWN_ALL = """#!{python}
import json, os, sys
print(json.dumps([sys.argv, dict(os.environ)]), file=open({told!r}, "a"))
"""


@pytest.mark.parametrize(
    "connection",
    [
        {"conn_type": "spark", "host": "local[*]"},
        {"conn_type": "spark", "host": "yarn"},
    ],
)
def test_no_hook_address_reaches_spark_submit(
    tmp_path: Path, run_dag: Run, connection: dict[str, object]
) -> None:
    """Neither on its command line nor in its environment; the roots reach it on either way."""
    settings = small_settings(tmp_path, TWO)
    deliver(settings, "river/part-1.json")
    told = tmp_path / "told.jsonl"
    spark_submit(tmp_path, WRITES_DOWN_ALL.format(python=sys.executable, told=str(told)))
    done = run_dag(
        "spillway_shed",
        settings,
        {},
        AIRFLOW_CONN_SPARK_DEFAULT=json.dumps(connection),
        SPILLWAY_HOOK_ONCALL=SECRETS["SPILLWAY_HOOK_ONCALL"],
    )
    assert states_of(done)["shed.uplink"] == "success", done["log"]
    (call,) = [json.loads(line) for line in told.read_text().splitlines()]
    arguments, environment = call
    assert SECRET not in json.dumps(call)
    assert SECRET not in done["log"]
    travelled = f"spark.yarn.appMasterEnv.SPILLWAY_LAKE={settings.lake}"
    assert (travelled in arguments) == (connection["host"] == "yarn")
    assert environment["SPILLWAY_LAKE"] == settings.lake


def test_a_run_whose_address_is_not_there_says_so_and_is_no_worse_for_it(
    tmp_path: Path, run_dag: Run
) -> None:
    settings = small_settings(tmp_path, TWO)
    contract = Path(settings.schemas, "streams", "river.yaml")
    contract.write_text(contract.read_text() + "alerts: [{hook: oncall}]\n")
    rows = {"created_at": utc_now(), "updated_at": utc_now()}
    write_table(settings, "batches", [batch_row("river", 1, DONE, rejected=3, **rows)])
    done = run_dag("spillway_shed", settings, {})
    assert done["state"] == "success"
    assert "`hook` must have an address, got 'oncall'; set SPILLWAY_HOOK_ONCALL, or make it" in done["log"]


def test_the_tables_that_a_run_wrote_are_assets_that_others_may_wait_for(
    tmp_path: Path, run_dag: Run, fake_spark: Calls
) -> None:
    world = brought_through(ProcessEngine(), tmp_path)
    before = run_dag("spillway_recover", world.settings, {"stream": "sites"})
    assert before["events"] == {}, "nothing was written"
    spark_submit(tmp_path, RUNS_THE_JOB.format(python=sys.executable))
    done = run_dag("spillway_recover", world.settings, {"stream": "sites", "from_seq": 325, "to_seq": 335})
    assert done["state"] == "success", done
    (extra,) = done["events"].values()
    assert list(done["events"]) == ["spillway/recovered/sites"]
    assert extra["rows"] > 10, "whole batches"
    assert extra["bytes"] > 0

"""What every DAG must have, as Airflow parses it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.dags.conftest import SECRET

from spillway.scheduling import JOB_VARIABLES, SHED_ASSET, TABLES_ALIAS

DAG_IDS = (
    *("spillway_shed", "spillway_backfill", "spillway_train", "spillway_validate"),
    *("spillway_recover", "spillway_keep", "spillway_workloads"),
)
ROOMS = ("cellular", "messages", "satellite", "sms")
"""The channels of the demo."""
STREAMS = ["flights", "network", "stocks", "weather"]
WORKLOADS = [
    *("lossy_polls", "mean_response", "neighbour_delays", "quotes_by_weather"),
    *("same_departures", "slow_routers"),
]
SPARK_TASKS = [
    ("spillway_shed", "shed"),
    ("spillway_shed", "sketch"),
    ("spillway_backfill", "shed"),
    ("spillway_backfill", "sketch"),
    ("spillway_train", "train"),
    ("spillway_validate", "validate"),
    ("spillway_recover", "recover"),
    ("spillway_workloads", "workloads"),
]


def test_every_dag_is_imported_without_an_error_and_without_an_engine(dags: dict[str, Any]) -> None:
    assert dags["errors"] == {}
    assert dags["engines"] == []
    assert set(DAG_IDS) <= set(dags["dags"])


def test_every_dag_is_documented_tagged_and_timed(dags: dict[str, Any]) -> None:
    for dag_id, dag in dags["dags"].items():
        assert dag["doc"].strip().startswith("###"), dag_id
        assert dag["description"], dag_id
        assert "spillway" in dag["tags"], dag_id
        assert len(dag["tags"]) >= 2, dag_id
        assert dag["timeout"], dag_id
        assert dag["catchup"] is False, dag_id


def test_every_task_has_an_owner_retries_with_growing_delays_and_a_timeout(dags: dict[str, Any]) -> None:
    for dag_id, dag in dags["dags"].items():
        for task_id, task in dag["tasks"].items():
            where = f"{dag_id}.{task_id}"
            assert task["owner"] == "spillway", where
            assert task["retries"] >= 2, where
            assert task["backoff"] > 1, where
            assert task["retry_delay"] <= task["max_retry_delay"], where
            assert 0 < task["execution_timeout"] <= dag["timeout"], where


def test_no_template_field_holds_a_secret_of_the_environment(dags: dict[str, Any]) -> None:
    """Template fields are stored and shown in the UI; those of the Spark tasks hold what a job needs."""
    assert SECRET not in json.dumps(dags)
    for dag_id, group in SPARK_TASKS:
        found = {
            name: task for name, task in dags["dags"][dag_id]["tasks"].items() if name.split(".")[0] == group
        }
        assert found, (dag_id, group)
        for task in found.values():
            assert set(task["templates"]["env_vars"]) <= set(JOB_VARIABLES)
            assert {"SPILLWAY_HOME", "SPILLWAY_LAKE", "SPILLWAY_LANDING"} <= set(
                task["templates"]["env_vars"]
            )


@pytest.mark.parametrize(
    ("dag_id", "cron", "assets"),
    [
        ("spillway_shed", "*/15 * * * *", []),
        ("spillway_backfill", None, []),
        ("spillway_train", "0 1 * * *", []),
        ("spillway_validate", "0 3 * * *", [SHED_ASSET]),
        ("spillway_recover", None, []),
        ("spillway_keep", "0 5 * * *", []),
        ("spillway_workloads", "30 * * * *", [SHED_ASSET]),
    ],
)
def test_dags_run_when_the_design_says(
    dags: dict[str, Any], dag_id: str, cron: str | None, assets: list[str]
) -> None:
    dag = dags["dags"][dag_id]
    assert (dag["cron"], dag["assets"]) == (cron, assets)
    assert cron is None or dag["zone"] == "UTC"


@pytest.mark.parametrize(
    "dag_id",
    [
        *("spillway_shed", "spillway_backfill", "spillway_train", "spillway_validate", "spillway_keep"),
        "spillway_workloads",
    ],
)
def test_one_run_at_a_time_where_order_matters(dags: dict[str, Any], dag_id: str) -> None:
    assert dags["dags"][dag_id]["max_active_runs"] == 1


@pytest.mark.parametrize(
    ("dag_id", "steps"),
    [
        ("spillway_shed", ["shed", "sketch"]),
        ("spillway_backfill", ["shed", "sketch"]),
        ("spillway_train", ["train"]),
        ("spillway_validate", ["validate"]),
        ("spillway_keep", ["keep"]),
    ],
)
def test_a_step_of_a_channel_shares_the_channels_pool_and_holds_no_other_channel_back(
    dags: dict[str, Any], dag_id: str, steps: list[str]
) -> None:
    tasks = dags["dags"][dag_id]["tasks"]
    of_rooms = {f"{step}.{room}": f"spillway_{room}" for room in ROOMS for step in steps}
    of_rooms |= {"keep.what_all_share": "spillway"} if steps == ["keep"] else {}
    assert {
        task_id: task["pool"] for task_id, task in tasks.items() if task["pool"] != "default_pool"
    } == of_rooms


def test_what_is_of_no_channel_has_a_pool_of_its_own(dags: dict[str, Any]) -> None:
    tasks = dags["dags"]["spillway_workloads"]["tasks"]
    assert tasks["workloads"]["pool"] == "spillway"


def test_channels_are_validated_one_after_the_other_for_they_share_report_and_data_docs(
    dags: dict[str, Any],
) -> None:
    assert dags["dags"]["spillway_validate"]["max_active_tasks"] == 1


@pytest.mark.parametrize(("dag_id", "step"), SPARK_TASKS)
def test_spark_is_reached_through_the_operator_and_the_connection_alone(
    dags: dict[str, Any], dag_id: str, step: str
) -> None:
    alone = dag_id in ("spillway_recover", "spillway_workloads")
    for task_id in [step] if alone else [f"{step}.{room}" for room in ROOMS]:
        task = dags["dags"][dag_id]["tasks"][task_id]
        assert task["operator"] == "SubmitJob"
        assert task["connection"] == "spark_default"
        assert task["application"].endswith(f"/jobs/{step}.py")
        assert not task["conf"], "what the machine that parses would say is not passed on"
        conf = dags["submitted_conf"][f"{dag_id}.{task_id}"]
        assert not [key for key in conf if "master" in key or "deployMode" in key]
        assert conf["spark.jars"].startswith("/opt/elsewhere/delta-spark")
        assert conf["spark.driver.memory"] == "3g"


@pytest.mark.parametrize(
    ("dag_id", "step", "found_by"),
    [
        ("spillway_shed", "shed", "find_work"),
        ("spillway_shed", "sketch", "find_sketches"),
        ("spillway_backfill", "shed", "find_dates"),
        ("spillway_backfill", "sketch", "find_sketches"),
        ("spillway_train", "train", "read_form"),
        ("spillway_validate", "validate", "read_form"),
    ],
)
def test_each_channel_has_a_task_that_follows_what_is_found(
    dags: dict[str, Any], dag_id: str, step: str, found_by: str
) -> None:
    tasks = dags["dags"][dag_id]["tasks"]
    followed = [name for name, task in tasks.items() if task["upstream"] == [found_by]]
    assert followed == [f"{step}.{room}" for room in ROOMS]


@pytest.mark.parametrize("dag_id", ["spillway_shed", "spillway_backfill"])
def test_what_was_shed_is_announced(dags: dict[str, Any], dag_id: str) -> None:
    tasks = dags["dags"][dag_id]["tasks"]
    announcing = [name for name, task in tasks.items() if SHED_ASSET in task["outlets"]]
    assert announcing == ["announce"]
    of_rooms = [f"{step}.{room}" for step in ("shed", "sketch") for room in ROOMS]
    # judged with the sketches, and also without; Airflow's rules for one success skip it where any channel was skipped
    assert tasks["announce"]["upstream"] == of_rooms
    assert tasks["announce"]["trigger_rule"] == "all_done"
    assert tasks["find_sketches"]["upstream"] == of_rooms[: len(ROOMS)]
    assert tasks["find_sketches"]["trigger_rule"] == "all_done"
    assert tasks["finished"]["upstream"] == of_rooms


@pytest.mark.parametrize(
    ("dag_id", "after"),
    [
        ("spillway_shed", ["announce", "finished", "read_contracts"]),
        ("spillway_backfill", ["announce", "finished"]),
        ("spillway_train", ["read_contracts", *(f"train.{room}" for room in ROOMS)]),
        ("spillway_validate", ["read_contracts", *(f"validate.{room}" for room in ROOMS)]),
        ("spillway_keep", [*(f"keep.{room}" for room in ROOMS), "keep.what_all_share"]),
        ("spillway_recover", ["recover"]),
        ("spillway_workloads", ["workloads"]),
    ],
)
def test_a_teardown_tells_when_all_is_over_so_that_a_red_run_stays_red(
    dags: dict[str, Any], dag_id: str, after: list[str]
) -> None:
    tasks = dags["dags"][dag_id]["tasks"]
    tell = tasks["tell"]
    assert (tell["upstream"], tell["teardown"], tell["trigger_rule"]) == (
        after, True, "all_done_setup_success",
    )  # fmt: skip
    assert tell["outlets"] == [TABLES_ALIAS]
    assert tell["links"] == ["Report", "Data Docs"]
    assert [name for name, task in tasks.items() if task["teardown"]] == ["tell"]


def test_whatever_task_fails_somebody_hears(dags: dict[str, Any]) -> None:
    for dag_id, dag in dags["dags"].items():
        for task_id, task in dag["tasks"].items():
            assert task["when_it_fails"] == ["alert_on_failure"], f"{dag_id}.{task_id}"


def test_a_contract_that_cannot_be_read_turns_a_run_red_and_keeps_no_task_from_running(
    dags: dict[str, Any],
) -> None:
    for dag_id in ("spillway_shed", "spillway_train", "spillway_validate"):
        tasks = dags["dags"][dag_id]["tasks"]
        assert tasks["read_contracts"]["upstream"] == []
        waiting = {name for name, task in tasks.items() if "read_contracts" in task["upstream"]}
        assert waiting == {"tell"}, "which is a teardown"


@pytest.mark.parametrize(
    ("dag_id", "fields"),
    [
        ("spillway_shed", set()),
        ("spillway_backfill", {"from_date", "to_date", "channels"}),
        ("spillway_train", {"streams"}),
        ("spillway_validate", {"streams", "everything"}),
        ("spillway_keep", {"dry_run"}),
        ("spillway_workloads", {"subjects"}),
        (
            "spillway_recover",
            {"stream", "attributes", "keys", "from_time", "to_time", "from_seq", "to_seq", "output"},
        ),
    ],
)
def test_forms_have_the_fields_people_need_each_explained(
    dags: dict[str, Any], dag_id: str, fields: set[str]
) -> None:
    params = dags["dags"][dag_id]["params"]
    assert set(params) == fields
    for name, param in params.items():
        assert param["schema"]["title"], name
        assert param["description"].endswith("."), name
        assert "type" in param["schema"], name


@pytest.mark.parametrize(
    ("dag_id", "field", "names"),
    [
        ("spillway_train", "streams", STREAMS),
        ("spillway_validate", "streams", STREAMS),
        ("spillway_backfill", "channels", list(ROOMS)),
        ("spillway_workloads", "subjects", WORKLOADS),
    ],
)
def test_a_form_offers_the_names_there_are_and_none_is_chosen(
    dags: dict[str, Any], dag_id: str, field: str, names: list[str]
) -> None:
    param = dags["dags"][dag_id]["params"][field]
    assert param["schema"]["examples"] == names
    assert param["value"] is None


def test_the_stream_to_recover_is_chosen_from_a_list_and_has_no_default(dags: dict[str, Any]) -> None:
    param = dags["dags"]["spillway_recover"]["params"]["stream"]
    assert param["schema"]["enum"] == STREAMS
    assert param["schema"]["type"] == "string", "it must be chosen"
    assert "weather" not in str(param["value"])


def test_a_backfill_of_what_takes_in_is_refused_by_airflow(dags: dict[str, Any]) -> None:
    """It would be 96 runs a day; `spillway_backfill` has no schedule, so that no run does nothing every night."""
    assert dags["dags"]["spillway_shed"]["run_types"] == ["manual", "operator_triggered", "scheduled"]
    assert dags["dags"]["spillway_backfill"]["cron"] is None

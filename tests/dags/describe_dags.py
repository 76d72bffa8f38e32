"""Prints every fact the policy tests are about, as Airflow parses the DAGs, as the last line. Not a test."""

from __future__ import annotations

import json
import os
import sys
from typing import Any


def fact(task: Any, name: str) -> Any:
    return getattr(task, "partial_kwargs", {}).get(name, getattr(task, name, None))


def describe_task(task: Any) -> dict[str, Any]:
    seconds = {
        name: fact(task, name).total_seconds() if fact(task, name) is not None else None
        for name in ("retry_delay", "max_retry_delay", "execution_timeout")
    }
    operator = getattr(task, "operator_class", type(task))
    return {
        "operator": operator.__name__,
        "mapped": task.is_mapped,
        "owner": task.owner,
        "retries": task.retries,
        "backoff": task.retry_exponential_backoff,
        "pool": fact(task, "pool"),
        "connection": fact(task, "conn_id") or getattr(task, "_conn_id", None),
        "application": fact(task, "application"),
        "conf": fact(task, "conf"),
        "templates": {name: fact(task, name) for name in operator.template_fields},
        "teardown": task.is_teardown,
        "when_it_fails": [told.__name__ for told in fact(task, "on_failure_callback") or ()],
        "links": [link.name for link in fact(task, "operator_extra_links") or ()],
        "outlets": [asset.name for asset in fact(task, "outlets") or ()],
        "upstream": sorted(task.upstream_task_ids),
        "trigger_rule": str(getattr(task.trigger_rule, "value", task.trigger_rule)),
        **seconds,
    }


def describe_dag(dag: Any) -> dict[str, Any]:
    timetable = dag.timetable
    cron = getattr(timetable, "timetable", timetable)
    condition = getattr(timetable, "asset_condition", None)
    return {
        "doc": dag.doc_md,
        "description": dag.description,
        "tags": sorted(dag.tags),
        "cron": getattr(cron, "expression", None),
        "zone": str(getattr(cron, "timezone", None)),
        "assets": [asset.name for asset in condition.objects] if condition else [],
        "catchup": dag.catchup,
        "run_types": sorted(one.value for one in dag.allowed_run_types or ()),
        "max_active_runs": dag.max_active_runs,
        "max_active_tasks": dag.max_active_tasks,
        "timeout": dag.dagrun_timeout.total_seconds() if dag.dagrun_timeout else None,
        "params": {name: dag.params.get_param(name).serialize() for name in dag.params},
        "tasks": {task.task_id: describe_task(task) for task in dag.tasks},
    }


def submitted_conf(bag: Any) -> dict[str, dict[str, str]]:
    """Spark's settings of each task that submits a job, on a machine that is not the one that parsed the DAGs."""
    from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator

    from spillway.airflow.tasks import SubmitJob

    SparkSubmitOperator.execute = lambda self, context: dict(self.conf)
    os.environ |= {"SPILLWAY_DRIVER_MEMORY": "3g", "SPILLWAY_JARS": "/opt/elsewhere"}
    return {
        f"{dag_id}.{task.task_id}": SubmitJob.execute.__wrapped__(
            task, {}
        )  # the rest asks for a running task
        for dag_id, dag in bag.dags.items()
        for task in dag.tasks
        if isinstance(task, SubmitJob)
    }


def main() -> None:
    from airflow.dag_processing.dagbag import DagBag

    bag = DagBag(dag_folder=os.environ["AIRFLOW__CORE__DAGS_FOLDER"])
    facts = {
        "errors": bag.import_errors,
        "engines": sorted(set(sys.modules) & {"pyspark", "delta", "great_expectations", "numba"}),
        "dags": {dag_id: describe_dag(dag) for dag_id, dag in bag.dags.items()},
    }
    facts["submitted_conf"] = submitted_conf(bag)
    print(json.dumps(facts, default=str), flush=True)


if __name__ == "__main__":
    main()

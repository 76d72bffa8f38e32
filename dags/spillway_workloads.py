"""
### Compute joins and queries

This DAG runs every hour, and each time `spillway_shed` has shed new data. It finds the closed windows of joins and
queries (`schemas/joins`, `schemas/queries`). If there are any, it submits one Spark application, which computes them
within their budgets, writes the results and records the skipped work. If there are none, the run ends in seconds
without starting Spark.

A failure of one join or query does not stop the others. The task computes all of them, then it fails with one
sentence per failure. A batch that arrives late opens its window again.

**If it fails**, read the log of the task. Its last `spillway:` line has the problem, the place and the remedy. A retry
is always safe, because a window replaces its own rows.
"""

from __future__ import annotations

from datetime import timedelta

from airflow.sdk import DAG, get_current_context, task

from spillway.airflow import TASK_DEFAULTS, SubmitJob, Tell, after_shedding, names_field, report_errors
from spillway.scheduling import pool_arguments, spark_step, workload_names

with DAG(
    dag_id="spillway_workloads",
    doc_md=__doc__,
    description="Compute joins and queries within their budgets",
    schedule=after_shedding("30 * * * *"),
    catchup=False,
    max_active_runs=1,
    dagrun_timeout=timedelta(hours=6),
    default_args=TASK_DEFAULTS,
    tags=["spillway", "workloads"],
    params={
        "subjects": names_field("Joins and queries", "compute", workload_names()),
    },
) as dag:

    @task(execution_timeout=timedelta(minutes=5))
    def find_work() -> list[str]:
        """Return the job's arguments: joins and queries with a closed window; skip the run if there is none."""
        from spillway.scheduling import workload_arguments
        from spillway.settings import Settings

        with report_errors():
            form = get_current_context()["params"]
            return workload_arguments(Settings.from_environment(), form["subjects"])

    workloads = SubmitJob(
        task_id="workloads", application_args=find_work(), **pool_arguments(None), **spark_step("workloads")
    )
    workloads >> Tell(task_id="tell").as_teardown()

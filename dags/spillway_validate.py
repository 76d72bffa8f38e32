"""
### Validate recovered data

This DAG runs every night, and each time `spillway_shed` has shed new data. It recovers the shed data, compares it with
the rows in `raw`, writes certificates and runs every expectation suite. If a contract has `retain_raw: {retire:
true}`, it deletes raw tuples whose recovery was validated. Then it writes the report and the Data Docs. Only data that
changed since the last validation is checked.

**If it fails**, an expectation failed. The `spillway:` line of the log has the table, the place and the value. Every
outcome is in the table `validations` and in the Data Docs.
"""

from __future__ import annotations

from datetime import timedelta

from airflow.sdk import DAG, Param, get_current_context, task

from spillway.airflow import (
    TASK_DEFAULTS,
    Tell,
    after_shedding,
    contracts_are_usable,
    jobs_per_channel,
    names_field,
    report_errors,
    tasks_with_work,
)
from spillway.scheduling import stream_names

with DAG(
    dag_id="spillway_validate",
    doc_md=__doc__,
    description="Recover and validate shed data, retire raw tuples, write the report",
    schedule=after_shedding("0 3 * * *"),
    catchup=False,
    max_active_runs=1,
    # one channel after the other, because they share the report and the Data Docs
    max_active_tasks=1,
    dagrun_timeout=timedelta(hours=6),
    default_args=TASK_DEFAULTS,
    tags=["spillway", "validate"],
    params={
        "streams": names_field("Streams", "validate", stream_names()),
        "everything": Param(
            False,
            type="boolean",
            title="Everything",
            description="Validate all batches again, not only those that changed since the last validation.",
        ),
    },
) as dag:

    @task.branch(execution_timeout=timedelta(minutes=5))
    def read_form() -> list[str]:
        """Return the channels whose streams are validated."""
        from spillway.scheduling import stream_arguments
        from spillway.settings import Settings

        context = get_current_context()
        form = context["params"]
        with report_errors():
            more = ["--all"] if form["everything"] else []
            # all channels of a run are one validation: its outcomes are counted and shown together
            more += ["--run-id", context["run_id"]]
            return tasks_with_work(
                "validate", stream_arguments(Settings.from_environment(), form["streams"], more)
            )

    [*jobs_per_channel("validate", read_form()), contracts_are_usable()] >> Tell(task_id="tell").as_teardown()

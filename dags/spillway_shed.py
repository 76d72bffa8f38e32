"""
### Take in new files and shed them to capacity

Every quarter of an hour this DAG lists the landing zone. If a file is new or a batch is pending, it submits one Spark
application per channel, which takes in, plans, sheds and updates the ledger. If nothing is new, the run ends in
seconds without starting Spark.

If a contract has `batching:`, small batches wait and are sent together. They are taken in at once. The first run
after they reach the size or the age of the contract sends them, also if no new file has landed. `spillway status`
lists the batches that wait. `spillway run --now` and a backfill do not wait.

A separate step makes the sketches that contracts specify, from the accepted rows. You can retry it
alone. If it fails, validation of the shed data still runs, and the next run makes the missing sketches.

**To shed dates again**, trigger `spillway_backfill`. This DAG does not support backfills of Airflow.

A failure of one stream does not stop the others. The task processes all streams, then it fails with one sentence per
failure. If a contract is not valid, `read_contracts` fails, and only the stream of this contract waits.

**If it fails**, read the log of the task. Its last `spillway:` line has the problem, the place and the remedy. A retry
is always safe, because a batch replaces its own rows.
"""

from __future__ import annotations

from datetime import timedelta

from airflow.sdk import DAG, CronTriggerTimetable, TriggerRule, get_current_context, task

from spillway.airflow import (
    TASK_DEFAULTS,
    Tell,
    contracts_are_usable,
    report_errors,
    shed_and_sketch,
    tasks_with_work,
)

with DAG(
    dag_id="spillway_shed",
    doc_md=__doc__,
    description="Take in new files and shed them to the capacity of their channels",
    schedule=CronTriggerTimetable("*/15 * * * *", timezone="UTC"),
    catchup=False,
    max_active_runs=1,
    dagrun_timeout=timedelta(hours=6),
    default_args=TASK_DEFAULTS,
    tags=["spillway", "shed"],
    allowed_run_types=["scheduled", "manual", "operator_triggered"],
) as dag:

    @task.branch(execution_timeout=timedelta(minutes=5))
    def find_work() -> list[str]:
        """Return the channels with work; skip the others, and the whole run if there is none."""
        from spillway.scheduling import shed_arguments
        from spillway.settings import Settings

        run = get_current_context()["dag_run"]
        with report_errors():
            return tasks_with_work("shed", shed_arguments(Settings.from_environment(), run.run_id, None))

    @task.branch(execution_timeout=timedelta(minutes=5), trigger_rule=TriggerRule.ALL_DONE)
    def find_sketches() -> list[str]:
        """Return the channels that lack sketches, also those of failed runs."""
        from spillway.scheduling import sketch_arguments
        from spillway.settings import Settings

        with report_errors():
            return tasks_with_work("sketch", sketch_arguments(Settings.from_environment()))

    [*shed_and_sketch(find_work(), find_sketches()), contracts_are_usable()] >> Tell(
        task_id="tell"
    ).as_teardown()

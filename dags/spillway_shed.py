"""
### Take in what arrived and shed it to capacity

Every quarter of an hour: look at the landing zone; if a file is new or a batch is pending, submit one Spark
application per channel, which takes in, plans, sheds and accounts. Nothing new: the run ends in seconds
without starting Spark.

A contract may let small batches wait for each other (`batching:`). They are taken in at once. The first run after they
are large enough, or have waited long enough, sends them together, also if no new file has landed. `spillway status`
lists the batches that wait. `spillway run --now` and a backfill do not wait.

The sketches that contracts ask for are made by a step of their own, of what was taken in: it can be looked at and
retried alone, and when it fails what was shed is validated all the same; the next run makes what is missing.

**Recompute dates**: `spillway_backfill`, one run a date; a backfill of this DAG is refused.

One stream's fault keeps no other back: the others of its channel are brought through, then the task ends red with
one sentence a fault. A contract that cannot be read turns `read_contracts` red, and its stream alone waits.

**When it fails** read the task's log: the last `spillway:` line says what, where and the remedy. Retrying is
always safe; a batch replaces its own rows.
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
    description="Take in what arrived and shed it to the channels' capacity",
    schedule=CronTriggerTimetable("*/15 * * * *", timezone="UTC"),
    catchup=False,
    max_active_runs=1,
    dagrun_timeout=timedelta(hours=6),
    default_args=TASK_DEFAULTS,
    tags=["spillway", "shed"],
) as dag:

    @task.branch(execution_timeout=timedelta(minutes=5))
    def find_work() -> list[str]:
        """The channels with something to do; skips the rest, and all where there is none."""
        from spillway.scheduling import refuse_backfill, shed_arguments
        from spillway.settings import Settings

        run = get_current_context()["dag_run"]
        with report_errors():
            refuse_backfill(run.run_type)
            return tasks_with_work("shed", shed_arguments(Settings.from_environment(), run.run_id, None))

    @task.branch(execution_timeout=timedelta(minutes=5), trigger_rule=TriggerRule.ALL_DONE)
    def find_sketches() -> list[str]:
        """The channels that lack sketches, also of runs that failed to make them."""
        from spillway.scheduling import sketch_arguments
        from spillway.settings import Settings

        with report_errors():
            return tasks_with_work("sketch", sketch_arguments(Settings.from_environment()))

    [*shed_and_sketch(find_work(), find_sketches()), contracts_are_usable()] >> Tell(
        task_id="tell"
    ).as_teardown()

"""
### Train the levers

Every night this DAG trains every lever of every stream (`attributes`: cycle, thresholds, categories, predictors). Each
training writes a new version to `models`, with its evidence. For a stream that was never
trained, the DAG first takes in its landing files as training data.

The versions of a batch are pinned when it is first planned. A new training never changes data that was already shed.
"""

from __future__ import annotations

from datetime import timedelta

from airflow.sdk import DAG, CronTriggerTimetable, get_current_context, task

from spillway.airflow import (
    TASK_DEFAULTS,
    Tell,
    contracts_are_usable,
    jobs_per_channel,
    names_field,
    report_errors,
    tasks_with_work,
)
from spillway.scheduling import stream_names

with DAG(
    dag_id="spillway_train",
    doc_md=__doc__,
    description="Train the levers of every stream",
    schedule=CronTriggerTimetable("0 1 * * *", timezone="UTC"),
    catchup=False,
    max_active_runs=1,
    dagrun_timeout=timedelta(hours=6),
    default_args=TASK_DEFAULTS,
    tags=["spillway", "train"],
    params={
        "streams": names_field("Streams", "train", stream_names()),
    },
) as dag:

    @task.branch(execution_timeout=timedelta(minutes=5))
    def read_form() -> list[str]:
        """Return the channels whose streams are trained."""
        from spillway.scheduling import stream_arguments
        from spillway.settings import Settings

        with report_errors():
            streams = get_current_context()["params"]["streams"]
            return tasks_with_work("train", stream_arguments(Settings.from_environment(), streams))

    [*jobs_per_channel("train", read_form()), contracts_are_usable()] >> Tell(task_id="tell").as_teardown()

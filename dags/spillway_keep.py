"""
### Maintain the lake

Every night this DAG deletes rows that are past their table's retention (column contracts in `schemas/tables`, `retain`
in a stream's contract). It archives or removes delivered files whose batch is done, if the contract says so
(`source.after_ingest`). It compacts the small files of closed dates and of small tables. It deletes files that no
table has used for a week. It keeps data that recovery or validation still needs. This DAG does not start Spark.

**Dry run**: trigger it with `dry_run`. The log then lists the actions, and nothing is changed.
"""

from __future__ import annotations

from datetime import timedelta

from airflow.sdk import DAG, CronTriggerTimetable, Param, TaskGroup, get_current_context, task
from airflow.sdk.exceptions import AirflowException

from spillway.airflow import TASK_DEFAULTS, Tell
from spillway.scheduling import channel_groups, pool_arguments

with DAG(
    dag_id="spillway_keep",
    doc_md=__doc__,
    description="Compact small files, and delete rows past their retention",
    schedule=CronTriggerTimetable("0 5 * * *", timezone="UTC"),
    catchup=False,
    max_active_runs=1,
    dagrun_timeout=timedelta(hours=6),
    default_args=TASK_DEFAULTS,
    tags=["spillway", "keep"],
    params={
        "dry_run": Param(False, type="boolean", title="Dry run", description="Only log the actions."),
    },
) as dag:

    @task
    def keep(room: str | None) -> str:
        """Maintain the streams of a channel, or the shared tables; raise failures at the end."""
        from spillway.errors import SpillwayError
        from spillway.scheduling import keep_lake
        from spillway.settings import Settings

        try:
            dry = bool(get_current_context()["params"]["dry_run"])
            return keep_lake(Settings.from_environment(), room, dry)
        except SpillwayError as problem:
            raise AirflowException(str(problem)) from None

    with TaskGroup("keep") as every:
        for room in channel_groups():
            keep.override(task_id=room, **pool_arguments(room))(room)
        keep.override(task_id="what_all_share", **pool_arguments(None))(None)
    every >> Tell(task_id="tell").as_teardown()

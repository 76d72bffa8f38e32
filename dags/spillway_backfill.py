"""
### Shed dates again (backfill)

This DAG runs on request: fill in the form. It sheds the batches of the dates again from `raw`, with the model
versions of their first run. A separate step makes their sketches again. Dates whose raw tuples were retired are
refused. The log lists these dates, and their transmitted rows stay unchanged.

Only one task at a time works on a channel: during a backfill, no shedding, training, validation or maintenance of the
channel runs. A second run writes the same rows.
"""

from __future__ import annotations

from datetime import timedelta

from airflow.sdk import DAG, Param, TriggerRule, get_current_context, task

from spillway.airflow import TASK_DEFAULTS, Tell, names_field, report_errors, shed_and_sketch, tasks_with_work
from spillway.scheduling import channel_groups

with DAG(
    dag_id="spillway_backfill",
    doc_md=__doc__,
    description="Shed the batches of a range of dates again",
    schedule=None,
    catchup=False,
    max_active_runs=1,
    dagrun_timeout=timedelta(hours=24),
    default_args=TASK_DEFAULTS,
    tags=["spillway", "shed"],
    params={
        "from_date": Param(
            type="string",
            format="date",
            title="From date",
            description="First date to shed again, inclusive.",
        ),
        "to_date": Param(
            None,
            type=["null", "string"],
            format="date",
            title="To date",
            description="Last date to shed again, inclusive. Empty: only the first date.",
        ),
        "channels": names_field("Channels", "shed again", channel_groups()),
    },
) as dag:

    @task.branch(execution_timeout=timedelta(minutes=5))
    def find_dates() -> list[str]:
        """Return the channels with a batch of the dates; skip the others, and the whole run if there is none."""
        from spillway.scheduling import dates_to_backfill, shed_arguments
        from spillway.settings import Settings

        context = get_current_context()
        run, form = context["dag_run"], context["params"]
        with report_errors():
            dates = dates_to_backfill(form["from_date"], form["to_date"])
            found = shed_arguments(Settings.from_environment(), run.run_id, dates, form["channels"])
            return tasks_with_work("shed", found)

    @task.branch(execution_timeout=timedelta(minutes=5), trigger_rule=TriggerRule.ALL_DONE)
    def find_sketches() -> list[str]:
        """Return the channels with a batch of the dates and sketches to make."""
        from spillway.scheduling import dates_to_backfill, sketch_arguments
        from spillway.settings import Settings

        form = get_current_context()["params"]
        with report_errors():
            dates = dates_to_backfill(form["from_date"], form["to_date"])
            found = sketch_arguments(Settings.from_environment(), dates, form["channels"])
            return tasks_with_work("sketch", found)

    shed_and_sketch(find_dates(), find_sketches()) >> Tell(task_id="tell").as_teardown()

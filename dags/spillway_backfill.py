"""
### Shed dates again

Run a backfill of this DAG (one run a date), or trigger it with `from_date` and `to_date`: exactly the batches of
those dates are shed again, from `raw`, with the facts they were first shed with. Dates whose raw tuples were
retired are refused by name, and nothing that was sent of them is touched. Their sketches are made again by a step of
their own. A scheduled run has nothing to do and
says so; the schedule is there for Airflow's backfills.

One channel after the other, alone with the tables: neither another date, nor shedding, training, validation or
keeping goes on beside it where they share the pool. Run again, it leaves the same rows.
"""

from __future__ import annotations

from datetime import timedelta

from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.sdk import DAG, Asset, CronTriggerTimetable, Param, TriggerRule, get_current_context, task
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from spillway.operators import TASK_DEFAULTS, SubmitJob, Tell
from spillway.scheduling import SHED_ASSET, pool_of, spark_step

with DAG(
    dag_id="spillway_backfill",
    doc_md=__doc__,
    description="Shed the batches of some dates again, one run a date",
    schedule=CronTriggerTimetable("0 0 * * *", timezone="UTC"),
    catchup=False,
    max_active_runs=1,
    dagrun_timeout=timedelta(hours=24),
    default_args=TASK_DEFAULTS,
    tags=["spillway", "shed"],
    params={
        "from_date": Param(
            None,
            type=["null", "string"],
            format="date",
            title="From date",
            description="Recompute the batches from this date on; empty only in a backfill.",
        ),
        "to_date": Param(
            None,
            type=["null", "string"],
            format="date",
            title="To date",
            description="Last date to recompute, included; empty: only the date above.",
        ),
    },
) as dag:

    @task(execution_timeout=timedelta(minutes=5))
    def find_dates() -> list[list[str]]:
        """One list of job arguments per channel with a batch of the dates; skips the rest when there is none."""
        from spillway.errors import SpillwayError
        from spillway.scheduling import NothingToDo, dates_to_backfill, shed_arguments
        from spillway.settings import Settings

        context = get_current_context()
        run, form = context["dag_run"], context["params"]
        try:
            dates = dates_to_backfill(run.run_type, run.logical_date, form["from_date"], form["to_date"])
            return shed_arguments(Settings.from_environment(), run.run_id, dates)
        except NothingToDo as reason:
            raise AirflowSkipException(str(reason)) from None
        except SpillwayError as problem:
            raise AirflowFailException(str(problem)) from None

    shed = SubmitJob.partial(
        task_id="shed",
        map_index_template="{{ task.application_args[1] }}",
        **pool_of(None),
        **spark_step("shed"),
    ).expand(application_args=find_dates())

    @task(execution_timeout=timedelta(minutes=5), trigger_rule=TriggerRule.ALL_DONE)
    def find_sketches() -> list[list[str]]:
        """One list of job arguments per channel with a batch of the dates and sketches to make of it."""
        from spillway.errors import SpillwayError
        from spillway.scheduling import NothingToDo, dates_to_backfill, sketch_arguments
        from spillway.settings import Settings

        context = get_current_context()
        run, form = context["dag_run"], context["params"]
        try:
            dates = dates_to_backfill(run.run_type, run.logical_date, form["from_date"], form["to_date"])
            return sketch_arguments(Settings.from_environment(), dates)
        except NothingToDo as reason:
            raise AirflowSkipException(str(reason)) from None
        except SpillwayError as problem:
            raise AirflowFailException(str(problem)) from None

    missing = find_sketches()
    sketch = SubmitJob.partial(
        task_id="sketch",
        map_index_template="{{ task.application_args[1] }}",
        **pool_of(None),
        **spark_step("sketch"),
    ).expand(application_args=missing)

    sketched = EmptyOperator(
        task_id="sketched",
        doc_md="What was shed is announced after its sketches are made, whether or not they could be.",
        trigger_rule=TriggerRule.ALL_DONE,
    )
    announce = EmptyOperator(
        task_id="announce",
        doc_md="Tells `spillway_validate` that there is new transmitted data.",
        outlets=[Asset(SHED_ASSET)],
        trigger_rule=TriggerRule.ALL_DONE_MIN_ONE_SUCCESS,
    )
    finished = EmptyOperator(
        task_id="finished",
        doc_md="Turns the run red where a channel could not be shed or sketched, though others were announced.",
        trigger_rule=TriggerRule.NONE_FAILED_MIN_ONE_SUCCESS,
    )
    shed >> missing
    sketch >> sketched
    [shed, sketched] >> announce
    [shed, sketch] >> finished
    [announce, finished] >> Tell(task_id="tell").as_teardown()

"""
### Take in what arrived and shed it to capacity

Every quarter of an hour: look at the landing zone; if a file is new or a batch is pending, submit one Spark
application per channel, which takes in, plans, sheds and accounts. Nothing new: the run ends in seconds
without starting Spark.

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

from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.sdk import DAG, Asset, CronTriggerTimetable, TriggerRule, get_current_context, task
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from spillway.operators import TASK_DEFAULTS, SubmitJob, Tell
from spillway.scheduling import SHED_ASSET, pool_of, spark_step

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

    @task(execution_timeout=timedelta(minutes=5))
    def find_work() -> list[list[str]]:
        """One list of job arguments per channel with something to do; skips the rest when there is none."""
        from spillway.errors import SpillwayError
        from spillway.scheduling import NothingToDo, refuse_backfill, shed_arguments
        from spillway.settings import Settings

        run = get_current_context()["dag_run"]
        try:
            refuse_backfill(run.run_type)
            return shed_arguments(Settings.from_environment(), run.run_id, None)
        except NothingToDo as reason:
            raise AirflowSkipException(str(reason)) from None
        except SpillwayError as problem:
            raise AirflowFailException(str(problem)) from None

    @task(execution_timeout=timedelta(minutes=5))
    def read_contracts() -> None:
        """Red when a contract cannot be used; nothing waits for it, for the streams of all others can be shed."""
        from spillway.errors import SpillwayError
        from spillway.scheduling import refuse_broken_contracts
        from spillway.settings import Settings

        try:
            refuse_broken_contracts(Settings.from_environment())
        except SpillwayError as problem:
            raise AirflowFailException(str(problem)) from None

    shed = SubmitJob.partial(
        task_id="shed",
        map_index_template="{{ task.application_args[1] }}",
        **pool_of("each"),
        **spark_step("shed"),
    ).expand(application_args=find_work())

    @task(execution_timeout=timedelta(minutes=5), trigger_rule=TriggerRule.ALL_DONE)
    def find_sketches() -> list[list[str]]:
        """One list of job arguments per channel that lacks sketches, also of runs that failed to make them."""
        from spillway.errors import SpillwayError
        from spillway.scheduling import NothingToDo, sketch_arguments
        from spillway.settings import Settings

        try:
            return sketch_arguments(Settings.from_environment())
        except NothingToDo as reason:
            raise AirflowSkipException(str(reason)) from None
        except SpillwayError as problem:
            raise AirflowFailException(str(problem)) from None

    missing = find_sketches()
    sketch = SubmitJob.partial(
        task_id="sketch",
        map_index_template="{{ task.application_args[1] }}",
        **pool_of("each"),
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
        # One channel's failure must not keep the others' data from being validated.
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
    [announce, finished, read_contracts()] >> Tell(task_id="tell").as_teardown()

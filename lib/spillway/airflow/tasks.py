"""How Airflow hands a job to Spark: as its own operator does, but a failed task says the sentence and the remedy.

`SparkSubmitOperator` fails with a command and an exit code, and what Spark printed last. A job that fails has said why;
it is given the name of a file to leave those sentences in, and they are what the task fails with. What fails before a
job begins (no Java, no master) is told by the last line that names an error.

What a DAG does room by room: a task for each channel whose streams are planned together, in that room's pool.

The first task of a DAG looks for work (`follow`), and only the rooms that have some are gone on with. The tasks are
there when a DAG is parsed, because a pool is a task's and not a run's: so validating one channel holds back nothing of
another. A channel that is new gets its task when Airflow parses the DAGs the next time, within minutes.

How every task of a DAG behaves: whose it is, how often it is tried, how long it takes, who hears of a failure.

What the DAGs' forms ask, and the schedule of those that follow shedding: said once for all of them.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.sdk import (
    Asset,
    AssetOrTimeSchedule,
    CronTriggerTimetable,
    Param,
    TaskGroup,
    TaskInstanceState,
    TriggerRule,
    get_current_context,
    task,
)
from airflow.sdk.exceptions import AirflowException, AirflowFailException, AirflowSkipException

from spillway.airflow.notify import tell_of_failure
from spillway.errors import SpillwayError
from spillway.job import FAILURE_FILE
from spillway.scheduling import (
    SHED_ASSET,
    NothingToDo,
    pool_of,
    refuse_broken_contracts,
    rooms,
    spark_step,
    submit_failed,
)
from spillway.settings import HOOK_PREFIX, Settings


class SubmitJob(SparkSubmitOperator):
    """Submits a job of ours; what `spillway.scheduling.spark_step` says, and its arguments."""

    def execute(self, context: Any) -> Any:
        with tempfile.TemporaryDirectory(prefix="spillway-") as folder:
            note = Path(folder, "failed")
            os.environ[FAILURE_FILE] = str(note)
            # spark-submit inherits this process's environment; Airflow calls the hooks, so that a job needs no address
            hooks = {name: os.environ.pop(name) for name in list(os.environ) if name.startswith(HOOK_PREFIX)}
            try:
                return super().execute(context)
            except AirflowException as problem:
                told = (
                    note.read_text(encoding="utf-8").strip()
                    if note.is_file()
                    else submit_failed(str(problem))
                )
            finally:
                del os.environ[FAILURE_FILE]
                os.environ.update(hooks)
        # here and not above, so that Spark's own words do not stand before ours
        raise AirflowException(told)


SECONDS_TO_LOOK = timedelta(minutes=5)


@contextmanager
def in_sentences() -> Iterator[None]:
    """A task that ends as we say: with nothing to do it is skipped, and what means nothing fails and is not retried."""
    try:
        yield
    except NothingToDo as reason:
        raise AirflowSkipException(str(reason)) from None
    except SpillwayError as problem:
        raise AirflowFailException(str(problem)) from None


def follow(step: str, arguments: Mapping[str, Sequence[str]]) -> list[str]:
    """The tasks of the rooms that have work, for a branch to follow; each is left what its job is told."""
    context = get_current_context()
    chosen = {f"{step}.{room}": room for room in arguments if f"{step}.{room}" in context["dag"].task_dict}
    for room in chosen.values():
        context["ti"].xcom_push(key=room, value=list(arguments[room]))
    if not chosen:
        names = ", ".join(arguments)
        raise AirflowSkipException(
            f"channel {names} is new: Airflow has not parsed its task yet, the next run has it"
        )
    return list(chosen)


def each_room(step: str, found: Any) -> list[SubmitJob]:
    """The step's job for every room that `found`, a branch, follows."""
    with TaskGroup(step):
        return [
            SubmitJob(task_id=room, application_args=found[room], **pool_of(room), **spark_step(step))
            for room in rooms()
        ]


def shed_and_sketch(found: Any, missing: Any) -> list[Any]:
    """Shed every room that `found` follows, then sketch those that `missing` does, and announce what was shed.

    What one room failed at keeps no other unannounced, and a sketch that cannot be made nothing at all; the run is red
    for either. Returns the last two tasks.
    """
    shed, sketch = each_room("shed", found), each_room("sketch", missing)
    finished = EmptyOperator(
        task_id="finished",
        doc_md="Turns the run red where a channel could not be shed or sketched, though others were announced.",
        trigger_rule=TriggerRule.NONE_FAILED_MIN_ONE_SUCCESS,
    )
    announcing = announce()
    (shed or found) >> missing
    ([*shed, *sketch] or missing) >> announcing
    [*shed, *sketch] >> finished
    return [announcing, finished]


@task(
    execution_timeout=SECONDS_TO_LOOK,
    doc_md="Tells `spillway_validate` that there is new transmitted data.",
    outlets=[Asset(SHED_ASSET)],
    trigger_rule=TriggerRule.ALL_DONE,
)
def announce() -> None:
    """Skipped where no room was shed; Airflow's own rules skip it where any was."""
    context = get_current_context()
    states = context["ti"].get_task_states(context["dag"].dag_id, run_ids=[context["run_id"]])
    of_run = states.get(context["run_id"], {})
    if not any(of_run[name] == TaskInstanceState.SUCCESS for name in of_run if name.startswith("shed.")):
        raise AirflowSkipException("no channel was shed")


@task(task_id="read_contracts", execution_timeout=SECONDS_TO_LOOK)
def contracts_are_usable() -> None:
    """Red when a contract cannot be used; nothing waits for it, for the streams of all others can go on."""
    with in_sentences():
        refuse_broken_contracts(Settings.from_environment())


TASK_DEFAULTS: dict[str, Any] = {
    "owner": "spillway",
    # Three tries over some minutes outlast a restarting master; a wrong contract fails the same way each time.
    "retries": 2,
    "retry_delay": timedelta(seconds=30),
    "retry_exponential_backoff": 2.0,
    "max_retry_delay": timedelta(minutes=15),
    "execution_timeout": timedelta(hours=2),
    "on_failure_callback": tell_of_failure,
}


def names_asked(what: str, doing: str) -> Param:
    """A field for some of the streams, or of the joins and queries, by name; nothing: all."""
    return Param(
        None,
        type=["null", "array"],
        items={"type": "string"},
        title=what,
        description=f"{what} to {doing}, one a line; empty: all.",
    )


def after_shedding(cron: str) -> AssetOrTimeSchedule:
    """Whenever `spillway_shed` announces new data, and by the clock (UTC) for what came while nobody looked."""
    return AssetOrTimeSchedule(
        timetable=CronTriggerTimetable(cron, timezone="UTC"), assets=[Asset(SHED_ASSET)]
    )

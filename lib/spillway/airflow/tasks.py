"""Define the tasks of the DAGs: Spark jobs, one task per channel, default arguments, form fields and schedules.

**Spark jobs.** `SparkSubmitOperator` fails with a command, an exit code and the last lines that Spark printed.
`SubmitJob` fails with the job's own error messages instead. It passes the job the name of a file for them. If
the submission fails before the job begins (no Java, no master), the last line that names an error is reported.

**One task per channel.** There is a task for each channel whose streams are planned together, in that channel's
pool. The first task of a DAG looks for work (`tasks_with_work`), and only the channels with work are run. The tasks
exist when a DAG is parsed, because in Airflow a task, not a run, has a pool. So validating one channel does not
block another. A new channel gets its task when Airflow parses the DAGs again, within minutes.

**Common settings.** `TASK_DEFAULTS` sets owner, retries, timeout and failure callback. `names_field` and
`after_shedding` are shared by several DAGs.
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

from spillway.airflow.notify import alert_on_failure
from spillway.engine.spark_conf import spark_conf
from spillway.errors import SpillwayError
from spillway.job import FAILURE_FILE
from spillway.scheduling import (
    SHED_ASSET,
    NothingToDo,
    channel_groups,
    pool_arguments,
    refuse_broken_contracts,
    spark_step,
    submit_error_sentence,
)
from spillway.settings import HOOK_PREFIX, Settings


class SubmitJob(SparkSubmitOperator):
    """Submit one of Spillway's jobs with the arguments of `spillway.scheduling.spark_step`.

    Spark's settings are those of the machine that submits the job (`spark_conf`). `conf` overrides single ones.
    """

    def execute(self, context: Any) -> Any:
        own: dict[str, Any] = getattr(self, "conf", None) or {}
        self.conf = {**spark_conf(), **own}
        with tempfile.TemporaryDirectory(prefix="spillway-") as folder:
            note = Path(folder, "failed")
            os.environ[FAILURE_FILE] = str(note)
            # spark-submit inherits this process's environment; Airflow calls the hooks, so a job needs no
            # address
            hooks = {name: os.environ.pop(name) for name in list(os.environ) if name.startswith(HOOK_PREFIX)}
            try:
                return super().execute(context)
            except AirflowException as problem:
                told = (
                    note.read_text(encoding="utf-8").strip()
                    if note.is_file()
                    else submit_error_sentence(str(problem))
                )
            finally:
                del os.environ[FAILURE_FILE]
                os.environ.update(hooks)
        # raise here and not in `except`, so that Spark's message does not precede ours
        raise AirflowException(told)


SECONDS_TO_LOOK = timedelta(minutes=5)


@contextmanager
def report_errors() -> Iterator[None]:
    """Skip the task if there is nothing to do; on an error of Spillway, fail it without a retry."""
    try:
        yield
    except NothingToDo as reason:
        raise AirflowSkipException(str(reason)) from None
    except SpillwayError as problem:
        raise AirflowFailException(str(problem)) from None


def tasks_with_work(step: str, arguments: Mapping[str, Sequence[str]]) -> list[str]:
    """Return the tasks of the channels that have work, for a branch to follow.

    Each job's arguments are passed by XCom.
    """
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


def jobs_per_channel(step: str, found: Any) -> list[SubmitJob]:
    """Return the step's job for every channel that the branch `found` follows."""
    with TaskGroup(step):
        return [
            SubmitJob(task_id=room, application_args=found[room], **pool_arguments(room), **spark_step(step))
            for room in channel_groups()
        ]


def shed_and_sketch(found: Any, missing: Any) -> list[Any]:
    """Shed every channel that `found` follows, sketch those that `missing` follows, and announce the shed data.

    A failure in one channel does not prevent the announcement of others. A failed sketch does not prevent any.
    In both cases the run fails. Return the last two tasks.
    """
    shed, sketch = jobs_per_channel("shed", found), jobs_per_channel("sketch", missing)
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
    """Announce new data; skip the announcement if no channel was shed."""
    context = get_current_context()
    states = context["ti"].get_task_states(context["dag"].dag_id, run_ids=[context["run_id"]])
    of_run = states.get(context["run_id"], {})
    if not any(of_run[name] == TaskInstanceState.SUCCESS for name in of_run if name.startswith("shed.")):
        raise AirflowSkipException("no channel was shed")


@task(task_id="read_contracts", execution_timeout=SECONDS_TO_LOOK)
def contracts_are_usable() -> None:
    """Fail if a contract cannot be used; no task waits for this one, so the other streams continue."""
    with report_errors():
        refuse_broken_contracts(Settings.from_environment())


TASK_DEFAULTS: dict[str, Any] = {
    "owner": "spillway",
    # Three attempts over some minutes outlast a restarting master. A wrong contract fails each time.
    "retries": 2,
    "retry_delay": timedelta(seconds=30),
    "retry_exponential_backoff": 2.0,
    "max_retry_delay": timedelta(minutes=15),
    "execution_timeout": timedelta(hours=2),
    "on_failure_callback": alert_on_failure,
}


def names_field(what: str, doing: str, names: Sequence[str]) -> Param:
    """Return a form field that offers these names, of which several may be chosen; empty means all."""
    return Param(
        None,
        type=["null", "array"],
        items={"type": "string"},
        # the form offers examples of an array as a list to choose from
        **({"examples": list(names)} if names else {}),
        title=what,
        description=f"{what} to {doing}. Empty: all.",
    )


def name_field(what: str, names: Sequence[str]) -> Param:
    """Return a form field that offers these names, of which one must be chosen."""
    return Param(
        type="string",
        minLength=1,
        **({"enum": list(names)} if names else {}),
        title=what,
        description=f"{what} with a contract.",
    )


def after_shedding(cron: str) -> AssetOrTimeSchedule:
    """Return a schedule: on each announcement of `spillway_shed`, and by the clock (UTC) for missed announcements."""
    return AssetOrTimeSchedule(
        timetable=CronTriggerTimetable(cron, timezone="UTC"), assets=[Asset(SHED_ASSET)]
    )

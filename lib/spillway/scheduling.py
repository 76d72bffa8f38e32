"""Compute what the DAGs need without Airflow: job arguments, channels with work, pools, and alerts at the end of a run.

A DAG defines the schedule, this module the arguments of the tasks, and the jobs do the work. When a DAG is
parsed, only `channels.yaml` is read (`channel_groups`), and Spark is not imported.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime
from typing import TYPE_CHECKING, Any

from spillway.errors import SpillwayError
from spillway.settings import ROOT_VARIABLES, Settings

if TYPE_CHECKING:
    from spillway.store.tables import Tables

SHED_ASSET = "spillway/transmitted"
TABLES_ALIAS = "spillway/tables"
"""Alias of the assets `spillway/<table>/<stream>` of the tables that a run wrote."""

POOL_VARIABLE = "SPILLWAY_POOL"
"""Prefix of the Airflow pools of one slot that are created when a run begins, one per channel."""


STREAM_TABLES = ("raw", "transmitted", "recovered")

JOB_VARIABLES = (
    *ROOT_VARIABLES,
    "SPILLWAY_JARS",  # the folder of the Delta jars
    "SPILLWAY_PYTHON",  # the Python of Spark's workers
    "SPILLWAY_SHUFFLE_PARTITIONS",
    "SPILLWAY_DRIVER_MEMORY",
    "SPILLWAY_JAVA_OPTIONS",
    "SPILLWAY_SPARK_UI",
)
"""The environment variables that travel to a job's driver. No others do.

They are stored as a template field of the task, shown in Airflow's UI, and passed on spark-submit's command line in
cluster mode. So none of them may contain a secret. The address of a hook (`SPILLWAY_HOOK_NAME`) often does; it stays
with Airflow, which calls the hooks. Set other variables of a job on the cluster (`spark.executorEnv.NAME`).
"""


class NothingToDo(SpillwayError):
    """A run has nothing to do. It ends within seconds, without starting Spark; the message says why."""


def job_path(job: str, environment: Mapping[str, str] | None = None) -> str:
    """Return the path of the job: in `SPILLWAY_JOBS` (also `local://` inside an image), or in `jobs/` of the home.

    >>> job_path("shed", {"SPILLWAY_JOBS": "local:///opt/spillway/jobs"})
    'local:///opt/spillway/jobs/shed.py'
    """
    env = os.environ if environment is None else environment
    return f"{env.get('SPILLWAY_JOBS') or Settings.from_environment(env).home + '/jobs'}/{job}.py"


def spark_step(job: str) -> dict[str, Any]:
    """Return the arguments of a `SparkSubmitOperator` for a job; only the connection decides where it runs.

    `JOB_VARIABLES` are passed to the application, so that its driver has the same roots of the lake on every
    machine. Spark's settings are not among the arguments: `SubmitJob` makes them on the machine that submits the job,
    because cores, folders and Python of the machine that parses DAGs may be others.
    """
    return {
        "conn_id": "spark_default",
        "application": job_path(job),
        "name": f"spillway-{job}",
        "env_vars": {name: os.environ[name] for name in JOB_VARIABLES if name in os.environ} or None,
    }


def channel_groups() -> tuple[str, ...]:
    """Return the channels whose streams are planned together, by name; DAGs have one task for each.

    The result is empty if `channels.yaml` cannot be read. The task that looks for work reports the error.
    """
    from spillway.contracts import find_channel_groups

    return tuple(find_channel_groups(Settings.from_environment().schemas))


def pool_arguments(room: str | None, environment: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Return the operator arguments for a pool of one slot, so that only one step at a time works on a channel.

    All steps that shed, train, validate, retire, backfill or compact the streams of a channel share the
    channel's pool. So channels run in parallel. Steps that belong to no channel (`pool_arguments(None)`: shared
    tables, joins and queries) have their own pool. Airflow never starts a task whose pool does not exist, so
    `spillway.airflow.pools` creates the pools of a run when it begins. Without `SPILLWAY_POOL` only the tables
    coordinate steps: every write is compare-and-swap, and a run that loses stops with a message and is retried.

    >>> pool_arguments("uplink", {"SPILLWAY_POOL": "spillway"}), pool_arguments(None, {"SPILLWAY_POOL": "spillway"})
    ({'pool': 'spillway_uplink'}, {'pool': 'spillway'})
    >>> pool_arguments(None, {})
    {'pool': 'default_pool'}
    """
    pool = (os.environ if environment is None else environment).get(POOL_VARIABLE)
    if not pool:
        return {"pool": "default_pool"}
    return {"pool": pool if room is None else f"{pool}_{room}"}


def read_date(name: str, value: str | date | None) -> date | None:
    """Return the date of a form field; None if it is empty.

    >>> read_date("from_date", "2013-02-01")
    datetime.date(2013, 2, 1)
    """
    if isinstance(value, date):
        return value
    if not value:
        return None
    try:
        return date.fromisoformat(value)
    except ValueError:
        raise SpillwayError(
            f"`{name}` must be a date like 2013-02-01, got {value!r}; correct the form"
        ) from None


def dates_to_backfill(
    run_type: str,
    logical_date: datetime | None,
    from_date: str | None = None,
    to_date: str | None = None,
) -> tuple[date, date]:
    """Return the first and last batch date that a run of `spillway_backfill` recomputes: the form's, or its own day.

    The schedule exists for Airflow's backfills, which create one run per day. Scheduled runs have nothing to
    do.

    >>> dates_to_backfill("manual", None, "2013-02-01", None)
    (datetime.date(2013, 2, 1), datetime.date(2013, 2, 1))
    >>> dates_to_backfill("backfill", datetime(2013, 2, 1, 0, 0))
    (datetime.date(2013, 2, 1), datetime.date(2013, 2, 1))
    """
    first, last = read_date("from_date", from_date), read_date("to_date", to_date)
    if first or last:
        first, last = first or last, last or first
        assert first is not None
        assert last is not None
        if last < first:
            raise SpillwayError(
                f"`to_date` must not be before from_date ({first}), got {str(last)!r}; swap them"
            )
        return first, last
    if run_type == "backfill" and logical_date is not None:
        return logical_date.date(), logical_date.date()
    if run_type == "scheduled":
        raise NothingToDo("nobody asked for a date: a run of the schedule recomputes nothing")
    raise SpillwayError("`from_date` must be a date like 2013-02-01, got nothing; fill in the form")


def refuse_backfill(run_type: str) -> None:
    """Refuse a backfill of `spillway_shed`, which has no dates to recompute.

    It would create 96 concurrent runs per day.
    """
    if run_type == "backfill":
        raise SpillwayError(
            "`dag` must be spillway_backfill where dates are to be recomputed, got a backfill of spillway_shed; "
            "run the backfill of spillway_backfill, one run a date"
        )


def shed_arguments(settings: Settings, run_id: str, dates: tuple[date, date] | None) -> dict[str, list[str]]:
    """Return the arguments of jobs/shed.py by channel with work; raise NothingToDo if there is none."""
    from spillway.pipeline.pending import channels_of_dates, pending_channels

    if dates is None:
        channels = pending_channels(settings)
        if not channels:
            raise NothingToDo("nothing new in the landing zone and no batch is pending")
        return {channel: ["--channel", channel, "--run-id", run_id] for channel in channels}
    first, last = dates
    channels = channels_of_dates(settings, first, last)
    if not channels:
        raise NothingToDo(f"no batch has a date from {first} to {last}")
    between = ["--from-date", str(first), "--to-date", str(last)]
    return {channel: ["--channel", channel, *between, "--run-id", run_id] for channel in channels}


def stream_arguments(
    settings: Settings, streams: Sequence[str] | None, more: Sequence[str] = ()
) -> dict[str, list[str]]:
    """Return `--stream S` for the named streams (default: all) by channel, each followed by the arguments `more`."""
    from spillway.contracts import load_usable

    contracts = load_usable(settings.schemas)
    found: dict[str, list[str]] = {}
    for contract in map(contracts.stream, streams or sorted(contracts.streams)):
        room = contracts.planning_channel(contract.channel)
        found.setdefault(room, []).extend(["--stream", contract.stream])
    if not found:
        raise NothingToDo("no stream has a contract that can be used")
    return {room: [*arguments, *more] for room, arguments in sorted(found.items())}


def sketch_arguments(settings: Settings, dates: tuple[date, date] | None = None) -> dict[str, list[str]]:
    """Return the arguments of jobs/sketch.py by channel that lacks sketches; raise NothingToDo if there is none."""
    from spillway.pipeline.pending import unsketched_channels

    channels = unsketched_channels(settings, dates)
    if not channels:
        raise NothingToDo("every batch has the sketches that its contract asks for")
    between = ["--from-date", str(dates[0]), "--to-date", str(dates[1])] if dates else []
    return {channel: ["--channel", channel, *between] for channel in channels}


def refuse_broken_contracts(settings: Settings) -> None:
    """Raise an error that lists the problems of all contracts.

    It makes the run fail, although all other streams are processed.
    """
    from spillway.contracts import load_contracts

    load_contracts(settings.schemas)


def keep_lake(settings: Settings, room: str | None, dry_run: bool) -> str:
    """Apply retention and compaction to the streams of a channel or, without a channel, to the shared tables.

    It runs in this process and starts no engine. Return a sentence that sums up the work.
    """
    from spillway.contracts import load_usable
    from spillway.job import say
    from spillway.store.tables import Tables
    from spillway.streams.retention import maintain_lake

    contracts = load_usable(settings.schemas)
    streams = [] if room is None else [one.stream for one in contracts.streams_of(room)]
    return maintain_lake(
        Tables(settings), contracts, say, dry_run, streams=streams, shared=room is None
    ).sentence


def report_run(
    settings: Settings,
    address: Callable[[str], str | None],
    failed: Sequence[str] = (),
    run_id: str = "",
) -> None:
    """Send alerts about a run, and write the Prometheus metrics; errors of Spillway are logged, not raised."""
    from spillway.contracts import load_usable
    from spillway.job import say
    from spillway.report.metrics import alert_and_write_metrics
    from spillway.store.tables import Tables

    try:
        alert_and_write_metrics(Tables(settings), load_usable(settings.schemas), say, failed, run_id, address)
    except SpillwayError as problem:
        say(f"nobody could be told of the run: {problem}")


def failed_task_messages(place: str, said: str) -> list[str]:
    """Return the error messages of a failed task; if it has none, a message that says where to look.

    >>> failed_task_messages("spillway_shed.shed", "river: `rate` must be known, got None; declare it")
    ['river: `rate` must be known, got None; declare it']
    >>> failed_task_messages("spillway_shed.shed", "")[0].partition(";")[0]
    '`spillway_shed.shed` must say why it ends, got nothing: it was killed, or failed unexpectedly'
    """
    silent = (
        f"`{place}` must say why it ends, got nothing: it was killed, or failed unexpectedly; see its log in "
        "Airflow, and clear it to run it again"
    )
    return [line for line in said.splitlines() if line.strip()] or [silent]


def assets_written_since(settings: Settings, moment: datetime) -> list[str]:
    """Return the assets of the tables written since a moment, as `spillway/<table>/<stream, join or query>`, by name.

    It compares the clock of the process that wrote the files with Airflow's. A table that cannot be read is
    left out.
    """
    from spillway.contracts import load_usable
    from spillway.store.tables import Tables
    from spillway.workloads.run import results_tables

    tables, contracts = Tables(settings), load_usable(settings.schemas)
    pairs = [(table, stream) for stream in contracts.streams for table in STREAM_TABLES]
    pairs += [(table, name) for name, table in results_tables(contracts).items()]
    return sorted(
        f"spillway/{table}/{stream}" for table, stream in pairs if _is_newer(tables, table, stream, moment)
    )


def _is_newer(tables: Tables, table: str, stream: str, moment: datetime) -> bool:
    try:
        written = max((file.written_at_ms for file in tables.at(table, stream).files()), default=0)
    except SpillwayError:
        return False
    return written >= moment.timestamp() * 1000


def workload_arguments(settings: Settings, subjects: Sequence[str] | None) -> list[str]:
    """Return `--subject S` for each join and query (default: all) with work; raise NothingToDo if there is none."""
    from spillway.pipeline.pending import pending_workloads

    waiting = pending_workloads(settings, subjects or None)
    if not waiting:
        raise NothingToDo("no window of a join or a query is closed and not worked out")
    return [part for name in waiting for part in ("--subject", name)]


def recover_arguments(settings: Settings, form: Mapping[str, Any]) -> list[str]:
    """Return the arguments of jobs/recover.py from the form, parsed like those of the command line.

    Invalid arguments are rejected here, within seconds and without starting Spark.
    """
    from spillway.contracts import load_usable
    from spillway.streams.query import StreamQuery
    from spillway.streams.recover import output_within

    given = {name: value for name, value in form.items() if value not in (None, "", [])}
    if "stream" not in given:
        raise SpillwayError("`stream` must name a stream, got nothing; fill in the form")
    contract = load_usable(settings.schemas).stream(given["stream"])
    ranges = {name: given[name] for name in ("from_seq", "to_seq", "from_time", "to_time") if name in given}
    StreamQuery.parse(contract, given.get("attributes"), given.get("keys", ()), **ranges)
    if "output" in given:
        output_within(settings.output, given["output"])
    arguments = ["--stream", contract.stream]
    if "attributes" in given:
        arguments += ["--attributes", ",".join(given["attributes"])]
    arguments += [part for pair in given.get("keys", ()) for part in ("--key", pair)]
    for name in (*ranges, *(["output"] if "output" in given else [])):
        arguments += [f"--{name.replace('_', '-')}", str(given[name])]
    return arguments


_ERROR_LINE = re.compile(r"(?:^|\s)((?:[\w$]+\.)*[\w$]*(?:Error|Exception)\b.*|Error: .*)")


def submit_error_sentence(told: str) -> str:
    r"""Return one sentence from the output of a spark-submit that failed before the job began.

    >>> submit_error_sentence("Cannot execute: spark-submit x.py.\n  at org.a.B(C.java)\nError: no master")
    '`spark-submit` must reach its job, got Error: no master; see the log above, and run: spillway doctor'
    """
    lines = [found.group(1).strip() for line in told.splitlines()[1:] if (found := _ERROR_LINE.search(line))]
    code = re.search(r"Error code is: (\d+)", told)
    got = lines[-1] if lines else f"exit code {code.group(1)}" if code else told.partition("\n")[0]
    return f"`spark-submit` must reach its job, got {got}; see the log above, and run: spillway doctor"

"""Compute what the DAGs need without Airflow: job arguments, channels with work, pools, and alerts at the end of a run.

A DAG defines the schedule, this module the arguments of the tasks, and the jobs do the work. When a DAG is
parsed, only `channels.yaml` and the names of the contract files are read, and Spark is not imported.
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
    from spillway.contracts import StreamContract
    from spillway.store.tables import Tables

SHED_ASSET = "spillway/transmitted"
TABLES_ALIAS = "spillway/tables"
"""Alias of the assets `spillway/<table>/<stream>` of the tables that a run wrote."""

POOL_VARIABLE = "SPILLWAY_POOL"
"""Prefix of the Airflow pools of one slot that are created when a run begins, one per channel."""


STREAM_TABLES = ("raw", "transmitted", "recovered")
LOSSY_TABLES = ("transmitted", "recovered")

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


def stream_names() -> list[str]:
    """Return the streams that forms offer, by name, whether their contracts are valid or not."""
    from spillway.contracts import find_names

    return find_names(Settings.from_environment().schemas, "streams")


def workload_names() -> list[str]:
    """Return the joins and queries that forms offer, by name."""
    from spillway.contracts import find_names

    return find_names(Settings.from_environment().schemas, "joins", "queries")


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


def dates_to_backfill(from_date: str | None, to_date: str | None = None) -> tuple[date, date]:
    """Return the first and last batch date that a run of `spillway_backfill` recomputes, from its form.

    >>> dates_to_backfill("2013-02-01")
    (datetime.date(2013, 2, 1), datetime.date(2013, 2, 1))
    """
    first, last = read_date("from_date", from_date), read_date("to_date", to_date)
    if first is None and last is None:
        raise SpillwayError("`from_date` must be a date like 2013-02-01, got nothing; fill in the form")
    first, last = first or last, last or first
    assert first is not None
    assert last is not None
    if last < first:
        raise SpillwayError(f"`to_date` must not be before from_date ({first}), got {str(last)!r}; swap them")
    return first, last


def shed_arguments(
    settings: Settings,
    run_id: str,
    dates: tuple[date, date] | None,
    only: Sequence[str] | None = None,
) -> dict[str, list[str]]:
    """Return the arguments of jobs/shed.py by channel with work; raise NothingToDo if there is none.

    `dates`: shed the batches of these dates again. `only`: of these channels alone (None or empty: all).
    """
    from spillway.pipeline.pending import channels_of_dates, pending_channels

    if dates is None:
        channels = pending_channels(settings)
        if not channels:
            raise NothingToDo("nothing new in the landing zone and no batch is pending")
        return {channel: ["--channel", channel, "--run-id", run_id] for channel in channels}
    first, last = dates
    channels = _only(settings, channels_of_dates(settings, first, last), only)
    if not channels:
        raise NothingToDo(f"no batch{_of(only)} has a date from {first} to {last}")
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


def _only(settings: Settings, channels: Sequence[str], only: Sequence[str] | None) -> list[str]:
    """Return the channels that a form names, all of them if it names none; reject a name that is no channel."""
    from spillway.contracts import find_channel_groups

    if not only:
        return list(channels)
    known = find_channel_groups(settings.schemas)
    for name in only:
        if name not in known:
            raise SpillwayError(f"`channels` must name channels, got {name!r}; use {', '.join(known)}")
    return [one for one in channels if one in only]


def _of(only: Sequence[str] | None) -> str:
    return f" of {', '.join(only)}" if only else ""


def sketch_arguments(
    settings: Settings, dates: tuple[date, date] | None = None, only: Sequence[str] | None = None
) -> dict[str, list[str]]:
    """Return the arguments of jobs/sketch.py by channel that lacks sketches; raise NothingToDo if there is none."""
    from spillway.pipeline.pending import unsketched_channels

    channels = _only(settings, unsketched_channels(settings, dates), only)
    if not channels:
        raise NothingToDo("every batch has the sketches of its contract")
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
        say(f"no alert about the run could be sent: {problem}")


def failed_task_messages(place: str, said: str) -> list[str]:
    """Return the error messages of a failed task; if it has none, a message that says where to look.

    >>> failed_task_messages("spillway_shed.shed", "river: `rate` must be known, got None; declare it")
    ['river: `rate` must be known, got None; declare it']
    >>> failed_task_messages("spillway_shed.shed", "")[0].partition(";")[0]
    '`spillway_shed.shed` must end with a message, got none: it was killed, or failed unexpectedly'
    """
    silent = (
        f"`{place}` must end with a message, got none: it was killed, or failed unexpectedly; see its log in "
        "Airflow, and clear it to run it again"
    )
    return [line for line in said.splitlines() if line.strip()] or [silent]


def assets_written_since(settings: Settings, moment: datetime) -> dict[str, dict[str, float | None]]:
    """Return the assets of the tables written since a moment, each with what was written, by name.

    An asset is named `spillway/<table>/<stream, join or query>`. Its `rows` and `bytes` are those of the files
    written since the moment. `transmitted` and `recovered` also have the losses of the batches that were saved
    since then: `rows_lost` (dropped for good), `values_held` (kept at the source), and `loss_pct` (mean loss of a
    value of a measure; None until these batches are validated).

    It compares the clock of the process that wrote the files with Airflow's. A table that cannot be read is
    left out.
    """
    from spillway.contracts import load_usable
    from spillway.store.tables import Tables
    from spillway.workloads.run import results_tables

    tables, contracts = Tables(settings), load_usable(settings.schemas)
    pairs = [(table, stream) for stream in contracts.streams for table in STREAM_TABLES]
    pairs += [(table, name) for name, table in results_tables(contracts).items()]
    found: dict[str, dict[str, float | None]] = {}
    for table, subject in sorted(pairs):
        try:
            written = [
                file
                for file in tables.at(table, subject).files()
                if file.written_at_ms >= moment.timestamp() * 1000
            ]
            if not written:
                continue
            extra: dict[str, float | None] = {
                "rows": sum(file.records or 0 for file in written),
                "bytes": sum(file.size for file in written),
            }
            if table in LOSSY_TABLES:
                extra |= _losses_since(tables, contracts.stream(subject), moment)
        except SpillwayError:
            continue
        found[f"spillway/{table}/{subject}"] = extra
    return found


def _losses_since(tables: Tables, contract: StreamContract, moment: datetime) -> dict[str, float | None]:
    """Return the losses of the batches of a stream that were saved since a moment; nothing if there are none."""
    from spillway.report.overview import measured_loss, overview_since

    one = overview_since(tables, contract, moment)
    if one is None:
        return {}
    return {
        "rows_lost": one.figures.rows_lost,
        "values_held": sum(attribute.absent for attribute in one.attributes),
        "loss_pct": None if one.batches_unchecked else measured_loss([one]),
    }


def workload_arguments(settings: Settings, subjects: Sequence[str] | None) -> list[str]:
    """Return `--subject S` for each join and query (default: all) with work; raise NothingToDo if there is none."""
    from spillway.pipeline.pending import pending_workloads

    waiting = pending_workloads(settings, subjects or None)
    if not waiting:
        raise NothingToDo("all closed windows of the joins and queries are computed")
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

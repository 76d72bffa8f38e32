"""What the DAGs share: the step that submits a Spark job, who has work to do, and what is told when a run is over.

A DAG says when; this says what a task is told; the jobs do the work. When a DAG is parsed nothing is read but
`channels.yaml` (`rooms`), and nothing imports Spark.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime
from typing import TYPE_CHECKING, Any

from spillway.engine.spark_conf import spark_conf
from spillway.errors import SpillwayError
from spillway.settings import ROOT_VARIABLES, Settings

if TYPE_CHECKING:
    from spillway.store.tables import Tables

SHED_ASSET = "spillway/transmitted"
TABLES_ALIAS = "spillway/tables"
"""Stands for the assets `spillway/<table>/<stream>` of whichever tables a run wrote."""

POOL_VARIABLE = "SPILLWAY_POOL"
"""Names the Airflow pools that are made when a run begins: one a room, called after this and the room, of one slot."""


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
    """A run that ends here, in seconds, without starting Spark; says why."""


def job_path(job: str, environment: Mapping[str, str] | None = None) -> str:
    """The job's file: in `SPILLWAY_JOBS` (also `local://` inside an image), or in `jobs/` of the home.

    >>> job_path("shed", {"SPILLWAY_JOBS": "local:///opt/spillway/jobs"})
    'local:///opt/spillway/jobs/shed.py'
    """
    env = os.environ if environment is None else environment
    return f"{env.get('SPILLWAY_JOBS') or Settings.from_environment(env).home + '/jobs'}/{job}.py"


def spark_step(job: str) -> dict[str, Any]:
    """Arguments of a `SparkSubmitOperator` for a job; the connection alone decides where it runs.

    `JOB_VARIABLES` travel with the application, so that the roots of the lake are the same wherever its driver runs.
    """
    return {
        "conn_id": "spark_default",
        "application": job_path(job),
        "name": f"spillway-{job}",
        "conf": spark_conf(),
        "env_vars": {name: os.environ[name] for name in JOB_VARIABLES if name in os.environ} or None,
    }


def rooms() -> tuple[str, ...]:
    """The channels whose streams are planned together, by name: what DAGs have one task each of.

    None where `channels.yaml` cannot be read: whoever looks for work then says what is wrong with it.
    """
    from spillway.contracts import rooms_of

    return tuple(rooms_of(Settings.from_environment().schemas))


def pool_of(room: str | None, environment: Mapping[str, str] | None = None) -> dict[str, Any]:
    """What an operator is told so that no two steps work on one channel at once: a pool of one slot for each room.

    Whatever sheds, trains, validates, retires, backfills or keeps the streams of a room shares the room's pool, so that
    rooms go side by side, each alone with its streams. What is of no room (`pool_of(None)`: tables that all share,
    joins and queries) has a pool of its own. Airflow holds a task back for ever whose pool is not there: the pools of
    a run are made when it begins (`spillway.airflow.pools`). Without `SPILLWAY_POOL` steps share nothing but the
    tables, of which every write is compare-and-swap: who loses stops with a sentence and is tried again.

    >>> pool_of("uplink", {"SPILLWAY_POOL": "spillway"}), pool_of(None, {"SPILLWAY_POOL": "spillway"})
    ({'pool': 'spillway_uplink'}, {'pool': 'spillway'})
    >>> pool_of(None, {})
    {'pool': 'default_pool'}
    """
    pool = (os.environ if environment is None else environment).get(POOL_VARIABLE)
    if not pool:
        return {"pool": "default_pool"}
    return {"pool": pool if room is None else f"{pool}_{room}"}


def read_date(name: str, value: str | date | None) -> date | None:
    """A form's date.

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
    """The batch dates a run of `spillway_backfill` recomputes, both ends included: the form's, or its own day.

    The schedule is there for Airflow's backfills, which make a run a day: its own runs have nothing to do.

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
    """What takes in what is new has no dates to run again: 96 runs a day would, and each at once with the others."""
    if run_type == "backfill":
        raise SpillwayError(
            "`dag` must be spillway_backfill where dates are to be recomputed, got a backfill of spillway_shed; "
            "run the backfill of spillway_backfill, one run a date"
        )


def shed_arguments(settings: Settings, run_id: str, dates: tuple[date, date] | None) -> dict[str, list[str]]:
    """By room that has work the arguments of jobs/shed.py; NothingToDo when none has."""
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
    """By room `--stream S` for each of its streams that a form names (none: all), and what `more` there is to say."""
    from spillway.contracts import load_usable

    contracts = load_usable(settings.schemas)
    found: dict[str, list[str]] = {}
    for contract in map(contracts.stream, streams or sorted(contracts.streams)):
        room = contracts.planned_with(contract.channel)
        found.setdefault(room, []).extend(["--stream", contract.stream])
    if not found:
        raise NothingToDo("no stream has a contract that can be used")
    return {room: [*arguments, *more] for room, arguments in sorted(found.items())}


def sketch_arguments(settings: Settings, dates: tuple[date, date] | None = None) -> dict[str, list[str]]:
    """By room that lacks sketches the arguments of jobs/sketch.py; NothingToDo when none does."""
    from spillway.pipeline.pending import unsketched_channels

    channels = unsketched_channels(settings, dates)
    if not channels:
        raise NothingToDo("every batch has the sketches that its contract asks for")
    between = ["--from-date", str(dates[0]), "--to-date", str(dates[1])] if dates else []
    return {channel: ["--channel", channel, *between] for channel in channels}


def refuse_broken_contracts(settings: Settings) -> None:
    """Refuse by name what is wrong with any contract, so that a run is red though all streams but theirs went on."""
    from spillway.contracts import load_contracts

    load_contracts(settings.schemas)


def keep_lake(settings: Settings, room: str | None, dry_run: bool) -> str:
    """Keep what is of a room's streams fit, or, without a room, what all share; right here, for it starts no engine.

    Returns what was done, in a sentence.
    """
    from spillway.contracts import load_usable
    from spillway.job import say
    from spillway.store.tables import Tables
    from spillway.streams.retention import keep

    contracts = load_usable(settings.schemas)
    streams = [] if room is None else [one.stream for one in contracts.streams_of(room)]
    return keep(Tables(settings), contracts, say, dry_run, streams=streams, shared=room is None).said


def tell_of_run(
    settings: Settings,
    address: Callable[[str], str | None],
    failed: Sequence[str] = (),
    run_id: str = "",
) -> None:
    """Tell hooks what went wrong, and write how things stand for Prometheus; whatever happens, nothing is raised."""
    from spillway.contracts import load_usable
    from spillway.job import say
    from spillway.report.metrics import after_run
    from spillway.store.tables import Tables

    try:
        after_run(Tables(settings), load_usable(settings.schemas), say, failed, run_id, address)
    except SpillwayError as problem:
        say(f"nobody could be told of the run: {problem}")


def failed_task(place: str, said: str) -> list[str]:
    """The sentences that a task failed with; one that says where to look when it said none.

    >>> failed_task("spillway_shed.shed", "river: `rate` must be known, got None; declare it")
    ['river: `rate` must be known, got None; declare it']
    >>> failed_task("spillway_shed.shed", "")[0].partition(";")[0]
    '`spillway_shed.shed` must say why it ends, got nothing: it was killed, or failed as nobody foresaw'
    """
    silent = (
        f"`{place}` must say why it ends, got nothing: it was killed, or failed as nobody foresaw; see its log in "
        "Airflow, and clear it to run it again"
    )
    return [line for line in said.splitlines() if line.strip()] or [silent]


def written_since(settings: Settings, moment: datetime) -> list[str]:
    """The assets of the tables that were written since, `spillway/<table>/<stream, join or query>`, by name.

    The clocks are those of whoever wrote the files and of Airflow; a table that cannot be read is left out.
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
    """`--subject S` for each join and query (of those named, or of all) with something to work out; or NothingToDo."""
    from spillway.pipeline.pending import pending_workloads

    waiting = pending_workloads(settings, subjects or None)
    if not waiting:
        raise NothingToDo("no window of a join or a query is closed and not worked out")
    return [part for name in waiting for part in ("--subject", name)]


def recover_arguments(settings: Settings, form: Mapping[str, Any]) -> list[str]:
    """Arguments of jobs/recover.py from the form, read as the job and the command line read them.

    What they would refuse is refused here, in seconds and without starting Spark.
    """
    from spillway.contracts import load_usable
    from spillway.streams.reading import Question
    from spillway.streams.recover import output_within

    given = {name: value for name, value in form.items() if value not in (None, "", [])}
    if "stream" not in given:
        raise SpillwayError("`stream` must name a stream, got nothing; fill in the form")
    contract = load_usable(settings.schemas).stream(given["stream"])
    ranges = {name: given[name] for name in ("from_seq", "to_seq", "from_time", "to_time") if name in given}
    Question.parse(contract, given.get("attributes"), given.get("keys", ()), **ranges)
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


def submit_failed(told: str) -> str:
    """One sentence of what spark-submit left behind when no job had begun.

    >>> submit_failed("Cannot execute: spark-submit x.py. Error code is: 1.\\n  at org.a.B(C.java)\\nError: no master")
    '`spark-submit` must reach its job, got Error: no master; see the log above, and run: spillway doctor'
    """
    lines = [found.group(1).strip() for line in told.splitlines()[1:] if (found := _ERROR_LINE.search(line))]
    code = re.search(r"Error code is: (\d+)", told)
    got = lines[-1] if lines else f"exit code {code.group(1)}" if code else told.partition("\n")[0]
    return f"`spark-submit` must reach its job, got {got}; see the log above, and run: spillway doctor"

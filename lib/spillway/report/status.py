"""Report the state of the lake: last runs, batches by status, balance of the ledger, quotas, and shortages.

Everything is read from the tables that the stages wrote. The module starts no Spark, and of the landing zone it
reads only the list of files. For figures over all batches, only a few columns of `batches` are read. Whole rows
are read of the last batches and of the waiting ones.

A *shortage* is anything that falls short. Examples are a rejected file, a quarantined batch, an unknown rate,
and a batch that does not fit.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from functools import cached_property

import pyarrow as pa
import pyarrow.compute as pc

from spillway.batch import DONE, PENDING, QUARANTINED, RETIRED, UNTRAINED, Batch
from spillway.clock import utc_now
from spillway.contracts import Contracts, StreamContract, Subject, load_usable
from spillway.contracts.capacity import DAY_SECONDS
from spillway.errors import SpillwayError, escape_text, format_count
from spillway.intake.ingest import is_waiting_for_rate
from spillway.intake.landing import Landing, find_landing_files
from spillway.intake.rate import HISTORY_NOTE
from spillway.ledger import Row, total_imbalance
from spillway.levers.protocol import ASKS, OpenQuestion
from spillway.levers.windows import PLANNED
from spillway.records import is_repeated_hour
from spillway.registry import lever
from spillway.report.explain import repeated_hours
from spillway.report.recent import RecentBatches, last_windows, read_recent_of_all
from spillway.report.summary import (
    StreamFigures,
    group_rows,
    last_outcomes,
    last_stages,
    recent_figures,
    total_rows,
)
from spillway.report.text import StageSum, format_bytes, format_pct, stages_of
from spillway.store.batches import load_batches
from spillway.store.tables import Tables
from spillway.streams.batching import WaitingBatches, load_waiting_batches
from spillway.streams.capacity import last_quota_date, quota_spending, streams_of_quota
from spillway.streams.drafts import shortfall_remedy
from spillway.streams.exemptions import exempt_streams
from spillway.streams.train import last_rows_reader
from spillway.workloads.windows import find_windows

_COLUMNS = (
    "stream", "batch", "batch_date", "status", "rows", "run_id", "created_at", "updated_at", "revision",
    "validated_revision",
)  # fmt: skip

RunRow = tuple[str, datetime, tuple[str, ...], int, int]
"""A run: its name, when it last began a batch, its streams, its number of batches, and their number of tuples."""


@dataclass(frozen=True)
class StoredBatches:
    """The needed columns of all batches."""

    columns: pa.Table

    @staticmethod
    def of(tables: Tables) -> StoredBatches:
        return StoredBatches(tables.at("batches").rows(_COLUMNS))

    @cached_property
    def _by_stream(self) -> dict[str, pa.Table]:
        """The columns of each stream; each row is looked at once, and not once per stream."""
        ordered = self.columns.sort_by("stream")
        edges = pc.run_end_encode(ordered["stream"].combine_chunks())
        found, start = {}, 0
        for stream, end in zip(edges.values.to_pylist(), edges.run_ends.to_pylist(), strict=True):
            found[stream] = ordered.slice(start, end - start)
            start = end
        return found

    def _mine(self, stream: str, *status: str) -> pa.Table:
        found = self._by_stream.get(stream, self.columns.slice(0, 0))
        return found.filter(pc.is_in(found["status"], value_set=pa.array(status))) if status else found

    def by_status(self, stream: str) -> dict[str, int]:
        """Return the number of batches by status."""
        counts = pc.value_counts(self._mine(stream)["status"]).to_pylist()
        return {one["values"]: one["counts"] for one in counts}

    def last_date(self, stream: str) -> date | None:
        found: date | None = pc.max(self._mine(stream)["batch_date"]).as_py()
        return found

    def last_done(self, stream: str) -> datetime | None:
        """Return when a batch with status `done` was last written."""
        found: datetime | None = pc.max(self._mine(stream, DONE)["updated_at"]).as_py()
        return found

    def unvalidated(self, stream: str, before: int) -> int:
        """Return how many shed batches with a number below `before` are not validated since they last changed."""
        mine = self._mine(stream, DONE)
        old = mine.filter(pc.and_(pc.less(mine["batch"], before), pc.greater(mine["rows"], 0)))
        held = pc.fill_null(pc.equal(pc.add(old["validated_revision"], 1), old["revision"]), False)
        return old.num_rows - int(pc.sum(held).as_py() or 0)

    def streams_with(self, *status: str) -> set[str]:
        """Return the streams that have a batch with one of these statuses."""
        found = self.columns.filter(pc.is_in(self.columns["status"], value_set=pa.array(status)))
        return set(found["stream"].to_pylist())

    @property
    def streams_with_tuples(self) -> list[str]:
        """Return the streams that have a batch that is not retired."""
        left = self.columns.filter(pc.not_equal(self.columns["status"], RETIRED))
        found: list[str] = left["stream"].unique().to_pylist()
        return found

    def last_runs(self, most: int) -> Iterator[RunRow]:
        """Yield the last `most` runs that accepted data, newest first."""
        runs = self.columns.group_by("run_id").aggregate([("created_at", "max")])
        runs = runs.sort_by([("created_at_max", "descending"), ("run_id", "descending")]).slice(0, most)
        for run in runs.to_pylist():
            own = self.columns.filter(pc.equal(self.columns["run_id"], run["run_id"]))
            streams = tuple(sorted(own["stream"].unique().to_pylist()))
            tuples = int(pc.sum(own["rows"]).as_py() or 0)
            yield run["run_id"], run["created_at_max"], streams, own.num_rows, tuples


NAMED = 3
Trouble = tuple[str, str, str]
"""Kind, sentence, remedy."""


def delivery_problems(
    contract: StreamContract, batches: Sequence[Batch], landing: Landing
) -> Iterator[Trouble]:
    """Yield problems of deliveries that need a person: rejected files, quarantined batches, unknown rates."""
    stream = contract.stream
    if landing.refused:
        names = [escape_text(one.name) for one, _ in landing.refused]
        more = f" and {len(names) - NAMED:,} more" if len(names) > NAMED else ""
        yield (
            "refused",
            f"{format_count(len(names), 'file is', 'files are')} refused "
            f"({', '.join(names[:NAMED])}{more}). The last one: {landing.refused[-1][1].reason}",
            f"correct and deliver the file again; or correct the contract, then spillway replay {stream}",
        )
    for batch in batches:
        if batch.status == QUARANTINED:
            named = f"batch {batch.batch} of {batch.batch_date}"
            yield (
                "quarantined",
                f"{named} failed {batch.attempts} times and is quarantined: {batch.reason}",
                f"correct the cause, then spillway replay {stream} --date {batch.batch_date}",
            )
    waiting = [batch for batch in batches if is_waiting_for_rate(batch)]
    if waiting:
        tuples = sum(batch.rows or 0 for batch in waiting)
        yield (
            "rate",
            f"{format_count(len(waiting), 'batch waits', 'batches wait')} ({format_count(tuples, 'row')}): a single "
            "record, or records of a single time, give no rate",
            "deliver more records, or write `rate: {from: declared, tuples_per_second: ...}` in the contract",
        )
    last = next((batch for batch in reversed(batches) if batch.rows), None)
    if last is not None and last not in waiting and last.rate_note and HISTORY_NOTE not in last.rate_note:
        yield "rate", f"batch {last.batch}: {last.rate_note}", "see `rate` in the contract"


@dataclass(frozen=True)
class QuotaStatus:
    """The state of a channel's quota in the period of its newest batch.

    The elapsed time is the time that its batches cover.

    >>> print(QuotaStatus("uplink", "day", date(2026, 1, 5), date(2026, 1, 5), 1.2e9, 2e9, 43_200, 86_400).sentence)
    uplink: 1.2 GB of 2 GB spent on 2026-01-05, in 12 of 24 hours; at this pace it ends after 20 hours
    >>> print(QuotaStatus("uplink", "day", date(2026, 1, 5), date(2026, 1, 5), 0.8e9, 2e9, 43_200, 86_400).sentence)
    uplink: 800 MB of 2 GB spent on 2026-01-05, in 12 of 24 hours; at this pace it lasts
    """

    channel: str
    per: str
    first: date
    last: date
    spent_bytes: float
    quota_bytes: float
    """Includes the bytes carried over from the period before."""
    elapsed_seconds: float
    period_seconds: float
    ends_after_seconds: float | None = field(init=False)
    """When the quota will be used up at the current pace; None if it lasts."""

    def __post_init__(self) -> None:
        ends: float | None = None
        if self.spent_bytes >= self.quota_bytes:
            ends = self.elapsed_seconds
        elif self.spent_bytes * self.period_seconds > self.quota_bytes * self.elapsed_seconds:
            ends = self.elapsed_seconds * self.quota_bytes / self.spent_bytes
        object.__setattr__(self, "ends_after_seconds", ends)

    @property
    def sentence(self) -> str:
        ends, unit = self.ends_after_seconds, "hours" if self.per == "day" else "days"
        of = 3600 if self.per == "day" else DAY_SECONDS
        when = f"on {self.first}" if self.first == self.last else f"from {self.first} to {self.last}"
        so_far = (
            f"{self.channel}: {format_bytes(self.spent_bytes)} of {format_bytes(self.quota_bytes)} spent {when}, "
            f"in {self.elapsed_seconds / of:.3g} of {self.period_seconds / of:.3g} {unit}"
        )
        if self.spent_bytes >= self.quota_bytes:
            return f"{so_far}; nothing is left"
        return f"{so_far}; at this pace it " + (
            "lasts" if ends is None else f"ends after {ends / of:.3g} {unit}"
        )


def quotas_of(tables: Tables, contracts: Contracts) -> Iterator[QuotaStatus]:
    """Yield the state of every quota for which a batch was planned, by channel name."""
    for name, channel in sorted(contracts.channels.items()):
        quota = channel.capacity.quota
        streams = streams_of_quota(contracts, name) if quota is not None else ()
        spent_on = [last for one in streams if (last := last_quota_date(tables, one)) is not None]
        day = max(spent_on, default=None)
        if quota is None or day is None:
            continue
        period, found = quota.period_of(day), quota_spending(tables, contracts, name, [day])
        spent = found.spent(period)
        whole = int(quota.size_bytes) + found.carried(quota, period)
        # a batch may cover days before its date; the elapsed time is at most the end of the batch date
        elapsed = min(found.elapsed(period, day), ((day - period.first).days + 1) * DAY_SECONDS)
        yield QuotaStatus(name, quota.per, period.first, period.last, spent, whole, elapsed, period.seconds)


RUNS_SHOWN = 5


@dataclass(frozen=True)
class RunStatus:
    """One run that accepted data."""

    run_id: str
    at: datetime
    streams: tuple[str, ...]
    batches: int
    tuples: int


@dataclass(frozen=True)
class ValueSums:
    """The number of values of a stream's last batches by outcome."""

    kept: int
    shed: int
    lost: int


@dataclass(frozen=True)
class StreamStatus:
    """One stream: its batches, its levers with the versions of their facts, and its figures."""

    stream: str
    channel: str
    capacity: str
    """Of the channel, as stated."""
    mode: str
    batches: Mapping[str, int]
    waiting_files: int
    settling_files: int
    refused_files: int
    facts: Mapping[str, int | None]
    """The newest version of the facts by lever: first the contract's levers in order, then other levers with facts."""
    untrained: tuple[str, ...]
    last_batch_date: date | None
    figures: StreamFigures
    """Of the last batches; the tuples, the rejected tuples and the violations are of all batches."""
    values: ValueSums
    batches_over_capacity: int
    """Number of the last batches that did not fit into their channel."""
    waiting_since: datetime | None
    """When the oldest pending batch was begun."""
    last_done_at: datetime | None
    waiting_together: WaitingBatches | None
    """The batches that wait for later ones, by the contract's `batching`."""


@dataclass(frozen=True)
class WorkloadStatus:
    """One join or query: its windows, its levers with the versions of their facts, and the work of its stages."""

    name: str
    inputs: tuple[str, ...]
    windows: Mapping[str, int]
    facts: Mapping[str, int | None]
    stages: tuple[StageSum, ...]
    ledger_difference: int


STAGGERED = 3
"""The number of windows that may wait for an input that delivers a little later than the others."""


@dataclass(frozen=True)
class Shortage:
    """Something that falls short.

    `wrong`: it breaks a guarantee; otherwise it is recorded and waits for a person.
    """

    stream: str
    kind: str
    wrong: bool
    sentence: str
    remedy: str


@dataclass(frozen=True)
class Status:
    """The state of the whole lake."""

    runs: tuple[RunStatus, ...]
    streams: tuple[StreamStatus, ...]
    workloads: tuple[WorkloadStatus, ...]
    quotas: tuple[QuotaStatus, ...]
    shortages: tuple[Shortage, ...]
    validated_at: datetime | None
    expectations_failed: int = 0

    @property
    def wrong(self) -> bool:
        """Return whether a guarantee is broken."""
        return any(shortage.wrong for shortage in self.shortages)


def status(tables: Tables, now: datetime | None = None) -> Status:
    """Return the current state of the lake. A lake without tables has no runs and no batches."""
    contracts, held = load_usable(tables.settings.schemas), StoredBatches.of(tables)
    versions, open_questions = _models(tables)
    validations = last_outcomes(tables)
    recent_of = read_recent_of_all(tables, contracts.streams)
    exempt = exempt_streams(tables, contracts.streams, utc_now())
    in_work = held.streams_with(*PENDING, QUARANTINED)
    streams: list[StreamStatus] = []
    shortages: list[Shortage] = []
    for stream, contract in sorted(contracts.streams.items()):
        recent = recent_of[stream]
        facts = _facts(contract, versions.get(stream, []))
        whole = recent.batches if recent.first == 1 else None
        landing = find_landing_files(contract, tables, now, whole)
        waiting = load_batches(tables, stream, status=[*PENDING, QUARANTINED]) if stream in in_work else []
        together = load_waiting_batches(tables, contract, now or utc_now())
        found = StreamStatus(
            stream=stream,
            channel=contract.channel,
            capacity=contracts.channels[contract.channel].capacity.stated,
            mode=contract.mode,
            batches=held.by_status(stream),
            waiting_files=len(landing.files_to_process),
            settling_files=len(landing.settling),
            refused_files=len(landing.refused),
            facts=facts,
            untrained=tuple(
                name for name in contract.lever_names if facts[name] is None and lever(name).needs_training
            ),
            last_batch_date=held.last_date(stream),
            figures=recent_figures(recent),
            values=_values(recent),
            batches_over_capacity=len({row["batch"] for row in _short(recent.ledger)}),
            waiting_since=min((one.created_at for one in waiting if one.status in PENDING), default=None),
            last_done_at=held.last_done(stream),
            waiting_together=together,
        )
        streams.append(found)
        shortages += _broken(found)
        shortages += _queued(stream, waiting)
        shortages += _waiting(found, sum(is_waiting_for_rate(batch) for batch in waiting))
        known = {one.batch: one for one in [*recent.batches, *waiting]}
        in_order = [known[number] for number in sorted(known)]
        shortages += [
            Shortage(stream, kind, False, *said)
            for kind, *said in delivery_problems(contract, in_order, landing)
        ]
        shortages += _noted(contract, recent)
        shortages += _assumed(found, open_questions)
        shortages += _doubts(tables, contract, recent)
        shortages += _exempt(stream, exempt.get(stream))
        shortages += _over_capacity(stream, recent.ledger)
        shortages += _absent(found.figures)
        shortages += _unvalidated(recent, held.unvalidated(stream, recent.first))
    workloads = _workloads(tables, contracts, versions)
    shortages += [_off(one.name, one.ledger_difference) for one in workloads if one.ledger_difference]
    shortages += _stalled_workloads(tables, contracts)
    shortages += _not_answered(tables, {one.name for one in workloads})
    shortages += _unusable(contracts)
    shortages += _failed(validations)
    shortages += _unclaimed(contracts, held.streams_with_tuples)
    ordered = tuple(sorted(shortages, key=_urgency))
    last = max((row["validated_at"] for row in validations), default=None)
    failed = sum(not row["success"] for row in validations)
    quotas = tuple(quotas_of(tables, contracts))
    runs = tuple(RunStatus(*one) for one in held.last_runs(RUNS_SHOWN))
    return Status(runs, tuple(streams), tuple(workloads), quotas, ordered, last, failed)


def _urgency(shortage: Shortage) -> tuple[bool, str]:
    return (not shortage.wrong, shortage.stream)


def _values(recent: RecentBatches) -> ValueSums:
    """Return the values of the last batches: those that the last stage passed on, and those that were shed or lost."""
    way = [row for row in total_rows(recent.ledger) if row["unit"] == "values"]
    last = {row["batch"]: row for row in way}
    shed, lost = (sum(int(row[name]) for row in way) for name in ("shed", "lost"))
    return ValueSums(sum(int(row["kept"]) for row in last.values()), shed, lost)


def _workloads(
    tables: Tables, contracts: Contracts, versions: Mapping[str, Sequence[Row]]
) -> list[WorkloadStatus]:
    """Return every join and query that has a contract, by name."""
    windows = group_rows(tables.at("windows").rows(["subject", "status"]).to_pylist(), "subject")
    found = []
    for name, contract in sorted({**contracts.joins, **contracts.queries}.items()):
        ledger = last_windows(tables, name)
        found.append(
            WorkloadStatus(
                name,
                contract.inputs,
                dict(Counter(row["status"] for row in windows.get(name, []))),
                _facts(contract, versions.get(name, [])),
                tuple(stages_of(ledger)),
                total_imbalance(ledger),
            )
        )
    return found


def _facts(contract: Subject, versions: Sequence[Row]) -> dict[str, int | None]:
    found: dict[str, int | None] = dict.fromkeys(contract.lever_names)
    for row in versions:
        found[row["lever"]] = max(row["version"], found.get(row["lever"]) or 0)
    return found


def _off(subject: str, by: int) -> Shortage:
    return Shortage(
        subject, "ledger", True, f"the ledger is off by {by:,}",
        "see the ledger in the report, and rerun the step that wrote it for these dates",
    )  # fmt: skip


def _stalled_workloads(tables: Tables, contracts: Contracts) -> Iterator[Shortage]:
    """Yield joins and queries that cannot run, and inputs that deliver nothing while other inputs continue."""
    remedy = "check that its source still delivers; `window.waits_seconds` closes windows without it"
    for name, contract in sorted({**contracts.joins, **contracts.queries}.items()):
        try:
            behind = find_windows(tables, contracts, contract).held_by
        except SpillwayError as problem:
            cause, _, fix = str(problem).partition("; ")
            yield Shortage(name, "refused", True, f"cannot be computed: {cause}", fix or remedy)
            continue
        for stream, windows in behind.items():
            if windows is None:
                yield Shortage(
                    name, "waits", False, f"waits for {stream}, which has sent nothing yet", remedy
                )
            elif windows > STAGGERED:
                sentence = f"{windows:,} windows wait for rows of {stream}"
                yield Shortage(name, "waits", False, sentence, remedy)


def _not_answered(tables: Tables, names: Collection[str]) -> Iterator[Shortage]:
    """Yield queries with windows that failed and wait for a retry."""
    columns = ["subject", "window", "from_time", "failed"]
    rows = tables.at("windows").rows(columns, status=PLANNED).to_pylist()
    failed = group_rows([row for row in rows if row["failed"] is not None], "subject")
    for name in sorted(names & failed.keys()):
        last = max(failed[name], key=lambda row: row["window"])
        cause, _, fix = last["failed"].partition("; ")
        yield Shortage(
            name, "failed", False,
            f"{format_count(len(failed[name]), 'window', 'windows')} could not be computed, the last one of "
            f"{last['from_time']:%Y-%m-%d %H:%M}: {cause}",
            fix or "correct the query",
        )  # fmt: skip


def _broken(found: StreamStatus) -> Iterator[Shortage]:
    stream, figures = found.stream, found.figures
    if figures.ledger_difference:
        yield _off(stream, figures.ledger_difference)
    if figures.violations:
        yield Shortage(
            stream, "bound", True,
            f"{format_count(figures.violations, 'recovered value is', 'recovered values are')} outside their bound",
            "see the table certificates; do not retire raw, and report it: a guarantee is broken",
        )  # fmt: skip


def _waiting(found: StreamStatus, unrated: int) -> Iterator[Shortage]:
    stream = found.stream
    for name in found.untrained if found.batches else ():
        yield Shortage(
            stream, "untrained", False, f"{name} is not trained yet: rows are taken in, and nothing is sent",
            "spillway run, or the DAG spillway_train (nightly), or jobs/train.py --stream " + stream,
        )  # fmt: skip
    # untrained batches are reported above; once trained they wait for shedding like all others
    open_ones = [name for name in PENDING if not (found.untrained and name == UNTRAINED)]
    together = len(found.waiting_together.batches) if found.waiting_together is not None else 0
    pending = max(0, sum(found.batches.get(name, 0) for name in open_ones) - unrated - together)
    if pending or found.waiting_files:
        yield Shortage(
            stream, "pending", False,
            " and ".join(
                [format_count(pending, "batch", "batches")] * bool(pending)
                + [format_count(found.waiting_files, "delivered file")] * bool(found.waiting_files)
            )
            + (" waits" if pending + found.waiting_files == 1 else " wait"),
            "spillway run, or the DAG spillway_shed (every 15 minutes)",
        )  # fmt: skip


def _queued(stream: str, waiting: Sequence[Batch]) -> Iterator[Shortage]:
    """Yield the first batch that waits in the queue because it does not fit, and why."""
    queued = [batch for batch in waiting if batch.spends_on is not None and not batch.is_pinned]
    if queued:
        first = queued[0]
        why = first.reason or "waits in the queue"
        yield Shortage(
            stream, "queued", False,
            f"batch {first.batch} of {first.batch_date} {why.partition('; ')[0]}; nothing of it is sent, and later "
            "batches wait behind it",
            shortfall_remedy(why, "widen the channel, or let more be shed"),
        )  # fmt: skip


def _noted(contract: StreamContract, recent: RecentBatches) -> Iterator[Shortage]:
    """Yield irregularities of accepted rows: new and absent columns of the last batch, and repeated hours."""
    last = next((batch.batch for batch in reversed(recent.batches) if batch.rows), None)
    notes = [row for row in recent.ledger if row["dimension_kind"] == "note"]
    of_last = [row for row in notes if row["batch"] == last and not is_repeated_hour(row["dimension"])]
    if of_last:
        told = "; ".join(f"{row['offered']:,} records with {row['dimension']}" for row in of_last)
        yield Shortage(
            contract.stream, "columns", False, f"batch {last}: {told}",
            f"the records were taken in; change schemas/streams/{contract.stream}.yaml to what is delivered, or write "
            "unknown_fields: refuse",
        )  # fmt: skip
    for note, count in sorted(repeated_hours(notes).items()):
        yield Shortage(
            contract.stream, "repeated_hour", False, f"{count:,} records with {note} of {contract.timezone}",
            "half of them may be an hour early: deliver times with an offset, such as 2026-10-25T02:30:00+01:00",
        )  # fmt: skip


_ModelVersion = tuple[str, str, int]
"""A stream, a lever, and a version of its facts."""


def _models(tables: Tables) -> tuple[dict[str, list[Row]], dict[_ModelVersion, list[Row]]]:
    """Return the versions of the facts by stream, and the rows of `models` with an open question."""
    columns = ["stream", "lever", "version", "fact", "subject", "evidence"]
    rows = tables.at("models").rows(columns)
    versions = rows.group_by(["stream", "lever"]).aggregate([("version", "max")])
    names = ["stream", "lever", "version"]
    newest = group_rows(versions.rename_columns({"version_max": "version"}).select(names).to_pylist())
    asking = rows.filter(pc.match_substring(rows["evidence"], f'"{ASKS}"'))
    found: dict[_ModelVersion, list[Row]] = {}
    for row in sorted(asking.to_pylist(), key=lambda row: (row["fact"], row["subject"])):
        found.setdefault((row["stream"], row["lever"], row["version"]), []).append(row)
    return newest, found


def _assumed(found: StreamStatus, asking: Mapping[_ModelVersion, Sequence[Row]]) -> Iterator[Shortage]:
    """Yield the assumptions of the levers about the stream, each with the contract line that would replace it."""
    for name, version in found.facts.items():
        for row in asking.get((found.stream, name, version), ()) if version is not None else ():
            evidence = json.loads(row["evidence"])
            if isinstance(evidence, dict) and ASKS in evidence:
                one = OpenQuestion(**evidence[ASKS])
                yield Shortage(found.stream, "assumed", False, one.sentence, one.remedy)


def _doubts(tables: Tables, contract: StreamContract, recent: RecentBatches) -> Iterator[Shortage]:
    """Yield doubts about the contract that rows of the last batch raise, if raw still has them."""
    last = [batch for batch in recent.batches if batch.rows and batch.is_in_raw][-1:]
    edge = last_rows_reader(tables, contract.stream, last)
    for name in contract.lever_names if last else ():
        try:
            found = lever(name).doubts(contract, edge)
        except SpillwayError:
            continue  # another step reports rows that cannot be read
        for one in found:
            yield Shortage(contract.stream, "doubtful", False, one.sentence, one.remedy)


def _exempt(stream: str, sentence: str | None) -> Iterator[Shortage]:
    """Yield the active exemption of the stream."""
    if sentence is not None:
        yield Shortage(
            stream, "exempt", False, f"{sentence}; nothing is shed",
            f"to end it: spillway exempt {stream} --until now --reason WHY",
        )  # fmt: skip


def _short(ledger: Sequence[Row]) -> list[Row]:
    return [row for row in total_rows(ledger) if row["shortfall"] > 0]


def _over_capacity(stream: str, ledger: Sequence[Row]) -> Iterator[Shortage]:
    """Yield the batches that exceed their capacity by the stages' own counts, with the numbers of the worst one."""
    short = _short(ledger)
    if short:
        worst = max(short, key=lambda row: row["shortfall"] / max(1, row["kept"]))
        batches = len({row["batch"] for row in short})
        reason = f": {worst['reason']}" if worst["reason"] else ""
        yield Shortage(
            stream, "capacity", False,
            f"{format_count(batches, 'batch does', 'batches do')} not fit into the channel. The worst is batch "
            f"{worst['batch']}: about {worst['shortfall']:,} of the {worst['kept']:,} {worst['unit']} that "
            f"{worst['stage']} kept are too many{reason}",
            shortfall_remedy(
                worst["reason"],
                f"widen the channel, or allow larger errors; spillway explain {stream} shows what is kept",
            ),
        )  # fmt: skip


def _absent(figures: StreamFigures) -> Iterator[Shortage]:
    """Yield the share of values that are absent at the destination; no bound covers them."""
    if figures.absent_pct:
        yield Shortage(
            figures.stream, "absent", False,
            f"{format_pct(figures.absent_pct)} of the values are absent at the destination: "
            + " and ".join(
                [f"{figures.source_values:,} kept at the source"] * bool(figures.source_values)
                + [f"{figures.lost_values:,} dropped for good"] * bool(figures.lost_values)
            ),
            (f"to get those kept at the source: spillway recover {figures.stream}; " * bool(figures.source_values))
            + "to send more, widen the channel",
        )  # fmt: skip


def _unvalidated(recent: RecentBatches, older: int) -> Iterator[Shortage]:
    """Yield the number of batches that passed all stages, have recoverable values, and are not validated.

    `older`: the number of unvalidated batches before the last ones.
    """
    gone = last_stages(recent.ledger)
    shed = {
        row["batch"] for row in total_rows(recent.ledger) if row["recoverable"] > 0 and row["batch"] in gone
    }
    waiting = len(shed - {row["batch"] for row in recent.certificates}) + older
    if waiting:
        yield Shortage(
            recent.stream, "unvalidated", False,
            f"{format_count(waiting, 'sent batch is', 'sent batches are')} not validated yet",
            "spillway run, or the DAG spillway_validate (nightly), or jobs/validate.py --stream " + recent.stream,
        )  # fmt: skip


def _unusable(contracts: Contracts) -> Iterator[Shortage]:
    remedy = "correct it, then spillway contracts check; other streams continue, and its share of the channel is kept"
    for one in contracts.broken:
        yield Shortage(one.subject, "contract", True, "; ".join(map(str, one.problems)), remedy)


def _failed(validations: Sequence[Row]) -> Iterator[Shortage]:
    """Yield the expectations that the last validation found broken."""
    for row in validations:
        if not row["success"]:
            yield Shortage(
                row["stream"] or "", "expectation", True, row["sentence"],
                f"expectation {row['expectation']} of table {row['table']}; correct the cause, then spillway run, or "
                "the DAG spillway_validate",
            )  # fmt: skip


def _unclaimed(contracts: Contracts, streams: Iterable[str]) -> Iterator[Shortage]:
    known = {*contracts.streams, *(one.subject for one in contracts.broken)}
    for stream in sorted({*streams} - known):
        yield Shortage(
            stream, "contract", False, "has batches in the lake but no contract",
            f"restore schemas/streams/{stream}.yaml, or delete its tables",
        )  # fmt: skip

"""Shed the batches of a channel: pin, plan, draft, measure, publish and account, for all streams that share it.

All streams are planned together before anything is applied. Then the batches of each stream go through its levers into
drafts: files that no table refers to yet. One job of the engine writes the drafts of all streams. All bytes that would
be sent are measured: whole files and their log entries. A batch is planned again if its draft exceeds its share of the
channel, or if the measured sizes show that it could lose less. The next job writes the next drafts of all such batches.
The last draft that fits is published in this order, and each commit replaces the earlier rows of its (stream, batch):

1. the levers' own tables, such as synopses and rows kept at the source;
2. the record tables of the levers;
3. the ledger;
4. `transmitted`.

Then the batch becomes `done`. A reader that sees a transmitted row can recover it.

Small batches of one date that waited for each other (`streams.batching`) are sent as one group: one plan, one file per
table, one commit. The group must fit the sum of the shares of its batches. Each batch keeps its own row, ledger lines
and certificates, and can be sent again alone. If a group fails, it is divided, so that the faulty batch is found and
the others are sent.

Quarantine: a batch that fails twice while it is shed gets the status `quarantined`, and its stream goes on without it.

- Only faults of the batch itself count. A full disk, a lost Spark session, or a table or model that cannot be read does
  not (`errors.is_own_fault`).
- A batch is not quarantined if an earlier batch of the stream was, and none has been shed since. Two failures in a row
  are not the fault of one batch. The waiting batches go through when the cause is fixed.
- Batches that were pinned to continue a frame of the quarantined batch are unpinned, because no frame may span rows
  that are not sent.
- `spillway replay` continues the batch where it was, together with the later batches of its date.

Quotas: a batch may exceed its share although everything that may be shed is shed. If the unspent bytes of the quota
cover it, it takes them: no batch waits, and no shortfall is recorded, while a quota has the bytes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from functools import partial
from typing import Any

from spillway.batch import (
    DONE,
    MOST_ATTEMPTS,
    PENDING,
    PLANNED,
    QUARANTINED,
    RECORDED,
    RETIRED,
    UNPLANNED,
    UNTRAINED,
    Batch,
)
from spillway.clock import utc_now
from spillway.contracts import Contracts, StreamContract
from spillway.engine.protocol import Engine, Step
from spillway.errors import SpillwayError, format_bytes, format_count, is_own_fault
from spillway.intake.ingest import is_waiting_for_rate
from spillway.levers.protocol import OVERHEAD, CapacityGroup, CapacityShare, Load, Say
from spillway.store.batches import load_batches, newest_batch, reserve, save_batches, save_together
from spillway.store.files import keep_files_open
from spillway.store.tables import Between, Tables
from spillway.streams.batching import complete_groups, group_batches, waiting_batches
from spillway.streams.capacity import (
    SPARE,
    QuotaSpending,
    ShedPlan,
    assign_quota_days,
    batch_shares,
    measure_load,
    plan_all,
    unspent_share,
)
from spillway.streams.drafts import (
    SENT,
    Drafts,
    OversizedDraft,
    Tried,
    covered_seconds,
    draft_measurements,
    draft_results,
    fixed_bytes_remedy,
    oversized_draft,
    publish,
    sent_kbps,
    use_remaining_capacity,
    write_drafts,
    written_tables,
)
from spillway.streams.exemptions import exempt_streams
from spillway.streams.facts import newest_facts, untrained_levers
from spillway.streams.faults import Fault, Faults, format_exception


def count_failures(
    tables: Tables, batches: Mapping[str, Batch], faults: Faults, told: int, say: Say
) -> set[str]:
    """Count the failures of these batches, quarantine those that failed too often, and return the streams of these.

    `told`: the number of faults that were known before; only later faults count.

    The fault of a quarantined batch is replaced by a sentence that says so, with the remedy.
    """
    aside: set[str] = set()
    for at, fault in enumerate(faults.found[told:], start=told):
        batch = batches.get(fault.stream)
        if batch is None or fault.batches != (batch.batch,) or not is_own_fault(fault.problem):
            continue
        after = faults.attempt(batch.stream, "quarantine", partial(_counted, tables, batch, fault))
        if after is not None and after.status == QUARANTINED:
            sentence = after.quarantine_sentence(after.reason)
            faults.found[at] = replace(fault, problem=SpillwayError(sentence))
            say(sentence)
            aside.add(batch.stream)
    return aside


def _counted(tables: Tables, batch: Batch, fault: Fault) -> Batch:
    """Return the batch after one more failure; if it is quarantined, unpin the batches that continue its frames."""
    now = utc_now()
    told = str(fault.problem) if isinstance(fault.problem, SpillwayError) else format_exception(fault.problem)
    after = batch.failed(now, told)
    if after.status == QUARANTINED and _is_quarantine_unresolved(tables, batch.stream):
        after = replace(after, status=batch.status, attempts=MOST_ATTEMPTS)
    loose = []
    if after.status == QUARANTINED:
        later = load_batches(
            tables,
            batch.stream,
            batch_date=batch.batch_date,
            batch=Between(batch.batch + 1),
            status=PLANNED,
            frame_origin=Between(high=batch.last_seq),
        )
        loose = [one.with_changes(now, **UNPLANNED, sent_with=None) for one in later]
    return save_batches(tables, [after, *loose])[0]


def _is_quarantine_unresolved(tables: Tables, stream: str) -> bool:
    """Return whether a batch with rows was quarantined, and no later batch has been shed since then."""
    last = newest_batch(tables, stream, status=QUARANTINED, rows=Between(1))
    if last is None:
        return False
    since = {"batch": Between(last.batch + 1), "updated_at": Between(last.updated_at)}
    return newest_batch(tables, stream, status=[DONE, RETIRED], **since) is None


WhichBatches = Callable[[Batch], bool]
ENOUGH_DRAFTS, MOST_DRAFTS = 3, 5
"""After `ENOUGH_DRAFTS` drafts, a draft that fits and uses its share is good enough; `MOST_DRAFTS` is the limit."""
WELL_USED = 0.9
"""Re-plan a batch that could lose less while it uses less than 90 % of its share."""
FIRST_AIM, LOWER, LEAST_AIM = 0.995, 0.005, 0.7
"""The share of its capacity that an oversized batch aims at next, the least decrease per plan, and the minimum."""

MOST_SAVED_BY_KEY = 0.3
"""The largest share of a batch's bytes that storing its rows by key is expected to save."""


@keep_files_open()
def shed_channel(
    tables: Tables,
    engine: Engine,
    contracts: Contracts,
    channel: str,
    say: Say = lambda _: None,
    dates: tuple[date, date] | None = None,
    faults: Faults | None = None,
    only: WhichBatches = lambda _: True,
    at_once: bool = False,
    spending: Callable[[str, Iterable[date]], QuotaSpending] | None = None,
) -> list[Batch]:
    """Shed the pending batches of a channel, or those of the dates `from..to`; return the batches that are done.

    A failure of one stream does not stop the others. It is raised at the end, or recorded in `faults` if that is given.

    `only`: a test that selects batches.
    `at_once`: if true, no batch waits for later ones (`batching:` of its contract). Batches of given dates never wait.
    `spending`: what is spent of the quota of a channel around some days (default: by the batches in `tables`).
    """
    if channel not in contracts.channels:
        raise SpillwayError(
            f"`channel` must be one of {', '.join(sorted(contracts.channels))}, got {channel!r}; see channels.yaml"
        )
    found = Faults(say) if faults is None else faults
    run = _Run(CapacityGroup(channel, contracts, tables.now(), spending=spending), engine, say, found)
    done = _shed(run, Selection(dates, only, at_once))
    if faults is None:
        found.raise_all()
    return done


@dataclass(frozen=True)
class Selection:
    """Which pending batches are shed; see `shed_channel`."""

    dates: tuple[date, date] | None = None
    only: WhichBatches = lambda _: True
    at_once: bool = False

    def behind(self, streams: Collection[str]) -> Selection:
        """Return the selection of the batches that waited behind a quarantined batch of these streams."""

        def waited(batch: Batch) -> bool:
            dated = self.dates is None or self.dates[0] <= batch.batch_date <= self.dates[1]
            return batch.stream in streams and dated and self.only(batch)

        return Selection(None, waited, True)


@dataclass(frozen=True)
class _Run:
    """A run over the streams of a channel."""

    room: CapacityGroup
    engine: Engine
    say: Say
    faults: Faults

    @property
    def tables(self) -> Tables:
        return self.room.tables  # type: ignore[return-value]


Group = tuple[Batch, ...]
"""Batches of a stream that are sent together, or one batch."""


def _shed(run: _Run, selection: Selection) -> list[Batch]:
    tables, faults = run.tables, run.faults
    pinned = _pin_selected(run, selection)
    done, queues = _queue_groups(run, pinned)
    quarantined: set[str] = set()
    while queues:
        # a group needs the results of the groups before it: take the next group of each stream, plan all together
        groups = {stream: queue[0] for stream, queue in queues.items()}
        known = len(faults.found)
        sent = _shed_groups(run, groups)
        done += [batch for batches in sent.values() for batch in batches]
        halves = _split_failed_groups(tables, groups, faults, known)
        alone = {stream: group[0] for stream, group in groups.items() if len(group) == 1}
        quarantined |= count_failures(tables, alone, faults, known, run.say)
        # if a batch is queued because it does not fit, the batches behind it wait too
        for stream in (stream for stream, batches in sent.items() if not batches):
            _unpin_unsent(run, stream, queues[stream][1:])
        went = [stream for stream, batches in sent.items() if batches]
        left = {stream: [*halves.get(stream, ()), *queues[stream][1:]] for stream in [*went, *halves]}
        queues = {stream: queue for stream, queue in left.items() if queue}
    if quarantined:
        # the batches that waited behind a quarantined batch are now shed without it
        again = replace(run, room=replace(run.room, tables=tables.now()))
        done += _shed(again, selection.behind(quarantined))
    return done


def _pin_selected(run: _Run, selection: Selection) -> dict[str, list[Batch]]:
    """Return, by stream, the selected batches with levers, facts, shares and frames fixed."""
    room, tables, faults = run.room, run.tables, run.faults
    streams = [contract.stream for contract in room.contracts.streams_of(room.name)]
    exempt = exempt_streams(tables, streams, utc_now())
    # a batch of an exempt stream that is first planned now is planned as if its contract listed no lever
    contracts = replace(room.contracts, streams=_without_levers(room.contracts.streams, exempt))
    waiting: dict[str, list[Batch]] = {}
    for contract in contracts.streams_of(room.name):
        ready = partial(_ready, tables, contract, selection, run.say)
        found = faults.attempt(contract.stream, "plan", ready)
        if found:
            waiting[contract.stream] = found
    if not waiting:
        return {}
    unplanned = Faults(run.say)
    waiting = assign_quota_days(tables, room, waiting)
    shares = batch_shares(tables, replace(room, contracts=contracts), waiting, unplanned)
    faults.add(unplanned)
    able = {stream: batches for stream, batches in waiting.items() if stream not in unplanned.streams}
    pins = {
        stream: _pinned(tables, contracts.streams[stream], batches, shares[stream], exempt.get(stream))
        for stream, batches in able.items()
    }
    return faults.run_steps("pin", run.engine, pins, able)


def _queue_groups(
    run: _Run, pinned: Mapping[str, Sequence[Batch]]
) -> tuple[list[Batch], dict[str, list[Group]]]:
    """Finish the batches without rows; return them, and the others of each stream as groups that are sent in order."""
    done: list[Batch] = []
    queues: dict[str, list[Group]] = {}
    for stream, batches in pinned.items():
        empty = [batch.with_changes(utc_now(), status=DONE) for batch in batches if not batch.rows]
        finished = run.faults.attempt(stream, "finish", partial(save_batches, run.tables, empty), empty)
        if finished is not None:
            done += finished
            contract, full = run.room.contracts.streams[stream], [batch for batch in batches if batch.rows]
            queues[stream] = group_batches(run.tables, contract, full)
    return done, {stream: queue for stream, queue in queues.items() if queue}


def _shed_groups(run: _Run, groups: Mapping[str, Group]) -> dict[str, list[Batch]]:
    """Plan one group of each stream together and shed them; return the batches that are done, by stream.

    The list of a stream is empty if its group waits in the queue. A stream with a fault is left out.
    """
    room, grouped = run.room, {stream: group for stream, group in groups.items() if len(group) > 1}
    measured = {stream: _group_load(room, group) for stream, group in grouped.items()}
    loads = run.faults.run_steps(
        "measure", run.engine, measured, grouped, lambda _: f"shed {room.name}, unshed groups"
    )
    able = {
        (stream, group[0].levers): group
        for stream, group in groups.items()
        if stream in loads or stream not in grouped
    }
    ways = {way.contract.stream: way for way in _planned(room, able, run.faults, loads)}
    return run.faults.run_steps(
        "shed",
        run.engine,
        {stream: _bring_through(room, way, run.say) for stream, way in ways.items()},
        {stream: way.batches for stream, way in ways.items()},
        lambda number: f"shed {room.name}, draft {number}",
    )


def _unpin_unsent(run: _Run, stream: str, groups: Sequence[Group]) -> None:
    """Unpin the batches of these groups, except those that were sent before."""
    later = [batch for group in groups for batch in group]
    unsent = [batch for batch in later if not _sent_before(run.tables, stream, [batch])]
    run.faults.attempt(stream, "queue", partial(_unpin, run.tables, unsent), unsent)


def _group_load(room: CapacityGroup, batches: Sequence[Batch]) -> Step[dict[int, Load]]:
    """Return the load of batches that are sent together: for each batch, the mean of the group.

    In one file, and by key, their columns take fewer bytes than in the files of `raw`, and they share a footer. So the
    function makes and measures a draft without shedding.
    """
    tables: Tables = room.tables  # type: ignore[assignment]
    contract = room.contracts.streams[batches[0].stream]
    seconds, rows = covered_seconds(batches), max(1, sum(batch.rows or 0 for batch in batches))
    if contract.width == "declared":
        load = measure_load(tables, contract, batches[0])
        return dict.fromkeys((b.batch for b in batches), replace(load, tuples_per_second=rows / seconds))
    unshed = replace(contract, levers=())
    (way,) = plan_all(
        replace(room, contracts=replace(room.contracts, streams={contract.stream: unshed})),
        {(contract.stream, ()): tuple(replace(batch, levers=(), models={}) for batch in batches)},
    )
    drafts = yield from write_drafts(tables, way)
    try:
        columns = [*OVERHEAD, *contract.names]
        sizes = [drafts.sent.column_bytes(batch.batch, columns) for batch in batches]
        widths = {name: sum(one[name] for one in sizes) * 8.0 / rows for name in columns}
        fixed = draft_measurements(way, drafts, {}, {}).fixed_kbps
    finally:
        drafts.discard()
    return {number: Load(widths, rows / seconds, kbps) for number, kbps in fixed.items()}


def _split_failed_groups(
    tables: Tables, groups: Mapping[str, tuple[Batch, ...]], faults: Faults, told: int
) -> dict[str, list[tuple[Batch, ...]]]:
    """Return the two halves of each group that failed for a reason of its own.

    So a faulty batch does not block the others. The fault of the group is removed: the faulty half raises it again.

    `told`: the number of faults that were known before; only later faults count.
    """
    halves: dict[str, list[tuple[Batch, ...]]] = {}
    for fault in list(faults.found[told:]):
        group = groups.get(fault.stream, ())
        failed = len(group) > 1 and fault.batches == tuple(batch.batch for batch in group)
        if not failed or not is_own_fault(fault.problem) or fault.stream in halves:
            continue
        middle = len(group) // 2
        apart = [batch.with_changes(utc_now(), sent_with=group[0].batch) for batch in group[:middle]]
        apart += [batch.with_changes(utc_now(), sent_with=group[middle].batch) for batch in group[middle:]]
        saved = faults.attempt(fault.stream, "divide", partial(save_batches, tables, apart), apart)
        if saved is not None:
            faults.found.remove(fault)
            halves[fault.stream] = [tuple(saved[:middle]), tuple(saved[middle:])]
    return halves


def _ready(tables: Tables, contract: StreamContract, selection: Selection, say: Say) -> list[Batch]:
    """Return the batches of a stream that can be shed now."""
    waiting = [batch for batch in _waiting(tables, contract, selection.dates) if selection.only(batch)]
    able = _trained(tables, contract, waiting, say)
    at_once = selection.at_once or selection.dates is not None
    together = None if at_once else waiting_batches(tables, contract, able, utc_now())
    if together is None:
        return able
    say(together.sentence)
    return [batch for batch in able if batch.batch not in together.batches]


def _without_levers(
    streams: Mapping[str, StreamContract], exempt: Collection[str]
) -> dict[str, StreamContract]:
    return {name: replace(one, levers=()) if name in exempt else one for name, one in streams.items()}


def _waiting(tables: Tables, contract: StreamContract, dates: tuple[date, date] | None) -> list[Batch]:
    """Return the batches to shed, oldest first."""
    if dates is None:
        begun = load_batches(tables, contract.stream, status=[one for one in PENDING if one != RECORDED])
        return complete_groups(tables, [batch for batch in begun if not is_waiting_for_rate(batch)])
    dated = load_batches(tables, contract.stream, batch_date=Between(*dates))
    found = [batch for batch in dated if batch.is_in_raw or batch.status == RETIRED]
    gone = sorted({str(batch.batch_date) for batch in found if batch.status == RETIRED})
    if gone:
        raise SpillwayError(
            f"{contract.stream}: a backfill must not touch retired dates, got {', '.join(gone)}, whose raw tuples were "
            "deleted after they were validated; ask for other dates"
        )
    return found


def _trained(tables: Tables, contract: StreamContract, batches: Sequence[Batch], say: Say) -> list[Batch]:
    """Return the batches that can be shed: those that are pinned, and the others unless a lever was never trained."""
    ready = [batch for batch in batches if batch.is_pinned]
    fresh = [batch for batch in batches if not batch.is_pinned]
    missing = untrained_levers(tables, contract) if fresh else []
    if not missing:
        return list(batches)
    rows = sum(batch.rows or 0 for batch in fresh)
    say(
        f"{contract.stream}: untrained ({', '.join(missing)}), {rows:,} tuples wait; spillway_train trains it"
    )
    save_batches(
        tables, [b.with_changes(utc_now(), status=UNTRAINED) for b in fresh if b.status != UNTRAINED]
    )
    return ready


def _planned(
    room: CapacityGroup,
    runs: Mapping[tuple[str, tuple[str, ...]], Sequence[Batch]],
    faults: Faults,
    loads: Mapping[str, Mapping[int, Load] | None],
) -> list[ShedPlan]:
    """Plan all streams together; if that fails, plan each alone, so that one faulty stream does not stop others.

    Planning alone gives the same shares, because shares are pinned.
    """
    known = {stream: one for stream, one in loads.items() if one is not None}
    try:
        return plan_all(room, runs, loads=known)
    except Exception:
        ways = [
            faults.attempt(place[0], "plan", partial(plan_all, room, {place: batches}, loads=known), batches)
            for place, batches in runs.items()
        ]
        return [way for found in ways for way in found or ()]


def _pinned(
    tables: Tables,
    contract: StreamContract,
    batches: Sequence[Batch],
    shares: Mapping[int, CapacityShare],
    sent_whole: str | None,
) -> Step[list[Batch]]:
    """Return the batches with levers, facts, capacity and frames fixed: a rerun uses what the first run used."""
    length, levers = contract.frame.tuples, contract.lever_names
    newest = {name: newest_facts(tables, contract.stream, name) for name in levers}
    versions = {name: facts.version for name, facts in newest.items() if facts is not None}
    every = load_batches(tables, contract.stream, batch_date={batch.batch_date for batch in batches})
    framed: dict[date, dict[int, Batch]] = {batch.batch_date: {} for batch in batches}
    for one in (one for one in every if one.is_pinned and one.status != RETIRED):
        framed[one.batch_date][one.batch] = one
    pinned: list[Batch] = []
    groups = group_batches(tables, contract, batches)
    sent_with = {
        batch.batch: group[0].sent_with if group[0].is_pinned else group[0].batch
        for group in groups
        for batch in group
        if len(group) > 1
    }
    for batch in batches:
        if not batch.is_pinned:
            # a frame continues from the batch before, except across a batch date, a version of the facts, a retired
            # batch, or a quarantined batch, which is not sent; later batches may have been pinned first
            earlier = [number for number in framed[batch.batch_date] if number < batch.batch]
            before = framed[batch.batch_date][max(earlier)] if earlier else None
            alive = before is not None and before.status != QUARANTINED
            goes_on = (
                alive
                and before is not None
                and (before.levers, dict(before.models), before.frame_tuples)
                == (
                    levers,
                    versions,
                    length,
                )
            )
            batch = batch.with_changes(
                utc_now(),
                status=PLANNED,
                levers=levers,
                models=versions,
                capacity_kbps=shares[batch.batch].own_kbps,
                trunk_kbps=shares[batch.batch].trunk_kbps,
                frame_origin=before.frame_origin if before is not None and goes_on else batch.first_seq,
                frame_tuples=length,
                sent_whole=sent_whole,
                sent_with=sent_with.get(batch.batch),
            )
            framed[batch.batch_date][batch.batch] = batch
        elif batch.status != PLANNED or (batch.sent_with is not None and batch.batch not in sent_with):
            # a backfill that was interrupted is pending, so the next run completes what is half rewritten; a batch that
            # is sent again without its group is sent alone from then on
            batch = batch.with_changes(utc_now(), status=PLANNED, sent_with=sent_with.get(batch.batch))
        pinned.append(batch)
    changed = [one for one, before in zip(pinned, batches, strict=True) if one != before]
    saved = yield from save_together(tables, changed)
    now = {batch.batch: batch for batch in [*pinned, *saved]}
    return [now[batch.batch] for batch in pinned]


def _bring_through(room: CapacityGroup, way: ShedPlan, say: Say) -> Step[list[Batch]]:
    """Draft, measure and publish the batches of one stream; plan again while they exceed their share."""
    tables: Tables = room.tables  # type: ignore[assignment]
    stream = way.contract.stream
    reserve(tables, way.batches, written_tables(tables, way))
    is_group = len(way.batches) > 1 and way.contract.width != "declared"
    unshed = dict(way.loads) if is_group else None
    way = yield from _whole_if_it_fits(room, way)
    way, drafts = yield from _last_that_fits(room, way, say)
    short = [] if way.contract.mode == "observe" else _above(way, drafts)
    if short and (grown := _with_unspent_quota(room, way, sent_kbps(way, drafts))) is not None:
        drafts.discard()
        way, drafts = yield from _last_that_fits(room, grown, say)
        short = _above(way, drafts)
    sent, allowed = sent_kbps(way, drafts), way.batches[0].allowed_kbps
    if short and way.contract.on_overflow == "queue" and not _sent_before(tables, stream, way.batches):
        why = fixed_bytes_remedy(way, drafts) or "; widen the channel, or let more be shed"
        drafts.discard()
        return _queue_batches(tables, way, f"{sent:.4g} kbps do not fit into {allowed:.4g} kbps{why}", say)
    for batch in short:
        for plan in way.plans:
            plan.record_shortfall(batch.batch, sent - batch.allowed_kbps, fixed_bytes_remedy(way, drafts))
    if short:
        many = format_count(len(short), "batch stays", "batches stay")
        say(f"{stream}: {many} above the channel's part; the shortfall is on record")
    yield from publish(tables, way, drafts, unshed)
    first, last = way.batches[0], way.batches[-1]
    said = "; ".join(dict.fromkeys(filter(None, (p.summary(n) for n in way.numbers for p in way.plans))))
    name = f"batch {first.batch}" if first is last else f"batches {first.batch} to {last.batch}, in one file,"
    offered = (unshed or way.loads)[first.batch].rate_kbps
    rates, seconds = (offered, sent, allowed), covered_seconds(way.batches)
    offered_said, sent_said, allowed_said = (format_bytes(kbps * 125.0 * seconds) for kbps in rates)
    say(
        f"{stream}: {name} of {first.batch_date}: {sum(batch.rows or 0 for batch in way.batches):,} tuples, "
        f"{offered_said} offered, {sent_said} sent, {allowed_said} allowed; {said or 'all kept'}"
    )
    done = [batch.with_changes(utc_now(), status=DONE, attempts=0, reason=None) for batch in way.batches]
    return (yield from save_together(tables, done))


def _with_unspent_quota(room: CapacityGroup, way: ShedPlan, kbps: float) -> ShedPlan | None:
    """Plan batches again that exceed their share, with the bytes that the quotas of their channels have not spent.

    None: the quotas do not have the bytes that the batches need. `kbps`: the rate of the draft that exceeds the share.
    """
    tables: Tables = room.tables  # type: ignore[assignment]
    needed = math.ceil(kbps * 125.0 * covered_seconds(way.batches))
    for spare in (SPARE, 1.0):
        share = unspent_share(tables.now(), room, way.batches, needed * spare + 1)
        if share.narrower_kbps >= kbps:
            break
    else:
        return None
    changes = {"capacity_kbps": share.own_kbps, "trunk_kbps": share.trunk_kbps}
    saved = save_batches(tables, [batch.with_changes(utc_now(), **changes) for batch in way.batches])
    levers = way.batches[0].levers
    (found,) = plan_all(room, {(way.contract.stream, levers): saved}, loads={way.contract.stream: way.loads})
    return found


def _sent_before(tables: Tables, stream: str, batches: Sequence[Batch]) -> bool:
    """Return whether some of the batches were sent before. Such batches are sent again, and never queued."""
    numbers = [batch.batch for batch in batches]
    return bool(tables.at("ledger").rows(["batch"], subject=stream, batch=numbers, stage=SENT).num_rows)


def _unpin(tables: Tables, batches: Sequence[Batch], **changes: Any) -> list[Batch]:
    """Unpin batches of which nothing was sent: a later run decides again how to shed them, and their share is free."""
    return save_batches(
        tables,
        [
            batch.with_changes(
                utc_now(),
                **UNPLANNED,
                sent_whole=None,
                sent_with=None,
                **changes,
            )
            for batch in batches
        ],
    )


def _queue_batches(tables: Tables, way: ShedPlan, why: str, say: Say) -> list[Batch]:
    """Queue batches that do not fit: nothing of them is sent, and their share of the channel is free."""
    for batch in way.batches:
        say(f"{way.contract.stream}: batch {batch.batch} of {batch.batch_date} waits in the queue: {why}")
    for batch in way.batches:
        _unpin(tables, [batch], spends_on=batch.quota_day, reason=f"waits in the queue: {why}")
    return []


def _whole_if_it_fits(room: CapacityGroup, way: ShedPlan) -> Step[ShedPlan]:
    """Return a plan without loss if the batch fits as it is sent, and exceeds its share only by the size of `raw`.

    Rows of `transmitted` are stored by key if that takes fewer bytes; rows of `raw` are stored in the order of arrival.
    """
    (batch, *others), contract = way.batches, way.contract
    if others or not _losing(way, {}) or not contract.keys or contract.width == "declared":
        return way
    rate = way.loads[batch.batch].rate_kbps
    if not (1.0 - MOST_SAVED_BY_KEY) * rate <= batch.allowed_kbps < rate:
        return way
    loads = yield from _group_load(room, way.batches)
    if loads[batch.batch].rate_kbps > batch.allowed_kbps:
        return way
    (found,) = plan_all(room, {(contract.stream, batch.levers): way.batches}, loads={contract.stream: loads})
    return found


def _last_that_fits(room: CapacityGroup, way: ShedPlan, say: Say) -> Step[tuple[ShedPlan, Drafts]]:
    """Return the draft to publish, and its plans; delete the files of all other drafts, also after an error."""
    tables: Tables = room.tables  # type: ignore[assignment]
    stream, levers = way.contract.stream, way.batches[0].levers
    aims = dict.fromkeys(way.numbers, 1.0)
    fitting: tuple[ShedPlan, Drafts] | None = None
    larger: list[OversizedDraft] = []
    try:
        for attempt in range(1, MOST_DRAFTS + 1):
            drafts = yield from write_drafts(tables, way)
            tried = draft_results(tables, way, drafts)
            over, last = _too_large(way, drafts, tried), attempt == MOST_DRAFTS
            if over and not (last and fitting is None):
                larger.append(oversized_draft(way, drafts))
                drafts.discard()
            else:
                if fitting is not None:
                    fitting[1].discard()
                fitting = (way, drafts)
            aims |= _next_aims(way, drafts, over, aims)
            told, losing = draft_measurements(way, drafts, tried, aims), _losing(way, tried)
            why = "could lose less" if _losing(way, {}) else "would take fewer bytes"
            enough = fitting is not None and attempt >= ENOUGH_DRAFTS and _well_used(*fitting)
            enough = enough and not _leaves_values_absent(fitting[0] if fitting is not None else way)
            if last or enough or not (over or losing):
                break
            loads = {stream: way.loads}
            (way,) = plan_all(room, {(stream, levers): way.batches}, told, loads)
            if fitting is not None and not _worth_a_draft(way, fitting[0]):
                bold = replace(told, fits=True)
                (way,) = plan_all(room, {(stream, levers): way.batches}, bold, loads)
            if fitting is None:
                what = "the channel's part" if _above(way, drafts) else "what its server takes in"
                many = format_count(len(over), "batch", "batches")
                say(f"{stream}: {many} came out above {what}; planned again with the measured sizes")
            elif _worth_a_draft(way, fitting[0]):
                many = format_count(len(losing), "batch", "batches")
                say(f"{stream}: {many} {why}; planned again with the measured sizes")
            else:
                break
    except BaseException:
        if fitting is not None:
            fitting[1].discard()
        raise
    assert fitting is not None, "the last draft is published whatever it came to"
    return (yield from use_remaining_capacity(tables, fitting, larger))


def _worth_a_draft(way: ShedPlan, before: ShedPlan) -> bool:
    return any(now.is_worth_a_draft(then) for now, then in zip(way.plans, before.plans, strict=True))


def _leaves_values_absent(way: ShedPlan) -> bool:
    """Return whether the plan leaves values absent at the destination; if so, more drafts are made to have fewer."""
    return any(plan.leaves_values_absent(batch.batch) for plan in way.plans for batch in way.batches)


def _well_used(way: ShedPlan, drafts: Drafts) -> bool:
    sent = sent_kbps(way, drafts)
    return all(sent >= WELL_USED * batch.allowed_kbps for batch in way.batches)


def _next_aims(
    way: ShedPlan, drafts: Drafts, over: Sequence[int], aims: Mapping[int, float]
) -> dict[int, float]:
    """Return, by batch, the share of its capacity that the next plan aims at.

    If a batch does not fit, the aim is lowered. If it fits, the next plan may aim high again, because a draft that fits
    already exists.
    """
    found = {one.batch: max(aims[one.batch], FIRST_AIM) for one in way.batches if one.batch not in over}
    sent = sent_kbps(way, drafts)
    for batch in (one for one in way.batches if one.batch in over):
        before = aims[batch.batch]
        if sent <= batch.allowed_kbps:
            continue  # the draft exceeds a limit of a lever, which the lever knows
        excess = sent / batch.allowed_kbps - 1.0
        lower = max(LEAST_AIM, before - max(LOWER, 1.5 * excess))
        found[batch.batch] = FIRST_AIM if before == 1.0 else lower
    return found


def _too_large(way: ShedPlan, drafts: Drafts, tried: Tried) -> list[int]:
    """Return the batches that exceed their share, or a limit of a lever, although they could shed more."""
    if way.contract.mode == "observe":
        return []
    above = {
        batch.batch
        for batch in _above(way, drafts)
        if any(plan.can_shed_more(batch.batch) for plan in way.plans)
    }
    own = {
        number
        for runs in tried.values()
        for number, (plan, came) in runs.items()
        if plan.exceeds_own_limit(came)
    }
    return sorted(above | own)


def _above(way: ShedPlan, drafts: Drafts) -> list[Batch]:
    """Return the batches that exceed their share; of batches that are sent together, all or none."""
    sent = sent_kbps(way, drafts)
    return [batch for batch in way.batches if sent > batch.allowed_kbps]


def _losing(way: ShedPlan, tried: Tried) -> list[int]:
    """Return the batches for which another plan could lose less or send fewer bytes."""
    if way.contract.mode == "observe":
        return []
    found = {batch.batch for batch in way.batches for plan in way.plans if plan.could_lose_less(batch.batch)}
    for runs in tried.values():
        found |= {number for number, (plan, came) in runs.items() if plan.is_larger_than_exact(came)}
    return sorted(found)

"""Accounting: every stage's lines of the ledger for what was drafted, each offered what the one before it kept."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from spillway.batch import Batch
from spillway.contracts import StreamContract
from spillway.errors import SpillwayError
from spillway.ledger import BESIDE, TOTAL, LedgerRow
from spillway.levers.protocol import OVERHEAD, Drafted
from spillway.pipeline.planning import WayDown
from spillway.pipeline.room import bytes_as_written
from spillway.registry import columns_of
from spillway.store.drafts import Draft
from spillway.store.tables import Tables

SENT = "sent"
"""The last stage on the way, which is the pipeline's own."""
SENT_BEFORE = "sent_before"
"""Beside the way: what of a batch had crossed before it was sent again."""


COLLECT_MORE = "collect more per batch, for example with batching: {until_bytes: 1 MB, until_seconds: 3600}"
"""The remedy for a batch that does not fit because of its fixed bytes."""


class Measurable(Protocol):
    """Drafts that can be accounted for."""

    @property
    def sent(self) -> Draft:
        """Of `transmitted`."""

    @property
    def aside(self) -> Mapping[tuple[int, str], Draft]:
        """Of what the levers laid aside, by ordinal and table."""

    @property
    def crossing(self) -> Sequence[Draft]:
        """Of all that lies at the destination."""

    @property
    def told_bytes(self) -> Mapping[int, int]:
        """By batch, what the destination is told beside them."""


def crossing_bytes(draft: Draft, batch: int) -> int:
    """Bytes of a batch that cross with a table: whole files, and what the table's log will say of them."""
    return draft.file_bytes(batch) + draft.log_bytes(batch)


def all_crossing(drafts: Measurable, batch: int) -> int:
    """All bytes of a batch that cross, what the destination is told of it among them."""
    return sum(crossing_bytes(one, batch) for one in drafts.crossing) + drafts.told_bytes.get(batch, 0)


def fixed_bytes(way: WayDown, drafts: Measurable, batch: Batch) -> int:
    """Return the bytes of a batch that are sent but do not depend on the number of its rows.

    These are the footers of files, log entries, and destination metadata.
    """
    added = [column for name in batch.levers for column, _, _ in columns_of(name)]
    columns = [*OVERHEAD, *added, *way.contract.names]
    payloads = sum(
        count
        for name, count in _counts(drafts.aside.values(), batch.batch).items()
        if name.startswith("sent.")
    )
    held = sum(drafts.sent.column_bytes(batch.batch, columns).values())
    return max(0, all_crossing(drafts, batch.batch) - held - payloads)


def collect_more(way: WayDown, drafts: Measurable) -> str:
    """Return what to do if batches do not fit because of their fixed bytes; empty if that is not the reason."""
    allowed = way.batches[0].allowed_kbps * 125.0 * seconds_of(way.batches)
    fixed = sum(fixed_bytes(way, drafts, batch) for batch in way.batches)
    crossing = sum(all_crossing(drafts, number) for number in way.numbers)
    if way.contract.width == "declared" or crossing - fixed > allowed:
        return ""
    return (
        f"; {fixed:,} bytes of the batch are fixed (footers, log entries, metadata), and the batch may send "
        f"{allowed:,.0f} bytes: {COLLECT_MORE}"
    )


def remedy_of(reason: str, otherwise: str) -> str:
    """Return what to do about a batch that does not fit, by the reason in the ledger.

    >>> remedy_of(f"send all; {COLLECT_MORE}", "widen the channel") == COLLECT_MORE
    True
    """
    return COLLECT_MORE if COLLECT_MORE in reason else otherwise


def drafted_by(
    way: WayDown,
    drafts: Measurable,
    batch: Batch,
    ordinal: int,
    offered: Mapping[str, int],
    raw_bytes: Mapping[str, int],
    seconds: float = 0.0,
) -> Drafted:
    """What was written of a batch, for the lever of this place; `raw_bytes` is what its columns took in `raw`."""
    columns = [*OVERHEAD, *way.contract.names]
    mine = {table: found for (at, table), found in drafts.aside.items() if at == ordinal}
    return Drafted(
        batch,
        ordinal,
        dict(offered),
        {table: found.rows(batch.batch) for table, found in mine.items()},
        {table: found.file_bytes(batch.batch) for table, found in mine.items()},
        {one.table: crossing_bytes(one, batch.batch) for one in mine.values() if one in drafts.crossing},
        _counts(mine.values(), batch.batch),
        drafts.sent.rows(batch.batch),
        drafts.sent.column_bytes(batch.batch, columns),
        raw_bytes,
        seconds,
    )


def stages_of_old(tables: Tables, stream: str, numbers: Sequence[int]) -> list[str]:
    """The stages after taking in that an earlier run of these batches had, and that this one may not have."""
    rows = tables.at("ledger").rows(["stage", "ordinal"], subject=stream, batch=list(numbers)).to_pylist()
    return sorted({row["stage"] for row in rows if row["ordinal"] > 0})


def account(tables: Tables, way: WayDown, drafts: Measurable, seconds: float) -> list[LedgerRow]:
    """Every stage's lines for every batch: each lever is offered what the one before it kept."""
    contract, rows = way.contract, []
    share = seconds / max(1, len(way.batches))
    for batch in way.batches:
        offered = {"rows": batch.rows or 0, "values": (batch.rows or 0) * len(contract.attributes)}
        raw_bytes, around = bytes_as_written(tables, contract, batch)
        for ordinal, (name, plan) in enumerate(zip(batch.levers, way.plans, strict=True), start=1):
            drafted = drafted_by(way, drafts, batch, ordinal, offered, raw_bytes, share)
            lines = list(plan.account(drafted))
            assert all(line.stage == name and line.ordinal == ordinal for line in lines), (
                "a lever speaks for itself"
            )
            for line in lines:
                if line.dimension_kind == TOTAL:
                    _refuse_to_drop(contract, line)
                    offered[line.unit] = line.kept
            rows += lines
        whole = sum(raw_bytes.values()) + around
        fixed = fixed_bytes(way, drafts, batch)
        too_many = _too_many(way, drafts, batch)
        why = f"no lever works on it{collect_more(way, drafts)}" if too_many else ""
        rows += _sent(batch, drafts, offered, whole, too_many, why, fixed)
    return [*rows, *_sent_before(tables, way)]


def sent_kbps(way: WayDown, drafts: Measurable) -> float:
    """Return the measured rate of these batches: all bytes that are sent, over the time that the batches cover.

    If the stream counts declared bits, it is the planned rate.
    """
    if way.contract.width == "declared":
        rates = [(way.plans[-1].offers_on(n) if way.plans else way.loads[n]).rate_kbps for n in way.numbers]
        if len(rates) == 1:
            return rates[0]
        kbits = (rate * seconds_of([batch]) for rate, batch in zip(rates, way.batches, strict=True))
        return math.fsum(kbits) / seconds_of(way.batches)
    crossing = sum(all_crossing(drafts, number) for number in way.numbers)
    return crossing * 8.0 / 1000.0 / seconds_of(way.batches)


def seconds_of(batches: Iterable[Batch]) -> float:
    """Return the time that batches of one stream cover together, in seconds; 1 if it is unknown."""
    return math.fsum(batch.seconds_covered or 0.0 for batch in batches) or 1.0


def _too_many(way: WayDown, drafts: Measurable, batch: Batch) -> int:
    """About how many rows there is no room for, of a batch that no lever works on; each lever counts its own."""
    sent = sent_kbps(way, drafts)
    if way.plans or way.contract.mode == "observe" or sent <= batch.allowed_kbps:
        return 0
    rows = drafts.sent.rows(batch.batch)
    return min(rows, math.ceil(rows * (1.0 - batch.allowed_kbps / sent)))


def _sent_before(tables: Tables, way: WayDown) -> list[LedgerRow]:
    """Of batches that were shed and are sent again whole: what had crossed then, and counts still.

    Known from the ledger that is about to be replaced; once it has been, this line is known from itself.
    """
    mine = {batch.batch: batch for batch in way.batches if batch.sent_whole and not batch.levers}
    if not mine:
        return []
    stream = way.contract.stream
    found: dict[int, list[Mapping[str, Any]]] = {}
    for row in tables.at("ledger").rows(subject=stream, batch=list(mine)).to_pylist():
        if row["ordinal"] > 0 and row["unit"] == "rows" and row["dimension_kind"] == TOTAL:
            found.setdefault(row["batch"], []).append(row)
    lines = []
    for number, rows in found.items():
        last = max(rows, key=lambda row: int(row["ordinal"]))
        if last["ordinal"] > 1:
            batch = mine[number]
            lines.append(
                LedgerRow(
                    "stream",
                    stream,
                    number,
                    batch.batch_date,
                    SENT_BEFORE,
                    BESIDE,
                    "rows",
                    reason="had crossed shed; sent again whole",
                    offered=last["kept"],
                    kept=last["kept"],
                    bytes_asked_back=last["bytes_kept"],
                )
            )
    return lines


def _counts(drafts: Iterable[Draft], batch: int) -> dict[str, int]:
    """What tasks counted of a batch, whichever of a lever's tables they were at."""
    found: dict[str, int] = {}
    for draft in drafts:
        for name, count in draft.counts.get(batch, {}).items():
            found[name] = found.get(name, 0) + count
    return found


def _refuse_to_drop(contract: StreamContract, line: LedgerRow) -> None:
    if contract.mode == "observe" and line.shed:
        raise SpillwayError(
            f"{contract.stream}: {line.stage} must drop nothing where the contract says mode: observe, got {line.shed} "
            f"{line.unit} of batch {line.batch}; this is a fault of the lever, report it"
        )


def _sent(
    batch: Batch,
    drafts: Measurable,
    offered: Mapping[str, int],
    whole_bytes: int,
    too_many: int,
    why: str,
    fixed: int,
) -> list[LedgerRow]:
    """The last stage: what it was offered against what was written to be sent, counted from what was written.

    Bytes of either are of whole files and of what logs say of them (`whole_bytes`: in `raw`), so that what is kept
    whole takes as much after as before, but for what the lake itself adds.

    A row or a value that no stage accounts for does not balance, and stops the run before anything is published.
    """
    rows, values = drafts.sent.rows(batch.batch), drafts.sent.counts.get(batch.batch, {}).get("values", 0)
    ordinal = len(batch.levers) + 1
    place = ("stream", batch.stream, batch.batch, batch.batch_date, SENT, ordinal)
    return [
        LedgerRow(
            *place,
            "rows",
            reason=batch.sent_whole or why,
            offered=offered["rows"],
            kept=rows,
            shortfall=too_many,
            bytes_offered=whole_bytes,
            bytes_kept=all_crossing(drafts, batch.batch),
            bytes_fixed=fixed,
        ),
        LedgerRow(*place, "values", offered=offered["values"], kept=values),
    ]

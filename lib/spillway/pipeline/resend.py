"""Send the batches of some dates again without loss, as long as their exact tuples are in `raw`.

Every batch of the dates is pinned again, to no lever (`batches.sent_whole` stores the reason), and is then shed like
any other. In `transmitted`, exact rows replace those with shed values. The levers' own rows for these batches, such as
synopses, are deleted, so recovery returns the exact values. Whole dates are sent, because a frame may span the batches
of one date, and never spans two dates.

The bytes are counted in addition to those of the first time (`sent_before` in the ledger). Both count against the quota
of the dates. If they exceed the capacity, the shortfall is recorded and reported. A batch that is already there without
loss is not sent again. If a run is interrupted, the next one completes it, because the batches are pending. If `raw` of
a date was retired, the request is refused.

Computed windows of joins and queries stay as they are, because no row arrived late. A message names their joins and
queries.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date

from spillway.batch import DONE, PLANNED, RETIRED, Batch
from spillway.clock import utc_now
from spillway.contracts import Contracts
from spillway.engine.protocol import Engine
from spillway.errors import InvalidValue
from spillway.levers.protocol import Say
from spillway.store.batches import load_batches, save_batches
from spillway.store.tables import Between, Tables
from spillway.streams.shed import shed_channel
from spillway.workloads.run import select_workloads

ASKED_AGAIN = "asked for again, whole"


def resend(
    tables: Tables,
    engine: Engine,
    contracts: Contracts,
    stream: str,
    dates: tuple[date, date],
    say: Say = lambda _: None,
) -> list[Batch]:
    """Send the batches of the dates `from..to` again without loss; return those that were sent."""
    contract, tables = contracts.stream(stream), tables.now()
    dated = load_batches(tables, stream, batch_date=Between(*dates))
    _refuse(stream, dates, dated)
    again = [batch for batch in dated if batch.rows and batch.levers]
    whole = [batch for batch in dated if batch.rows and not batch.levers and batch.status == DONE]
    if whole:
        numbers = ", ".join(str(batch.batch) for batch in whole)
        say(f"{stream}: batch {numbers} is there whole, and is not sent again")
    now = utc_now()
    pinned = {"status": PLANNED, "levers": (), "models": {}, "sent_whole": ASKED_AGAIN}
    save_batches(tables, [batch.with_changes(now, **pinned) for batch in again])
    room = contracts.planning_channel(contract.channel)
    sent = shed_channel(
        tables,
        engine,
        contracts,
        room,
        say,
        only=lambda batch: (
            batch.stream == stream
            and dates[0] <= batch.batch_date <= dates[1]
            and batch.sent_whole == ASKED_AGAIN
        ),
        at_once=True,
    )
    answers = [one.subject for one in select_workloads(contracts) if stream in one.inputs]
    if sent and answers:
        say(
            f"{stream}: the results of {', '.join(answers)} for these batches are not recomputed: they are from values "
            "within their bounds; read the stream for the exact values (spillway.read)"
        )
    return sent


def _refuse(stream: str, dates: tuple[date, date], dated: Sequence[Batch]) -> None:
    first, last = dates
    if last < first:
        raise InvalidValue("--to", f"not be before --from ({first})", str(last), "swap them", stream)
    if not dated:
        raise InvalidValue(
            "--from", "be a date that has batches", f"{first} to {last}", "see the table batches", stream
        )
    gone = sorted({str(batch.batch_date) for batch in dated if batch.status == RETIRED})
    if gone:
        remedy = "its raw tuples were deleted after they were validated: recover it within its bounds instead"
        raise InvalidValue("--from", "be dates with raw tuples", ", ".join(gone), remedy, stream)
    begun = [
        b for b in dated if b.status != DONE and not (b.status == PLANNED and b.sent_whole == ASKED_AGAIN)
    ]
    if begun:
        numbers = ", ".join(str(batch.batch) for batch in begun)
        got = f"batch {numbers} that is not" if len(begun) == 1 else f"batches {numbers} that are not"
        remedy = f"bring it through first: spillway run --stream {stream}"
        raise InvalidValue("--from", "be dates whose batches are done", got, remedy, stream)

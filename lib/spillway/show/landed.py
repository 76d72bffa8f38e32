"""What of a stream's deliveries waits for somebody: refused files, batches set aside, rates that are not known."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from spillway.batch import SET_ASIDE, Batch
from spillway.contracts import StreamContract
from spillway.errors import safely, so_many
from spillway.intake.landing import Landing
from spillway.intake.rate import HISTORY_NOTE
from spillway.intake.take_in import waits_for_a_rate

NAMED = 3
Trouble = tuple[str, str, str]
"""Kind, sentence, remedy."""


def troubles(contract: StreamContract, batches: Sequence[Batch], landing: Landing) -> Iterator[Trouble]:
    """What shedding alone will not settle, each with what does."""
    stream = contract.stream
    if landing.refused:
        names = [safely(one.name) for one, _ in landing.refused]
        more = f" and {len(names) - NAMED:,} more" if len(names) > NAMED else ""
        yield (
            "refused",
            f"{so_many(len(names), 'delivered file is', 'delivered files are')} refused "
            f"({', '.join(names[:NAMED])}{more}): {landing.refused[-1][1].reason}",
            "mend the file (one that was taken in before it changed: as its sentence says), or the contract and then "
            f"spillway replay {stream}; a file that is removed is forgotten",
        )
    for batch in batches:
        if batch.status == SET_ASIDE:
            named = f"batch {batch.batch} of {batch.batch_date}"
            yield (
                "set_aside",
                f"{named} failed {batch.attempts} times and is set aside: {batch.reason}",
                f"mend what it says, then spillway replay {stream} --date {batch.batch_date}",
            )
    waiting = [batch for batch in batches if waits_for_a_rate(batch)]
    if waiting:
        tuples = sum(batch.rows or 0 for batch in waiting)
        yield (
            "rate",
            f"{len(waiting):,} batches ({tuples:,} tuples) wait: one record, or one moment, tells no rate",
            "deliver more, or write `rate: {from: declared, tuples_per_second: ...}`",
        )
    last = next((batch for batch in reversed(batches) if batch.rows), None)
    if last is not None and last not in waiting and last.rate_note and HISTORY_NOTE not in last.rate_note:
        yield "rate", f"batch {last.batch}: {last.rate_note}", "see `rate` in the contract"

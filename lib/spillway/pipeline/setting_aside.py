"""Setting aside: a batch that fails twice while it is shed is put out of the way by name, and its stream goes on.

Counted is what is the batch's own: not a full disk, not Spark that is gone, not a table or a model that cannot be read
(`errors.is_its_own`). And where a batch of the stream was set aside and none has gone through since, the next one is
not: two in a row are no longer the fault of a batch, and what waits goes through by itself once that is mended.

What was to go on from the batch is pinned anew: no frame goes over rows that are not sent. `spillway replay` takes the
batch up again where it was, and what came after it on its date with it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

from spillway.batch import DONE, MOST_ATTEMPTS, PLANNED, RETIRED, SET_ASIDE, TAKEN_IN, Batch
from spillway.clock import utc_now
from spillway.errors import SpillwayError, is_its_own
from spillway.levers.protocol import Say
from spillway.pipeline.faults import Fault, Faults, words
from spillway.store.batches import load_batches, newest_batch, save_batches
from spillway.store.tables import Between, Tables


def count_failures(
    tables: Tables, batches: Mapping[str, Batch], faults: Faults, told: int, say: Say
) -> set[str]:
    """Count what went wrong with these batches since `told` faults were known; the streams one was set aside of.

    In the place of its fault stands that it was set aside, and what to do.
    """
    aside: set[str] = set()
    for at, fault in enumerate(faults.found[told:], start=told):
        batch = batches.get(fault.stream)
        if batch is None or fault.batches != (batch.batch,) or not is_its_own(fault.problem):
            continue
        after = faults.attempt(batch.stream, "set aside", partial(_counted, tables, batch, fault))
        if after is not None and after.status == SET_ASIDE:
            sentence = after.said_aside(after.reason)
            faults.found[at] = replace(fault, problem=SpillwayError(sentence))
            say(sentence)
            aside.add(batch.stream)
    return aside


def _counted(tables: Tables, batch: Batch, fault: Fault) -> Batch:
    """The batch after one more failure; those that were to go on from it, where it is set aside, are pinned anew."""
    now = utc_now()
    told = str(fault.problem) if isinstance(fault.problem, SpillwayError) else words(fault.problem)
    after = batch.failed(now, told)
    if after.status == SET_ASIDE and _none_went_through_since(tables, batch.stream):
        after = replace(after, status=batch.status, attempts=MOST_ATTEMPTS)
    loose = []
    if after.status == SET_ASIDE:
        later = load_batches(
            tables,
            batch.stream,
            batch_date=batch.batch_date,
            batch=Between(batch.batch + 1),
            status=PLANNED,
            frame_origin=Between(high=batch.last_seq),
        )
        loose = [
            one.becomes(
                now, status=TAKEN_IN, levers=(), models={}, capacity_kbps=None, trunk_kbps=None,
                frame_origin=None, frame_tuples=None, sent_with=None,
            )
            for one in later
        ]  # fmt: skip
    return save_batches(tables, [after, *loose])[0]


def _none_went_through_since(tables: Tables, stream: str) -> bool:
    """Whether a batch that had rows was set aside, and no later one was shed after that."""
    last = newest_batch(tables, stream, status=SET_ASIDE, rows=Between(1))
    if last is None:
        return False
    since = {"batch": Between(last.batch + 1), "updated_at": Between(last.updated_at)}
    return newest_batch(tables, stream, status=[DONE, RETIRED], **since) is None

"""Validating: recover what changed, certify it against raw, run the expectation suites, retire.

Only batches that were shed since they were last certified are recovered and validated; with them the windows of joins
and queries that read these streams, where they were worked out since they were last judged. A failed expectation fails
the run with a sentence; only what passed may be retired.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import pyarrow.compute as pc

from spillway.batch import DONE, Batch
from spillway.checks import Outcome, failures, load_in_background
from spillway.contracts import Contracts, StreamContract
from spillway.engine.protocol import Engine
from spillway.errors import ConcurrentRun
from spillway.levers.protocol import Say
from spillway.pipeline.certify import recover_and_certify
from spillway.pipeline.faults import Faults
from spillway.pipeline.judged_windows import unjudged_windows
from spillway.pipeline.judging import judge_changed
from spillway.pipeline.retire import retire
from spillway.pipeline.sketch import unsketched
from spillway.store.batches import load_batches, save_batches
from spillway.store.tables import Between, Tables


def changed_batches(tables: Tables, stream: str, every: bool = False) -> list[Batch]:
    """Shed batches that have changed since every expectation held for them; or all, with `every`.

    A run that failed, or died before it judged, leaves certificates: what it left is looked at again.
    """
    done = {"status": DONE, "rows": Between(1)}
    if every:
        return load_batches(tables, stream, **done)
    edges = tables.at("batches").rows(["batch", "revision", "validated_revision"], stream=stream, **done)
    still = pc.fill_null(pc.equal(pc.add(edges["validated_revision"], 1), edges["revision"]), False)
    changed = edges["batch"].filter(pc.invert(still)).to_pylist()
    return load_batches(tables, stream, batch=changed, **done) if changed else []


def _forget_validated(tables: Tables, batches: Sequence[Batch]) -> list[Batch]:
    """The batches, noted as not validated: or what fails now would count as validated by what held before."""
    noted = [batch for batch in batches if batch.is_validated]
    saved = save_batches(tables, [replace(batch, validated_revision=None) for batch in noted])
    now = {batch.batch: batch for batch in [*batches, *saved]}
    return [now[batch.batch] for batch in batches]


def validate(
    tables: Tables,
    engine: Engine,
    contracts: Contracts,
    run_id: str,
    say: Say = lambda _: None,
    streams: Sequence[str] | None = None,
    every: bool = False,
) -> list[Outcome]:
    """Recover, certify and validate what changed; returns the outcomes, or raises with the sentences of what failed.

    A stream that cannot be recovered, certified or judged keeps no other from it, nor from being retired.
    """
    tables, faults = tables.now(), Faults(say)
    chosen = [contracts.stream(name) for name in (streams or contracts.streams)]
    names = [one.stream for one in chosen]
    work = faults.each("validate", names, lambda stream: changed_batches(tables, stream, every))
    work = {stream: batches for stream, batches in work.items() if batches}
    windows = faults.attempt("", "judge", partial(unjudged_windows, tables, contracts, names)) or {}
    outcomes: list[Outcome] = []

    def certify(stream: str) -> list[Batch]:
        batches = _forget_validated(tables, work[stream])
        recover_and_certify(tables, engine, contracts.streams[stream], batches, say)
        return batches

    if work or windows:
        engine.load()
        load_in_background()  # beside the engine's start; where nothing changed, nothing is loaded
    else:
        say("nothing was shed since the last validation")
    certified = faults.each("certify", work, certify, work)
    if certified or windows:
        work_out = partial(judge_changed, tables, engine, contracts, certified, windows, run_id, say, faults)
        judged = faults.attempt("", "judge", work_out)
        outcomes = judged or []
        for stream in certified if judged is not None else ():
            faults.attempt(stream, "finish", partial(_finish, tables, certified[stream], outcomes, say))
    faults.each("retire", names, lambda stream: _retire(tables.now(), contracts.streams[stream], say))
    if streams is None:
        faults.broken(contracts)
    faults.tell()
    return outcomes


def _finish(tables: Tables, batches: Sequence[Batch], outcomes: Sequence[Outcome], say: Say) -> None:
    """Note of which revisions of a stream's batches, and of what all streams share, every expectation held."""
    stream = batches[0].stream
    failed = {one.batch_date for one in failures(outcomes) if one.stream in (stream, "")}
    held = [one for one in batches if not failed & {None, one.batch_date}]
    now = tables.now()
    stands = {one.batch: one.revision for one in load_batches(now, stream, batch=[one.batch for one in held])}
    same = [one for one in held if stands.get(one.batch) == one.revision]
    try:
        save_batches(now, [replace(one, validated_revision=one.revision) for one in same])
    except ConcurrentRun:
        same = []
    if len(same) < len(held):
        say(f"{stream}: batches were shed again meanwhile; the next run validates them")


def _retire(tables: Tables, contract: StreamContract, say: Say) -> list[Batch]:
    """Retire what was validated, but for what a sketch that the contract asks for is still to be made of."""
    return retire(tables, contract, unsketched(tables, contract), say)

"""Validating: recover what changed, certify it against raw, run the expectation suites, retire.

Only batches that were shed since they were last certified are recovered and validated. A failed expectation fails the
run with a sentence; only what passed may be retired.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import pyarrow.compute as pc

from spillway.batch import DONE, Batch, utc_now
from spillway.checks import ExpectationsFailed, Outcome, StoredRows, failures, run_suites
from spillway.checks.views import types_of
from spillway.contracts import Contracts, StreamContract
from spillway.engine.protocol import Engine
from spillway.errors import ConcurrentRun
from spillway.levers.certificate import Certificate
from spillway.levers.protocol import FramePart, Measured, Say, Stored
from spillway.pipeline.drafting import added_columns
from spillway.pipeline.facts import newest_facts
from spillway.pipeline.faults import Faults
from spillway.pipeline.recover import WayBack, recover_batches
from spillway.pipeline.retire import retire
from spillway.pipeline.sketch import unsketched
from spillway.pipeline.stages import AT_A_TIME, Down, EndRows, Up
from spillway.pipeline.train import edge_of
from spillway.registry import lever
from spillway.store.batches import load_batches, save_batches
from spillway.store.files import batch_bytes
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
    outcomes: list[Outcome] = []

    def recover_and_certify(stream: str) -> list[Batch]:
        batches, started = _forget_validated(tables, work[stream]), time.monotonic()
        ways = recover_batches(tables, engine, contracts.streams[stream], batches)
        say(f"{stream}: recovered {len(batches)} batches in {time.monotonic() - started:.1f} s")
        certify_ways(tables, engine, contracts.streams[stream], ways, say)
        return batches

    if not work:
        say("nothing was shed since the last validation")
    certified = faults.each("certify", work, recover_and_certify, work)
    if certified:
        judge = partial(_judge, tables, engine, contracts, certified, run_id, say, faults)
        judged = faults.attempt("", "judge", judge)
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


@dataclass(frozen=True)
class _Stretch:
    """A stretch of a batch to be certified, of one way."""

    way: int
    part: FramePart


@dataclass(frozen=True)
class _Certify:
    """Measures every promise on a stretch: what each lever was offered against what it gave back.

    What the first was offered is `raw`, and what it gave back `recovered`; between two levers both are made again.
    """

    ways: tuple[tuple[Down, Up, tuple[str, ...]], ...]
    recovered: Stored
    attributes: int

    def __call__(self, stretch: _Stretch) -> list[tuple[str, Measured]]:
        down, up, levers = self.ways[stretch.way]
        part, day = stretch.part, stretch.part.batch_date
        found = []
        for ordinal, name in enumerate(levers, start=1):
            truth = down.before(ordinal, day)
            given = (
                EndRows(self.recovered.on(day), self.attributes)
                if ordinal == 1
                else up.given_back(ordinal, day)
            )
            found += [(name, one) for one in down.decisions[ordinal - 1].certify(part, truth, given)]
        return found or [("", self._rows(down, part))]

    def _rows(self, down: Down, part: FramePart) -> Measured:
        """Where nothing was promised of any value: the rows that only one side has."""
        was, back = (
            np.asarray(end.on(part.batch_date)([], part.from_seq, part.to_seq)["seq"])
            for end in (down.raw, self.recovered)
        )
        strays = len(np.setxor1d(was, back))
        return Measured(part.batch, "", frozenset(), Certificate(0.0, violations=strays))


def certify_ways(
    tables: Tables,
    engine: Engine,
    contract: StreamContract,
    ways: Sequence[WayBack],
    say: Say,
) -> None:
    """Measure what every lever promised against raw, and write the certificates, each of its batch's revision."""
    stream = contract.stream
    batches = [batch for way in ways for batch in way.batches]
    days = sorted({batch.batch_date for batch in batches})
    stretches = [_Stretch(place, part) for place, way in enumerate(ways) for part in _stretches(way.batches)]
    measure = _Certify(
        tuple((way.down, way.up, way.levers) for way in ways),
        tables.at("recovered", stream).stored(batch_date=days),
        len(contract.attributes),
    )
    measured: dict[tuple[str, int, str], Measured] = {}
    for name, one in (pair for pairs in engine.map(measure, stretches) for pair in pairs):
        place = (name, one.batch, one.attribute)
        measured[place] = measured[place] + one if place in measured else one
    rows = list(_certificate_rows(tables, contract, batches, measured))
    tables.at("certificates").replace(rows, stream=stream, batch=[batch.batch for batch in batches])
    values = sum(row["shed_values"] + row["rounded_values"] for row in rows)
    errors = sum(one.certificate.sum_error_pct for one in measured.values())
    violations = sum(row["violations"] for row in rows)
    say(
        f"{stream}: certified {values:,} shed or rounded values: {violations} outside their threshold, "
        f"accuracy {100 - errors / max(1, values):.2f} %"
    )


def _stretches(batches: Sequence[Batch]) -> Iterator[FramePart]:
    """The batches in stretches that a task reads at a time; where frames begin does not matter to who compares."""
    size = 2 * AT_A_TIME
    for batch in batches:
        for low in range(batch.first_seq, batch.last_seq + 1, size):
            high = min(low + size - 1, batch.last_seq)
            yield FramePart(batch.batch, batch.batch_date, low, low, high)


def _certificate_rows(
    tables: Tables,
    contract: StreamContract,
    batches: Sequence[Batch],
    measured: Mapping[tuple[str, int, str], Measured],
) -> Iterator[dict[str, Any]]:
    now = utc_now()
    levers = dict.fromkeys(name for name, _, _ in measured if name)
    stored = {name: lever(name).stored(contract, batches, tables) for name in levers}
    numbers = [batch.batch for batch in batches]
    spent = {
        (row["stage"], row["batch"], row["dimension"]): row["bytes_source"]
        for row in tables.at("ledger")
        .rows(
            ["stage", "batch", "dimension", "bytes_source"],
            subject=contract.stream,
            batch=numbers,
            dimension_kind="attribute",
        )
        .to_pylist()
    }
    dates = {batch.batch: batch for batch in batches}
    widths: dict[int, tuple[dict[str, int], dict[str, int]]] = {}
    for (name, number, attribute), one in sorted(measured.items()):
        if number not in widths:
            widths[number] = _widths(tables, contract, dates[number])
        before, after = widths[number]
        corrections = stored.get(name, {}).get((number, attribute), 0)
        certificate = one.certificate.with_stored(corrections)
        touched = certificate.values > 0
        yield {
            "stream": contract.stream,
            "batch": number,
            "batch_date": dates[number].batch_date,
            "lever": name,
            "attribute": attribute,
            "way": one.way,
            "error_pct": _finite(certificate.error_pct),
            "error": _finite(certificate.error),
            "shed_values": certificate.shed_values,
            "rounded_values": certificate.rounded_values,
            "stored_values": certificate.stored_values,
            "stored_share_pct": certificate.stored_share_pct if certificate.shed_values else None,
            "max_error_pct": certificate.max_error_pct if touched else None,
            "mean_error_pct": certificate.mean_error_pct if touched else None,
            "worst_over_threshold": certificate.worst_over_threshold if touched else None,
            "max_error": certificate.max_error if touched else None,
            "mean_error": certificate.mean_error if touched else None,
            "violations": certificate.violations,
            "column_bytes": before.get(attribute, 0),
            "wire_bytes": after.get(attribute, 0),
            "synopsis_bytes": spent.get((name, number, attribute), 0),
            "created_at": now,
            "revision": dates[number].revision,
        }


def _finite(bound: float) -> float | None:
    """A bound, None where there is none."""
    return bound if math.isfinite(bound) else None


def _widths(tables: Tables, contract: StreamContract, batch: Batch) -> tuple[dict[str, int], dict[str, int]]:
    """Compressed bytes of a batch's attributes in raw, and as transmitted."""
    where = {"batch_date": batch.batch_date, "batch": batch.batch}
    before, after = (
        batch_bytes(tables.at(table, contract.stream).files(**where), contract.names, batch.batch)[0]
        for table in ("raw", "transmitted")
    )
    return before, after


def _judge(
    tables: Tables,
    engine: Engine,
    contracts: Contracts,
    work: Mapping[str, Sequence[Batch]],
    run_id: str,
    say: Say,
    faults: Faults,
) -> list[Outcome]:
    """Run every suite over what changed, write the outcomes, note those that failed."""
    started = time.monotonic()
    streams = {stream: contracts.streams[stream] for stream in work}
    added = {stream: added_columns(contract) for stream, contract in streams.items()}
    outcomes = run_suites(
        engine, _judged_tables(tables, streams, work), streams, tables.settings, added=added
    )
    for stream, contract in streams.items():
        for found in _noticed(tables, contract, work[stream]):
            say(found.sentence)
            outcomes.append(found)
    now = utc_now()
    rows = [outcome.row(run_id, now) for outcome in outcomes]
    tables.at("validations").replace(rows, table=sorted({row["table"] for row in rows}), run_id=run_id)
    failed = failures(outcomes)
    rules, judged = {(o.table, o.expectation) for o in outcomes}, {o.table for o in outcomes}
    took = time.monotonic() - started
    say(f"{len(rules)} expectations on {len(judged)} tables, {len(failed)} failed, in {took:.1f} s")
    if failed:
        faults.note("", "judge", ExpectationsFailed(failed))
    return outcomes


def _judged_tables(
    tables: Tables, streams: Mapping[str, StreamContract], work: Mapping[str, Sequence[Batch]]
) -> dict[str, Any]:
    """What suites may read: the shared tables' rows of the batches, and where the streams' own rows lie."""
    found: dict[str, Any] = {}
    numbers = sorted({batch.batch for batches in work.values() for batch in batches})
    since = min(batch.updated_at for batches in work.values() for batch in batches)
    for name, contract in tables.contracts.items():
        table = tables.at(name) if contract.scope == "shared" else None
        if table is None:
            for stream in streams:
                own = tables.at(name, stream)
                if own.exists:
                    days = sorted({batch.batch_date for batch in work[stream]})
                    mine = [batch.batch for batch in work[stream]]
                    files = own.files(batch_date=days, batch=mine)
                    found[f"{name}/{stream}"] = StoredRows(
                        types_of(own.schema), tuple(files), frozenset(mine)
                    )
        elif table.exists:
            columns = contract.names
            where: dict[str, Any] = {}
            of = next((column for column in ("stream", "subject") if column in columns), None)
            if of is not None and contract.curated and name != "validations":
                where[of] = list(work)
            if where and "batch" in columns:
                where["batch"] = numbers
            if name == "models":
                # what these were shed with, and what the next ones will be
                where["version"] = _versions(tables, work)
            if name == "windows":
                # of joins and queries, which streams do not name: those that have changed since these batches
                where = {"updated_at": Between(since)}
            if name == "validations":
                where = {"validated_at": Between(since)}
            if contract.curated:
                found[name] = table.rows(**where)
    return found


def _versions(tables: Tables, work: Mapping[str, Sequence[Batch]]) -> list[int]:
    """The versions of facts that batches were shed with, and all that came later."""
    used = {version for batches in work.values() for batch in batches for version in batch.models.values()}
    newest = tables.at("models").rows(["version"], stream=list(work))["version"]
    return (
        sorted(used | set(pc.unique(newest.filter(pc.greater_equal(newest, max(used)))).to_pylist()))
        if used
        else []
    )


def _noticed(tables: Tables, contract: StreamContract, batches: Sequence[Batch]) -> Iterator[Outcome]:
    """What the newest of these batches says of the facts in force; reported, never a failure."""
    edge = edge_of(tables, contract.stream, batches[-1:])
    for name in contract.lever_names:
        facts = newest_facts(tables, contract.stream, name)
        for one in lever(name).noticed(contract, facts, edge) if facts is not None else ():
            yield Outcome(
                "models",
                contract.stream,
                None,
                one.rule,
                True,
                one.observed,
                one.expected,
                contract.stream,
                one.sentence,
                True,
            )

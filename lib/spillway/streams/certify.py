"""Measure what every lever promised, on recovered rows against `raw`, and write the table `certificates`."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from spillway.batch import Batch
from spillway.clock import utc_now
from spillway.contracts import StreamContract
from spillway.engine.protocol import Engine, Step, run_alone
from spillway.errors import format_count
from spillway.levers.certificate import Certificate
from spillway.levers.protocol import Decision, FrameSlice, Rows, Say, SliceCertificate
from spillway.registry import lever
from spillway.store.files import DataFile, batch_bytes, keep_files_open
from spillway.store.tables import StoredFiles, Tables, replace_rows
from spillway.streams.presence import WHOLE_ROWS, Presence, certified_presence, presence
from spillway.streams.recover import RECOVER, RecoveryPlan, recovery_step
from spillway.streams.stages import AT_A_TIME, RecoveryPath, ShedPath, TableRows


@dataclass(frozen=True)
class _Certify:
    """Measures every promise on a slice: the rows that each lever was offered against the rows that it recovered.

    The rows offered to the first lever are those of `raw`. The rows that it recovered are read from the file that was
    just written for `recovered`. Between two levers, both sides are computed again.
    """

    down: ShedPath
    up: RecoveryPath
    levers: tuple[str, ...]
    attributes: int

    def __call__(
        self, parts: Sequence[FrameSlice], files: tuple[DataFile, ...]
    ) -> list[tuple[str, SliceCertificate]]:
        day = parts[0].batch_date
        written = TableRows(StoredFiles(files).reader_for(day), self.attributes)
        # one reader for all slices: it moves forward, and decodes a row group once
        stages: list[tuple[str, Decision, Rows, Rows]] = [
            (
                name,
                self.down.decisions[ordinal - 1],
                self.down.rows_before(ordinal, day),
                written if ordinal == 1 else self.up.recovered_rows(ordinal, day),
            )
            for ordinal, name in enumerate(self.levers, start=1)
        ]
        raw = TableRows(self.down.raw.reader_for(day), self.attributes)
        found = []
        for part in _slices(parts):
            of_part = [
                (name, one)
                for name, decision, truth, given in stages
                for one in decision.certify(part, truth, given)
            ]
            found += of_part or [("", _strays(part, raw, written))]
        return found


def _strays(part: FrameSlice, raw: Rows, written: Rows) -> SliceCertificate:
    """Return the rows that only one side has, if no lever promised anything about values."""
    was, back = (np.asarray(rows([], part.from_seq, part.to_seq)["seq"]) for rows in (raw, written))
    violations = len(np.setxor1d(was, back))
    return SliceCertificate(part.batch, "", frozenset(), Certificate(0.0, violations=violations))


@keep_files_open()
def recover_and_certify(
    tables: Tables, engine: Engine, contract: StreamContract, batches: Sequence[Batch], say: Say
) -> None:
    """Recover and certify batches of one stream; see `certification_step`."""
    run_alone(engine, certification_step(tables, contract, batches, say), RECOVER)


def certification_step(
    tables: Tables, contract: StreamContract, batches: Sequence[Batch], say: Say
) -> Step[None]:
    """Write `recovered` for these batches, measure what every lever promised, and write certificates of their revision.

    This takes one pass: the task that writes a file reads it back and compares it with `raw` before the file is
    published. The step shares its job with other streams.
    """
    stream, started = contract.stream, time.monotonic()

    def check(way: RecoveryPlan) -> _Certify:
        return _Certify(way.down, way.up, way.levers, len(contract.attributes))

    ways = yield from recovery_step(tables, contract, batches, check=check)
    batches = [batch for way in ways for batch in way.batches]
    measured: dict[tuple[str, int, str], SliceCertificate] = {}
    for name, one in (pair for way in ways for piece in way.found for pair in piece):
        place = (name, one.batch, one.attribute)
        measured[place] = measured[place] + one if place in measured else one
    rows = list(_certificate_rows(tables, contract, batches, measured))
    numbers = [batch.batch for batch in batches]
    yield from replace_rows(tables.at("certificates"), rows, stream=stream, batch=numbers)
    values = sum(row["shed_values"] + row["rounded_values"] for row in rows)
    violations = sum(row["violations"] for row in rows)
    say(
        f"{stream}: recovered {format_count(len(batches), 'batch', 'batches')} in {time.monotonic() - started:.1f} s; "
        f"compared {values:,} shed or rounded values with raw, {violations:,} outside their bound; "
        f"{_format_presence(rows)}"
    )


def _format_presence(certificates: Sequence[Mapping[str, Any]]) -> str:
    """Return what is present at the destination, in words; values that were never sent are absent there."""
    there = certified_presence(certificates) or Presence(0)
    return there.words("measure values" if any(row["attribute"] for row in certificates) else "rows")


def _slices(parts: Sequence[FrameSlice]) -> Iterator[FrameSlice]:
    """Yield the slices of one batch in lengths to read at a time; the comparison does not depend on frames."""
    first, end, size = parts[0], parts[-1].to_seq, 2 * AT_A_TIME
    for low in range(first.from_seq, end + 1, size):
        yield FrameSlice(first.batch, first.batch_date, low, low, min(low + size - 1, end))


def _certificate_rows(
    tables: Tables,
    contract: StreamContract,
    batches: Sequence[Batch],
    measured: Mapping[tuple[str, int, str], SliceCertificate],
) -> Iterator[dict[str, Any]]:
    now = utc_now()
    levers = dict.fromkeys(name for name, _, _ in measured if name)
    stored = {name: lever(name).count_stored_corrections(contract, batches, tables) for name in levers}
    numbers = [batch.batch for batch in batches]
    ledger = tables.at("ledger").rows(scope="stream", subject=contract.stream, batch=numbers).to_pylist()
    spent = {
        (row["stage"], row["batch"], row["dimension"]): row["bytes_source"]
        for row in ledger
        if row["dimension_kind"] == "attribute"
    }
    there = presence(tables, contract, batches, ledger)
    dates = {batch.batch: batch for batch in batches}
    widths: dict[int, tuple[dict[str, int], dict[str, int]]] = {}
    for (name, number, attribute), one in sorted(measured.items()):
        if number not in widths:
            widths[number] = _widths(tables, contract, dates[number])
        before, after = widths[number]
        corrections = stored.get(name, {}).get((number, attribute), 0)
        certificate = one.certificate.with_stored(corrections)
        touched = certificate.values > 0
        # the contract no longer has this attribute, so only its rows are counted
        present = there.get((number, attribute), there[number, WHOLE_ROWS])
        yield {
            "stream": contract.stream,
            "batch": number,
            "batch_date": dates[number].batch_date,
            "lever": name,
            "attribute": attribute,
            "treatment": one.way,
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
            "offered_values": present.offered,
            "source_values": present.held,
            "lost_values": present.lost,
            "column_bytes": before.get(attribute, 0),
            "wire_bytes": after.get(attribute, 0),
            "synopsis_bytes": spent.get((name, number, attribute), 0),
            "created_at": now,
            "revision": dates[number].revision,
        }


def _finite(bound: float) -> float | None:
    """Return a bound; None if it is infinite."""
    return bound if math.isfinite(bound) else None


def _widths(tables: Tables, contract: StreamContract, batch: Batch) -> tuple[dict[str, int], dict[str, int]]:
    """Return the compressed bytes of a batch's attributes in `raw` and in `transmitted`."""
    where = {"batch_date": batch.batch_date, "batch": batch.batch}
    before, after = (
        batch_bytes(tables.at(table, contract.stream).files(**where), contract.names, batch.batch)[0]
        for table in ("raw", "transmitted")
    )
    return before, after

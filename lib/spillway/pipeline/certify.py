"""Certifying: what every lever promised, measured against `raw` stretch by stretch, and written as certificates."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from spillway.batch import Batch, utc_now
from spillway.contracts import StreamContract
from spillway.engine.protocol import Engine
from spillway.levers.certificate import Certificate
from spillway.levers.protocol import FramePart, Measured, Say, Stored
from spillway.pipeline.recover import WayBack
from spillway.pipeline.stages import AT_A_TIME, Down, EndRows, Up
from spillway.registry import lever
from spillway.store.files import batch_bytes
from spillway.store.tables import Tables


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

"""Read the result of shedding a stream from its tables.

Bytes are those of the written files. Of the synopsis only the payloads are counted, because the overhead of a file per
block is the same for every contestant.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from evidence.attributes.lake import Lake
from spillway.levers.attributes.scheme import Run, load_runs
from spillway.levers.certificate import Certificate
from spillway.levers.protocol import OVERHEAD
from spillway.report.summary import certificate_of
from spillway.store.files import column_bytes


@dataclass(frozen=True)
class RunResult:
    """Bytes by column as sent and as stored, errors by attribute, and the runs of schemes."""

    sent_bytes: Mapping[str, int]
    raw_bytes: Mapping[str, int]
    synopsis_bytes: Mapping[str, int]
    """Of shed values, by attribute."""
    certificates: Mapping[str, Certificate]
    """Of shed or rounded values, by attribute."""
    runs: tuple[Run, ...]
    by_batch: Mapping[int, RunResult] = field(default_factory=dict)
    """The result of every batch by itself."""

    def of(self, batches: Collection[int]) -> RunResult:
        """Return the same result for some batches."""
        return _combine([self.by_batch[batch] for batch in batches])

    @property
    def wire_bytes(self) -> int:
        """The bytes that are sent."""
        return sum(self.sent_bytes.values())

    @property
    def net_bytes(self) -> int:
        """The sum of the sent bytes and the synopsis."""
        return self.wire_bytes + sum(self.synopsis_bytes.values())

    @property
    def shed(self) -> Mapping[str, Certificate]:
        """The certificates of attributes that were shed in at least one frame."""
        return {name: one for name, one in self.certificates.items() if one.shed_values}

    @property
    def violations(self) -> int:
        return sum(one.violations for one in self.certificates.values())


def read_result(lake: Lake, stream: str) -> RunResult:
    """Read the result of a stream that was shed and certified from its tables."""
    tables, contract = lake.tables, lake.contracts.streams[stream]
    columns = [*OVERHEAD, *contract.names]
    by_batch: dict[int, RunResult] = {}
    for batch in lake.batches(stream):
        where: dict[str, Any] = {"batch_date": batch.batch_date, "batch": batch.batch}
        payloads: dict[str, int] = {}
        stored = [
            row
            for table in ("synopsis", "sent_synopsis")
            for row in tables.at(table).rows(["attribute", "payload"], stream=stream, **where).to_pylist()
        ]
        for row in stored:
            payloads[row["attribute"]] = payloads.get(row["attribute"], 0) + len(row["payload"])
        rows = tables.at("certificates").rows(stream=stream, **where).to_pylist()
        certified = {row["attribute"]: certificate_of(row) for row in rows}
        by_batch[batch.batch] = RunResult(
            column_bytes(tables.at("transmitted", stream).files(**where), columns),
            column_bytes(tables.at("raw", stream).files(**where), columns),
            payloads,
            {
                name: certified[name]
                for name in contract.names
                if name in certified and certified[name].values
            },
            tuple(load_runs(tables, stream, [batch.batch])),
        )
    return replace(_combine(list(by_batch.values())), by_batch=by_batch)


def _combine(parts: Sequence[RunResult]) -> RunResult:
    """Combine the results of several batches; attributes are in the order of the first batch that has them."""
    certificates: dict[str, Certificate] = {}
    for part in parts:
        for name, one in part.certificates.items():
            certificates[name] = certificates[name] + one if name in certificates else one
    return RunResult(
        _summed(part.sent_bytes for part in parts),
        _summed(part.raw_bytes for part in parts),
        _summed(part.synopsis_bytes for part in parts),
        certificates,
        tuple(run for part in parts for run in part.runs),
    )


def _summed(counts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    found: dict[str, int] = {}
    for one in counts:
        for name, count in one.items():
            found[name] = found.get(name, 0) + count
    return found

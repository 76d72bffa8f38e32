"""What shedding a stream came to, read off the tables that the steps wrote.

Bytes are those of files as written; of the synopsis the payloads are counted, for what a file adds around a block is
the same for every contestant.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce
from operator import add

from evidence.attributes.lake import Lake
from spillway.levers.attributes.scheme import Run
from spillway.levers.attributes.schemes import load_runs
from spillway.levers.certificate import Certificate
from spillway.pipeline.room import OVERHEAD
from spillway.show.summary import certificate_of
from spillway.store.files import column_bytes


@dataclass(frozen=True)
class RunResult:
    """Bytes by column as sent and as stored, errors by attribute, and the runs of schemes."""

    sent_bytes: Mapping[str, int]
    raw_bytes: Mapping[str, int]
    synopsis_bytes: Mapping[str, int]
    """Of what was shed, by attribute."""
    certificates: Mapping[str, Certificate]
    """Of what was shed or rounded, by attribute."""
    runs: tuple[Run, ...]

    @property
    def wire_bytes(self) -> int:
        """What goes over the wire."""
        return sum(self.sent_bytes.values())

    @property
    def net_bytes(self) -> int:
        """Wire and synopsis together."""
        return self.wire_bytes + sum(self.synopsis_bytes.values())

    @property
    def shed(self) -> Mapping[str, Certificate]:
        """The certificates of what was shed, somewhere or everywhere."""
        return {name: one for name, one in self.certificates.items() if one.shed_values}

    @property
    def violations(self) -> int:
        return sum(one.violations for one in self.certificates.values())


def read_result(lake: Lake, stream: str) -> RunResult:
    """What the tables say of a stream that was shed and certified."""
    tables, contract = lake.tables, lake.contracts.streams[stream]
    columns = [*OVERHEAD, *contract.names]
    payloads: dict[str, int] = {}
    for row in tables.at("synopsis").rows(["attribute", "payload"], stream=stream).to_pylist():
        payloads[row["attribute"]] = payloads.get(row["attribute"], 0) + len(row["payload"])
    parts: dict[str, list[Certificate]] = {}
    for row in tables.at("certificates").rows(stream=stream).to_pylist():
        parts.setdefault(row["attribute"], []).append(certificate_of(row))
    whole = {name: reduce(add, found) for name, found in parts.items()}
    return RunResult(
        column_bytes(tables.at("transmitted", stream).files(), columns),
        column_bytes(tables.at("raw", stream).files(), columns),
        payloads,
        {name: whole[name] for name in contract.names if name in whole and whole[name].values},
        tuple(load_runs(tables, stream)),
    )

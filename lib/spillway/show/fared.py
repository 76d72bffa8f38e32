"""How every attribute fared: what was done to it, at which bound and error, and what it took, from the tables alone.

No lever is named: the ledger counts what was kept, rounded and shed, the certificates say how far off it is, and levers
say how much of it the destination lacks until it asks (`Lever.absent`).

    loss of an attribute = (100 x absent + mean error x (rounded and shed that are not absent)) / values      (in %)

where of an attribute with a bound in its own unit alone the mean error over it counts (`Lever.whole_bound_pct`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from spillway.contracts import StreamContract
from spillway.ledger import Row
from spillway.registry import lever
from spillway.show.summary import added_up
from spillway.store.tables import Tables
from spillway.streams.facts import newest_facts

_ABSENT_PCT = 100.0


@dataclass(frozen=True)
class AttributeFigures:
    """One attribute's figures, batches added up."""

    stream: str
    attribute: str
    role: str
    unit: str
    values: int
    rounded: int
    shed: int
    absent: int
    """Of those shed, what stays at the source until it is asked for."""
    offered_bytes: int
    sent_bytes: int
    held_bytes: int
    bound_pct: float | None
    bound: float | None
    """In its own unit."""
    mean_error_pct: float
    worst_error_pct: float
    mean_error: float
    worst_error: float
    """In its own unit, where it is bound so."""
    mean_loss_pct: float
    """What a value that was rounded or shed lost where it is there: its error, or over a bound in its own unit."""
    violations: int

    @property
    def loss_pct(self) -> float:
        """What the destination has wrong, a value: what is absent counts 100."""
        if not self.values:
            return 0.0
        there = self.rounded + self.shed - self.absent
        return (_ABSENT_PCT * self.absent + self.mean_loss_pct * there) / self.values

    @property
    def ways(self) -> dict[str, float]:
        """The share of its values that travelled each way, in %."""
        counts = {
            "kept": self.values - self.rounded - self.shed,
            "rounded": self.rounded,
            "as synopsis": self.shed - self.absent,
            "held back": self.absent,
        }
        return {way: 100.0 * count / max(1, self.values) for way, count in counts.items() if count > 0}

    def flat(self) -> dict[str, float]:
        """Its numbers under their names in `build/run.json`."""
        names = (
            "values",
            "rounded",
            "shed",
            "absent",
            "offered_bytes",
            "sent_bytes",
            "held_bytes",
            "violations",
        )
        numbers = {
            name: getattr(self, name) for name in (*names, "mean_error_pct", "worst_error_pct", "loss_pct")
        }
        return {f"{name}.{self.stream}.{self.attribute}": value for name, value in numbers.items()}


def whole_bound_pct(tables: Tables, contract: StreamContract) -> float:
    """What an error as large as a bound in an attribute's own unit counts as, in %, by the stream's levers."""
    found = [
        lever(name).whole_bound_pct(newest_facts(tables, contract.stream, name))
        for name in contract.lever_names
    ]
    return min(found, default=100.0)


def attribute_figures(
    contract: StreamContract,
    ledger: Iterable[Row],
    certificates: Iterable[Row],
    absent: Mapping[tuple[int, str], int],
    counts_pct: float = 100.0,
) -> list[AttributeFigures]:
    """The figures of every attribute of a stream, in contract order; of those that no stage speaks of, none."""
    lines: dict[str, list[Row]] = {}
    for row in ledger:
        if (row["dimension_kind"], row["unit"]) == ("attribute", "values") and row["ordinal"] > 0:
            lines.setdefault(row["dimension"], []).append(row)
    proofs: dict[str, list[Row]] = {}
    for row in certificates:
        proofs.setdefault(row["attribute"], []).append(row)
    found = []
    for attribute in contract.attributes:
        own, proof = lines.get(attribute.name, []), proofs.get(attribute.name, [])
        if not own:
            continue
        # a value that several levers speak of was offered once, to the first, and sent once, by the last
        way = sorted(own, key=lambda row: int(row["ordinal"]))
        last = list({row["batch"]: row for row in way}.values())
        first = list({row["batch"]: row for row in reversed(way)}.values())
        whole = added_up(proof)
        found.append(
            AttributeFigures(
                contract.stream,
                attribute.name,
                attribute.role,
                attribute.unit or "",
                _sum(first, "offered"),
                _sum(own, "rounded"),
                _sum(own, "shed"),
                sum(count for (_, name), count in absent.items() if name == attribute.name),
                _sum(first, "bytes_offered"),
                _sum(last, "bytes_kept"),
                _sum(own, "bytes_source"),
                _bound(proof, "error_pct"),
                _bound(proof, "error"),
                whole.mean_error_pct,
                whole.max_error_pct,
                _mean(proof, "mean_error"),
                max((float(row.get("max_error") or 0.0) for row in proof), default=0.0),
                whole.loss_pct(counts_pct),
                whole.violations,
            )
        )
    return found


def _sum(rows: Iterable[Row], name: str) -> int:
    return sum(int(row[name]) for row in rows)


def _mean(certificates: Iterable[Row], column: str) -> float:
    """The mean over all values that were shed or rounded."""
    parts = [(row["shed_values"] + row["rounded_values"], row.get(column) or 0.0) for row in certificates]
    values = sum(count for count, _ in parts)
    return math.fsum(count * mean for count, mean in parts) / values if values else 0.0


def _bound(certificates: Iterable[Row], column: str) -> float | None:
    """The loosest that any of them was judged by; None where there is none."""
    stated = [row.get(column) for row in certificates]
    found = [float(one) for one in stated if one is not None and math.isfinite(one)]
    return max(found, default=None)

"""Who is in a cycle, from when and until when; and whether that still holds.

A ticker is listed, a station closes: the trained fact says from which `seq` each membership holds, so
that windows follow. A cycle that changes after training shows as members that are new, members that
stay away for `EDGE_CYCLES` cycles, or steps that no longer follow the order.

>>> member = Member(("GOOG",), from_seq=3366)
>>> member.is_active_at(3365), member.is_active_at(3366)
(False, True)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from spillway.levers.attributes.cycle.ring import conforming_steps
from spillway.levers.attributes.cycle.robust import EDGE_CYCLES, Trace
from spillway.levers.attributes.cycle.value_codes import coded_keys, plain_value

if TYPE_CHECKING:
    from spillway.levers.attributes.cycle.find import Cycle


@dataclass(frozen=True)
class Member:
    """One value of the CID, where it is first valid and, if it has left, where it was last seen."""

    values: tuple[Any, ...]
    from_seq: int
    until_seq: int | None = None
    absences: tuple[tuple[int, int], ...] = ()
    """(last seq seen, seq of return) of each long absence in between."""

    def is_active_at(self, seq: int) -> bool:
        """Whether the member is expected at `seq`."""
        if seq < self.from_seq or (self.until_seq is not None and seq > self.until_seq):
            return False
        return not any(left < seq < back for left, back in self.absences)

    def to_dict(self) -> dict[str, Any]:
        """As JSON holds it."""
        return {
            "values": [plain_value(value) for value in self.values],
            "from_seq": self.from_seq,
            "until_seq": self.until_seq,
            "absences": [list(absence) for absence in self.absences],
        }

    @classmethod
    def from_dict(cls, fact: Mapping[str, Any]) -> Member:
        """The inverse of `to_dict`."""
        absences = tuple((int(left), int(back)) for left, back in fact.get("absences", ()))
        return cls(tuple(fact["values"]), int(fact["from_seq"]), fact.get("until_seq"), absences)


def members_of_trace(
    trace: Trace, values: Sequence[tuple[Any, ...]], seq: npt.NDArray[np.int64]
) -> tuple[Member, ...]:
    """Members in cyclic order, their intervals told in `seq`."""
    intervals: list[list[int]] = [[] for _ in trace.order]
    for k in np.argsort(trace.first_rows, kind="stable"):
        intervals[int(trace.interval_position[k])].append(int(k))
    members = []
    for position, own in enumerate(intervals):
        first, last = own[0], own[-1]
        absences = tuple(
            (int(seq[trace.last_rows[a]]), int(seq[trace.first_rows[b]])) for a, b in pairwise(own)
        )
        members.append(
            Member(
                values[int(trace.order[position])],
                int(seq[0] if trace.from_start[first] else seq[trace.first_rows[first]]),
                None if trace.to_end[last] else int(seq[trace.last_rows[last]]),
                absences,
            )
        )
    return tuple(members)


@dataclass(frozen=True)
class CycleDrift:
    """A trained cycle held against new data."""

    new: tuple[Member, ...]
    vanished: tuple[Member, ...]
    confidence: float
    needed_confidence: float

    @property
    def needs_retraining(self) -> bool:
        """Whether the cycle is no longer the one that was trained."""
        return bool(self.new or self.vanished) or self.confidence < self.needed_confidence

    def __str__(self) -> str:
        def names(members: tuple[Member, ...]) -> str:
            return ", ".join("/".join(map(str, member.values)) for member in members) or "none"

        return (
            f"cycle confidence {self.confidence:.2f} (needs {self.needed_confidence:.2f}), "
            f"new members: {names(self.new)}, vanished: {names(self.vanished)}"
            + ("; train the stream again" if self.needs_retraining else "")
        )


def cycle_drift(
    cycle: Cycle, columns: Mapping[str, npt.NDArray[Any]], seq: npt.NDArray[np.int64]
) -> CycleDrift:
    """Who is new, who is gone, and how well the trained order still predicts the next tuple.

    A new value counts as a member once it comes back as often as half its cycles ask for: a misspelt key
    does not. A member counts as gone after five whole cycles without it. Where the declared keys identify and
    follow no order, nobody is expected and nothing can drift.
    """
    if not cycle.is_ordered:
        return CycleDrift((), (), 1.0, 0.0)
    codes, values = coded_keys(columns, cycle.attributes)
    places = cycle.positions(columns)
    n = len(seq)
    if n == 0:
        return CycleDrift((), (), cycle.confidence, cycle.needed_confidence)
    counts = np.bincount(codes[codes >= 0], minlength=len(values))
    known = {member.values for member in cycle.members}
    new = []
    for code, value in enumerate(values):
        if value in known or (len(value) == 1 and value[0] is None):
            continue
        first = int(np.argmax(codes == code))
        if counts[code] >= 0.5 * (n - first) / (cycle.length + 1) and (n - first > cycle.length or n == 1):
            new.append(Member(value, int(seq[first])))
    vanished = []
    last_row = np.full(len(cycle.members) + 1, -1, dtype=np.int64)
    np.maximum.at(last_row, places, np.arange(n))
    gone = np.zeros(len(cycle.members), dtype=np.bool_)
    if cycle.unique:
        for position, member in enumerate(cycle.members):
            gone[position] = last_row[position] < 0
            expected = member.is_active_at(int(seq[-1]))
            if expected and n - 1 - last_row[position] >= EDGE_CYCLES * cycle.length:
                vanished.append(Member(member.values, member.from_seq, int(seq[max(last_row[position], 0)])))
    in_ring = places >= 0
    if not in_ring.any():
        return CycleDrift(tuple(new), tuple(vanished), 0.0, cycle.needed_confidence)
    if not cycle.unique:
        kept, counted = _periodic_steps(codes, cycle.length)
    else:
        active = np.flatnonzero(~gone)
        left = {member.values for member in vanished}
        starts = np.zeros(len(active), dtype=np.int64)
        kept_rows = np.cumsum(in_ring)
        stops = np.array(
            [kept_rows[last_row[k]] if cycle.members[k].values in left else n + 1 for k in active],
            dtype=np.int64,
        )
        kept, counted, _, _ = conforming_steps(places[in_ring], len(cycle.members), starts, stops, active)
        # first visits prove as much as any other here: the order was learned elsewhere
    strangers = int((~in_ring).sum())
    share = kept / (counted + strangers) if counted + strangers else cycle.confidence
    return CycleDrift(tuple(new), tuple(vanished), share, cycle.needed_confidence)


def _periodic_steps(codes: npt.NDArray[np.int64], length: int) -> tuple[int, int]:
    same = codes[length:] == codes[:-length]
    return int(same.sum()), len(same)

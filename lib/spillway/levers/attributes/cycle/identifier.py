"""Find the cycle identifier (CID) of a stream: the smallest set of attributes whose values repeat in a cycle.

Tuples arrive in cycles: New Delhi, Ghurian, ... 75 cities, then New Delhi again (Ahuja 2006, section 3.2.1). The CID
names the member of the cycle to which a tuple belongs. It is the key of the synopsis and is never shed, and windows are
whole cycles. `find_cycle` looks first for a cycle as Ahuja defines it (`strict`: T[i+L][A] = T[i][A] throughout), then
for one with gaps, repeats, swapped neighbours and members that come and go (`trace`). `search` chooses among the
attributes. If the contract declares keys, `search_keys` tries these first. If nothing repeats, the keys alone are the
identifier.

The length of the cycle is the least common multiple of the periods of its attributes. Ahuja's product is stored as
well; it differs if periods share a factor (errata A6).

>>> import numpy as np
>>> router = np.array(["a", "b", "c"] * 20, dtype=object)
>>> phase = np.array([0, 1, 2, 3] * 15)
>>> cycle = find_cycle({"router": router, "phase": phase}, np.arange(60), {"router": 8, "phase": 8})
>>> cycle.attributes, cycle.length, cycle.form
(('router', 'phase'), 12, 'strict')

*Membership and drift.* A ticker is listed, a station closes: the trained fact says from which `seq` each member
belongs to the cycle, so that windows follow. `cycle_drift` detects a change after training: new members, members that
are absent for `EDGE_CYCLES` cycles, or steps that no longer follow the order.

>>> member = Member(("GOOG",), from_seq=3366)
>>> member.is_active_at(3365), member.is_active_at(3366)
(False, True)

*Declared keys.* The declared keys identify the sender of a tuple, so a cycle is accepted as identifier only if it
determines every key. `search_keys` tries, in this order:

1. The keys alone. If their joint values run through one cycle, the CID is the smallest subset that determines them all
   (fewest attributes, then fewest bits, then first in the contract). Constant keys identify nothing.
2. The keys and one or two further attributes (a sensor under a declared site), if the keys alone do not repeat.
   Attributes that only tell the time are excluded: a clock, or an attribute that a recurring order attribute
   determines. The smallest set that makes a cycle wins, even if a larger set has more confidence.
3. The keys alone, if they repeat strictly but a value occurs twice in a cycle (a,b,a,c).
4. Otherwise None: the stream is identified *by keys*, without a cycle.

At most `MOST_JOINERS` further attributes are tried.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise
from math import lcm, prod
from typing import Any

import numpy as np
import numpy.typing as npt

from spillway.errors import InvalidValue, SpillwayError
from spillway.levers.attributes.cycle.codes import (
    Codes,
    coded_keys,
    determines,
    first_appearance,
    plain_value,
    smallest_determining,
    value_codes,
)
from spillway.levers.attributes.cycle.ring import conforming_steps
from spillway.levers.attributes.cycle.search import Candidate, Search
from spillway.levers.attributes.cycle.trace import (
    DEFAULT_CONFIDENCE,
    EDGE_CYCLES,
    Trace,
    cycle_codes,
    follows_some_order,
    replicated_period,
    trace_cycle,
)
from spillway.levers.attributes.cycle.training_set import Set


@dataclass(frozen=True)
class Member:
    """One value of the CID, the `seq` from which it is a member, and the `seq` of its last tuple if it has left."""

    values: tuple[Any, ...]
    from_seq: int
    until_seq: int | None = None
    absences: tuple[tuple[int, int], ...] = ()
    """(last `seq` before, first `seq` after) of each long absence."""

    def is_active_at(self, seq: int) -> bool:
        """Return whether the member is expected at `seq`."""
        if seq < self.from_seq or (self.until_seq is not None and seq > self.until_seq):
            return False
        return not any(left < seq < back for left, back in self.absences)

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON object."""
        return {
            "values": [plain_value(value) for value in self.values],
            "from_seq": self.from_seq,
            "until_seq": self.until_seq,
            "absences": [list(absence) for absence in self.absences],
        }

    @classmethod
    def from_dict(cls, fact: Mapping[str, Any]) -> Member:
        """Return the member that `to_dict` wrote."""
        absences = tuple((int(left), int(back)) for left, back in fact.get("absences", ()))
        return cls(tuple(fact["values"]), int(fact["from_seq"]), fact.get("until_seq"), absences)


def members_of_trace(
    trace: Trace, values: Sequence[tuple[Any, ...]], seq: npt.NDArray[np.int64]
) -> tuple[Member, ...]:
    """Return the members in cyclic order, with their intervals as `seq`."""
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
    """The comparison of a trained cycle with new data."""

    new: tuple[Member, ...]
    vanished: tuple[Member, ...]
    confidence: float
    needed_confidence: float

    @property
    def needs_retraining(self) -> bool:
        """Return whether the cycle differs from the trained one."""
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
    """Return the new members, the members that left, and how well the trained order still predicts the next tuple.

    A new value is a member if it occurs in at least half of the cycles since its first tuple; a misspelt key does not.
    A member has left after `EDGE_CYCLES` whole cycles without it. If the stream is identified by keys or has one
    sender, there is no order, and nothing can drift.
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
        # the first visit of each member is not counted here, although the order was learned on other rows
    strangers = int((~in_ring).sum())
    share = kept / (counted + strangers) if counted + strangers else cycle.confidence
    return CycleDrift(tuple(new), tuple(vanished), share, cycle.needed_confidence)


def _periodic_steps(codes: npt.NDArray[np.int64], length: int) -> tuple[int, int]:
    same = codes[length:] == codes[:-length]
    return int(same.sum()), len(same)


MOST_JOINERS = 24

_KeyColumns = Mapping[str, npt.NDArray[Any]]


def search_keys(
    columns: _KeyColumns,
    names: Sequence[str],
    keys: Sequence[str],
    bits: Mapping[str, int],
    instants: npt.NDArray[Any] | None,
    confidence: float,
) -> tuple[Candidate | None, Search]:
    """Return the candidate found from the keys, and the search that has its codes; None: identified by keys."""
    alone = Search(columns, keys, bits, instants, confidence=confidence)
    varying = [key for key in keys if int(alone.codes[key].max(initial=-1)) > 0]
    if not varying:
        return None, alone
    found = _smallest(alone, alone.test(varying))
    if found is not None:
        return found, alone
    wide = Search(columns, names, bits, instants, confidence=confidence)
    found = _join_keys(wide, varying)
    if found is not None:
        return found, wide
    twice = alone.not_unique()
    if twice is not None and all(
        determines(alone.joint(twice.attributes), alone.codes[key]) for key in varying
    ):
        return twice, alone
    return None, alone


def _smallest(search: Search, whole: Candidate) -> Candidate | None:
    """Return the smallest set that determines all attributes of the candidate and runs through its cycle."""
    if not whole.accepted:
        return None
    names = whole.attributes
    options = [
        search.test([names[k] for k in chosen])
        for chosen in smallest_determining([search.codes[name] for name in names])
    ]
    return min((one for one in options if one.accepted), key=search.preference, default=whole)


def _join_keys(search: Search, keys: Sequence[str]) -> Candidate | None:
    key = search.joint(tuple(keys))
    joiners = [
        name
        for name in search.names
        if name not in keys
        and search.may_repeat(name)
        and not search.tells_time(name)
        # an attribute that the keys determine does not split the tuples of a key
        and not determines(key, search.codes[name])
    ]
    joiners.sort(key=lambda name: search.distinct(name))
    for size in (1, 2):
        found = []
        for further in combinations(joiners[:MOST_JOINERS], size):
            chosen: Set = (*keys, *further)
            if search.seems_ordered(chosen):
                smallest = _smallest(search, search.test(chosen))
                found += [] if smallest is None else [smallest]
        if found:
            return min(found, key=lambda one: (len(one.attributes), *search.preference(one)))
    return None


_Columns = Mapping[str, npt.NDArray[Any]]


FORMS = ("strict", "robust", "declared", "by keys", "one sender")


class CycleNotFound(SpillwayError):
    """No cycle is reliable and no key is declared; the message has the best candidate and how to state the CID."""

    def __init__(self, attributes: Sequence[str], confidence: float, needed: float, reason: str) -> None:
        self.attributes = tuple(attributes)
        self.confidence = confidence
        self.reason = reason
        listed = ", ".join(attributes)
        shown = f"{confidence:.2f}"
        if shown == f"{needed:.2f}" and confidence < needed:
            shown = f"{confidence:.4f}"
        best = (
            f"`{listed}` as best candidate with confidence {shown} of {needed:.2f} (it {reason})"
            if attributes
            else f"no candidate ({reason})"
        )
        super().__init__(
            f"`cycle` must be found in the training set, got {best}; train on more tuples, give the attributes that "
            f"tell who sent a tuple `role: key`, or state them in the contract's entry of this lever: "
            f"`cycle: {{attributes: [{listed or '...'}]}}`, or `cycle: {{attributes: []}}` where one sender sends all"
        )


@dataclass(frozen=True)
class Cycle:
    """A trained cycle identifier: its attributes, its members in order with their intervals, and its confidence."""

    attributes: tuple[str, ...]
    length: int
    """Members active at the end of training; strict: least common multiple of the periods; by keys: number of keys."""
    product: int
    """The product of the periods (Ahuja 2006, Algorithm 1, step (e)); equals `length` only for coprime periods."""
    periods: Mapping[str, int]
    form: str
    """strict, robust or declared; "by keys": the declared keys identify, without an order; or "one sender": there is no
    identifier, and every tuple belongs to the same sender."""
    confidence: float
    members: tuple[Member, ...]
    """The members in cyclic order; a cycle starts with the first."""
    unique: bool = True
    """False if a value occurs twice in a cycle and no attribute distinguishes the two (a,b,a,c)."""
    needed_confidence: float = DEFAULT_CONFIDENCE

    def __post_init__(self) -> None:
        if not self.attributes and self.form != "one sender":
            raise InvalidValue("attributes", "name the cycle", self.attributes, "name at least one attribute")
        if self.length < 1:
            raise InvalidValue("length", "be positive", self.length, "train the cycle again")
        if self.form not in FORMS:
            raise InvalidValue("form", f"be one of {', '.join(FORMS)}", self.form, "train the stream again")

    @property
    def is_ordered(self) -> bool:
        """Return whether the members repeat in an order; by keys or with one sender there is none, and no member is
        listed."""
        return self.form not in ("by keys", "one sender")

    @property
    def ring(self) -> int:
        """Return the number of places that `positions` distinguishes.

        If a value occurs twice in a cycle, there are two: the start of a cycle, and any other place.
        """
        return max(len(self.members), 1) if self.unique else 2

    def positions(self, columns: _Columns) -> Codes:
        """Return the place in the cycle of every row: 0 at its start, -1 for values that are no member.

        `columns` must include those of the identifier. With one sender there is none, and any column gives the number
        of rows.
        """
        if not self.is_ordered:
            return np.full(len(next(iter(columns.values()))), -1, dtype=np.int64)
        codes, values = coded_keys(columns, self.attributes)
        place = {member.values: min(k, 1) if not self.unique else k for k, member in enumerate(self.members)}
        table = np.array([place.get(value, -1) for value in values] + [-1], dtype=np.int64)
        return table[codes]

    def length_at(self, seq: int) -> int:
        """Return the number of members at `seq`, which sets the length of windows; 1 if there is no order."""
        if not self.is_ordered:
            return 1
        if self.form == "strict":
            return self.length
        return sum(member.is_active_at(seq) for member in self.members) or self.length

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON object."""
        return {
            "attributes": list(self.attributes),
            "length": self.length,
            "product": self.product,
            "periods": dict(self.periods),
            "form": self.form,
            "confidence": self.confidence,
            "members": [member.to_dict() for member in self.members],
            "unique": self.unique,
            "needed_confidence": self.needed_confidence,
        }

    @classmethod
    def from_dict(cls, fact: Mapping[str, Any]) -> Cycle:
        """Return the cycle that `to_dict` wrote."""
        return cls(
            **{
                **fact,
                "attributes": tuple(fact["attributes"]),
                "members": tuple(Member.from_dict(member) for member in fact["members"]),
            }
        )


def find_cycle(
    columns: _Columns,
    seq: npt.NDArray[np.int64],
    bits: Mapping[str, int],
    *,
    order: str | None = None,
    keys: Sequence[str] = (),
    confidence: float = DEFAULT_CONFIDENCE,
) -> Cycle:
    """Find the cycle identifier of a training set.

    If no cycle is found, the stream is identified by its keys; without keys, raise `CycleNotFound`.

    `columns` must be in contract order. `order` names the order attribute, which is no candidate itself; tuples with
    equal order values distinguish keys from clocks. `keys` are the keys that the contract declares. They are tried
    first, and the identifier must determine them (`search_keys`). `bits` are the widths by which one of several equally
    good attributes is chosen; an attribute without a width comes last.

    >>> import numpy as np
    >>> sender = np.random.default_rng(0).integers(0, 30, 3000)              # they report when they like
    >>> cycle = find_cycle({"sender": sender, "site": sender % 2}, np.arange(3000), {}, keys=["sender"])
    >>> cycle.attributes, cycle.form, cycle.length, cycle.length_at(0)
    (('sender',), 'by keys', 30, 1)
    """
    if not 0.5 < confidence <= 1:
        raise InvalidValue("confidence", "lie in (0.5, 1]", confidence, "the default is 0.8")
    tuples = len(seq)
    for name, column in columns.items():
        if len(column) != tuples:
            raise InvalidValue(name, f"have {tuples} values", len(column), "pass whole tuples")
    for key in keys:
        if key not in columns:
            raise InvalidValue(
                "keys", "name attributes of the stream", key, f"choose among {', '.join(columns)}"
            )
    names = [name for name in columns if name != order]
    instants = None if order is None or order not in columns else np.asarray(columns[order])
    if keys and tuples:
        keyed, search = search_keys(columns, names, keys, bits, instants, confidence)
        if keyed is None:
            return _cycle_of_keys(search, keys, confidence)
        return _cycle(keyed, search, seq, instants, confidence)
    if tuples < 4 or not names:
        what = "the training set has no attribute to try" if not names else f"{tuples} tuples prove nothing"
        raise CycleNotFound((), 0.0, confidence, what)
    search = Search(columns, names, bits, instants, confidence=confidence)
    found = search.run() or search.not_unique()
    if found is None:
        best = search.best_guess()
        if best is None:
            raise CycleNotFound((), 0.0, confidence, "no attribute repeats")
        raise CycleNotFound(best.attributes, best.confidence, confidence, best.reason)
    return _cycle(found, search, seq, instants, confidence)


def single_sender_cycle() -> Cycle:
    """Return the cycle of a stream without identifier: all tuples belong to one sender, that is to one key.

    Recovered values are within their bound as always, because every value is compared with its prediction before it is
    sent. If in fact several senders send without a name, only the predictions are worse.

    >>> alone = single_sender_cycle()
    >>> alone.attributes, alone.length_at(0), alone.ring, Cycle.from_dict(alone.to_dict()) == alone
    ((), 1, 1, True)
    """
    return Cycle((), 1, 1, {}, "one sender", 0.0, ())


def _cycle_of_keys(search: Search, keys: Sequence[str], needed: float) -> Cycle:
    """Return the cycle of a stream that is identified by its declared keys: there is no order, and no member is
    listed."""
    codes = search.joint(tuple(keys))
    count = len(np.unique(codes[codes >= 0]))
    confidence = search.test([key for key in keys if search.distinct(key) > 1] or keys).confidence
    return Cycle(tuple(keys), max(count, 1), max(count, 1), {}, "by keys", confidence, (), True, needed)


def declared_cycle(
    columns: _Columns,
    seq: npt.NDArray[np.int64],
    attributes: Sequence[str],
    *,
    order: str | None = None,
) -> Cycle:
    """Return the cycle for a CID that the contract states: members and confidence are learned, no check rejects it.

    >>> import numpy as np
    >>> cycle = declared_cycle({"city": np.array(["Oslo", "Bern", "Oslo"], dtype=object)}, np.arange(3), ["city"])
    >>> [member.values for member in cycle.members], cycle.length
    ([('Oslo',), ('Bern',)], 2)
    """
    for name in attributes:
        if name not in columns:
            raise InvalidValue(
                "cycle.attributes",
                "name attributes of the stream",
                name,
                f"choose among {', '.join(columns)}",
            )
    codes, values = coded_keys(columns, attributes)
    if not follows_some_order(codes):
        # ordering thousands of keys that have no order takes long and has no meaning
        count = int(codes.max()) + 1
        return Cycle(tuple(attributes), count, count, {}, "by keys", 0.0, ())
    trace = trace_cycle(codes, forced=True)
    if not len(trace.order):
        raise InvalidValue(
            "cycle.attributes", "have values", list(attributes), "name others, these are all null"
        )
    instants = None if order is None else np.asarray(columns[order])
    members = members_of_trace(_turn_trace(trace, codes, instants), values, seq)
    length = max(trace.length, 1)
    periods = {name: replicated_period(value_codes(columns[name])[0]) or length for name in attributes}
    return Cycle(
        tuple(attributes), length, prod(periods.values()), periods, "declared", trace.confidence, members
    )


def _cycle(
    found: Candidate,
    search: Search,
    seq: npt.NDArray[np.int64],
    instants: npt.NDArray[Any] | None,
    needed: float,
) -> Cycle:
    chosen = found.attributes
    codes = search.joint(chosen)
    unique = found.reason != "not unique"
    if found.trace is None:
        length = int(found.length)
        members = _strict_members(search, found, seq, instants)
    else:
        values = _values_of(search, chosen, codes)
        members = members_of_trace(_turn_trace(found.trace, codes, instants), values, seq)
        length = found.trace.length
    periods = {}
    for name in chosen:
        alone = search.tested.get((name,))
        if name in search.periods:
            periods[name] = search.periods[name]
        elif alone is not None and alone.accepted and alone.trace is not None:
            periods[name] = alone.trace.length
        else:
            periods[name] = length
    if found.trace is None:
        length = lcm(*periods.values())
    product = prod(periods.values())
    return Cycle(chosen, length, product, periods, found.form, found.confidence, members, unique, needed)


def _values_of(search: Search, chosen: tuple[str, ...], codes: Codes) -> list[tuple[Any, ...]]:
    _, first_rows = first_appearance(codes)
    return [tuple(search.values[name][search.codes[name][row]] for name in chosen) for row in first_rows]


def _strict_members(
    search: Search, found: Candidate, seq: npt.NDArray[np.int64], instants: npt.NDArray[Any] | None
) -> tuple[Member, ...]:
    """Return the members in the order of one whole cycle, also those that a short training set has not reached."""
    chosen = found.attributes
    joint = cycle_codes(search.codes, search.periods, chosen)
    _, rows = first_appearance(joint)
    laid_out = [
        tuple(search.values[name][search.codes[name][row % search.periods[name]]] for name in chosen)
        for row in rows
    ]
    if found.reason == "not unique":
        once = [k for k in range(len(laid_out)) if np.sum(joint == k) == 1]
        start = once[0] if once else 0
    else:
        at = np.arange(len(seq)) % int(found.length)
        start = _first_of_cycle(at, len(laid_out), instants)
    return tuple(Member(value, int(seq[0])) for value in laid_out[start:] + laid_out[:start])


def _turn_trace(trace: Trace, codes: Codes, instants: npt.NDArray[Any] | None) -> Trace:
    """Rotate the ring to start at the member that opens an instant, else at the first tuple."""
    positions = trace.positions(codes)
    start = _first_of_cycle(positions, len(trace.order), instants)
    known = positions[positions >= 0]
    if instants is None and len(known):
        start = int(known[0])
    size = len(trace.order)
    fields = {name: getattr(trace, name) for name in trace.__dataclass_fields__}
    fields["order"] = np.roll(trace.order, -start)
    fields["interval_position"] = (trace.interval_position - start) % size
    return Trace(**fields)


def _first_of_cycle(positions: Codes, size: int, instants: npt.NDArray[Any] | None) -> int:
    """Return the member that most often opens a new instant; that of the first tuple if instants do not decide."""
    known = positions >= 0
    first = int(positions[known][0]) if known.any() else 0
    if instants is None or len(positions) < 2:
        return first
    instant = value_codes(instants)[0]
    changed = np.flatnonzero((instant[1:] != instant[:-1]) & known[1:]) + 1
    if not 0 < len(changed) < 0.8 * len(positions):
        return first
    opened = np.bincount(positions[changed], minlength=size)
    return int(opened.argmax()) if opened.max() > 1.5 * opened.mean() else first

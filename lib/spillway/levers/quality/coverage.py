"""Compute the source information content (SIC) of a window: the share of the produced tuples that was used.

In a window a tuple of source s carries (Fiscato 2012, eq. 3.2)

    sic = 1 / (|T_s| |S|)

T_s: the tuples that s *produced* in the window, S: the sources. So all sources have the same weight at any rate
(Assumption 4), and so have all tuples of a source. A query that used everything has a sic of 1. Figure 3.7 of the
thesis omits |S| (a perfect result then has 3); here it is never omitted. If sources have weights, the source's share
of all weights replaces 1 / |S|.

The produced tuples are known from numbers that the source gave them (`sequence_fates`), or from an expected rate.
Otherwise they are the tuples that arrived, were refused, or were dropped by a lever; then the tally is `relative`. A
source that produced nothing counts as fully covered.

>>> tally = WindowTally((SourceTally("a", produced=2, kept=2), SourceTally("b", 4, 3), SourceTally("c", 3, 3)))
>>> round(tally.sic * 3, 6), tally.is_relative
(2.75, False)
>>> sensors = (SourceTally("fast", produced=90, kept=90), SourceTally("slow", produced=10, kept=0))
>>> WindowTally(sensors).sic
0.5

*Numbered tuples* (`sequence_fates`). If a source gives its tuples consecutive numbers, each number missing between two
others belongs to a tuple that was produced and did not arrive in time. A tuple that arrives after its window was
computed is *late*; one that has not arrived is *lost*. While a source is silent, its numbers have no gap: nothing was
produced, so nothing is missing. The numbers of one source increase by 1, a little out of order at most. A number more
than `RESTART` below the highest so far begins a new run.

If the last number of the previous window is known, the first number of a window follows it. So a gap at the edge of two
windows counts once, in the window that ends it.

>>> sequence_fates(np.array([7, 8, 11]), before=5, late=np.array([9]))
SequenceFates(produced=6, arrived=3, late=1, lost=2)

*Operator graphs* (`propagate`). Each operator conserves the information content of its inputs (eq. 3.3):

    t_out = (1 / |T_out|) * sum of t_in,      |T_out| counted over all of its output streams

A filter that passes nothing emits an empty batch, which still carries the sum. An operator with several successors
splits the sum by the number of tuples that each gets (evenly if it emits none). So the results carry what left the
sources, for any operators: it is enough to count tuples (SQL steps are treated in this way, see `result_shares`). The
code works for any number type that adds and divides, so that golden values can be compared as fractions.

>>> sources = [SourceNode("S1", "s1", tuples=2), SourceNode("S2", "s2", tuples=4, lost=1)]
>>> found = propagate(sources, [OperatorNode("join", ("s1", "s2"), {"r": 1})], normalised=True)
>>> float(found.at_results)
0.875
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np

from spillway.errors import InvalidValue


@dataclass(frozen=True)
class SourceTally:
    """The tuples that a source produced in one window, and those that were kept."""

    source: str
    produced: float
    kept: float
    relative: bool = False
    """Whether `produced` counts only tuples that arrived, were refused or were dropped."""
    weight: float = 1.0
    input: str = ""
    """The input that the source belongs to; empty: the source is an input."""

    @property
    def kept_share(self) -> float:
        """Return the share of the produced tuples that was used; 1 if nothing was produced."""
        return min(1.0, self.kept / self.produced) if self.produced else 1.0


@dataclass(frozen=True)
class WindowTally:
    """All sources of a query in one window."""

    sources: tuple[SourceTally, ...]

    @property
    def sic(self) -> float:
        """Return the coverage of the query: the sum of the sic of its tuples (eq. 4.1)."""
        return sum(one.weight * one.kept_share for one in self.sources) / self._weights

    def by_input(self) -> dict[str, float]:
        """Return the information content by input; the sum is the coverage."""
        found: dict[str, float] = {}
        for one in self.sources:
            name = one.input or one.source
            found[name] = found.get(name, 0.0) + one.weight * one.kept_share / self._weights
        return found

    @property
    def _weights(self) -> float:
        return sum(one.weight for one in self.sources)

    @property
    def is_relative(self) -> bool:
        """Return whether a source's produced tuples are known only as those that arrived, were refused or dropped."""
        return any(one.relative for one in self.sources)


RESTART = 64
"""The numbers of one source are out of order by at most this; a larger fall is a restart."""
_NONE = np.zeros(0, np.int64)


@dataclass(frozen=True)
class SequenceFates:
    """The number of tuples that a source produced in a window: produced = arrived + late + lost."""

    produced: int = 0
    arrived: int = 0
    late: int = 0
    lost: int = 0

    def __add__(self, other: SequenceFates) -> SequenceFates:
        return SequenceFates(
            self.produced + other.produced,
            self.arrived + other.arrived,
            self.late + other.late,
            self.lost + other.lost,
        )


def sequence_fates(numbers: np.ndarray, before: int | None = None, late: np.ndarray = _NONE) -> SequenceFates:
    """Count the tuples of one source that arrived, were late or were lost in a window.

    `numbers`: the numbers that arrived in time, in order of arrival; `before`: the last number of the previous window;
    `late`: the numbers that arrived after the window was computed. A number that arrives twice counts once.
    """
    arrived = missing = 0
    late_ones = set(np.asarray(late, np.int64).tolist())
    came_late = 0
    for run in _runs(np.asarray(numbers, np.int64), before):
        seen = np.unique(run[1])
        arrived += len(seen)
        low = int(seen[0]) if run[0] is None else min(run[0] + 1, int(seen[0]))
        gap = int(seen[-1]) - low + 1 - len(seen)
        within = [one for one in late_ones if low <= one <= int(seen[-1]) and one not in seen]
        came_late += len(within)
        missing += gap - len(within)
        late_ones -= set(within)
    came_late += len(late_ones)
    return SequenceFates(arrived + came_late + missing, arrived, came_late, missing)


def last_number(numbers: np.ndarray) -> int:
    """Return the number that the next window follows: the highest since the last restart.

    >>> last_number(np.array([1001, 1002, 1, 3, 2]))
    3
    """
    return int(_runs(np.asarray(numbers, np.int64), None)[-1][1].max())


def _runs(numbers: np.ndarray, before: int | None) -> list[tuple[int | None, np.ndarray]]:
    """Split numbers at restarts into runs, each with the number that it follows; None: unknown."""
    found: list[tuple[int | None, np.ndarray]] = []
    start, follows = 0, before
    for edge in [*_restarts(numbers), len(numbers)]:
        if edge > start:
            run = numbers[start:edge]
            after_restart = follows is not None and int(run.max()) < follows - RESTART
            found.append((None if after_restart else follows, run))
        start, follows = edge, None
    return found


def _restarts(numbers: np.ndarray) -> list[int]:
    """Return the indices at which a number is more than `RESTART` below the highest of its run."""
    found, highest = [], None
    for at, number in enumerate(numbers.tolist()):
        if highest is not None and number < highest - RESTART:
            found.append(at)
            highest = number
        highest = number if highest is None else max(highest, number)
    return found


Amount = Fraction | float


@dataclass(frozen=True)
class SourceNode:
    """A source: the number of tuples it produced in the window, and how many of them did not reach the graph."""

    name: str
    edge: str
    tuples: int
    lost: int = 0


@dataclass(frozen=True)
class OperatorNode:
    """An operator: the edges it reads, and the number of tuples it emitted on each output edge."""

    name: str
    inputs: tuple[str, ...]
    outputs: Mapping[str, int]


@dataclass(frozen=True)
class InformationContent:
    """The information content that an element emitted, and the number of its tuples."""

    total: Amount
    tuples: int

    @property
    def per_tuple(self) -> Amount | None:
        """Return the sic of each tuple; None for an empty batch, which carries the sum itself."""
        return self.total / self.tuples if self.tuples else None


@dataclass(frozen=True)
class PropagatedContent:
    """The information content of every element and every edge."""

    elements: Mapping[str, InformationContent]
    edges: Mapping[str, InformationContent]
    at_results: Amount = field(default=Fraction(0))


def propagate(
    sources: Sequence[SourceNode],
    operators: Sequence[OperatorNode],
    results: Sequence[str] | None = None,
    normalised: bool = True,
    exact: bool = True,
) -> PropagatedContent:
    """Propagate the information content of the sources to the results; refuse a cycle.

    `results`: the edges of the results, by default all edges that no operator reads; `normalised`: divide by the number
    of sources (eq. 3.2), so that a perfect result is 1; `exact`: compute with fractions.
    """
    elements: dict[str, InformationContent] = {}
    edges: dict[str, InformationContent] = {}
    one: Amount = Fraction(1) if exact else 1.0
    for source in sources:
        kept = source.tuples - source.lost
        whole = one / len(sources) if normalised else one
        total = whole * kept / source.tuples if source.tuples else whole
        elements[source.name] = edges[source.edge] = InformationContent(total, kept)
    for operator in topological_order({one.name: one for one in operators}, edges):
        total = sum((edges[edge].total for edge in operator.inputs), start=one - one)
        written = sum(operator.outputs.values())
        elements[operator.name] = InformationContent(total, written)
        for edge, tuples in operator.outputs.items():
            share = one * tuples / written if written else one / len(operator.outputs)
            edges[edge] = InformationContent(total * share, tuples)
    read = {edge for operator in operators for edge in operator.inputs}
    ends = [edge for edge in edges if edge not in read] if results is None else results
    return PropagatedContent(elements, edges, sum((edges[edge].total for edge in ends), start=one - one))


def topological_order(
    operators: Mapping[str, OperatorNode], there: Mapping[str, object]
) -> list[OperatorNode]:
    """Return the operators in topological order, each after those it reads; refuse a cycle.

    `there`: the edges that are available at the start.
    """
    waiting, known, found = dict(operators), set(there), []
    while waiting:
        ready = [name for name, one in waiting.items() if known.issuperset(one.inputs)]
        if not ready:
            raise InvalidValue(
                "operators",
                "not read one another in a circle",
                ", ".join(sorted(waiting)),
                "let one of them read a source",
            )
        for name in ready:
            operator = waiting.pop(name)
            known |= set(operator.outputs)
            found.append(operator)
    return found


def result_shares(
    inputs: Sequence[str], reads: Mapping[str, Sequence[str]], results: Sequence[str]
) -> dict[str, dict[str, Fraction]]:
    """Return, by input and result, the share of the input's information content that arrives at the result.

    `reads`: the inputs and steps that each step reads. A step passes all of its rows to each of its readers, so each
    reader gets an equal share of their information content (eq. 3.3). A result counts as one more reader.

    >>> reads = {"hits": ["posts"], "good": ["hits"], "bad": ["hits"], "ratio": ["good", "bad"]}
    >>> shares = result_shares(["posts"], reads, ["good", "bad", "ratio"])["posts"]
    >>> {name: str(share) for name, share in shares.items()}  # Fiscato 2012, Figure 3.9
    {'good': '1/4', 'bad': '1/4', 'ratio': '1/2'}
    """
    operators = []
    for name in (*inputs, *reads):
        outputs = [f"{name}>{reader}" for reader, read in reads.items() if name in read]
        outputs += [f"{name}>"] if name in results else []
        into = tuple(f"{one}>{name}" for one in reads[name]) if name in reads else (name,)
        operators.append(OperatorNode(f"rows of {name}", into, dict.fromkeys(outputs, 1)))
    found = {}
    for name in inputs:
        sources = [SourceNode(one, one, 1, int(one != name)) for one in inputs]
        edges = propagate(sources, operators, normalised=False).edges
        found[name] = {result: Fraction(edges[f"{result}>"].total) for result in results}
    return found

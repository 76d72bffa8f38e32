"""Coverage through a graph of operators: every operator conserves what its inputs carry (eq. 3.3).

    t_out = (1 / |T_out|) * sum of t_in,      |T_out| counted over all of its output streams

A filter that passes nothing puts out an empty batch that still carries the sum; an operator with several successors
splits the sum by the tuples that each gets (evenly where it puts out none). So what reaches the results is what left
the sources, whatever the operators are: an operator need not be understood, only counted (which is how steps in SQL are
carried, see `steps`). Written for any number that adds and divides, so that golden values are compared as fractions.

>>> sources = [SourceNode("S1", "s1", tuples=2), SourceNode("S2", "s2", tuples=4, lost=1)]
>>> found = propagate(sources, [OperatorNode("join", ("s1", "s2"), {"r": 1})], normalised=True)
>>> float(found.at_results)
0.875
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

from spillway.errors import Refused

Amount = Fraction | float


@dataclass(frozen=True)
class SourceNode:
    """A source: how many tuples it produced in the window, how many of them never reached the graph."""

    name: str
    edge: str
    tuples: int
    lost: int = 0


@dataclass(frozen=True)
class OperatorNode:
    """An operator: the edges it reads, and how many tuples it put on each edge it writes."""

    name: str
    inputs: tuple[str, ...]
    outputs: Mapping[str, int]


@dataclass(frozen=True)
class Carried:
    """What an element put out in all: the sum, over how many tuples."""

    total: Amount
    tuples: int

    @property
    def per_tuple(self) -> Amount | None:
        """What each tuple carries; None of an empty batch, which carries the sum itself."""
        return self.total / self.tuples if self.tuples else None


@dataclass(frozen=True)
class Propagated:
    """What every element and every edge carries."""

    elements: Mapping[str, Carried]
    edges: Mapping[str, Carried]
    at_results: Amount = field(default=Fraction(0))


def propagate(
    sources: Sequence[SourceNode],
    operators: Sequence[OperatorNode],
    results: Sequence[str] | None = None,
    normalised: bool = True,
    exact: bool = True,
) -> Propagated:
    """Carry what the sources put in to the results; a cycle is refused by name.

    `results`: their edges, by default those that nobody reads; `normalised`: by the number of sources (eq. 3.2), so
    that a perfect result is 1; `exact`: as fractions.
    """
    elements: dict[str, Carried] = {}
    edges: dict[str, Carried] = {}
    one: Amount = Fraction(1) if exact else 1.0
    for source in sources:
        kept = source.tuples - source.lost
        whole = one / len(sources) if normalised else one
        total = whole * kept / source.tuples if source.tuples else whole
        elements[source.name] = edges[source.edge] = Carried(total, kept)
    for operator in in_order({one.name: one for one in operators}, edges):
        total = sum((edges[edge].total for edge in operator.inputs), start=one - one)
        written = sum(operator.outputs.values())
        elements[operator.name] = Carried(total, written)
        for edge, tuples in operator.outputs.items():
            share = one * tuples / written if written else one / len(operator.outputs)
            edges[edge] = Carried(total * share, tuples)
    read = {edge for operator in operators for edge in operator.inputs}
    ends = [edge for edge in edges if edge not in read] if results is None else results
    return Propagated(elements, edges, sum((edges[edge].total for edge in ends), start=one - one))


def in_order(operators: Mapping[str, OperatorNode], there: Mapping[str, object]) -> list[OperatorNode]:
    """The operators so that each stands behind those it reads; refused where they wait for one another."""
    waiting, known, found = dict(operators), set(there), []
    while waiting:
        ready = [name for name, one in waiting.items() if known.issuperset(one.inputs)]
        if not ready:
            raise Refused(
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
    reader gets an equal part of their information content (eq. 3.3). A result counts as one more reader.

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

"""Simulate many nodes that shed load independently, in discrete time.

A coordinator reports the source information content (sic) that each query has reached to all nodes.

In each interval (250 ms) each part of a query gets the batches of its own sources at its node. The node processes what
its capacity allows and discards the rest by a policy of `admission` (the code that the jobs run, not a copy). A part
that is not the last of its query sends its results to the node of the last part: a few tuples (`hand_over`), which
carry what all of its admitted batches carried.

Two rules are ours. The node of the last part processes these tuples first (`finishing`), because other nodes have spent
work on them, and finishing them is cheap. A query counts as some batches ahead (`ahead`) at nodes whose part hands
over, because handing over costs the last node capacity. So among queries of about the same sic each node prefers those
that end with it. Fiscato 2012 has neither rule, and so loses 20 to 40 % of all work.

The sic of a query in the source time window (10 s) is the sum of what its last part admitted. Nodes receive it `delay`
intervals later.

>>> two = Deployment(node=np.array([0, 0]), query=np.array([0, 1]), nodes=1)
>>> found = simulate(two, Testbed(room=50.0, seconds=15.0), "fair", seed=1)
>>> found.sic.round(1).tolist(), found.most_worked_on <= 50.0
([0.7, 0.7], True)

**Tipping point.** It is where adding more queries stops paying (Fiscato 2012, 6.4).

The cost of a query is 1 / n. From a base of n_0 queries to n queries

    delta cost = 1 - n_0 / n        (6.3)        delta quality = 1 - quality_n / quality_0      (6.4)

and more queries pay as long as delta cost > delta quality (6.5, printed the other way round: erratum D1).

>>> tipping_point({180: 0.9, 300: 0.6, 600: 0.3, 1200: 0.1})
600
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from spillway.levers.quality.admission import Batches, Entitlements, admit_by_policy


@dataclass(frozen=True)
class Deployment:
    """The node and the query of each part, one element per part. The first element of a query is its last step."""

    node: np.ndarray
    query: np.ndarray
    nodes: int
    sources: np.ndarray | None = None
    """The number of sources of each part; by default one."""

    @property
    def queries(self) -> int:
        return int(self.query.max()) + 1

    @property
    def of_part(self) -> np.ndarray:
        """Return the number of sources of each part."""
        return np.ones(len(self.node), np.int64) if self.sources is None else self.sources

    @property
    def last_parts(self) -> np.ndarray:
        """Return for each part the part to which it sends its results."""
        first = np.unique(self.query, return_index=True)[1]
        return np.asarray(first[self.query])


@dataclass(frozen=True)
class Testbed:
    """The testbed of Fiscato 2012: sources of 150 tuples per second in 3 batches, decisions every 250 ms, over 10 s."""

    room: float
    """The number of tuples that a node can process in an interval."""
    seconds: float = 60.0
    interval_seconds: float = 0.25
    window_seconds: float = 10.0
    batches_per_second: float = 3.0
    tuples: float = 50.0
    """The number of tuples of a batch."""
    hand_over: float = 5.0
    ahead: float = 3.0
    """The number of batches by which a query counts as ahead at nodes whose part hands over, if `finishing`."""
    delay: int = 1

    @property
    def per_interval(self) -> float:
        """Return the mean number of batches of a source in an interval."""
        return self.batches_per_second * self.interval_seconds


@dataclass(frozen=True)
class SimulatedCoverage:
    """The mean sic of each query over the windows after the first, and the largest load that a node processed."""

    sic: np.ndarray
    most_worked_on: float


def simulate(
    to: Deployment, setting: Testbed, policy: str, seed: int, finishing: bool | None = None
) -> SimulatedCoverage:
    """Run the simulation; `seed` determines all random numbers. `finishing`: by default only with the policy `fair`."""
    finishes = policy == "fair" if finishing is None else finishing
    chance = np.random.default_rng(seed)
    steps = round(setting.seconds / setting.interval_seconds)
    span = round(setting.window_seconds / setting.interval_seconds)
    last, sources = to.last_parts, to.of_part
    part_of = np.repeat(np.arange(len(to.node)), sources)
    phase = chance.random(len(part_of))
    in_query = np.bincount(to.query, sources, minlength=to.queries)
    carries = 1.0 / (in_query[to.query[part_of]] * setting.batches_per_second * setting.window_seconds)
    ends_at = np.zeros((to.nodes, to.queries), np.bool_)
    ends_at[to.node[last], to.query] = True
    batch = 1.0 / (in_query * setting.batches_per_second * setting.window_seconds)
    ahead = np.where(ends_at, 0.0, setting.ahead * batch if finishes else 0.0)
    handed = np.zeros(len(to.node))
    reached = np.zeros((steps, to.queries))
    sliding, waited = np.zeros(to.queries), np.zeros((to.nodes, to.queries), np.int64)
    told = [np.zeros(to.queries)] * (setting.delay + 1)
    seen: list[np.ndarray] = []
    most = 0.0
    for step in range(steps):
        come = np.floor((step + 1) * setting.per_interval + phase) - np.floor(
            step * setting.per_interval + phase
        )
        fresh = np.repeat(np.arange(len(part_of)), come.astype(np.int64))
        passed = np.flatnonzero(handed > 0)
        part = np.concatenate([part_of[fresh], last[passed]])
        sic = np.concatenate([carries[fresh], handed[passed]])
        cost = np.concatenate([np.full(len(fresh), setting.tuples), np.full(len(passed), setting.hand_over)])
        begun = np.arange(len(part)) >= len(fresh)
        handed = np.zeros(len(to.node))
        for node, mine in enumerate(_by_node(to.node[part], to.nodes)):
            batches = Batches(to.query[part[mine]], sic[mine], cost[mine], chance.permutation(len(mine)))
            to_node = _entitlements(told[0] + ahead[node], waited[node])
            worked_on = admit_by_policy(
                policy, batches, to_node, setting.room, begun[mine] if finishes else None
            )
            parts, gained = part[mine[worked_on]], batches.sic[worked_on]
            waited[node] += 1
            waited[node, batches.query[worked_on]] = 0
            most = max(most, float(batches.cost[worked_on].sum()))
            ends = last[parts] == parts
            reached[step] += np.bincount(to.query[parts[ends]], gained[ends], minlength=to.queries)
            handed += np.bincount(parts[~ends], gained[~ends], minlength=len(handed))
        sliding = sliding + reached[step] - (reached[step - span] if step >= span else 0.0)
        told = [*told[1:], np.maximum(sliding, 0.0)]
        if step >= min(2 * span, steps - 1):
            seen.append(sliding)
    return SimulatedCoverage(np.mean(seen, axis=0), most)


def _by_node(node: np.ndarray, nodes: int) -> list[np.ndarray]:
    order = np.argsort(node, kind="stable")
    return np.split(order, np.cumsum(np.bincount(node, minlength=nodes))[:-1])


def _entitlements(reached: np.ndarray, waited: np.ndarray) -> Entitlements:
    zeros = np.zeros(len(reached))
    return Entitlements(np.ones(len(reached)), reached, zeros.astype(np.int64), zeros, waited)


def trade_off(quality: Mapping[int, float]) -> dict[int, tuple[float, float]]:
    """Return, by number of queries, how much cheaper and how much worse a query is than with the fewest queries."""
    base = min(quality)
    return {
        n: (1.0 - base / n, 1.0 - quality[n] / quality[base] if quality[base] else 0.0)
        for n in sorted(quality)
    }


def tipping_point(quality: Mapping[int, float]) -> int:
    """Return the largest number of queries up to which every increase pays (delta cost > delta quality)."""
    found = min(quality)
    for n, (cheaper, worse) in trade_off(quality).items():
        if n != found and cheaper < worse - 1e-12:
            break
        found = n
    return found

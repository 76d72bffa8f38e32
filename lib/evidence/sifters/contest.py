"""Compare sifters and their rivals on one workload; each keeps the same share of the rows.

Every contestant gives a drop probability for each test row; a sifter uses the threshold of the row's region. Then all
contestants are adjusted to drop exactly the same share: one that drops too few rows drops more at random, one that
drops too many keeps some at random. Quality is measured on the test rows, which only the offline optimum has seen:

    C_q = rows of q that stay / rows of q        V* = sum over queries w_q (1 - alpha_q (1 - C_q))

A query without a test row loses nothing (C_q = 1), as in the paper, which notes that this raises all curves; `asked`
leaves such queries out. Schemes are tested by regions alone, as in the paper
(`unqueried: by_region`). `shipped` is the default of contracts: rows that no query requests are dropped first, in any
region, and regions are for the others; `index` is its rival on equal terms. Rivals:

    random     every row with the same probability (as in the paper)
    uniform    a uniform sifter: regions without queries are dropped first, all others equally (Delta = 0)
    per_key    whole keys are kept, drawn at random, as by hashing a key to a sample
    attribute  the best single dimension: as many regions along it as the sifter has, chosen on the sample, without a
               limit Delta (its best setting, and more than sifters may do)
    attribute_held  the same with the limit Delta of sifters
    index      a regular filter with all queries: rows that no query requests are dropped first, the others equally
    densities  as many regions as there are rows, by the true densities of queries and rows, with Delta: a filter that
               knows both distributions but not these queries
    fair       as many regions as there are rows, by the true requests of these queries, with Delta: no filter with
               queries in all regions can be better
    optimum    the same without Delta: no filter can be better
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from evidence.sifters.workload import GeneratedQueries
from spillway.levers.sifters.choose import (
    PARTITIONERS,
    USUAL,
    build_regions,
    region_frequencies,
)
from spillway.levers.sifters.configure import configure_filter, optimal_thresholds
from spillway.levers.sifters.consolidate import QueryBoxes, consolidate_queries, hits_of, sums_within
from spillway.levers.sifters.filter import requested_throttle
from spillway.levers.sifters.learn import HALF
from spillway.levers.sifters.partitioners import data_equi_depth
from spillway.levers.sifters.regions import RegionTree

SIFTERS = PARTITIONERS
SHIPPED = "shipped"
RIVALS = (
    "random", "uniform", "per_key", "attribute", "attribute_held", "index", "densities", "fair", "optimum",
)  # fmt: skip
KEYS = 200


@dataclass(frozen=True)
class Contest:
    """The results of all contestants."""

    quality: Mapping[str, float]
    """V* over all queries."""
    asked: Mapping[str, float]
    """V* over queries that have rows."""
    empty: float
    """The weight of queries that have none."""


def contest(one: GeneratedQueries, names: Sequence[str] = (*SIFTERS, *RIVALS), seed: int = 1) -> Contest:
    """Run all contestants on one workload."""
    settings, asked = one.settings, one.asked
    rng = np.random.default_rng(seed)
    lost: dict[str, np.ndarray] = {}
    for name in names:
        if name == SHIPPED:
            lost[name] = product_thresholds(one)
        elif name in SIFTERS:
            found = build_regions(
                one.space, one.sample, asked, settings.regions, name, settings.throttle, settings.fairness
            )
            lost[name] = drop_probabilities(
                found.tree, one.sample, one.test, asked, settings.throttle, settings.fairness
            )
        else:
            lost[name] = rival_drop_probabilities(name, one, rng)
    drop = 1.0 - settings.throttle
    level = np.stack([scale_to_mean(lost[name], drop) for name in names])
    sums, counts = sums_within(one.test, asked.boxes, asked.query, asked.count, level)
    completeness = 1.0 - np.divide(sums, counts, out=np.zeros_like(sums), where=counts > 0)
    worth = 1.0 - asked.alphas * (1.0 - completeness)
    has = counts > 0
    whole = worth @ asked.weights
    among = (worth[:, has] @ asked.weights[has]) / max(asked.weights[has].sum(), 1e-12)
    return Contest(
        dict(zip(names, whole.tolist(), strict=True)),
        dict(zip(names, among.tolist(), strict=True)),
        float(asked.weights[~has].sum()),
    )


def scale_to_mean(lost: np.ndarray, drop: float) -> np.ndarray:
    """Scale the probabilities of dropping each row so that their mean is `drop`.

    The missing share is dropped, or the excess is kept, at random.

    >>> scale_to_mean(np.array([1.0, 0.0]), 0.75).tolist(), scale_to_mean(np.array([1.0, 1.0]), 0.5).tolist()
    ([1.0, 0.5], [0.5, 0.5])
    """
    mean = float(lost.mean())
    if mean < drop:
        return np.asarray(lost + (1.0 - lost) * (drop - mean) / (1.0 - mean))
    return lost * (drop / mean) if mean > 0 else lost


def build_and_configure(one: GeneratedQueries, scheme: str) -> object:
    """Build regions with their values, and configure thresholds."""
    made = build_regions(one.space, one.sample, one.asked, one.settings.regions, scheme, 0.5, 0.5)
    worth = consolidate_queries(made.tree, made.frequencies, one.asked, one.sample)
    return optimal_thresholds(worth.worths, worth.frequencies, worth.touched, 0.5, 0.5)


def drop_probabilities(
    tree: RegionTree,
    sample: np.ndarray,
    test: np.ndarray,
    asked: QueryBoxes,
    throttle: float,
    fairness: float,
) -> np.ndarray:
    """Return, by test row, the threshold of its region, configured on the sample as the lever does it."""
    worth = consolidate_queries(tree, region_frequencies(tree, sample), asked, sample)
    thresholds = configure_filter(worth, throttle, 0.0, fairness, 0.0).thresholds
    return np.asarray(thresholds[tree.regions_of(test)])


def product_thresholds(one: GeneratedQueries) -> np.ndarray:
    """Return thresholds by test row if rows that no query requests are dropped first, as in `learn_regions`."""
    settings, asked = one.settings, one.asked
    asks, of_test = (
        hits_of(rows, asked.boxes, np.ones(len(asked.boxes))) > 0 for rows in (one.sample, one.test)
    )
    unqueried = 1.0 - float(asks.mean())
    rows = one.sample[:, asks] if asks.any() else one.sample
    throttle = requested_throttle(settings.throttle, unqueried, 1.0)
    throttle = throttle if throttle < 1.0 else HALF
    found = build_regions(one.space, rows, asked, settings.regions, USUAL, throttle, settings.fairness)
    worth = consolidate_queries(found.tree, found.frequencies, asked, rows)
    worth = replace(worth, frequencies=np.append(worth.frequencies * (1.0 - unqueried), unqueried))
    thresholds = configure_filter(worth, settings.throttle, 0.0, settings.fairness, 0.0).thresholds
    return np.asarray(thresholds[np.where(of_test, found.tree.regions_of(one.test), found.tree.count)])


def rival_drop_probabilities(name: str, one: GeneratedQueries, rng: np.random.Generator) -> np.ndarray:
    """Return, by test row, the probability that it is dropped."""
    settings, asked, test = one.settings, one.asked, one.test
    rows, drop = test.shape[1], 1.0 - settings.throttle
    if name == "random":
        return np.full(rows, drop)
    if name == "uniform":
        found = build_regions(one.space, one.sample, asked, settings.regions, USUAL, settings.throttle, 0.0)
        return drop_probabilities(found.tree, one.sample, test, asked, settings.throttle, 0.0)
    if name == "per_key":
        gone = rng.permutation(KEYS) < round(drop * KEYS)
        return gone[rng.integers(KEYS, size=rows)].astype(float)
    if name in ("attribute", "attribute_held"):
        width = 1.0 if name == "attribute" else settings.fairness
        best = None
        for axis in range(test.shape[0]):
            only = np.full_like(one.sample, 0.5)
            only[axis] = one.sample[axis]
            tree = data_equi_depth(one.space, only, settings.regions)
            worth = consolidate_queries(tree, region_frequencies(tree, one.sample), asked, one.sample)
            quality = configure_filter(worth, settings.throttle, 0.0, width, 0.0).quality
            if best is None or quality > best[0]:
                best = (quality, tree)
        assert best is not None
        return drop_probabilities(best[1], one.sample, test, asked, settings.throttle, width)
    everywhere = np.ones(rows, bool)
    if name == "densities":
        worths = one.relative_demand / rows
        return optimal_thresholds(
            worths, np.full(rows, 1.0 / rows), everywhere, settings.throttle, settings.fairness
        )
    _, counts = sums_within(test, asked.boxes, asked.query, asked.count, np.zeros((1, rows)))
    value = np.divide(asked.values, counts, out=np.zeros(asked.count), where=counts > 0)
    worth_of_row = hits_of(test, asked.boxes, value[asked.query])
    if name == "index":
        return np.where(worth_of_row > 0.0, wanted_share_to_drop(worth_of_row > 0.0, drop), 1.0)
    if name == "fair":
        return optimal_thresholds(
            worth_of_row, np.full(rows, 1.0 / rows), everywhere, settings.throttle, settings.fairness
        )
    lost = np.zeros(rows)
    lost[np.argsort(worth_of_row, kind="stable")[: round(drop * rows)]] = 1.0
    return lost


def wanted_share_to_drop(asked: np.ndarray, drop: float) -> float:
    """Return the share of the requested rows that must be dropped after all others.

    >>> wanted_share_to_drop(np.array([True, False, True, False]), 0.75)
    0.5
    >>> wanted_share_to_drop(np.array([True, False]), 0.25)
    0.0
    """
    share = float(asked.mean())
    return max(0.0, (drop - (1.0 - share)) / share) if share > 0 else 0.0

"""Building a sifter's regions: every scheme is a candidate, and the best on rows held back is built (V).

The text finds no scheme best everywhere (QDPart for skewed queries, data equi-depth for skewed data) and leaves one
that is to future work. Building all takes milliseconds, so all are built, on half of the sample, and judged on the
other; then the halves change places, and the scheme that did best in the mean is built on the whole sample.

    score = 1 - sum over queries of alpha_q w_q lost_q        lost_q: the share of q's held back rows that would be lost

A query of few held back rows (1,000 rows, queries of a ten-thousandth of the space) says little by them; `PRIOR` rows'
weight is given to what the configured model expects of it (eq. 5 with the held back frequencies). A candidate that
drops more or less of the held back rows than it should is charged or paid what the last row dropped costs it.

Guarantee: the same sample, queries and seed, the same regions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from spillway.errors import Refused
from spillway.levers.sifters.configure import configured
from spillway.levers.sifters.consolidate import Asked, at_frequencies, consolidated
from spillway.levers.sifters.flexible import flexible
from spillway.levers.sifters.membership import sums_within
from spillway.levers.sifters.regions import MOST_DIMENSIONS, MOST_REGIONS, RegionTree
from spillway.levers.sifters.slicing import data_equi_depth, query_equi_depth, uniform_grid

PARTITIONERS = (
    "uniform_grid", "data_depth", "query_depth", "flexible_grid", "flexible_depth", "query_data",
)  # fmt: skip
"""In the order in which ties are settled, the cheapest look-up first."""
PRIOR = 1.0


@dataclass(frozen=True)
class Built:
    """Regions, and how their scheme was found."""

    scheme: str
    tree: RegionTree
    frequencies: np.ndarray
    scores: Mapping[str, float]
    """By scheme, the quality held back rows promise; of a scheme that was stated, none."""


def built(
    space: np.ndarray,
    points: np.ndarray,
    asked: Asked,
    regions: int,
    scheme: str = "auto",
    throttle: float = 0.5,
    fairness: float = 1.0,
    most: float = 1.0,
    seed: int = 1,
) -> Built:
    """The regions for a sample (places by dimension and row) and queries; `most`: no threshold above."""
    check_sample(points, regions)
    scores: dict[str, float] = {}
    if scheme == "auto":
        scores = scheme_scores(space, points, asked, regions, throttle, fairness, most, seed)
        scheme = max(scores, key=lambda name: scores[name]) if scores else PARTITIONERS[0]
    hits = asked.hits(points) if scheme == "query_data" else None
    tree = partitioned(scheme, space, points, asked, regions, hits)
    return Built(scheme, tree, frequencies_of(tree, points), scores)


def partitioned(
    scheme: str,
    space: np.ndarray,
    points: np.ndarray,
    asked: Asked,
    regions: int,
    hits: np.ndarray | None = None,
) -> RegionTree:
    """The regions of one scheme."""
    if scheme == "uniform_grid":
        return uniform_grid(space, regions)
    if scheme == "data_depth":
        return data_equi_depth(space, points, regions)
    if scheme == "query_depth":
        return query_equi_depth(space, asked.boxes, regions)
    if scheme == "flexible_grid":
        return flexible(space, points, regions, "volume")
    if scheme == "flexible_depth":
        return flexible(space, points, regions, "count")
    if scheme == "query_data":
        return flexible(space, points, regions, "query_data", asked.hits(points) if hits is None else hits)
    raise Refused("scheme", f"be auto or one of {', '.join(PARTITIONERS)}", scheme, "write scheme: auto")


def frequencies_of(tree: RegionTree, points: np.ndarray) -> np.ndarray:
    """By region, the share of these rows that lies in it (f)."""
    return np.bincount(tree.regions_of(points), minlength=tree.count) / max(1, points.shape[1])


def scheme_scores(
    space: np.ndarray,
    points: np.ndarray,
    asked: Asked,
    regions: int,
    throttle: float,
    fairness: float,
    most: float,
    seed: int,
) -> dict[str, float]:
    """By scheme, the mean quality on the half of the sample that it was not built on."""
    rows = points.shape[1]
    if rows < 4:
        return {}
    order = np.random.default_rng(seed).permutation(rows)
    halves = [points[:, np.sort(order[: rows // 2])], points[:, np.sort(order[rows // 2 :])]]
    found = dict.fromkeys(PARTITIONERS, 0.0)
    for build, held in (halves, halves[::-1]):
        hits = asked.hits(build)
        trials = [
            _Trial(partitioned(scheme, space, build, asked, regions, hits), build, held, asked)
            for scheme in PARTITIONERS
        ]
        lost = np.stack([trial.lost(throttle, fairness, most) for trial in trials])
        sums, seen = sums_within(held, asked.boxes, asked.query, asked.count, lost)
        for scheme, trial, by_query, by_row in zip(PARTITIONERS, trials, sums, lost, strict=True):
            found[scheme] += trial.score(by_query, seen, float(by_row.mean()), throttle) / 2.0
    return found


class _Trial:
    """Regions built on some rows and judged on others."""

    def __init__(self, tree: RegionTree, build: np.ndarray, held: np.ndarray, asked: Asked) -> None:
        self.tree, self.asked, self.held = tree, asked, held
        self.worth = consolidated(tree, frequencies_of(tree, build), asked)
        self.thresholds = np.zeros(tree.count)

    def lost(self, throttle: float, fairness: float, most: float) -> np.ndarray:
        """By held back row, the share of it that would be dropped."""
        worth = self.worth
        limits = np.minimum(worth.most_dropped, most)
        self.thresholds = configured(
            worth.worths, worth.frequencies, worth.touched, throttle, fairness, limits
        )
        self.lands = self.tree.regions_of(self.held)
        return np.asarray(self.thresholds[self.lands])

    def score(self, lost: np.ndarray, seen: np.ndarray, dropped: float, throttle: float) -> float:
        """The quality that held back rows promise; `lost` and `seen` by query, `dropped` of all of them."""
        worth, asked = self.worth, self.asked
        of_held = np.bincount(self.lands, minlength=self.tree.count) / max(1, len(self.lands))
        expected = 1.0 - at_frequencies(worth, of_held).completeness(self.thresholds)
        by_query = (lost + PRIOR * expected) / (seen + PRIOR)
        # what it drops more than it should was not asked of the others; the last row dropped says what it is worth
        ratio = np.divide(
            worth.worths, worth.frequencies, out=np.zeros(self.tree.count), where=worth.frequencies > 0
        )
        partly = (self.thresholds > 0) & (worth.frequencies > 0)
        price = float(ratio[partly].max()) if partly.any() else 0.0
        return 1.0 - float(asked.values @ by_query) + price * (dropped - (1.0 - throttle))


def check_sample(points: np.ndarray, regions: int) -> None:
    """Refuse what no regions can be built from."""
    if points.ndim != 2 or not 1 <= points.shape[0] <= MOST_DIMENSIONS:
        raise Refused(
            "dimensions",
            f"be 1 to {MOST_DIMENSIONS}",
            points.shape[0] if points.ndim else 0,
            "leave out those that fewest queries are about",
        )
    if points.shape[1] < 1:
        raise Refused("sample", "have rows", 0, "take in some rows of the stream first")
    if not 1 <= regions <= MOST_REGIONS:
        raise Refused("regions", f"be 1 to {MOST_REGIONS}", regions, "write e.g. regions: 100")

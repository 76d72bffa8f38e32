"""Generate the paper's workload (VI-A): hot spots of the unit cube that hold data and queries, even or skewed.

    hot spots: 5, side by dimension U[0.5, 1]/G, centres uniform in the space
    UNIF: uniform in a hot spot;  SKEW: a normal a hot spot, std by dimension U[0.5, 1]/(L G), its mean uniform in it
    queries: rectangles, side by dimension U[0.005, 0.01], centres as UNIF or SKEW say

Where the paper is not specific: a hot spot is drawn for every row and query with equal probability. "Located within
these hot spots": a point that a normal puts outside its hot spot, or the space, is drawn again. Data and queries share
hot spots (otherwise no query would have results); if both are skewed, each has its own means. Weights of queries are
equal, unless `alphas` is 'weights': then they are Table I's U[1, 2] (which cannot be alpha: erratum B1); 'from_zero'
takes alpha as U[0, 1].
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from spillway.levers.sifters.consolidate import QueryBoxes

UNIF, SKEW = "unif", "skew"
COMBINATIONS = ((UNIF, UNIF), (UNIF, SKEW), (SKEW, UNIF), (SKEW, SKEW))
"""Data, queries."""


@dataclass(frozen=True)
class WorkloadSettings:
    """The parameters of Table I."""

    data: str = SKEW
    queries: str = UNIF
    throttle: float = 0.5
    regions: int = 16
    sample: int = 1000
    query_count: int = 1000
    fairness: float = 0.5
    global_skew: float = 4.0
    local_skew: float = 4.0
    dimensions: int = 2
    side: tuple[float, float] = (0.005, 0.01)
    hot_spots: int = 5
    alphas: str = "weights"


@dataclass(frozen=True)
class GeneratedQueries:
    """A workload: its queries, its test rows, and the distribution of rows."""

    settings: WorkloadSettings
    asked: QueryBoxes
    sample: np.ndarray
    test: np.ndarray
    space: np.ndarray
    _queries: _Places
    _data: _Places

    @cached_property
    def relative_demand(self) -> np.ndarray:
        """Return, by test row, the density of queries over that of rows, which an optimal rule would use."""
        return self._queries.density(self.test) / self._data.density(self.test)


def generate(settings: WorkloadSettings, seed: int, test_rows: int = 200_000) -> GeneratedQueries:
    """Generate one workload; the sample and the test rows are separate."""
    rng = np.random.default_rng(seed)
    n, spots = settings.dimensions, settings.hot_spots
    sides = rng.uniform(0.5, 1.0, (spots, n)) / settings.global_skew
    centres = rng.random((spots, n))
    data, queries = (
        _Places(rng, centres, sides, settings, kind) for kind in (settings.data, settings.queries)
    )
    middles = queries.draw(rng, settings.query_count)
    half = rng.uniform(*settings.side, (settings.query_count, n)) / 2.0
    boxes = np.stack([np.clip(middles - half, 0, 1), np.clip(middles + half, 0, 1)], axis=2)
    count = settings.query_count
    weights = rng.uniform(1.0, 2.0, count) if settings.alphas == "weights" else np.ones(count)
    alphas = rng.random(count) if settings.alphas == "from_zero" else np.ones(count)
    asked = QueryBoxes(boxes, np.arange(count), weights, alphas)
    sample, test = data.draw(rng, settings.sample).T, data.draw(rng, test_rows).T
    return GeneratedQueries(
        settings,
        asked,
        np.ascontiguousarray(sample),
        np.ascontiguousarray(test),
        _unit(n),
        queries,
        data,
    )


class _Places:
    """The distribution of rows, or of queries."""

    def __init__(
        self,
        rng: np.random.Generator,
        centres: np.ndarray,
        sides: np.ndarray,
        settings: WorkloadSettings,
        kind: str,
    ) -> None:
        self.kind = kind
        self.low, self.high = centres - sides / 2.0, centres + sides / 2.0
        self.means = rng.uniform(np.maximum(self.low, 0.0), np.minimum(self.high, 1.0))
        spread = settings.local_skew * settings.global_skew
        self.deviations = rng.uniform(0.5, 1.0, sides.shape) / spread

    def draw(self, rng: np.random.Generator, count: int) -> np.ndarray:
        """Draw points, each within its hot spot and the space."""
        found = np.empty((0, self.low.shape[1]))
        while len(found) < count:
            spot = rng.integers(len(self.low), size=count)
            low, high = self.low[spot], self.high[spot]
            if self.kind == UNIF:
                places = rng.uniform(low, high)
            else:
                places = rng.normal(self.means[spot], self.deviations[spot])
            held = (places >= np.maximum(low, 0.0)) & (places < np.minimum(high, 1.0))
            found = np.concatenate([found, places[held.all(axis=1)]])
        return found[:count]

    def density(self, points: np.ndarray) -> np.ndarray:
        """Return the density of the distribution at some points, by dimension and point."""
        found, mass = np.zeros(points.shape[1]), 0.0
        for low, high, mean, deviation in zip(self.low, self.high, self.means, self.deviations, strict=True):
            least, most = np.maximum(low, 0.0), np.minimum(high, 1.0)
            inside = np.all((least <= points.T) & (most > points.T), axis=1)
            if self.kind == UNIF:
                found += inside / np.prod(high - low)
                mass += float(np.prod((most - least) / (high - low)))
                continue
            scaled = (points - mean[:, None]) / deviation[:, None]
            found += inside * np.prod(
                np.exp(-(scaled**2) / 2) / (deviation[:, None] * math.sqrt(2 * math.pi)), axis=0
            )
            scale = deviation * math.sqrt(2.0)
            ends = [[math.erf(end) / 2.0 for end in (side - mean) / scale] for side in (least, most)]
            mass += float(np.prod(np.subtract(ends[1], ends[0])))
        return np.asarray(found / mass)


def _unit(dimensions: int) -> np.ndarray:
    return np.array([[0.0, 1.0]] * dimensions)

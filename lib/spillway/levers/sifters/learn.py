"""Learn a stream's regions from a sample of its rows, and store them as a fact from which filters are built.

The sample is selected by a hash of `seq`, so training again on the same rows gives the same regions. Two kinds of rows
are removed before the sample is drawn: rows that must be kept, and, with `unqueried: first`, rows that no query reads.
The regions separate the remaining rows.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from spillway.contracts import StreamContract
from spillway.levers.protocol import Fact, Facts, TrainingInput
from spillway.levers.sifters.boxes import END, NAN, NULL, key_floats, products_contain
from spillway.levers.sifters.choose import BuiltRegions, build_regions
from spillway.levers.sifters.consolidate import QueryBoxes, RegionWorth, consolidate_queries
from spillway.levers.sifters.filter import (
    MOST_ASKED,
    SifterFilter,
    is_in_any_box,
    requested_throttle,
    seq_hashes,
    tree_from,
)
from spillway.levers.sifters.parsed_queries import ParsedQueries
from spillway.levers.sifters.regions import Axis, Layout, RegionTree
from spillway.levers.sifters.settings import SifterSettings
from spillway.levers.sifters.unmatched_conditions import unmatched_conditions

FACT = "regions"
HALF = 0.5
"""The throttler for which regions are built if the load is not known or all rows fit."""


@dataclass(frozen=True)
class LearnedRegions:
    """Learned regions, with the frequencies of their sample."""

    wanted: ParsedQueries
    base: SifterFilter
    """The filter with all thresholds at 0."""
    frequencies: np.ndarray
    """The share of the rows in each region, out of the rows that no rule keeps."""
    scheme: str
    points: np.ndarray
    """The places of the sample's rows by dimension and row; with `unqueried: first`, only rows that a query reads."""
    digest: str
    consolidation: str = "sampled"

    @property
    def sample_rows(self) -> int:
        """Return the number of rows in the sample."""
        return self.points.shape[1]

    @property
    def query_boxes(self) -> QueryBoxes:
        """Return the queries as boxes of places on the lines of these regions."""
        return self.wanted.query_boxes(self.base.layout)

    def with_regions_of(self, found: SifterFilter, frequencies: np.ndarray) -> LearnedRegions:
        """Return these with the regions of another filter, which may have been built from a batch."""
        base = found.with_thresholds(np.zeros(found.count))
        return replace(self, base=base, frequencies=frequencies)

    def worth(self, frequencies: np.ndarray | None = None) -> RegionWorth:
        """Return the worth of the regions for these frequencies; None: those of the sample."""
        points = self.points if self.consolidation == "sampled" else None
        of = np.asarray(self.frequencies if frequencies is None else frequencies, float)
        found = consolidate_queries(self.base.tree, of[: self.base.tree.count], self.query_boxes, points)
        # the region of rows that no query asks for has a frequency but no worth
        return (
            replace(found, frequencies=of / max(of.sum(), 1e-300))
            if self.base.has_unrequested_region
            else found
        )


def stream_seed(stream: str) -> int:
    """Return the seed of a stream's filters: a hash of its name."""
    return int.from_bytes(hashlib.sha256(stream.encode()).digest()[:7], "big")


def learn_regions(
    contract: StreamContract, settings: SifterSettings, rows: pa.Table, throttle: float
) -> LearnedRegions:
    """Return the regions learned from some rows."""
    wanted, seed = ParsedQueries.of(settings, contract), stream_seed(contract.stream)
    if wanted.keep:
        keys = [one.keys_of(rows[one.name]) for one in wanted.keep_dimensions]
        held = np.zeros(rows.num_rows, bool)
        for rule in wanted.keep:
            held |= products_contain(rule.products, keys)
        # rows that are never shed do not shape regions, unless there are no other rows
        rows = rows.filter(pa.array(~held)) if not held.all() else rows
    layout = build_layout(wanted, draw_rows(rows, settings.sample.rows, seed))
    unqueried = 0.0
    if told := identifies_unrequested_rows(settings, wanted):
        asks = is_in_any_box(wanted.boxes, layout.keys(rows))
        unqueried = 1.0 - float(asks.mean())
        rows = rows.filter(pa.array(asks)) if asks.any() else rows
    rows = draw_rows(rows, settings.sample.rows, seed)
    points = layout.places(layout.keys(rows))
    most = 1.0 - settings.sample.marked_pct / 100.0
    of_asked = requested_throttle(max(throttle, 1.0 - most), unqueried, most)
    found: BuiltRegions = build_regions(
        layout.space,
        points,
        wanted.query_boxes(layout),
        settings.regions,
        settings.partition,
        of_asked if of_asked < 1.0 else HALF,
        settings.fairness,
    )
    frequencies = found.frequencies
    if told:
        frequencies = np.append(frequencies * (1.0 - unqueried), unqueried)
    base = _base(settings, wanted, layout, found.tree, seed)
    digest = filter_digest(settings, wanted)
    return LearnedRegions(wanted, base, frequencies, found.scheme, points, digest, settings.consolidation)


def identifies_unrequested_rows(settings: SifterSettings, wanted: ParsedQueries) -> bool:
    """Return whether a filter tells for each row whether any query asks for it."""
    return settings.unqueried == "first" and len(wanted.boxes) <= MOST_ASKED


def filter_digest(settings: SifterSettings, wanted: ParsedQueries) -> str:
    """Return a digest of everything in the contract that shapes a filter; if one of it changes, so does the digest.

    The digest includes the boxes of the conditions. A condition's text alone is not enough, because the matching rows
    also depend on the contract's time zone and on how this version of Spillway parses SQL.
    """
    own = (
        settings.regions,
        settings.partition,
        settings.fairness,
        settings.sample.marked_pct,
        settings.unqueried,
        settings.consolidation,
    )
    if own in wanted.digests:
        return wanted.digests[own]
    told = [
        [(query.where, query.weight, query.alpha, query.at_least) for query, _ in wanted.queries],
        [predicate.boxes.tolist() for _, predicate in wanted.queries],
        [(rule.text, rule.boxes.tolist()) for rule in wanted.keep],
        [
            (one.name, one.type, one.words, one.low, one.high)
            for one in (*wanted.dimensions, *wanted.keep_dimensions)
        ],
        [settings.regions, settings.partition, settings.fairness, settings.sample.marked_pct],
        settings.unqueried,
        # keep the digests of filters that were built before this setting existed
        *([settings.consolidation] if settings.consolidation != "sampled" else []),
    ]
    wanted.digests[own] = hashlib.sha256(json.dumps(told).encode()).hexdigest()[:16]
    return wanted.digests[own]


def _base(
    settings: SifterSettings, wanted: ParsedQueries, layout: Layout, tree: RegionTree, seed: int
) -> SifterFilter:
    found = SifterFilter(
        layout,
        tree,
        np.empty(0),
        wanted.keep_dimensions,
        tuple(product for rule in wanted.keep for product in rule.products),
        settings.sample.marked_pct / 100.0,
        seed,
        wanted.boxes
        if identifies_unrequested_rows(settings, wanted)
        else np.empty((0, len(layout.lines), 2), np.int64),
    )
    return found.with_thresholds(np.zeros(found.count))


def build_layout(wanted: ParsedQueries, rows: pa.Table) -> Layout:
    """Return the lines of places for a sample and the queries."""
    lines = []
    for place, dimension in enumerate(wanted.dimensions):
        keys = dimension.keys_of(rows[dimension.name])
        real = dimension.type == "double"
        edges = wanted.edges(place)
        asks_null = bool(np.isin(edges, [NULL]).any())
        known = keys[(keys != NULL) & ~(real & (keys >= NAN))]
        inner = edges[(edges > NULL + 1) & (edges < (NAN if real else END))]
        values, ends = (key_floats(one) if real else one.astype(float) for one in (known, inner))
        lines.append(
            Axis.of(
                dimension,
                values,
                [float(end) for end in ends],
                nulls=bool((keys == NULL).any()) or asks_null,
                nans=bool(real and (keys >= NAN).any()),
            )
        )
    return Layout(tuple(lines))


def draw_rows(rows: pa.Table, count: int, seed: int) -> pa.Table:
    """Return `count` of the rows, selected by a hash of `seq`, in their order."""
    if rows.num_rows <= count:
        return rows
    hashes = seq_hashes(np.asarray(rows["seq"]), np.uint64(seed))
    return rows.take(pa.array(np.sort(np.argpartition(hashes, count)[:count])))


def train(lesson: TrainingInput) -> list[Fact] | None:
    """Learn the fact about a stream's regions. If there are no rows, return None when training again, else []."""
    settings: SifterSettings = lesson.contract.lever_settings("sifters")
    wanted = ParsedQueries.of(settings, lesson.contract)
    rows = lesson.edge(wanted.columns, settings.sample.tuples)
    if not rows.num_rows:
        if lesson.is_retraining:
            return None
        return []
    throttle = estimate_throttle(settings, lesson)
    regions = learn_regions(lesson.contract, settings, rows, throttle)
    evidence = {
        "sample_rows": regions.sample_rows,
        "of_rows": rows.num_rows,
        "throttle": throttle,
        "regions": regions.base.tree.count,
    }
    said = ""
    if regions.base.has_unrequested_region:
        evidence["asked_by_no_query_pct"] = 100.0 * float(regions.frequencies[-1])
        said = f"; none of them asks for {regions.frequencies[-1]:.1%}"
    elif settings.unqueried == "first":
        said = (
            f"; their {len(wanted.boxes):,} boxes are too many to tell row by row what none of them asks for"
        )
    lesson.say(
        f"{lesson.contract.stream}: {regions.base.tree.count} regions by {regions.scheme} from "
        f"{regions.sample_rows:,} of {rows.num_rows:,} tuples for {len(settings.queries)} queries{said}"
    )
    for one in unmatched_conditions(lesson.contract, rows):
        lesson.say(f"{lesson.contract.stream}: WARNING: {one.sentence}; {one.remedy}")
    return [Fact(FACT, "", _to_dict(regions), evidence)]


def estimate_throttle(settings: SifterSettings, lesson: TrainingInput) -> float:
    """Return an estimate of the share of the rows that fits; `HALF` if the load is not known or all rows fit."""
    found = [1.0]
    if lesson.load is None or lesson.part is None:
        return HALF
    found.append(lesson.part.narrower_kbps / max(lesson.load.rate_kbps, 1e-12))
    if settings.rows_per_second is not None:
        found.append(settings.rows_per_second / max(lesson.load.tuples_per_second, 1e-12))
    share = min(found)
    return share if share < 1.0 else HALF


def learned_regions(contract: StreamContract, facts: Facts | None) -> LearnedRegions | None:
    """Return the regions of a training; None if there are none, or if the contract's queries have changed since."""
    told = None if facts is None else facts.value(FACT)
    if told is None:
        return None
    settings: SifterSettings = contract.lever_settings("sifters")
    wanted = ParsedQueries.of(settings, contract)
    if told["digest"] != filter_digest(settings, wanted):
        return None
    layout = Layout(tuple(Axis.from_dict(line) for line in told["lines"]))
    base = _base(settings, wanted, layout, tree_from(told), stream_seed(contract.stream))
    return LearnedRegions(
        wanted,
        base,
        np.array(told["frequencies"]),
        told["scheme"],
        np.array(told["points"]),
        told["digest"],
        settings.consolidation,
    )


def count_rows_by_region(regions: LearnedRegions, rows: pa.Table) -> np.ndarray:
    """Return the number of rows in each region; rows that must be kept belong to no region."""
    found = regions.base.regions_of(rows)
    return np.bincount(found[found >= 0], minlength=regions.base.count)


def _to_dict(regions: LearnedRegions) -> dict[str, Any]:
    tree = regions.base.tree
    return {
        "digest": regions.digest,
        "scheme": regions.scheme,
        "points": regions.points.round(6).tolist(),
        "lines": [line.to_dict() for line in regions.base.layout.lines],
        "space": tree.space.tolist(),
        "axes": tree.axes.tolist(),
        "cuts": tree.cuts.tolist(),
        "children": tree.children.tolist(),
        "frequencies": regions.frequencies.tolist(),
    }

"""Learning a stream's regions from some of its rows: a fact, and the filter that follows from it.

The sample is drawn by a hash of `seq`, so that training again on the same rows gives the same regions. Regions are for
rows that a filter may tell apart: those that must be kept, and those that no query asks for (`unasked`), are set aside
first, and the sample is drawn of the rest.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from spillway.contracts import StreamContract
from spillway.levers.protocol import Fact, Facts, Lesson
from spillway.levers.sifters.boxes import END, NAN, NULL, key_floats, products_hold
from spillway.levers.sifters.choose import Built, built
from spillway.levers.sifters.consolidate import Asked, Worth, consolidated
from spillway.levers.sifters.filter import (
    MOST_ASKED,
    SifterFilter,
    hold_any,
    seq_hashes,
    throttle_of_asked,
    tree_from,
)
from spillway.levers.sifters.regions import Axis, Layout, RegionTree
from spillway.levers.sifters.settings import SifterSettings
from spillway.levers.sifters.unmatched_conditions import unmatched_conditions
from spillway.levers.sifters.wanted import Wanted

FACT = "regions"
HALF = 0.5
"""The share of the rows that regions are made for where nothing is known, or all fits: they are for when not."""


@dataclass(frozen=True)
class LearnedRegions:
    """Regions that were learned, with the frequencies of the sample they were learned from."""

    wanted: Wanted
    base: SifterFilter
    """The filter with every threshold at 0."""
    frequencies: np.ndarray
    """By region, the share of the rows that need not be kept."""
    scheme: str
    points: np.ndarray
    """By dimension, where the sample's rows lie that are asked for."""
    digest: str
    consolidation: str = "sampled"

    @property
    def sample_rows(self) -> int:
        """How many rows it was learned from."""
        return self.points.shape[1]

    @property
    def asked(self) -> Asked:
        """The queries, on the lines of these regions."""
        return self.wanted.asked(self.base.layout)

    def under(self, found: SifterFilter, frequencies: np.ndarray) -> LearnedRegions:
        """These with the regions of a filter, which may have been built of a batch."""
        base = found.with_thresholds(np.zeros(found.count))
        return replace(self, base=base, frequencies=frequencies)

    def worth(self, frequencies: np.ndarray | None = None) -> Worth:
        """Return what the regions are worth, at these frequencies or the sample's."""
        points = self.points if self.consolidation == "sampled" else None
        of = np.asarray(self.frequencies if frequencies is None else frequencies, float)
        found = consolidated(self.base.tree, of[: self.base.tree.count], self.asked, points)
        # what no query asks for is worth nothing: its region, if there is one, is but frequent
        return replace(found, frequencies=of / max(of.sum(), 1e-300)) if self.base.tells_unasked else found


def seed_of(stream: str) -> int:
    """The seed of a stream's filters: stated by its name."""
    return int.from_bytes(hashlib.sha256(stream.encode()).digest()[:7], "big")


def learn_regions(
    contract: StreamContract, settings: SifterSettings, rows: pa.Table, throttle: float
) -> tuple[LearnedRegions, Mapping[str, float]]:
    """Regions from some rows, and what each partitioner scored."""
    wanted, seed = Wanted.of(settings, contract), seed_of(contract.stream)
    if wanted.keep:
        keys = [one.keys_of(rows[one.name]) for one in wanted.keep_dimensions]
        held = np.zeros(rows.num_rows, bool)
        for rule in wanted.keep:
            held |= products_hold(rule.products, keys)
        # what is never shed must not make regions; but where that is all there is, it says where rows lie
        rows = rows.filter(pa.array(~held)) if not held.all() else rows
    layout = layout_of(wanted, drawn(rows, settings.sample.rows, seed))
    unasked = 0.0
    if told := tells_unasked(settings, wanted):
        asks = hold_any(wanted.boxes, layout.keys(rows))
        unasked = 1.0 - float(asks.mean())
        rows = rows.filter(pa.array(asks)) if asks.any() else rows
    rows = drawn(rows, settings.sample.rows, seed)
    points = layout.places(layout.keys(rows))
    most = 1.0 - settings.sample.marked_pct / 100.0
    of_asked = throttle_of_asked(max(throttle, 1.0 - most), unasked, most)
    found: Built = built(
        layout.space,
        points,
        wanted.asked(layout),
        settings.regions,
        settings.partition,
        of_asked if of_asked < 1.0 else HALF,
        settings.fairness,
        most,
        seed % 2**32,
    )
    frequencies = found.frequencies
    if told:
        frequencies = np.append(frequencies * (1.0 - unasked), unasked)
    base = _base(settings, wanted, layout, found.tree, seed)
    digest = digest_of(settings, wanted)
    regions = LearnedRegions(wanted, base, frequencies, found.scheme, points, digest, settings.consolidation)
    return regions, found.scores


def tells_unasked(settings: SifterSettings, wanted: Wanted) -> bool:
    """Whether a filter tells which rows no query asks for."""
    return settings.unasked == "first" and len(wanted.boxes) <= MOST_ASKED


def digest_of(settings: SifterSettings, wanted: Wanted) -> str:
    """What a filter was built for: whatever of the contract shapes one makes another.

    Which rows a condition means hangs on more than its text, the contract's clocks and this Spillway's reading of SQL
    among it: its boxes say.
    """
    own = (
        settings.regions,
        settings.partition,
        settings.fairness,
        settings.sample.marked_pct,
        settings.unasked,
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
        settings.unasked,
        # digests of filters that were built before this setting stay what they are
        *([settings.consolidation] if settings.consolidation != "sampled" else []),
    ]
    wanted.digests[own] = hashlib.sha256(json.dumps(told).encode()).hexdigest()[:16]
    return wanted.digests[own]


def _base(
    settings: SifterSettings, wanted: Wanted, layout: Layout, tree: RegionTree, seed: int
) -> SifterFilter:
    found = SifterFilter(
        layout,
        tree,
        np.empty(0),
        wanted.keep_dimensions,
        tuple(product for rule in wanted.keep for product in rule.products),
        settings.sample.marked_pct / 100.0,
        seed,
        wanted.boxes if tells_unasked(settings, wanted) else np.empty((0, len(layout.lines), 2), np.int64),
    )
    return found.with_thresholds(np.zeros(found.count))


def layout_of(wanted: Wanted, rows: pa.Table) -> Layout:
    """The lines on which a sample and the queries lie."""
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


def drawn(rows: pa.Table, count: int, seed: int) -> pa.Table:
    """So many of the rows, by a hash of their `seq`, in order."""
    if rows.num_rows <= count:
        return rows
    hashes = seq_hashes(np.asarray(rows["seq"]), np.uint64(seed))
    return rows.take(pa.array(np.sort(np.argpartition(hashes, count)[:count])))


def train(lesson: Lesson) -> list[Fact] | None:
    """The fact about a stream's regions; None where there is nothing to learn from."""
    settings: SifterSettings = lesson.contract.lever_settings("sifters")
    wanted = Wanted.of(settings, lesson.contract)
    rows = lesson.edge(wanted.columns, settings.sample.tuples)
    if not rows.num_rows:
        if lesson.again:
            return None
        return []
    throttle = throttle_for(settings, lesson)
    regions, scores = learn_regions(lesson.contract, settings, rows, throttle)
    evidence = {
        "scores": dict(scores),
        "sample_rows": regions.sample_rows,
        "of_rows": rows.num_rows,
        "throttle": throttle,
        "regions": regions.base.tree.count,
    }
    said = ""
    if regions.base.tells_unasked:
        evidence["asked_by_no_query_pct"] = 100.0 * float(regions.frequencies[-1])
        said = f"; none of them asks for {regions.frequencies[-1]:.1%}"
    elif settings.unasked == "first":
        said = (
            f"; their {len(wanted.boxes):,} boxes are too many to tell row by row what none of them asks for"
        )
    lesson.say(
        f"{lesson.contract.stream}: {regions.base.tree.count} regions by {regions.scheme} from "
        f"{regions.sample_rows:,} of {rows.num_rows:,} tuples for {len(settings.queries)} queries{said}"
    )
    for one in unmatched_conditions(lesson.contract, rows):
        lesson.say(f"{lesson.contract.stream}: WARNING: {one.sentence}; {one.remedy}")
    return [Fact(FACT, "", _told(regions), evidence)]


def throttle_for(settings: SifterSettings, lesson: Lesson) -> float:
    """About what share of the rows there is room for, as regions are chosen for it; half where nothing is known."""
    found = [1.0]
    if lesson.load is None or lesson.part is None:
        return HALF
    found.append(lesson.part.narrower_kbps / max(lesson.load.rate_kbps, 1e-12))
    if settings.rows_per_second is not None:
        found.append(settings.rows_per_second / max(lesson.load.tuples_per_second, 1e-12))
    share = min(found)
    return share if share < 1.0 else HALF


def learned_regions(contract: StreamContract, facts: Facts | None) -> LearnedRegions | None:
    """The regions of a training; None where there were none, or they are for other queries than the contract's now."""
    told = None if facts is None else facts.value(FACT)
    if told is None:
        return None
    settings: SifterSettings = contract.lever_settings("sifters")
    wanted = Wanted.of(settings, contract)
    if told["digest"] != digest_of(settings, wanted):
        return None
    layout = Layout(tuple(Axis.from_dict(line) for line in told["lines"]))
    base = _base(settings, wanted, layout, tree_from(told), seed_of(contract.stream))
    return LearnedRegions(
        wanted,
        base,
        np.array(told["frequencies"]),
        told["scheme"],
        np.array(told["points"]),
        told["digest"],
        settings.consolidation,
    )


def frequencies_in(regions: LearnedRegions, rows: pa.Table) -> np.ndarray:
    """By region, how many of some rows lie in it; those that must be kept lie in none."""
    found = regions.base.regions_of(rows)
    return np.bincount(found[found >= 0], minlength=regions.base.count)


def _told(regions: LearnedRegions) -> dict[str, Any]:
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

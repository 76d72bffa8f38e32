"""Learning a stream's regions from some of its rows: a fact, and the filter that follows from it.

The sample is drawn by a hash of `seq`, so that training again on the same rows gives the same regions.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from spillway.contracts import StreamContract
from spillway.levers.protocol import Fact, Facts, Lesson
from spillway.levers.sifters.boxes import products_hold
from spillway.levers.sifters.choose import Built, built
from spillway.levers.sifters.consolidate import Asked, Worth, consolidated
from spillway.levers.sifters.filter import SifterFilter, tree_from
from spillway.levers.sifters.layout import Axis, Layout
from spillway.levers.sifters.settings import SifterSettings
from spillway.levers.sifters.sift import seq_hashes
from spillway.levers.sifters.spans import END, NAN, NULL, key_floats
from spillway.levers.sifters.wanted import Wanted

FACT = "regions"


@dataclass(frozen=True)
class LearnedRegions:
    """Regions that were learned, with the frequencies of the sample they were learned from."""

    wanted: Wanted
    base: SifterFilter
    """The filter with every threshold at 0."""
    frequencies: np.ndarray
    scheme: str
    points: np.ndarray
    """By dimension, where the sample's rows lie."""
    digest: str

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
        base = found.with_thresholds(np.zeros(found.tree.count))
        return replace(self, base=base, frequencies=frequencies)

    def worth(self, frequencies: np.ndarray | None = None) -> Worth:
        """What the regions are worth, at these frequencies or the sample's."""
        of = self.frequencies if frequencies is None else frequencies
        return consolidated(self.base.tree, of, self.asked, self.points)


def seed_of(stream: str) -> int:
    """The seed of a stream's filters: stated by its name."""
    return int.from_bytes(hashlib.sha256(stream.encode()).digest()[:7], "big")


def learn_regions(
    contract: StreamContract, settings: SifterSettings, rows: pa.Table, throttle: float
) -> tuple[LearnedRegions, Mapping[str, float]]:
    """Regions from some rows, and what each partitioner scored."""
    wanted = Wanted.of(settings, contract)
    rows = drawn(rows, settings.sample.rows, seed_of(contract.stream))
    if wanted.keep:
        keys = [one.keys_of(rows[one.name]) for one in wanted.keep_dimensions]
        held = np.zeros(rows.num_rows, bool)
        for rule in wanted.keep:
            held |= products_hold(rule.products, keys)
        # what is never shed must not make regions; but where that is all there is, it says where rows lie
        rows = rows.filter(pa.array(~held)) if not held.all() else rows
    layout = layout_of(wanted, rows)
    points = layout.places(rows)
    most = 1.0 - settings.sample.marked_pct / 100.0
    found: Built = built(
        layout.space,
        points,
        wanted.asked(layout),
        settings.regions,
        settings.partition,
        max(throttle, 1.0 - most),
        settings.fairness,
        most,
        seed_of(contract.stream) % 2**32,
    )
    base = SifterFilter(
        layout,
        found.tree,
        np.zeros(found.tree.count),
        wanted.keep_dimensions,
        tuple(product for rule in wanted.keep for product in rule.products),
        settings.sample.marked_pct / 100.0,
        seed_of(contract.stream),
    )
    regions = LearnedRegions(wanted, base, found.frequencies, found.scheme, points, wanted.digest)
    return regions, found.scores


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
    lesson.say(
        f"{lesson.contract.stream}: {regions.base.tree.count} regions by {regions.scheme} from "
        f"{regions.sample_rows:,} of {rows.num_rows:,} tuples for {len(settings.queries)} queries"
    )
    return [Fact(FACT, "", _told(regions), evidence)]


def throttle_for(settings: SifterSettings, lesson: Lesson) -> float:
    """About what share of the rows there is room for, as regions are chosen for it; half where nothing is known."""
    found = [1.0]
    if lesson.load is None or lesson.part is None:
        return 0.5
    found.append(lesson.part.narrower_kbps / max(lesson.load.rate_kbps, 1e-12))
    if settings.rows_per_second is not None:
        found.append(settings.rows_per_second / max(lesson.load.tuples_per_second, 1e-12))
    share = min(found)
    return share if share < 1.0 else 0.5  # what fits is not sifted: regions are for when it does not


def learned_regions(contract: StreamContract, facts: Facts | None) -> LearnedRegions | None:
    """The regions of a training; None where there were none, or they are for other queries than the contract's now."""
    told = None if facts is None else facts.value(FACT)
    if told is None:
        return None
    settings: SifterSettings = contract.lever_settings("sifters")
    wanted = Wanted.of(settings, contract)
    if told["digest"] != wanted.digest:
        return None
    tree = tree_from(told)
    base = SifterFilter(
        Layout(tuple(Axis.from_dict(line) for line in told["lines"])),
        tree,
        np.zeros(tree.count),
        wanted.keep_dimensions,
        tuple(product for rule in wanted.keep for product in rule.products),
        settings.sample.marked_pct / 100.0,
        seed_of(contract.stream),
    )
    return LearnedRegions(
        wanted, base, np.array(told["frequencies"]), told["scheme"], np.array(told["points"]), told["digest"]
    )


def frequencies_in(regions: LearnedRegions, rows: pa.Table) -> np.ndarray:
    """By region, how many of some rows lie in it; those that must be kept lie in none."""
    found = regions.base.regions_of(rows)
    return np.bincount(found[found >= 0], minlength=regions.base.tree.count)


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

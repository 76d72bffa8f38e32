"""Compute the figures of the sifters (Gedik, Wu, Yu 2007), next to those of the paper and of the rivals."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from evidence.book import Book, Shown
from evidence.sifters.contest import RIVALS, SHIPPED, SIFTERS, Contest, build_and_configure, contest
from evidence.sifters.linear_program import compare
from evidence.sifters.on_spark import differing_rows
from evidence.sifters.queried_streams import queried_streams
from evidence.sifters.workload import COMBINATIONS, WorkloadSettings, generate
from evidence.timing import best_seconds
from spillway.levers.sifters.choose import USUAL, partition_space
from spillway.report.page import svg
from spillway.settings import Settings

JUDGED_ROWS = 60_000
FIRST_SEED = 1000
"""Smaller ones, and those from 2000 on, were looked at while schemes and the choice among them were made."""
INSTANCES = 10_000
ROWS_LOOKED_UP = 1_000_000
TEXT = {
    ("unif", "unif"): "about 6",
    ("unif", "skew"): "35 to 65",
    ("skew", "unif"): "20 to 40 (2 at L = 10)",
    ("skew", "skew"): "more than for skew and unif",
}
"""Gains over random dropping that the text reports, in %, along G and L."""
DRAWN = ("random", "uniform_grid", "data_depth", "query_depth", "query_data", USUAL, "optimum")
WIDE = (0.01, 0.02)
"""Sides of queries that ask for more rows than fit."""
SKEW_POINTS = (2.0, 4.0, 6.0, 8.0, 10.0)


def sifter_figures(book: Book, settings: Settings, seeds: int) -> Mapping[str, float]:
    """Return all figures; `seeds` workloads per point at the defaults, fewer along the figures."""
    found: dict[str, float] = {}
    few = max(2, seeds // 5)
    found |= _defaults(book, max(4, seeds))
    found |= _shipped(book, few)
    _figure_4(book, few)
    _sensitivity(book, few)
    _times(book)
    found |= _exact(book, max(200, INSTANCES * min(seeds, 20) // 20))
    found |= queried_streams(book)
    found |= differing_rows(book)
    return found


def _mean(settings: WorkloadSettings, seeds: int, names: Sequence[str]) -> list[Contest]:
    return [
        contest(generate(settings, seed, JUDGED_ROWS), names, seed)
        for seed in range(FIRST_SEED, FIRST_SEED + seeds)
    ]


def _gain(contests: Sequence[Contest], name: str, of: str = "quality") -> float:
    """Return by how many per cent the mean quality is above that of dropping at random."""
    ours, random = (float(np.mean([getattr(one, of)[who] for one in contests])) for who in (name, "random"))
    return 100.0 * (ours / random - 1.0)


def _defaults(book: Book, seeds: int) -> dict[str, float]:
    book.section(
        "Sifters",
        "Rows are dropped where they are worth least to queries: quality of 1,000 range queries on generated data, "
        f"at Table I's defaults ({seeds} workloads each), sample and test rows apart.",
    )
    found: dict[str, float] = {}
    rows: list[tuple[Shown, ...]] = []
    gains: list[tuple[Shown, ...]] = []
    for data, queries in COMBINATIONS:
        place = f"{data}_{queries}"
        of = WorkloadSettings(data=data, queries=queries)
        names = (*SIFTERS, SHIPPED, *RIVALS)
        contests = _mean(of, seeds, names)
        mean = {name: float(np.mean([one.quality[name] for one in contests])) for name in names}
        found[f"sifters.qos_gain_pct.{place}"] = _gain(contests, USUAL)
        found[f"sifters.qos_gain_asked_pct.{place}"] = _gain(contests, USUAL, "asked")
        free = _mean(replace(of, fairness=1.0), seeds, (USUAL, "random"))
        found[f"sifters.qos_gain_unfair_pct.{place}"] = _gain(free, USUAL)
        for name in RIVALS:
            found[f"sifters.qos_{name}.{place}"] = mean[name]
        found[f"sifters.qos_sifter.{place}"] = mean[USUAL]
        found[f"sifters.qos_shipped.{place}"] = mean[SHIPPED]
        found[f"sifters.qos_gain_shipped_pct.{place}"] = _gain(contests, SHIPPED)
        for name, of_what in (("densities", "knowing_densities"), ("fair", "any_filter")):
            found[f"sifters.qos_gain_{of_what}_pct.{place}"] = _gain(contests, name)
            if mean[name] > 1.01 * mean["random"]:  # else there is nothing to have a share of
                found[f"sifters.gain_share_of_{of_what}_pct.{place}"] = (
                    100.0 * (mean[USUAL] - mean["random"]) / (mean[name] - mean["random"])
                )
        rows.append((f"{data} / {queries}", *mean.values()))
        gains.append(
            (
                f"{data} / {queries}", found[f"sifters.qos_gain_pct.{place}"],
                found[f"sifters.qos_gain_asked_pct.{place}"], found[f"sifters.qos_gain_unfair_pct.{place}"],
                TEXT[data, queries], _gain(contests, "densities"), _gain(contests, "fair"),
                100.0 * float(np.mean([one.empty for one in contests])),
            )
        )  # fmt: skip
    book.table(
        "Overall quality (V*) at z = 0.5, l = 16, Delta = 0.5",
        ("data / queries", *SIFTERS, SHIPPED, *RIVALS),
        rows,
        [
            "Rivals drop the same share of the same test rows; the attribute's has no fairness to keep to, "
            "attribute_held has.",
            "Schemes drop by region alone, as the text; gains are those of the default, demand.",
            "Shipped tells rows that no query asks for by the "
            "queries themselves and drops these first, as its rival index does: here what is asked for fits.",
        ],
    )
    book.table(
        "Gain over dropping at random, in %",
        (
            "data / queries", "gain", "of queries with rows", "Delta = 1", "the text", "knowing the densities",
            "at most, any filter",
            "% of queries without rows",
        ),
        gains,
        [
            "A query without rows loses nothing whatever is dropped, and lifts random dropping most.",
            "Knowing the densities: a filter with a threshold of its own for every row, by how densely queries and "
            "rows are drawn there; at most, any filter: by what these queries want of these rows; both held to Delta.",
            "The text's alpha of U[1, 2] cannot be (erratum B1): it is taken as the weight, alpha as 1.",
        ],
    )  # fmt: skip
    halves = []
    for data, queries in COMBINATIONS:
        of = WorkloadSettings(data=data, queries=queries, alphas="from_zero")
        contests = _mean(of, max(1, seeds // 2), (USUAL, "random"))
        halves.append((f"{data} / {queries}", _gain(contests, USUAL)))
    book.table("The same with alpha U[0, 1]", ("data / queries", "gain %"), halves)
    return found


def _shipped(book: Book, seeds: int) -> dict[str, float]:
    """Test whether regions among the requested rows help if not even those fit."""
    names = ("random", "attribute", USUAL, "index", SHIPPED, "optimum")
    found: dict[str, float] = {}
    rows: list[tuple[Shown, ...]] = []
    for data, queries in COMBINATIONS:
        of = WorkloadSettings(data=data, queries=queries, throttle=0.1, regions=100, fairness=1.0, side=WIDE)
        contests = _mean(of, seeds, names)
        mean = {name: float(np.mean([one.quality[name] for one in contests])) for name in names}
        found[f"sifters.qos_shipped_over_index.{data}_{queries}"] = mean[SHIPPED] / mean["index"]
        found[f"sifters.qos_shipped_over_regions_alone.{data}_{queries}"] = mean[SHIPPED] / mean[USUAL]
        rows.append((f"{data} / {queries}", *mean.values()))
    book.table(
        f"Overall quality (V*) at z = 0.1, l = 100, Delta = 1, queries of a side of up to {WIDE[1]:g}",
        ("data / queries", *names),
        rows,
        ["More is asked for than fits: index drops of that at random, shipped by region."],
    )
    return found


def _figure_4(book: Book, seeds: int) -> None:
    for kind, word in (("global_skew", "global skew G"), ("local_skew", "local skew L")):
        for data, queries in COMBINATIONS:
            of = WorkloadSettings(data=data, queries=queries)
            curves: dict[str, list[tuple[float, float]]] = {name: [] for name in DRAWN}
            for skew in SKEW_POINTS:
                skewed: dict[str, Any] = {kind: skew}
                contests = _mean(replace(of, **skewed), seeds, DRAWN)
                for name in DRAWN:
                    curves[name].append((skew, float(np.mean([one.quality[name] for one in contests]))))
            _chart(
                book,
                f"sifters_4_{kind}_{data}_{queries}",
                f"Figure 4: data {data}, queries {queries}",
                curves,
                word,
                "V*",
            )
            points = {skew: 100.0 * (ours / random - 1.0)
                      for (skew, ours), (_, random) in zip(curves[USUAL], curves["random"], strict=True)}  # fmt: skip
            along = ", ".join(f"{gain:.0f} % at {skew:g}" for skew, gain in points.items())
            book.note(f"Gain over random dropping along {word}, data {data}, queries {queries}: {along}.")


def _sensitivity(book: Book, seeds: int) -> None:
    base = WorkloadSettings()
    throttles = (0.1, 0.3, 0.5, 0.7)

    def gains(vary: Callable[[float, float], WorkloadSettings], points: Sequence[float]) -> dict[str, Any]:
        return {
            f"z = {z}": [
                (point, _gain(_mean(vary(z, point), seeds, (USUAL, "random")), USUAL)) for point in points
            ]
            for z in throttles
        }

    sizes = (4, 16, 36, 64, 100)
    curves = gains(
        lambda z, count: replace(
            base, throttle=z, regions=int(count), sample=max(250, int(1000 * count / 16))
        ),
        sizes,
    )
    _chart(book, "sifters_5_regions", "Figure 5: regions (|U| = 1000 l / 16)", curves, "regions l", "gain %")
    at = dict(curves["z = 0.1"])
    book.note(
        f"At z = 0.1 the gain over random dropping is {at[16]:.0f} % with 16 regions and {at[100]:.0f} % with 100; "
        "the text reports 25 and 50."
    )
    fractions = (0.1, 0.3, 0.5, 0.7, 0.9)
    by_throttle: dict[str, list[tuple[float, float]]] = {}
    for data, queries in COMBINATIONS:
        points = []
        for z in fractions:
            contests = _mean(replace(base, data=data, queries=queries, throttle=z), seeds, (USUAL, "random"))
            points.append((z, float(np.mean([one.quality[USUAL] for one in contests]))))
        by_throttle[f"{data}/{queries}"] = points
    _chart(book, "sifters_8_throttle", "Figure 8: throttler", by_throttle, "throttle fraction z", "V*")
    curves = gains(lambda z, width: replace(base, throttle=z, fairness=width), fractions)
    _chart(book, "sifters_9_fairness", "Figure 9: fairness", curves, "Delta", "gain %")
    at = dict(curves["z = 0.3"])
    book.note(
        f"At z = 0.3 the gain goes from {at[0.1]:.0f} % at Delta 0.1 to {at[0.9]:.0f} % at 0.9; the text: 5 to 40."
    )
    sides = (0.01, 0.02, 0.03, 0.04, 0.05)
    curves = gains(lambda z, side: replace(base, throttle=z, side=(side / 2, side)), sides)
    _chart(book, "sifters_10_side", "Figure 10: query size", curves, "side of a query, at most", "gain %")


def _times(book: Book, seed: int = FIRST_SEED) -> None:
    """Time building and look-ups along l, in processor time of one thread."""
    schemes = ("uniform_grid", "data_depth", "query_depth", "query_data", "demand")
    building: dict[str, list[tuple[float, float]]] = {name: [] for name in schemes}
    looking: dict[str, list[tuple[float, float]]] = {name: [] for name in schemes}
    for count in (16, 36, 64, 100):
        one = generate(WorkloadSettings(regions=count, sample=1000 * count // 16), seed, ROWS_LOOKED_UP)
        ways = {name: partial(build_and_configure, one, name) for name in schemes}
        for name, seconds in best_seconds(ways, 3, time.process_time).items():
            building[name].append((count, 1e3 * seconds))
        trees = {name: partition_space(name, one.space, one.sample, one.asked, count) for name in looking}
        looks = {name: partial(tree.regions_of, one.test) for name, tree in trees.items()}
        for name, seconds in best_seconds(looks, 3, time.process_time).items():
            looking[name].append((count, ROWS_LOOKED_UP / seconds / 1e6))
    title = "Figure 6: building, |U| = 1000 l / 16"
    _chart(book, "sifters_6_building", title, building, "regions l", "ms")
    _chart(book, "sifters_7_lookups", "Figure 7: look-ups", looking, "regions l", "million a second")
    book.note(
        "The text, on a machine of 2007 and with an LP solver: 150 ms at 16 regions, up to 2.7 s at 100; 5 million "
        "look-ups a second at 100 regions, 27 % (equi-depth) and 40 % (QDPart) fewer than at 16."
    )


def _chart(
    book: Book, name: str, title: str, curves: Mapping[str, Sequence[tuple[float, float]]], x: str, y: str
) -> None:
    lines = [
        svg.Line(points, f"c{place % 10}", who, dots=True)
        for place, (who, points) in enumerate(curves.items())
    ]
    book.figure(
        name,
        title,
        svg.line_chart(lines, x_label=x, y_label=y),
        {who: list(points) for who, points in curves.items()},
    )
    points = [point for point, _ in next(iter(curves.values()))]
    book.table(
        f"{title}: {y} along {x}",
        (y, *(f"{point:g}" for point in points)),
        [(who, *(value for _, value in found)) for who, found in curves.items()],
    )


def _exact(book: Book, instances: int) -> dict[str, float]:
    found = compare(instances, seed=1)
    book.table(
        "Configuration against an LP solver (HiGHS)",
        ("instances", "infeasible", "disagree", "largest difference of cost", "largest violation"),
        [(found.tried, found.infeasible, found.disagree, found.largest_off, found.largest_broken)],
    )
    return {
        "sifters.configuration_off_lp_largest": found.largest_off,
        "sifters.configuration_disagrees_on_feasible": found.disagree,
        "sifters.instances_tried": found.tried,
    }

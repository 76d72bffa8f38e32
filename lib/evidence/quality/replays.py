"""Reproduce Figures 6.1 to 6.4: errors of answers by coverage for each data set, and the coverage of intervals.

The product's own steps run on a lake in memory. Windows are pinned, planned by the policy `random` (as in the thesis)
with decreasing capacity, computed, and compared with the answers over all rows. The thesis does not scale its counts,
so these queries use `bounds: false`; scaled answers are measured separately.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

import numpy as np
import pyarrow as pa

from evidence.attributes.lake import ENGINE, Lake
from evidence.book import Book
from evidence.quality.load_streams import (
    DATA_SETS,
    FILES_A_WINDOW,
    HEAVY,
    TUPLES_A_FILE,
    landed_loads,
    load_query,
    text_queries,
)
from spillway.contracts.workload import Workload
from spillway.levers.windows import Window
from spillway.report.page import svg
from spillway.workloads.what_if import AnsweredWindows, GroupReplay
from spillway.workloads.windows import pinned_windows

SHARES = (0.1, 0.25, 0.5, 0.75, 1.0)
KINDS: Mapping[str, str] = {"n": "COUNT", "c": "COUNT", "s": "SUM", "a": "AVG"}
OFFERED = FILES_A_WINDOW * TUPLES_A_FILE


def answers_by_contract(lake: Lake, queries: Mapping[str, Workload]) -> dict[str, AnsweredWindows]:
    """Return the answers of queries by these contracts."""
    contracts = lake.contracts
    windows = {name: _windows(lake, one) for name, one in queries.items()}
    return GroupReplay(lake.tables, ENGINE, contracts, "evidence", windows).answers(queries)


def _windows(lake: Lake, query: Workload) -> Sequence[Window]:
    return pinned_windows(lake.tables, lake.contracts, query)


def error_figures(book: Book, windows: int, seed: int = 3) -> dict[str, float]:
    """Return error against coverage of each query and data set, rank correlations, and the errors at half coverage."""
    lake = landed_loads("quality-errors", windows, seed)
    truth = answers_by_contract(lake, text_queries(bounds=False))
    levels: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for share in SHARES:
        for name, query in text_queries(bounds=False).items():
            # each alone in its room: none may take what another leaves
            room = {"capacity": {"tuples": share * OFFERED}, "policy": "random", "starve_slices": 0}
            alone = {name: _with(query, room)}
            found = answers_by_contract(lake, alone)[name]
            kind, _, data_set = name.partition("_")
            for one in [data_set] if data_set else DATA_SETS:
                error = _error(kind, one, found, truth[name])
                sic = float(np.mean([row["sic"] for _, row in found.values()]))
                levels.setdefault((kind, one), []).append((sic, error))
    lake.forget()
    figures: dict[str, float] = {}
    titles = {
        "avg": "Figure 6.1: AVG, mean absolute error in % of the value",
        "count": "Figure 6.2: COUNT (values >= 50), mean absolute error in % of the value, not scaled up",
        "top5": "Figure 6.3: TOP-5, Kendall's distance (share of pairs in another order)",
        "cov": "Figure 6.4: COV, standard deviation of the error over that of the true covariances",
    }
    for kind, title in titles.items():
        lines = [svg.Line(levels[kind, one], f"c{at}", one, dots=True) for at, one in enumerate(DATA_SETS)]
        markup = svg.line_chart(lines, x_label="coverage (sic)", y_label="error", from_zero=True)
        book.figure(f"quality_error_{kind}", title, markup, {one: levels[kind, one] for one in DATA_SETS})
        rows: list[tuple[str | float, ...]] = [
            (one, *(error for _, error in levels[kind, one])) for one in DATA_SETS
        ]
        book.table(title, ("data set", *(f"sic {share:g}" for share in SHARES)), rows)
        for one in DATA_SETS:
            sics = [sic for sic, _ in levels[kind, one]]
            errors = [error for _, error in levels[kind, one]]
            figures[f"quality.error_against_sic.{kind}.{one}"] = rank_correlation(sics, errors)
            figures[f"quality.error_at_half.{kind}.{one}"] = errors[SHARES.index(0.5)]
    return figures


def _with(query: Workload, settings: Mapping[str, Any]) -> Workload:
    (entry,) = query.levers
    said = {key: value for key, value in entry.as_written().items() if key not in ("lever", "sql")}
    return load_query(query.name, entry.settings.sql, **{**said, **settings})


def _error(kind: str, column: str, found: AnsweredWindows, truth: AnsweredWindows) -> float:
    if kind == "top5":
        return float(np.mean([kendall_distance(_nodes(found[n][0]), _nodes(truth[n][0])) for n in truth]))
    mine, theirs = (np.array([_value(one[n][0], column) for n in truth]) for one in (found, truth))
    if kind == "cov":
        return float(np.nanstd(mine - theirs) / np.nanstd(theirs))
    return float(np.mean(100 * np.abs(np.nan_to_num(mine) - theirs) / np.abs(theirs)))


def _value(rows: pa.Table | None, column: str) -> float:
    value = rows[column][0].as_py() if rows is not None and rows.num_rows else None
    return float("nan") if value is None else float(value)


def _nodes(rows: pa.Table | None) -> list[str]:
    return [] if rows is None else rows["node"].to_pylist()


def kendall_distance(mine: Sequence[str], theirs: Sequence[str]) -> float:
    """Return the share of pairs of entries of either list that are in another order (D12); absent entries are last.

    >>> kendall_distance(["1", "2", "3", "4", "5"], ["2", "1", "3", "5", "4"])
    0.2
    """
    every = list(dict.fromkeys([*theirs, *mine]))
    places = [{name: at for at, name in enumerate(one)} for one in (mine, theirs)]
    last = len(every)
    off, pairs = 0, 0
    for a, b in combinations(every, 2):
        first, second = (np.sign(place.get(a, last) - place.get(b, last)) for place in places)
        pairs += 1
        off += int(first != second)
    return off / pairs if pairs else 0.0


def rank_correlation(first: Sequence[float], second: Sequence[float]) -> float:
    """Return Spearman's rank correlation: -1 if the second falls whenever the first rises.

    >>> rank_correlation([1, 2, 3], [9.0, 5.0, 1.0])
    -1.0
    """
    ranks = [np.argsort(np.argsort(np.asarray(one), kind="stable")) for one in (first, second)]
    if len(set(second)) == 1:
        return 0.0
    return round(float(np.corrcoef(ranks[0], ranks[1]).flat[1]), 12)


def interval_figures(book: Book, windows: int, seed: int = 5) -> dict[str, float]:
    """Return how often the interval of a partial answer contains the full answer, for COUNT, SUM and AVG.

    The data are those of the thesis, and values that a few portions or rows dominate. Every interval must hold at its
    stated rate. Intervals that assume similar portions are reported too; they hold if the assumption does.
    """
    lake = landed_loads("quality-intervals", windows, seed)
    every = (*DATA_SETS, *HEAVY)
    items = [f"avg({one}) AS a_{one}, sum({one}) AS s_{one}" for one in every]
    counts = "sum(CASE WHEN lumps > 200 THEN 1 ELSE 0 END) AS c_lumps"
    sql = f"SELECT count(*) AS n_text, {counts}, {', '.join(items)} FROM loads WHERE memory_kb >= 100"
    truth = answers_by_contract(lake, {"bounded": load_query("bounded", sql)})["bounded"]
    held: dict[tuple[bool, str, bool], list[bool]] = {}
    wide: dict[str, list[float]] = {}
    asked = 0
    for share in SHARES[1:-1]:
        for alike in (False, True):
            room = {"capacity": {"tuples": share * OFFERED}, "starve_slices": 0, "assume_alike": alike}
            found = answers_by_contract(lake, {"bounded": load_query("bounded", sql, **room)})["bounded"]
            for number, (rows, _) in found.items():
                exact = truth[number][0]
                assert rows is not None
                assert exact is not None
                for name in [name for name in exact.column_names if f"{name}__low" in rows.column_names]:
                    low, value, high = (
                        rows[f"{name}__low"][0].as_py(), exact[name][0].as_py(), rows[f"{name}__high"][0].as_py(),
                    )  # fmt: skip
                    asked += not alike
                    if low is None or high is None:
                        continue
                    kind, rough = KINDS[name[0]], name[2:] in HEAVY
                    near = 1e-9 * abs(value)
                    held.setdefault((alike, kind, rough), []).append(low - near <= value <= high + near)
                    if not alike and value:
                        wide.setdefault(kind, []).append((high - low) / abs(value))
    lake.forget()
    book.table(
        "Intervals of 95 %: how often they hold the answer to everything, in %",
        (
            "query",
            "the text's data",
            "heavy tails and lumps",
            "alike: the text's",
            "alike: heavy and lumps",
            "width",
        ),
        [
            (
                kind,
                *(
                    _coverage_pct(held, alike, kind, rough)
                    for alike in (False, True)
                    for rough in (False, True)
                ),
                float(np.median(wide[kind])),
            )
            for kind in dict.fromkeys(KINDS.values())
        ],
        notes=["Values of one window share the portions that were drawn: they are not independent trials."],
    )
    strict = {(kind, rough): own for (alike, kind, rough), own in held.items() if not alike}
    given = [one for own in strict.values() for one in own]
    usual = [one for (alike, _, rough), own in held.items() if alike and not rough for one in own]
    heavy = [one for (alike, _, rough), own in held.items() if alike and rough for one in own]
    return {
        "quality.interval_coverage_pct": 100 * float(np.mean(given)),
        "quality.interval_coverage_pct.lowest": 100 * min(float(np.mean(own)) for own in strict.values()),
        "quality.interval_coverage_pct.heavy_tails": 100
        * float(np.mean([one for (_, rough), own in strict.items() if rough for one in own])),
        "quality.interval_coverage_pct.assume_alike": 100 * float(np.mean(usual)),
        "quality.interval_coverage_pct.assume_alike_of_heavy_tails": 100 * float(np.mean(heavy)),
        "quality.interval_width_over_value": float(np.median([one for own in wide.values() for one in own])),
        "quality.intervals": len(given),
        "quality.intervals_withheld_pct": 100 * (1 - len(given) / asked),
    }


def _coverage_pct(
    held: Mapping[tuple[bool, str, bool], Sequence[bool]], alike: bool, kind: str, rough: bool
) -> float:
    return 100 * float(np.mean(held.get((alike, kind, rough), [np.nan])))

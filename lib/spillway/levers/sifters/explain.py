"""Explain the lever's decisions: why rows are dropped, what each query still gets, and the report's charts as data."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from spillway.contracts import StreamContract
from spillway.levers.protocol import Facts, LeverExplanation, Picture, Views
from spillway.levers.sifters.filter import SifterFilter
from spillway.levers.sifters.learn import FACT
from spillway.levers.sifters.record import (
    ASKED_BY_NONE,
    batch_record,
    newest_record,
    recent_shares,
    value_words,
)
from spillway.levers.sifters.settings import SifterSettings

SHOWN_REGIONS, SHOWN_QUERIES, DRAWN_BATCHES = 5, 20, 200
CELLS = 32
"""The cells per side of a map of more than two dimensions."""


def explain_rows(
    contract: StreamContract, attribute: str, facts: Facts | None, tables: Views
) -> LeverExplanation:
    """Explain why rows of the stream are dropped, and how queries and rules use the attribute."""
    settings: SifterSettings = contract.lever_settings("sifters")
    from spillway.levers.sifters.parsed_queries import ParsedQueries

    wanted = ParsedQueries.of(settings, contract)
    about = [query.title for query, predicate in wanted.queries if attribute in predicate.used_dimensions]
    rules = [rule.text for rule in wanted.keep if attribute in rule.used_dimensions]
    last = newest_record(tables, contract.stream)
    aside = "stored at the source" if settings.keep_at_source else "not stored"
    if last is None:
        return LeverExplanation("not planned yet", "no batch was shed since the stream has this lever")
    numbers: dict[str, Any] = {
        "filter": f"batch {last['batch']}, made for batch {last['filter']}"
        if last["filter"]
        else "none: all rows are sent",
        "filter made because": last["reason"],
        "share of the rows that fits": f"{100.0 * last['throttle_measured']:.3g} %",
        "queries about it": len(about),
        "rules that keep rows by it": rules or None,
    }
    if last["filter"]:
        offered, kept = (sum(one[name] for one in last["regions"]) for name in ("offered", "kept"))
        unqueried = [one for one in last["regions"] if one["bounds"] == ASKED_BY_NONE]
        numbers |= {
            "rows offered": offered,
            "rows dropped": offered - kept,
            ASKED_BY_NONE: [
                f"{100 * one['threshold']:.0f} % dropped of {one['offered']:,} rows" for one in unqueried
            ],
            "regions": f"{sum(one['region'] >= 0 for one in last['regions']) - len(unqueried)} by {last['partition']}",
            "quality of the queries": {
                "%": 100.0 * last["quality_planned"],
                "as counted": _pct(last["quality"]),
            },
            "most is dropped where": [
                f"{one['bounds']}: {100 * one['threshold']:.0f} % of {one['offered']:,}"
                for one in _regions_by_dropped_rows(last["regions"])
            ],
            "what queries get": [
                f"{name}: {got:,} of {wanted:,} rows"
                for name, (wanted, got) in _queries(tables, contract.stream, last["batch"]).items()
            ],
        }
        if facts is not None and (fact := facts.facts.get((FACT, ""))) is not None:
            numbers["in training"] = {name: value for name, value in fact.evidence.items() if value}
    because = (
        f"not all rows fit into the channel; those that {len(settings.queries)} queries lose least by are dropped "
        f"first, and {aside}"
    )
    remedies = [
        "send more rows of a query: raise its weight or its at_least, under queries: of the lever",
        "never drop some rows: write a rule under keep: of the lever",
    ]
    way = "dropped with whole rows" if last["filter"] else "kept"
    return LeverExplanation(
        way,
        because,
        {name: one for name, one in numbers.items() if one not in (None, [], {})},
        tuple(remedies),
    )


def row_pictures(contract: StreamContract, facts: Facts | None, tables: Views) -> Iterator[Picture]:
    """Yield the charts of the report: a map of the dropped shares, the rows of each query, and the batches' history."""
    sifted = recent_shares(tables, contract.stream)
    if not sifted:
        return
    last = batch_record(tables, contract.stream, sifted[-1]["batch"])
    yield from _map(last)
    queries = _queries(tables, contract.stream, last["batch"])
    if queries:
        yield Picture(
            f"{contract.stream}: what its queries still get, batch {last['batch']}",
            "table",
            {
                "heads": ["query", "#rows it wants", "#of them sent", "#%"],
                "rows": [
                    [name, f"{wanted:,}", f"{got:,}", f"{100 * got / wanted:.1f}" if wanted else "-"]
                    for name, (wanted, got) in list(queries.items())[:SHOWN_QUERIES]
                ],
            },
            f"There was capacity for {last['throttle_measured']:.1%} of the rows. If rows were dropped at random, "
            "every query would get this share.",
            section="losses",
        )
    if len(sifted) > 1:
        of = sifted[-DRAWN_BATCHES:]
        lines = [
            ("room for rows", "throttle_measured"),
            ("rows kept", "throttle"),
            ("quality of queries", "quality_planned"),
        ]
        yield Picture(
            "Room, rows kept and quality, batch by batch",
            "lines",
            {
                "lines": [
                    {
                        "name": name,
                        "points": [(row["batch"], 100.0 * row[column]) for row in of],
                        "steps": True,
                    }
                    for name, column in lines
                ],
                "x": "batch",
                "y": "%",
                "from_zero": True,
            },
        )


def _map(row: Mapping[str, Any]) -> Iterator[Picture]:
    found = SifterFilter.from_bytes(row["payload"])
    lines = found.layout.lines
    cuts = np.bincount(found.tree.axes[found.tree.axes >= 0], minlength=len(lines))
    order = [int(place) for place in np.argsort(-cuts, kind="stable") if cuts[place]]
    if not order:
        return
    across, up = order[0], order[1] if len(order) > 1 else None
    regions = {one["region"]: one for one in row["regions"]}
    bounds = found.tree.bounds
    if len(order) <= 2:
        parts = [
            (bounds[at, across], bounds[at, up] if up is not None else np.array([0.0, 1.0]), regions[at])
            for at in range(found.tree.count)
        ]
        rects = [
            (
                float(x[0]), float(x[1]), float(y[0]), float(y[1]), one["threshold"],
                f"{one['bounds']}: {one['threshold']:.0%} dropped of {one['offered']:,} rows",
            )
            for x, y, one in parts
        ]  # fmt: skip
    else:
        rects = _cells(found, across, order[1], row["regions"])
    if not any(dark for *_, dark, _ in rects):
        return  # no region that a query asks for lost a row: an empty map says nothing
    names = found.layout.names
    which, others = "there", ""
    if found.has_unrequested_region:
        which, others = "asked for there", f", and {found.thresholds[-1]:.0%} of all that no query asks for"
    yield Picture(
        f"What is dropped where, batch {row['batch']}",
        "regions",
        {
            "rects": rects,
            "x": names[across],
            "y": "" if up is None else names[up],
            "x_ticks": _ticks(found, across),
            "y_ticks": [] if up is None else _ticks(found, up),
        },
        f"The darker, the more of the rows {which} are dropped{others}; {row['reason']}.",
        wide=True,
    )


def _cells(
    found: SifterFilter, across: int, up: int, regions: Sequence[Mapping[str, Any]]
) -> list[tuple[float, float, float, float, float, str]]:
    """Return the rectangles of a map of two out of more dimensions.

    A cell shows the mean threshold of its rows over all values of the other dimensions.
    """
    by_region = {one["region"]: one for one in regions}
    weight = np.array([by_region[at]["frequency"] for at in range(found.tree.count)]) + 1e-9
    bounds = found.tree.bounds
    edges = [
        np.linspace(float(found.tree.space[axis, 0]), float(found.tree.space[axis, 1]), CELLS + 1)
        for axis in (across, up)
    ]
    rects = []
    for i in range(CELLS):
        for j in range(CELLS):
            x, y = (edges[0][i], edges[0][i + 1]), (edges[1][j], edges[1][j + 1])
            share = np.ones(found.tree.count)
            for axis, (low, high) in ((across, x), (up, y)):
                begin, end = bounds[:, axis, 0], bounds[:, axis, 1]
                share *= np.clip(np.minimum(high, end) - np.maximum(low, begin), 0, None) / (end - begin)
            mass = share * weight
            mean = float(mass @ found.thresholds[: found.tree.count] / mass.sum()) if mass.sum() > 0 else 0.0
            rects.append((float(x[0]), float(x[1]), float(y[0]), float(y[1]), mean, f"{mean:.0%} dropped"))
    return rects


def _ticks(found: SifterFilter, axis: int) -> list[tuple[float, str]]:
    line = found.layout.lines[axis]
    if line.dimension.is_text or line.dimension.type == "boolean":
        words = [*line.dimension.words, "other"] if line.dimension.is_text else ["false", "true"]
        width = line.high - line.low
        step = max(1, len(words) // 8)
        return [((at + 0.5) / width, word) for at, word in enumerate(words) if at % step == 0]
    found_ticks = []
    for place in (0.0, 0.25, 0.5, 0.75, 1.0):
        value = line.low + place * (line.high - line.low)
        found_ticks.append((place, value_words(line.dimension.type, value)))
    return found_ticks


def _regions_by_dropped_rows(regions: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    dropped = sorted(regions, key=lambda one: one["kept"] - one["offered"])
    return [one for one in dropped[:SHOWN_REGIONS] if one["offered"] > one["kept"]]


def _queries(tables: Views, stream: str, batch: int) -> dict[str, tuple[int, int]]:
    rows = (
        tables.at("ledger")
        .rows(
            ["dimension", "offered", "kept"],
            subject=stream, batch=batch, stage="sifters", dimension_kind="query", unit="rows",
        )
        .to_pylist()
    )  # fmt: skip
    return {row["dimension"]: (row["offered"], row["kept"]) for row in rows}


def _pct(value: float | None) -> float | None:
    return None if value is None else 100.0 * value

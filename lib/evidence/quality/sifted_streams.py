"""Queries over sifted streams with known truth: check intervals and the coverage of windows.

A stream of a few sites is sifted by random queries, at a random rate, with and without a sample of every region.
Windows cut batches and the counts of rows by time. The truth is computed from the rows as they were delivered.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import numpy as np

from evidence.attributes.lake import ENGINE, Lake
from spillway.contracts import read_channel, read_stream, read_workload
from spillway.contracts.workload import Workload
from spillway.pipeline.run import run_channel
from spillway.store import blobs
from spillway.workloads.run import run_workloads

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
SITES = 5
MOST = 100.0
"""Upper end of the range rule of `level`; `flow` has no rule."""
WINDOW_SECONDS = 300.0
WINDOWS = 3
CUTS = (20, 50, 80)
STATEMENTS: Mapping[str, str] = {
    "everything": "SELECT count(*) AS n, sum(level) AS s, avg(level) AS m FROM meters",
    "some": "SELECT count(*) AS n, sum(level) AS s, avg(level) AS m FROM meters WHERE load >= 50",
    "by_site": "SELECT site, count(*) AS n, sum(level) AS s, avg(level) AS m FROM meters GROUP BY site",
    "unknown": "SELECT count(*) AS n, sum(flow) AS s, avg(flow) AS m FROM meters WHERE load < 80",
}
Row = Mapping[str, Any]


@dataclass(frozen=True)
class SiftedLake:
    """A lake with a sifted stream, and the rows as they were delivered."""

    lake: Lake
    rows: Sequence[Row]
    refused: Sequence[Row] = ()

    def window(self, number: int, seconds: float = WINDOW_SECONDS) -> list[Row]:
        """Return the accepted rows of a window, by its number since 1970."""
        return [row for row in self.rows if number == int(row["at"].timestamp() // seconds)]


@dataclass
class IntervalCounts:
    """Counts of intervals, of those that contain the truth, and the false claims."""

    intervals: int = 0
    held: int = 0
    false_claims: list[str] = field(default_factory=list)
    withheld: int = 0
    sic_errors: list[float] = field(default_factory=list)


def random_sifter(
    chance: np.random.Generator, marked_pct: float, share: float, rate: float
) -> dict[str, Any]:
    """Return a sifter that keeps about a share of the rows, by one to three random queries."""
    queries = []
    for _ in range(int(chance.integers(1, 4))):
        low = float(chance.integers(0, 90))
        queries.append({"where": f"load >= {low:g} and load < {low + float(chance.integers(5, 40)):g}"})
    return {
        "rows_per_second": share * rate,
        "queries": queries,
        "sample": {"marked_pct": marked_pct},
        "unqueried": str(chance.choice(["first", "by_region"])),
        "regions": int(chance.integers(1, 12)),
    }


def stream_of(
    sifter: Mapping[str, Any] | None, rate: float, behind: Sequence[Mapping[str, Any]] = ()
) -> dict[str, Any]:
    """Return the contract of a stream, sifted or sent whole; `behind`: levers after the sifter."""
    rule = [{"kind": "range", "least": 0, "most": MOST}]
    return {
        "stream": "meters",
        "channel": "wide",
        "source": {"path": "meters", "format": "json", "settle_seconds": 0},
        "rate": {"from": "declared", "tuples_per_second": rate},
        "levers": [*([] if sifter is None else [{"lever": "sifters", **sifter}]), *behind],
        "attributes": [
            {"name": "site", "type": "string", "role": "key", "nullable": False},
            {"name": "at", "type": "timestamp", "role": "order", "nullable": False},
            {"name": "load", "type": "double", "role": "measure"},
            {"name": "level", "type": "double", "role": "measure", "error_pct": 5.0, "rules": rule},
            {"name": "flow", "type": "double", "role": "measure"},
        ],
    }


def meter_rows(chance: np.random.Generator, seconds: float, rows: int) -> list[dict[str, Any]]:
    """Return rows with drifting loads, correlated levels, and a heavy tail."""
    found = []
    for at in np.sort(chance.random(rows)) * seconds:
        load = float(np.clip(chance.normal(30 + 40 * at / seconds, 25), 0, 100))
        rare = chance.random() < 0.02
        found.append(
            {
                "site": f"s{min(SITES - 1, int(chance.geometric(0.4)) - 1)}",
                "at": BEGIN + timedelta(milliseconds=round(1000 * at)),
                "load": round(load, 2),
                "level": MOST if rare else round(float(chance.random() * load), 3),
                "flow": round(float(chance.standard_cauchy()), 3),
            }
        )
    return found


def meters_lake(
    name: str,
    sifter: Mapping[str, Any] | None,
    batches: Sequence[Sequence[Row]],
    rate: float = 1.0,
    declared: Mapping[str, Workload] | None = None,
    behind: Sequence[Mapping[str, Any]] = (),
    minimize: str = "error",
) -> SiftedLake:
    """Send the stream in some batches through a wide channel.

    `declared`: queries that are known when it is sifted. `minimize`: of the channel; with `bytes`, levers behind the
    sifter round although everything fits.
    """
    contract = read_stream(stream_of(sifter, rate, behind))
    files = {"meters": {f"{BEGIN.date()}/0.json": _lines(batches[0])}}
    wide = {"wide": read_channel("wide", {"capacity": "1 Gbps", "minimize": minimize})}
    lake = Lake.land(name, {"meters": contract}, files, wide)
    lake = replace(lake, contracts=replace(lake.contracts, queries=dict(declared or {})))
    if contract.levers:
        lake.train()
    lake.send()
    for number, rows in enumerate(batches[1:], 1):
        deliver_rows(lake, f"{number}.json", rows)
    return SiftedLake(lake, [row for rows in batches for row in rows])


def sifted_lake(
    name: str,
    seed: int,
    marked_pct: float = 1.0,
    share: float = 0.4,
    declared: Mapping[str, Workload] | None = None,
    **sifter: Any,
) -> SiftedLake:
    """Return a stream of `WINDOWS` windows in a few batches, sifted at random; a last batch closes the windows."""
    chance = np.random.default_rng(seed)
    rows = meter_rows(chance, WINDOWS * WINDOW_SECONDS, int(chance.integers(600, 2500)))
    rate = len(rows) / (WINDOWS * WINDOW_SECONDS)
    edges = np.linspace(0, len(rows), int(chance.integers(2, 5))).astype(int)
    # enough rows that some are kept
    end = BEGIN + timedelta(seconds=(WINDOWS + 0.5) * WINDOW_SECONDS)
    last = [{**row, "at": end} for row in rows[:: max(1, len(rows) // 200)]]
    batches = [*(rows[low:high] for low, high in pairwise(edges)), last]
    settings = {**random_sifter(chance, marked_pct, share, rate), **sifter}
    return meters_lake(f"{name}-{seed}", settings, batches, rate, declared)


def _lines(rows: Sequence[Row]) -> bytes:
    return "".join(json.dumps({**row, "at": row["at"].isoformat()}) + "\n" for row in rows).encode()


def deliver_rows(lake: Lake, name: str, rows: Sequence[Row]) -> None:
    """Deliver a file and run its channel."""
    blobs.write_bytes(f"{lake.settings.landing}/meters/{BEGIN.date()}/{name}", _lines(rows))
    run_channel(lake.tables, ENGINE, lake.contracts, "wide", name)


def sifted_query(name: str, sql: str, seconds: float = WINDOW_SECONDS, **more: Any) -> Workload:
    """Return a query over the stream."""
    lever = {"lever": "quality", "sql": sql, **more}
    return read_workload(
        {"name": name, "inputs": ["meters"], "window": {"seconds": seconds}, "levers": [lever]}
    )


def truth_of(statement: str, rows: Sequence[Row]) -> dict[str | None, dict[str, float | None]]:
    """Return the true answer of a statement of `STATEMENTS`, by site if it groups by site."""
    value = "flow" if "flow" in statement else "level"
    if "load >= 50" in statement:
        rows = [row for row in rows if row["load"] >= 50]
    if "load < 80" in statement:
        rows = [row for row in rows if row["load"] < 80]
    groups: dict[str | None, list[Row]] = {} if "GROUP BY" in statement else {None: []}
    for row in rows:
        groups.setdefault(row["site"] if "GROUP BY" in statement else None, []).append(row)
    return {
        key: {
            "n": float(len(some)),
            "s": sum(row[value] for row in some) if some else None,
            "m": sum(row[value] for row in some) / len(some) if some else None,
        }
        for key, some in groups.items()
    }


def compare_query(
    sifted: SiftedLake, name: str, statement: str, held: IntervalCounts, **settings: Any
) -> None:
    """Compute a query over a sifted stream, and compare its answer with the truth."""
    lake = sifted.lake
    query = sifted_query(name, statement, **settings)
    run_workloads(lake.tables, ENGINE, replace(lake.contracts, queries={name: query}), [name])
    kept_by_window: dict[int, int] = {}
    for row in lake.tables.at("transmitted", "meters").rows(["at"]).to_pylist():
        number = int(row["at"].replace(tzinfo=UTC).timestamp() // WINDOW_SECONDS)
        kept_by_window[number] = kept_by_window.get(number, 0) + 1
    for row in lake.tables.at("coverage").rows(subject=name).to_pylist():
        true = len(sifted.window(row["window"]))
        if row["tuples_shed"] == 0:
            held.sic_errors.append(abs(row["sic"] - kept_by_window.get(row["window"], 0) / true))
        if row["sic"] >= 1.0 and row["tuples_kept"] < true:
            held.false_claims.append(
                f"{name}, window {row['window']}: complete with {row['tuples_kept']} of {true}"
            )
    for row in lake.tables.at("results", name).rows().to_pylist():
        truth = truth_of(statement, sifted.window(row["window"]))[row.get("site")]
        for measure, value in truth.items():
            _compare(held, f"{name}, window {row['window']}, {measure}", row, measure, value)


def _compare(held: IntervalCounts, where: str, row: Row, measure: str, truth: float | None) -> None:
    low, high = row[f"{measure}__low"], row[f"{measure}__high"]
    if low is None or high is None:
        held.withheld += 1
        if not row[f"{measure}__no_interval"]:
            held.false_claims.append(f"{where}: no interval, and no reason")
        return
    held.intervals += 1
    if truth is not None:
        slack = 1e-9 * max(1.0, abs(truth))
        within = low - slack <= truth <= high + slack
        held.held += within
        if low == high and not within:
            held.false_claims.append(f"{where}: exactly {low:g}, and the truth is {truth:g}")

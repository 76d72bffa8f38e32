"""Source information content (SIC) of random queries over sifted inputs, against exact propagation in fractions.

Two streams are sifted at random rates by random queries, the third numbers its tuples and has lost some. Random steps
filter, group, join and unite them, some of them read twice, some of them results of their own, in capacity groups that
may be too small. The produced tuples of a source are counted from the generated rows, the used ones by observing the
engine's reads. Propagated through the steps by eq. 3.3 (Fiscato 2012) in fractions, they must give the sic of every
result.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from evidence.attributes.lake import Lake
from evidence.quality.declared_graphs import (
    BEGIN,
    THREE,
    WINDOW_SECONDS,
    WINDOWS,
    StreamLake,
    WatchingEngine,
    asked_graph,
    declared_graph,
    declared_stream,
    random_rows,
)
from spillway.contracts import read_channel, read_stream
from spillway.engine import ProcessEngine
from spillway.levers.quality.coverage import OperatorNode, SourceNode, propagate
from spillway.levers.quality.sql_text import names_in
from spillway.pipeline.run import run_channel
from spillway.workloads.what_if import GroupReplay
from spillway.workloads.windows import pinned_windows

ROWS = (40, 200)
"""The range of the number of rows of a window."""
CLOSING = 25
"""Rows behind the last window: enough of them that a sifter keeps some."""


def sifted_three(seed: int) -> StreamLake:
    """Return a lake with three streams in one batch each, two of them sifted."""
    chance = np.random.default_rng(seed)
    produced: dict[tuple[str, int], int] = {}
    streams, files = {}, {}
    for name in THREE:
        streams[name] = read_stream({**declared_stream(name), "levers": _sifter(name, chance)})
        rows: list[dict[str, Any]] = []
        for window in range(WINDOWS + 1):
            count = int(chance.integers(*ROWS)) if window < WINDOWS else CLOSING
            produced[name, window] = count
            rows += random_rows(chance, name, window, count)
        sink = io.BytesIO()
        pq.write_table(pa.Table.from_pylist(rows), sink)
        files[name] = {f"{BEGIN.date()}/a.parquet": sink.getvalue()}
    wide = {"wide": read_channel("wide", {"capacity": "1 Gbps"})}
    lake = Lake.land(f"sic-{seed}", streams, files, wide)
    lake.train()
    run_channel(lake.tables, ProcessEngine(), lake.contracts, "wide", "sic")
    return StreamLake(lake, produced)


def _sifter(name: str, chance: np.random.Generator) -> list[dict[str, Any]]:
    if name == "third":
        return []
    low = int(chance.integers(0, 60))
    lever = {
        "lever": "sifters",
        "rows_per_second": float(chance.uniform(2, 9)),
        "queries": [{"where": f"v >= {low} and v < {low + int(chance.integers(5, 60))}"}],
        "sample": {"marked_pct": float(chance.choice([0.0, 1.0, 10.0]))},
    }
    return [lever]


def sic_errors(made: StreamLake, chance: np.random.Generator) -> list[float]:
    """Return the differences of a random query's results and coverage from exact propagation, window by window."""
    inputs, drawn = declared_graph(chance)
    steps: list[dict[str, Any]] = [{**step, "result": bool(chance.random() < 0.3)} for step in drawn]
    query = asked_graph(chance, inputs, steps)
    contracts = replace(made.lake.contracts, queries={"graph": query})
    errors = []
    for window in pinned_windows(made.lake.tables, contracts, query)[:WINDOWS]:
        watching = WatchingEngine()
        replay = GroupReplay(made.lake.tables, watching, contracts, "graph", {"graph": [window]})
        ((rows, told),) = replay.answers({"graph": query})["graph"].values()
        at = round((window.from_time - BEGIN).total_seconds() / WINDOW_SECONDS)
        sources = [
            SourceNode(name, name, n := made.produced[name, at], n - watching.read.get(name, 0))
            for name in inputs
        ]
        exact = exact_sic(sources, steps)
        errors.append(abs(told["sic"] - float(sum(exact.values()))))
        for result, sic in _carried(rows, exact).items():
            errors.append(abs(sic - float(exact[result])))
    return errors


def exact_sic(sources: Sequence[SourceNode], steps: Sequence[Mapping[str, Any]]) -> dict[str, Fraction]:
    """Return the information content that arrives at each result, in fractions; every reader of a step gets all of its
    rows."""
    reads = {
        step["name"]: [
            name
            for name in (*(one.name for one in sources), *(other["name"] for other in steps))
            if name in names_in(step["sql"]) and name != step["name"]
        ]
        for step in steps
    }
    readers: dict[str, list[str]] = {}
    for name, read in reads.items():
        for one in read:
            readers.setdefault(one, []).append(name)
    results = [step["name"] for step in steps if step["result"] or step["name"] not in readers]
    operators = []
    for name in (*(one.name for one in sources), *reads):
        edges = [f"{name}>{reader}" for reader in readers.get(name, ())]
        edges += [f"{name}>"] if name in results else []
        into = tuple(f"{one}>{name}" for one in reads[name]) if name in reads else (name,)
        operators.append(OperatorNode(f"out of {name}", into, dict.fromkeys(edges, 1)))
    found = propagate(sources, operators).edges
    return {name: Fraction(found[f"{name}>"].total) for name in results}


def _carried(rows: pa.Table | None, exact: Mapping[str, Fraction]) -> dict[str, float]:
    """Return the total sic of the rows of each result that has rows."""
    found: dict[str, float] = {}
    for row in () if rows is None else rows.to_pylist():
        result = row.get("result_step") or next(iter(exact))
        found[result] = found.get(result, 0.0) + row["sic"]
    return found


def largest_sic_error(trials: int, lakes: int = 3) -> tuple[float, int]:
    """Return the largest error of random queries over sifted inputs, and the number of comparisons."""
    chance = np.random.default_rng(31)
    made = [sifted_three(seed) for seed in range(lakes)]
    errors: list[float] = []
    for trial in range(trials):
        errors += sic_errors(made[trial % lakes], chance)
    for one in made:
        one.lake.forget()
    return max(errors), len(errors)

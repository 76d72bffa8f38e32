"""The choice among partitioners of a sifter (`auto`) against always `demand`, and against dropping at random.

The stream is cut into consecutive folds. Regions are learned on one fold by the lever's own training, and the next fold
is sifted. The measure is the error at capacity: the share of the requested rows, by query weight, that is lost if all
contestants keep the same number of rows. It is a sum over rows, so slices of the sifted folds are the blocks of the
interval.
"""

from __future__ import annotations

import csv
import gzip
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from demo.landing import package_file
from evidence.adaptive.gains import Contest
from evidence.adaptive.streams import slices
from evidence.sifters.queried_streams import (
    QueriedStream,
    flights,
    learn_and_sift,
    network,
    queried_stream,
    wanted_rows,
    weather,
)

THROTTLES = (0.1, 0.5)
FOLDS = 5
BLOCKS_A_FOLD = 5
ROWS_A_FOLD = 12_000


def stocks() -> QueriedStream:
    """Return the demo's quotes: desks that watch large moves, heavy trading and one share."""
    text = gzip.decompress(package_file("bokeh_sampledata", "_data/stocks.csv.gz").read_bytes()).decode()
    rows = sorted(csv.DictReader(text.splitlines()), key=lambda row: (row["Date"], row["Ticker"]))
    columns: dict[str, Any] = {"ticker": [row["Ticker"] for row in rows]}
    columns |= {
        name.lower(): [float(row[name]) for row in rows]
        for name in ("Open", "High", "Low", "Close", "Volume")
    }
    change = (np.array(columns["close"]) / np.array(columns["open"]) - 1.0) * 100.0
    columns["change_pct"] = change.tolist()
    queries = [
        {"where": "change_pct < -3", "weight": 5},
        {"where": "change_pct > 3", "weight": 3},
        {"where": "volume > 100000000", "weight": 2},
        {"where": "ticker = 'GOOG' and close > 500", "weight": 2},
        {"where": "ticker = 'IBM' and change_pct between 1 and 3", "weight": 1},
    ]
    numbers = [name for name in columns if name != "ticker"]
    return queried_stream("stocks", pa.table(columns), ("ticker",), queries, numbers)


STREAMS: Mapping[str, Callable[[], QueriedStream]] = {
    "weather": weather,
    "stocks": stocks,
    "network": network,
    "flights": flights,
}


def partition_contests(one: QueriedStream) -> list[Contest]:
    """Compare `auto` with `demand` and with random drops on one stream, by error and by CPU seconds of learning."""
    found = []
    for mechanism, unasked in (("partition", "first"), ("partition_by_region", "by_region")):
        lost, seconds = lost_by_block(one, unasked)
        found.append(Contest(mechanism, one.name, "share lost", "auto", lost))
        found.append(Contest(f"{mechanism}_cpu", one.name, "CPU seconds", "auto", seconds))
    return found


def lost_by_block(one: QueriedStream, unasked: str) -> tuple[dict[str, list[float]], dict[str, list[float]]]:
    """Return the share lost by contestant and block, and the CPU seconds of learning by contestant and fold."""
    base = one.contract.lever_settings("sifters")
    rows = one.rows.append_column("seq", pa.array(np.arange(one.rows.num_rows)))
    rows = rows.slice(0, min(rows.num_rows, ROWS_A_FOLD * (FOLDS + 1)))
    folds = [rows.slice(begin, end - begin) for begin, end in slices(rows.num_rows, FOLDS + 1)]
    lost: dict[str, list[float]] = {"auto": [], "demand": [], "random": []}
    seconds: dict[str, list[float]] = {"auto": [], "demand": []}
    rng = np.random.default_rng(1)
    for scheme in seconds:  # compile the kernels of both before either is timed
        learn_and_sift(
            one, replace(base, unasked=unasked, partition=scheme), folds[0], folds[1], THROTTLES[0]
        )
    for throttle in THROTTLES:
        for train, test in pairwise(folds):
            count = round(throttle * test.num_rows)
            drawn = rng.random(test.num_rows)
            worth: np.ndarray | None = None
            for scheme in ("auto", "demand"):
                settings = replace(base, unasked=unasked, partition=scheme)
                began = time.process_time()
                regions, kept = learn_and_sift(one, settings, train, test, throttle)
                seconds[scheme].append(time.process_time() - began)
                worth = worth_of_rows(regions.wanted, test)
                # all contestants keep the same number of rows: surplus rows are dropped, and missing ones added, at
                # random
                lost[scheme] += _blocks(worth, _first(drawn - kept, count))
            assert worth is not None, "two schemes were tried"
            lost["random"] += _blocks(worth, _first(drawn, count))
    return lost, seconds


def worth_of_rows(wanted: Any, rows: pa.Table) -> np.ndarray:
    """Return, for each row, its share of the answers of all queries, by weight."""
    wants = wanted_rows(wanted, rows)
    weights = np.array([query.weight for query, _ in wanted.queries])
    return np.asarray((weights / weights.sum() / np.maximum(1, wants.sum(axis=1))) @ wants)


def _first(order: np.ndarray, count: int) -> np.ndarray:
    kept = np.zeros(len(order), bool)
    kept[np.argsort(order, kind="stable")[:count]] = True
    return kept


def _blocks(worth: np.ndarray, kept: np.ndarray) -> list[float]:
    return [
        float(worth[begin:end][~kept[begin:end]].sum()) for begin, end in slices(len(worth), BLOCKS_A_FOLD)
    ]

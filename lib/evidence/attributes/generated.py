"""Generate streams like the nine sources of Table 4.1: the same attributes and cycle lengths, a few hundred cycles.

The original sources are not available. The generated data have the known properties of such data, with a fixed seed: a
level of each member's own, daily cycles, random walks, exact relations between a price, its change and its percentage,
skewed delays.

>>> miq = Source("average.miq.net", "internet", ("Router", "Response Time", "Packet Loss"), 50)
>>> made = generate_stream(miq, cycles=4, seed=1)
>>> made.rows.num_rows, made.contract.keys, made.contract.sheddable
(200, ('Router',), ('Response_Time', 'Packet_Loss'))
>>> list(made.files)
['2006-03-01/half.parquet', '2006-03-02/half.parquet']
"""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from evidence.golden.cells import read_csv
from spillway.contracts import StreamContract, read_stream
from spillway.contracts.column_names import reserved_names

Grid = npt.NDArray[np.float64]
TUPLES = 20_000
START = int(datetime(2006, 3, 1, tzinfo=UTC).timestamp())
TUPLES_PER_SECOND = 400.0


@dataclass(frozen=True)
class Source:
    """A row of Table 4.1: the key first, then the measures."""

    name: str
    domain: str
    attributes: tuple[str, ...]
    cycle: int


@dataclass(frozen=True)
class Generated:
    """A stream's contract, its tuples, and its landing files: two batch dates of whole cycles."""

    contract: StreamContract
    rows: pa.Table
    cycle: int

    @property
    def files(self) -> dict[str, bytes]:
        half = self.rows.num_rows // self.cycle // 2 * self.cycle
        parts = {"2006-03-01": self.rows.slice(0, half), "2006-03-02": self.rows.slice(half)}
        return {f"{day}/half.parquet": _parquet(rows) for day, rows in parts.items() if rows.num_rows}


def sources(directory: Path) -> list[Source]:
    """Return the nine sources of Table 4.1."""
    return [
        Source(
            row["source"].removeprefix("www.").partition("/")[0],
            row["domain"],
            tuple(row["attributes"].split("|")),
            int(row["window"]),
        )
        for row in read_csv(directory, "000_table4_1_sources.csv")
    ]


def generate_stream(source: Source, cycles: int | None = None, seed: int = 0) -> Generated:
    """Generate the stream of a source; `cycles` None: enough for about 20,000 tuples, at least 16."""
    rng = np.random.default_rng([seed, source.cycle])
    rounds = cycles or max(16, TUPLES // source.cycle)
    columns = _DOMAINS[source.domain](rng, rounds, source.cycle)
    key, *measures = source.attributes
    names = [f"{key.split()[0].lower()}-{k:04d}" for k in rng.permutation(source.cycle)]
    at = np.repeat(np.arange(rounds), source.cycle) * 60_000_000 + START * 1_000_000
    table = {
        key: pa.array(names * rounds),
        "polled_at": pa.array(at, pa.timestamp("us", tz="UTC")),
    }
    attributes = [
        {"name": _column(key), "field": key, "type": "string", "role": "key", "bits": 64, "nullable": False},
        {"name": "polled_at", "type": "timestamp", "role": "order", "nullable": False},
    ]
    for name in measures:
        if name == "Company Name":
            table[name] = pa.array([f"{one} Incorporated" for one in names] * rounds)
            attributes.append({"name": _column(name), "field": name, "type": "string", "bits": 256})
        else:
            table[name] = pa.array(columns[name].reshape(-1))
            attributes.append({"name": _column(name), "field": name, "type": "double", "bits": 32})
    contract = read_stream(
        {
            "stream": source.name.replace(".", "_").replace("-", "_"),
            "channel": "generated",
            "source": {"kind": "files", "format": "parquet"},
            "rate": {"from": "declared", "tuples_per_second": TUPLES_PER_SECOND},
            # the first of the two batches, and nothing of the second
            "levers": [
                {
                    "lever": "attributes",
                    "rank_by": "stddev",
                    "training": {"tuples": rounds // 2 * source.cycle},
                }
            ],
            "attributes": attributes,
        }
    )
    return Generated(contract, pa.table(table), source.cycle)


def _parquet(rows: pa.Table) -> bytes:
    sink = io.BytesIO()
    pq.write_table(rows, sink)
    return sink.getvalue()


def _column(name: str) -> str:
    """
    >>> _column("Net Change"), _column("Weight")
    ('Net_Change', 'Weight_')
    """
    column = name.replace(" ", "_")
    return f"{column}_" if column.lower() in reserved_names() else column


def _walk(rng: np.random.Generator, rounds: int, members: int, step: float, persistence: float = 1.0) -> Grid:
    """Return a random walk per member, or one that returns to 0."""
    state = rng.normal(0, step * 3, members)
    path = np.empty((rounds, members))
    for turn in range(rounds):
        state = persistence * state + rng.normal(0, step, members)
        path[turn] = state
    return path


def _sticky(rng: np.random.Generator, rounds: int, members: int, levels: list[float], change: float) -> Grid:
    """Return values of a few levels that stay for a while."""
    now = rng.choice(levels, members)
    path = np.empty((rounds, members))
    for turn in range(rounds):
        now = np.where(rng.random(members) < change, rng.choice(levels, members), now)
        path[turn] = now
    return path


def _weather(rng: np.random.Generator, rounds: int, members: int) -> dict[str, Grid]:
    """Return hourly values with a daily course; the sun rises a little earlier every day."""
    hour = np.arange(rounds)[:, None]
    day = np.sin(2 * np.pi * (hour - 9) / 24)
    temperature = rng.normal(60, 15, members) + 9 * day + _walk(rng, rounds, members, 0.7, 0.97)
    spread = np.abs(rng.normal(12, 4, members) + 6 * day + _walk(rng, rounds, members, 0.5, 0.97)) + 1
    inches = rng.normal(29.95, 0.12, members) + _walk(rng, rounds, members, 0.008, 0.995)
    wet = _sticky(rng, rounds, members, [0.0] * 18 + [0.01, 0.04], 0.05)
    return {
        "Temperature": np.rint(temperature),
        "Dew Point": np.rint(temperature - spread),
        "Humidity": np.clip(np.rint(100 - 2.6 * spread), 8, 100),
        "Sun Rise": np.rint(rng.uniform(350, 420, members) - hour // 24 * 1.5),
        "Sun Set": np.rint(rng.uniform(1080, 1150, members) + hour // 24 * 1.2),
        "Visibility": _sticky(rng, rounds, members, [10.0] * 8 + [7.0, 3.0], 0.03),
        "Barometer": np.round(inches, 2),
        "Pressure": np.round(inches * 33.8639, 1),
        "Wind": np.clip(np.rint(8 + _walk(rng, rounds, members, 1.2, 0.9)), 0, None),
        "Precipitation": wet,
        "UV Index": np.clip(np.rint(7 * day + rng.normal(0, 0.4, members)), 0, None),
    }


def _stock(rng: np.random.Generator, rounds: int, members: int) -> dict[str, Grid]:
    """Return quotes of consecutive trading days, 390 rounds each, and columns that follow exactly from the price."""
    start = np.exp(rng.normal(3.2, 0.8, members))
    price = np.round(start * np.exp(_walk(rng, rounds, members, 0.0012)), 2)
    before = price[np.maximum(np.arange(rounds) // 390 * 390 - 1, 0)]
    change = np.round(price - before, 2)
    traded = np.cumsum(np.rint(rng.gamma(0.6, 900, (rounds, members))) * 100, axis=0)
    capital = np.round(price * np.rint(np.exp(rng.normal(5, 1, members))), 2)
    index = np.round(1680 * np.exp(np.cumsum(rng.normal(0, 0.0004, rounds))), 2)
    tick = np.where(price < 10, 0.01, 0.05)
    return {
        "Last Sale": price,
        "Last Price": price,
        "Last Done": price,
        "Net Change": change,
        "Change": change,
        "Percentage Change": np.round(100 * change / before, 2),
        "Share Volume": traded,
        "Volume": traded,
        "Nasdaq100 Index": np.repeat(index[:, None], members, axis=1),
        "Market Cap": capital,
        "Weight": np.round(100 * capital / capital.sum(axis=1, keepdims=True), 3),
        "Buy": np.round(price - tick, 2),
        "Sell": np.round(price + tick, 2),
    }


def _internet(rng: np.random.Generator, rounds: int, members: int) -> dict[str, Grid]:
    """Return delays with a level of their own, a slow load and bursts; losses are rare."""
    level = rng.gamma(4, 25, members)
    load = np.abs(_walk(rng, rounds, members, 0.04, 0.97))
    burst = np.where(rng.random((rounds, members)) < 0.03, rng.gamma(1.5, 0.5, (rounds, members)), 0)
    jitter = rng.gamma(2, 0.02, (rounds, members))
    mean = np.rint(level * (1.1 + load + burst + jitter))
    least = np.rint(level * (1 + 0.3 * load))
    most = np.rint(mean * (1.15 + rng.gamma(1.5, 0.1, (rounds, members)) + burst))
    loss = np.where(rng.random((rounds, members)) < 0.04, np.rint(rng.gamma(1.2, 4, (rounds, members))), 0)
    return {
        "Current Index": np.clip(np.rint(100 - mean / 8 - 2 * loss), 0, 100),
        "Response Time": mean,
        "Average Delay": mean,
        "Mean": mean,
        "Packet Loss": loss,
        "Loss": loss,
        "Maximum Delay": most,
        "Max": most,
        "Minimum Delay": least,
        "Min": least,
        "StdDev": np.round((most - least) / 3.5, 1),
    }


_DOMAINS: dict[str, Callable[[np.random.Generator, int, int], dict[str, Grid]]] = {
    "weather": _weather,
    "stock": _stock,
    "internet": _internet,
}

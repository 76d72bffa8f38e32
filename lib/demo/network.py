"""48 routers polled in fixed order once a minute over three working days, generated from a stated seed, as Parquet.

Delay follows load: a diurnal swell around early afternoon, noise that remembers (autoregressive), and bursts, in
which queues fill, delays multiply and packets are lost. Some polls are missed, one router is out for 40
minutes, some answers are sent twice, and the loss of an unanswered probe is null. Every value is rounded as a
poller would, which also makes the files the same on every machine. `polled_at` is the start of the round.
"""

from __future__ import annotations

import io
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

SEED = 20060501
ROUTERS = 48
POLLS_A_DAY = 417
FILES_A_DAY = 4
DAYS = ("2024-03-04", "2024-03-05", "2024-03-06")
POLL_SECONDS = 60
SCHEMA = pa.schema(
    [
        ("router", pa.string()),
        ("polled_at", pa.timestamp("ms", tz="UTC")),
        ("response_time_ms", pa.float64()),
        ("packet_loss_pct", pa.float64()),
        ("minimum_delay_ms", pa.float64()),
        ("average_delay_ms", pa.float64()),
        ("maximum_delay_ms", pa.float64()),
        ("current_index", pa.int32()),
        ("mtu_bytes", pa.int32()),
    ]
)
_Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class _Day:
    """One day's polls: arrays of polls by routers."""

    delays: dict[str, _Floats]
    loss: _Floats
    lost_probe: npt.NDArray[np.bool_]
    index: npt.NDArray[np.int64]
    mtu: npt.NDArray[np.int64]
    times_sent: npt.NDArray[np.int64]


def network_files() -> dict[str, bytes]:
    """Return the landing files by name, defects included."""
    random = np.random.Generator(np.random.PCG64(SEED))
    base = np.round(random.gamma(4.0, 9.0, ROUTERS) + 4.0, 1)
    files: dict[str, bytes] = {}
    for number, day in enumerate(DAYS):
        table = _table(day, _simulate(random, base, number))
        edges = np.linspace(0, table.num_rows, FILES_A_DAY + 1).astype(int)
        for part in range(FILES_A_DAY):
            piece = table.slice(edges[part], edges[part + 1] - edges[part])
            files[f"{day}/polls-{part + 1}.parquet"] = _parquet(_plant(piece, number, part))
    files |= _bad_files(files)
    return dict(sorted(files.items()))


def _simulate(random: np.random.Generator, base: _Floats, day: int) -> _Day:
    shape = (POLLS_A_DAY, ROUTERS)
    minutes = np.arange(POLLS_A_DAY)[:, None]
    swell = 0.35 * np.sin(np.pi * (minutes - 30) / 600) ** 2  # from 08:00 on, highest around 13:30
    noise = np.zeros(shape)
    shocks = random.normal(0.0, 0.02, shape)
    for poll in range(1, POLLS_A_DAY):
        noise[poll] = 0.92 * noise[poll - 1] + shocks[poll]
    burst = np.zeros(shape)
    for _ in range(70):
        router, start, length = random.integers(ROUTERS), random.integers(POLLS_A_DAY), random.integers(3, 25)
        height = random.gamma(2.0, 0.9)
        rise = height * np.hanning(length + 2)[1:-1][: POLLS_A_DAY - start]
        burst[start : start + len(rise), router] += rise
    load = np.maximum(1.0 + swell + noise, 0.6)
    minimum = base * (0.96 + 0.1 * swell) + np.round(random.exponential(0.15, shape), 2)
    average = base * load * (1.0 + burst)
    maximum = average * (1.1 + 0.5 * burst) + random.gamma(1.5, 1.2, shape)
    response = average + base * 0.25 * (1.0 + burst) + random.normal(0.0, 0.3, shape)
    loss = np.round(np.clip(burst - 0.6, 0.0, 8.0) * 6.0 * random.random(shape), 1)
    index = np.clip(100 - np.round(40 * (load - 1.0) + 25 * burst), 0, 100).astype(np.int64)
    mtu = np.full(shape, 1500, dtype=np.int64)
    mtu[:, 7::12] = 9000
    mtu[:, 30] = 1492 if day else 1500  # reconfigured over the first night
    times_sent = np.ones(shape, dtype=np.int64)
    times_sent[random.random(shape) < 0.003] = 0
    times_sent[random.random(shape) < 0.0007] = 2
    if day == 1:
        times_sent[200:240, 17] = 0
    delays = {
        "minimum_delay_ms": np.minimum(minimum, average),
        "average_delay_ms": average,
        "maximum_delay_ms": np.maximum(maximum, average),
        "response_time_ms": np.maximum(response, average),
    }
    return _Day(delays, np.minimum(loss, 100.0), random.random(shape) < 0.002, index, mtu, times_sent)


def _table(day: str, polls: _Day) -> pa.Table:
    start = datetime.fromisoformat(f"{day}T08:00:00").replace(tzinfo=UTC)
    repeat = polls.times_sent.ravel()
    order = np.repeat(np.arange(repeat.size), repeat)
    poll, router = order // ROUTERS, order % ROUTERS
    rounds = [start + timedelta(seconds=POLL_SECONDS * n) for n in range(POLLS_A_DAY)]
    columns: dict[str, Any] = {
        "router": [f"r{n + 1:02d}" for n in router.tolist()],
        "polled_at": [rounds[n] for n in poll.tolist()],
        "packet_loss_pct": pa.array(polls.loss.ravel()[order], mask=polls.lost_probe.ravel()[order]),
        "current_index": polls.index.ravel()[order],
        "mtu_bytes": polls.mtu.ravel()[order],
    }
    columns |= {name: np.round(values.ravel()[order], 1) for name, values in polls.delays.items()}
    return pa.table({name: columns[name] for name in SCHEMA.names}, schema=SCHEMA)


def _plant(piece: pa.Table, day: int, part: int) -> pa.Table:
    rows = piece.to_pylist()
    for row, name, value in DEFECTS.get((day, part), ()):
        rows.insert(row - 1, {**rows[row - 1], name: value})
    return pa.Table.from_pylist(rows, schema=SCHEMA)


def _bad_files(files: dict[str, bytes]) -> dict[str, bytes]:
    good = pq.read_table(io.BytesIO(files["2024-03-05/polls-1.parquet"])).slice(0, 200)
    as_text = good.column("response_time_ms").cast(pa.string())
    at = SCHEMA.get_field_index("response_time_ms")
    return {
        "2024-03-04/polls-4_again.parquet": files["2024-03-04/polls-4.parquet"],
        "2024-03-05/polls-5.parquet": files["2024-03-05/polls-4.parquet"][:20_000],
        "2024-03-05/polls-6.parquet": _parquet(good.set_column(at, "response_time_ms", as_text)),
        "2024-03-06/polls-5.parquet": b"",
        "2024-03-06/polls-6.parquet": _parquet(
            good.append_column("jitter_ms", good.column("minimum_delay_ms"))
        ),
    }


def _parquet(table: pa.Table) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table, sink, compression="zstd", coerce_timestamps="ms", store_schema=False)
    return sink.getvalue()


DEFECTS: dict[tuple[int, int], list[tuple[int, str, float | None]]] = {
    (0, 1): [(1200, "router", None), (1201, "polled_at", None)],
    (1, 2): [(77, "response_time_ms", float("nan"))],
    (2, 0): [(4000, "maximum_delay_ms", float("inf")), (4500, "router", None)],
}
"""By day and file (from 0): row number, and the attribute that is spoiled in a copy of the row put there."""

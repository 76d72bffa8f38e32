"""Count zeros that were recovered as other values, and inexact values that are no quantity: both counts must be 0.

The values of `raw` and `recovered` are compared one by one, without the product's bounds, models or certificates. Text,
booleans, dates and timestamps are no quantity, by their type. Numbers that name things are listed here
(`NAMES_THINGS`); the product's own findings are not used. `room_sensors` is a stream that provokes both faults: sparse
power, rare motion, counts of a few people, statuses and times.

>>> from evidence.attributes.lake import Lake
>>> made = room_sensors(rounds=40)
>>> made.rows.num_rows, made.contract.sheddable[:3], len(made.files)
(1600, ('motion', 'people', 'power_w'), 2)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from evidence.attributes.generated import START, TUPLES_PER_SECOND, Generated
from evidence.attributes.lake import Lake
from evidence.book import Book
from spillway.contracts import read_stream

DEVICES, ROUNDS = 40, 400
NAMES_THINGS: Mapping[str, tuple[str, ...]] = {"rooms": ("http_status", "people"), "network": ("mtu_bytes",)}
"""By stream, the numbers that name things, or count so few that another number is another thing."""
ZERO_SWAPS, INEXACT = "attributes.zero_swaps", "attributes.inexact_non_quantities"


def room_sensors(rounds: int = ROUNDS, seed: int = 5) -> Generated:
    """Generate sensors of rooms, polled in turn."""
    rng = np.random.default_rng(seed)
    count = DEVICES * rounds
    at = np.repeat(np.arange(rounds), DEVICES) * 60_000_000 + START * 1_000_000
    names = [f"dev{device:03d}" for device in range(DEVICES)]
    drift = np.repeat(np.cumsum(rng.normal(0, 0.02, rounds)), DEVICES)
    statuses = [200, 200, 200, 200, 201, 204, 301, 302, 400, 401, 403, 404, 500, 502, 503]
    columns = {
        "device": pa.array(names * rounds),
        "at": _moments(at),
        "motion": pa.array(rng.random(count) < 0.15),
        "people": pa.array(np.where(rng.random(count) < 0.3, rng.poisson(1.5, count), 0)),
        "power_w": pa.array(np.where(rng.random(count) < 0.5, 0.0, np.round(rng.gamma(1.2, 80, count), 1))),
        "last_seen": _moments(at - rng.integers(0, 3 * 86_400 * 10**6, count)),
        "thermostat_setpoint": pa.array(np.round(np.tile(rng.normal(21, 1.5, DEVICES), rounds) + drift, 1)),
        "http_status": pa.array(rng.choice(statuses, count)),
    }
    types = {
        "motion": "boolean",
        "people": "integer",
        "last_seen": "timestamp",
        "http_status": "integer",
    }
    key = {"name": "device", "type": "string", "role": "key", "nullable": False}
    order = {"name": "at", "type": "timestamp", "role": "order", "nullable": False}
    measures = [{"name": name, "type": types.get(name, "double")} for name in list(columns)[2:]]
    contract = read_stream(
        {
            "stream": "rooms",
            "channel": "generated",
            "source": {"kind": "files", "format": "parquet"},
            "rate": {"from": "declared", "tuples_per_second": TUPLES_PER_SECOND},
            "attributes": [key, order, *measures],
        }
    )
    return Generated(contract, pa.table(columns), DEVICES)


def bound_violations(lake: Lake, stream: str, slug: str) -> dict[str, float]:
    """Return the two figures of one stream that was shed and recovered."""
    contract = lake.contracts.streams[stream]
    raw, given = lake.rows("raw", stream), lake.rows("recovered", stream)
    if not raw["seq"].equals(given["seq"]):
        raise ValueError(
            f"`recovered` of {stream} must have the tuples of raw, got others; recover all batches"
        )
    swaps = inexact = 0
    for attribute in contract.attributes:
        was, back = raw[attribute.name], given[attribute.name]
        if attribute.type in ("integer", "double"):
            zero, zero_back = (pc.fill_null(pc.equal(column, 0), False) for column in (was, back))
            swaps += _count(pc.xor(zero, zero_back))
        if attribute.type not in ("integer", "double") or attribute.name in NAMES_THINGS.get(stream, ()):
            differs = pc.fill_null(pc.not_equal(was, back), False)
            inexact += _count(pc.or_(differs, pc.xor(pc.is_null(was), pc.is_null(back))))
    return {f"{ZERO_SWAPS}.{slug}": swaps, f"{INEXACT}.{slug}": inexact}


def all_bound_violations(book: Book, figures: Mapping[str, float]) -> dict[str, float]:
    """Return the two figures over all streams, and write their table.

    >>> all_bound_violations(Book(lambda _: None), {f"{ZERO_SWAPS}.a": 1, f"{ZERO_SWAPS}.b": 2, f"{INEXACT}.a": 0})
    {'attributes.zero_swaps': 3, 'attributes.inexact_non_quantities': 0}
    """
    rows: list[tuple[Any, ...]] = []
    totals = dict.fromkeys((ZERO_SWAPS, INEXACT), 0.0)
    for name in figures:
        if name.startswith(f"{ZERO_SWAPS}."):
            slug = name.removeprefix(f"{ZERO_SWAPS}.")
            mine = [figures.get(f"{one}.{slug}", 0) for one in totals]
            rows.append((slug, *mine))
            totals = {one: totals[one] + value for one, value in zip(totals, mine, strict=True)}
    book.table(
        "What must never be given back as something else",
        ("stream", "zeros for values and values for zeros", "values of what is no quantity"),
        rows,
        [
            "Counted in raw and recovered tables, over all tuples; text, booleans, dates, timestamps and codes."
        ],
    )
    return {name: int(count) for name, count in totals.items()}


def _moments(microseconds: np.ndarray) -> pa.Array:
    return pa.array(microseconds, pa.timestamp("us", tz="UTC"))


def _count(flags: Any) -> int:
    return int(pc.sum(flags).as_py() or 0)

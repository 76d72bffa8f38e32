"""The files that the frozen lake is delivered, each row a function of its ordinal. Not a test.

Nothing here imports the product or other helpers of the tests: the inputs must stay the same when those change.
"""

from __future__ import annotations

import io
import json
import math
import os
import random
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

Row = dict[str, Any]
BEGIN = datetime(2026, 1, 1)
DELIVERED_AT = 1_767_312_000
"""Time of modification of each file, 2026-01-02T00:00Z."""
SEVERITIES = ("DEBUG", "INFO", "WARN", "ERROR", "FATAL")


def sites(first: int, count: int) -> list[Row]:
    """Return readings of six sites: a temperature, a linear function of it, a slow counter, a text, nulls."""
    rows = []
    for i in range(first, first + count):
        turn, site = divmod(i, 6)
        temp = round(40 + 9 * site + 6 * math.sin(turn / 9 + site) + 0.37 * math.sin(i * 1.7), 2)
        rows.append(
            {
                "site": f"site-{site}",
                "at": _moment(minutes=turn),
                "temp": None if i % 41 == 40 else temp,
                "level": None if i % 41 == 40 else round(temp * 1.8 + 32, 3),
                "pulses": None if i % 97 == 96 else 400 + 20 * (site % 3) + (i // 30) % 7,
                "sky": ("clear", "rain", 'söft "snow", ☃', "")[(turn // 5 + site) % 4],
            }
        )
    return rows


def meters(first: int, count: int, step_seconds: int = 30) -> list[Row]:
    """Return readings of four meters: a smooth power and a counter."""
    rows = []
    for i in range(first, first + count):
        turn, meter = divmod(i, 4)
        power = round(200 * (meter + 1) + 25 * math.sin(turn / 7), 1)
        at = _moment(seconds=step_seconds * turn)
        rows.append({"meter": f"m{meter}", "at": at, "power": power, "count": 10_000 + turn * (meter + 1)})
    return rows


def logs(first: int, count: int) -> list[Row]:
    """Return log lines of four hosts; later lines are slower."""
    rows = []
    for i in range(first, first + count):
        chance = random.Random(i)
        severity = chance.choices(SEVERITIES, (0.3, 0.5, 0.15, 0.04, 0.01))[0]
        latency = round((160 + i / 30) * (chance.random() + chance.random() + 2 * chance.random() ** 3), 2)
        rows.append(
            {
                "host": f"web-{i % 4}",
                "at": _moment(milliseconds=100 * i),
                "severity": None if i % 89 == 88 else severity,
                "latency": None if i % 97 == 96 else latency,
                "size": chance.randrange(200, 4000),
            }
        )
    return rows


def alarms(first: int, count: int, seed: int) -> list[Row]:
    """Return alarms with sets of tags, five a second."""
    rows = []
    for i in range(first, first + count):
        chance = random.Random(1_000_003 * seed + i)
        tags = sorted({f"t{chance.randrange(9)}" for _ in range(chance.randrange(5))})
        rows.append(
            {
                "site": f"s{i % 3}",
                "at": _moment(milliseconds=200 * i),
                "tags": " ".join(tags) or None,
                "level": 100.0 + chance.randrange(4),
                "urgency": chance.choice(("high", "low", None)),
            }
        )
    return rows


def awkward(first: int, count: int) -> list[str]:
    """Return JSON lines with text in several scripts and with odd keys."""
    lines = []
    for i in range(first, first + count):
        turn, site = divmod(i, 5)
        level = round(50 + 9 * site + 7 * math.sin(turn / 8 + site), 2)
        row = {
            "site": ("a", "b b", "ß☃", "d/d", "e=%41")[site],
            "at": (BEGIN + timedelta(seconds=turn)).isoformat(),  # on the clocks of the contract's zone
            "level": None if i % 37 == 36 else level,
            "twice": None if i % 37 == 36 else round(2 * level, 2),
            "count": 10 * site + turn % 11,
            "note": ("", 'said "so"', "слово, 語", "x" * 40)[(turn + site) % 4],
        }
        lines.append(json.dumps(row, ensure_ascii=False))
    return lines


BAD_LINES = (
    '{"site": "a", "at": "2026-01-03T00:00:00Z", "level": "warm"}',
    "no record at all",
    '{"site": null, "at": "2026-01-03T00:00:01Z"}',
    '{"site": "a", "at": "2026-01-03T00:00:02Z", "level": NaN}',
    '{"site": "a", "at": "2026-01-03T00:00:03Z", "count": 1.5}',
    '{"site": "a", "at": "2026-01-03T00:00:04Z", "unknown": 1}',
    '{"site": "a", "at": "yesterday"}',
    '{"site": "a", "at": "2026-01-03T00:00:05Z", "level": 1e999}',
    '["a", "2026-01-03T00:00:06Z"]',
    '{"site": "a", "at": "2026-01-03T00:00:07Z", "level": 1.0',
    "",
)
"""Lines that are rejected one by one: wrong types, no JSON, a null key, numbers that are not finite, unknown fields."""


def orders(first: int, count: int) -> bytes:
    """Return a CSV file with semicolons, decimal commas and its own names of columns."""
    lines = ["Shop;Day;Amount;Items;Paid"]
    for i in range(first, first + count):
        day = (BEGIN + timedelta(days=i // 3)).date()
        amount = f"{19 + 7 * (i % 11) + i / 100:.2f}".replace(".", ",")
        lines.append(
            f"shop {i % 3};{day};{amount};{'NULL' if i % 13 == 12 else i % 17};{'true' if i % 4 else 'false'}"
        )
    return _text(lines)


def first_day(landing: Path) -> None:
    """Deliver the files of the first run: streams are trained on them."""
    deliver = _deliverer(landing)
    deliver("sites/2026-01-01/a.json", _json(sites(0, 330)))
    deliver("meters/2026-01-01/a.csv", _csv(meters(0, 350)))
    deliver("classic/2026-01-01/a.json", _json(sites(0, 400), "sky"))
    deliver("watched/2026-01-01/a.parquet", _parquet(sites(0, 300)))
    deliver("logs/2026-01-01/a.json", _json(logs(0, 1500)))
    deliver("thinned/2026-01-01/a.json", _json(sites(0, 330)))
    deliver("crashing/2026-01-01/a.json", _json(sites(0, 100), "level", "pulses", "sky"))
    lines = awkward(0, 260)
    bad = _text([*lines[:100], *BAD_LINES, *lines[100:], lines[250], lines[251]])
    deliver("awkward/2026-01-01/a.json", bad)
    deliver("awkward/2026-01-01/again.json", bad)
    deliver("orders/2026-01-01/a.csv", orders(0, 90))
    deliver("polls/2026-01-01/a.csv", _csv(meters(0, 400, 120)))
    deliver("queued/2026-01-01/a.csv", _csv(meters(0, 120)))
    deliver("small/2026-01-01/a.json", _json(sites(0, 90), "pulses", "sky"))
    for seed, name in enumerate(("east", "west")):
        deliver(f"{name}/2026-01-01/a.json", _json(alarms(0, 150, seed)))


def second_day(landing: Path) -> None:
    """Deliver more of the same date, the next date, one file twice, and files that are refused whole."""
    deliver = _deliverer(landing)
    deliver("sites/2026-01-01/b.json", _json(sites(330, 130)))
    deliver("sites/2026-01-01/again.json", _json(sites(0, 330)))
    deliver("sites/2026-01-02/c.json", _json(sites(460, 250)))
    deliver("meters/2026-01-01/b.csv", _csv(meters(350, 90)))
    deliver("classic/2026-01-02/b.json", _json(sites(400, 250), "sky"))
    deliver("watched/2026-01-02/b.parquet", _parquet(sites(300, 120)))
    deliver("logs/2026-01-01/b.json", _json(logs(1500, 900)))
    deliver("thinned/2026-01-01/b.json", _json(sites(330, 150)))
    deliver("crashing/2026-01-02/b.json", _json(sites(100, 60), "level", "pulses", "sky"))
    deliver("awkward/2026-01-02/b c=%20.json", _text(awkward(260, 120)))
    deliver("awkward/2026-01-02/empty.json", b"")
    deliver("orders/2026-01-02/bad.csv", orders(90, 20).replace(b"shop 1", b"shop 1;more"))
    deliver("orders/2026-01-02/good.csv", orders(110, 40))
    deliver("watched/2026-01-02/cut.parquet", _parquet(sites(420, 60))[:-40])
    deliver("polls/2026-01-02/a.csv", _csv(meters(2880, 2400, 30)))
    deliver("small/2026-01-02/b.json", _json([*sites(90, 60), *sites(30, 10)], "pulses", "sky"))
    for seed, name in enumerate(("east", "west")):
        deliver(f"{name}/2026-01-02/b.json", _json(alarms(150, 150, seed)))


def third_day(landing: Path) -> None:
    """Deliver what runs of the third day take in."""
    deliver = _deliverer(landing)
    windy = [{**row, "wind": round(5 + 3 * math.sin(i / 20), 1)} for i, row in enumerate(sites(710, 200))]
    deliver("sites/2026-01-03/d.json", _json(windy))
    deliver("meters/2026-01-03/c.csv", _csv(meters(440, 160)))
    deliver("crashing/2026-01-03/c.json", _json(sites(160, 60), "level", "pulses", "sky"))
    deliver("polls/2026-01-03/a.csv", _csv(meters(5760, 120, 120)))
    deliver("small/2026-01-03/c.json", _json(sites(150, 60), "pulses", "sky"))
    for seed, name in enumerate(("east", "west")):
        deliver(f"{name}/2026-01-03/c.json", _json(alarms(300, 60, seed)))


def _deliverer(landing: Path) -> Callable[[str, bytes], None]:
    def deliver(name: str, content: bytes) -> None:
        path = landing / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        os.utime(path, (DELIVERED_AT, DELIVERED_AT))

    return deliver


def _moment(**after: float) -> str:
    return (BEGIN + timedelta(**after)).isoformat() + "Z"


def _text(lines: Sequence[str]) -> bytes:
    return ("\n".join(lines) + "\n").encode()


def _json(rows: Sequence[Mapping[str, Any]], *without: str) -> bytes:
    kept = [{name: value for name, value in row.items() if name not in without} for row in rows]
    return _text([json.dumps(row, ensure_ascii=False) for row in kept])


def _csv(rows: Sequence[Mapping[str, Any]]) -> bytes:
    return _text([",".join(rows[0]), *(",".join(map(str, row.values())) for row in rows)])


def _parquet(rows: Sequence[Mapping[str, Any]]) -> bytes:
    sink = io.BytesIO()
    pq.write_table(
        pa.Table.from_pylist([{**row, "at": datetime.fromisoformat(row["at"])} for row in rows]), sink
    )
    return sink.getvalue()

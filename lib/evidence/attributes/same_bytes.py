"""Compare this revision with the one before encodings were chosen by bytes, at the same absolute capacities.

The product's own steps train every stream and send it to a separate destination, as in `at_capacity`, with two
differences. The capacity is a share of *all* bytes that the old revision offered: files, footers, log and metadata of
the batch. The attributes that are always sent count too. `before_encodings.csv` holds the bytes and losses of the old
revision. To measure the old revision again, run

    git worktree add ../old 24a2db8
    SPILLWAY_HOME=../old PYTHONPATH=../old/lib python -P lib/evidence/attributes/same_bytes.py --revision 24a2db8

The error is that of `at_capacity`: the mean relative error in %, averaged over the measures that may be inexact. An
absent value counts 100.
"""

from __future__ import annotations

import argparse
import csv
import io
import math
import time
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa
import pyarrow.csv as pv

from demo.data import STREAMS
from evidence.attributes.at_capacity import Trial
from evidence.attributes.generated import generate_stream, sources
from evidence.attributes.lab import Lab
from evidence.attributes.lake import Lake
from evidence.attributes.real_streams import TRIED_REAL, real_stream
from evidence.attributes.variants import with_settings, with_thesis_ranking
from evidence.book import Book, Shown
from spillway.contracts import StreamContract, load_contracts, read_channel
from spillway.errors import InvalidValue
from spillway.levers.attributes.policy import own_settings
from spillway.levers.protocol import OVERHEAD
from spillway.settings import Settings

CAPACITIES_PCT = (90, 75, 50, 25)
"""Shares of all bytes that the old revision offered, batch by batch."""
SYNOPSES = ("auto", "hold")
"""`auto`: the plan decides which synopses are sent; `hold`: no synopsis is sent."""
CLASSES = ("seq", "time", "key", "measures", "other")
BEFORE = Path(__file__).with_name("before_encodings.csv")
CHANNEL, TRAINED_AT = "generated", 0.6
"""In both revisions the channel in training has this share of the bytes of the old revision's densest batch."""
OFFERED_BYTES, CHANNEL_BYTES = "offered_bytes.batch_", "channel_bytes.batch_"
LEVER = "attributes"
REMEASURE = "measure the old revision again (see `evidence.attributes.same_bytes`)"
SHOWN = ("offered_bytes", "bytes_per_row", "fixed_bytes_per_file", "fixed_bytes_per_batch", "error_pct", "absent_pct",
         "over_capacity_pct")  # fmt: skip
ROUNDING = 1e-9
Pair = tuple[Mapping[str, float], Mapping[str, float]]
"""Figures before and after."""
Landed = tuple[StreamContract, Mapping[str, bytes]]


@dataclass(frozen=True)
class EarlierFigures:
    """The figures of the old revision on one stream."""

    figures: Mapping[str, float]

    @property
    def offered_bytes(self) -> dict[int, float]:
        """Return all offered bytes by batch."""
        return self.by_batch(OFFERED_BYTES)

    def by_batch(self, start: str) -> dict[int, float]:
        """Return the figures whose names are `start` and a batch's number."""
        return {int(k.removeprefix(start)): v for k, v in self.figures.items() if k.startswith(start)}


class SameBytes(Trial):
    """A trained stream that is sent through shares of the given bytes, by default of its own offered bytes."""

    def __init__(self, lab: Lab, offered_bytes: Mapping[int, float] | None) -> None:
        super().__init__(lab)
        self.offered_bytes = dict(self.sent_whole.crossed_bytes) if offered_bytes is None else offered_bytes

    def kbps(self, capacity_pct: float) -> dict[int, float]:
        return {
            batch: size * capacity_pct / 100.0 * 8.0 / 1000.0 / self.seconds[batch]
            for batch, size in self.offered_bytes.items()
        }


def evidence_streams(settings: Settings) -> Iterator[tuple[str, Landed]]:
    """Yield name, contract and landing files of every stream: the demo's, real ones, some shaped like Table 4.1."""
    contracts = load_contracts(settings.schemas)
    for name, make in STREAMS.items():
        contract = contracts.streams[name]
        if LEVER in contract.lever_names:
            alone = tuple(one for one in contract.levers if one.lever == LEVER)
            files = _in_thirds(make()) if name == "weather" else make()
            yield name, (with_thesis_ranking(replace(contract, levers=alone)), files)
    for name in TRIED_REAL:
        made = real_stream(name)
        yield name, (made.contract, made.files)
    for source in sources(Path(settings.home, "tests", "golden")):
        made = generate_stream(source)
        yield f"generated.{made.contract.stream}", (made.contract, made.files)


def _in_thirds(files: Mapping[str, bytes]) -> dict[str, bytes]:
    """Return the twelve monthly files in three batches, as the old revision delivered them."""
    ends = ("2013-04-30", "2013-08-31", "2013-12-31")
    return {
        f"{next(end for end in ends if name[:10] <= end)}/{name.partition('/')[2]}": content
        for name, content in files.items()
    }


def measure(landed: Landed, before: EarlierFigures | None = None) -> dict[str, float]:
    """Return the figures of one stream.

    Capacities are shares of the bytes that the old revision offered, or of the stream's own bytes without `before`.
    """
    contract, files = landed
    name = contract.stream
    lake = Lake.land(f"same-bytes-{name}", {name: replace(contract, channel=CHANNEL)}, {name: files})
    lake = replace(lake, settings=replace(lake.settings, destination=f"memory://there-{name}"))
    rows = lake.rows("raw", name)
    found: dict[str, float] = {"rows": rows.num_rows, "rows_crc32": _checksum(rows.select(contract.names))}
    _require_equal(name, "rows", before, found)
    seconds = {batch.batch: batch.seconds_covered or 0.0 for batch in lake.batches(name)}
    if before is None:
        rate, densest = max(
            (load.rate_kbps, batch.batch)
            for load, batch in zip(lake.loads(name), lake.batches(name), strict=True)
        )
        channel = {densest: rate * 1000.0 / 8.0 * seconds[densest] * TRAINED_AT}
    else:
        channel = before.by_batch(CHANNEL_BYTES)
    ((number, size),) = channel.items()
    kbps = size * 8.0 / 1000.0 / seconds[number]
    lake = lake.with_channels({CHANNEL: read_channel(CHANNEL, {"capacity": f"{kbps!r} kbps"})})
    lake = lake.with_contract(_trained_on_whole_batches(lake, name))
    lake.train()
    lake.shed()
    trial = SameBytes(Lab(lake, name), None if before is None else before.offered_bytes)
    inexact = {"measures": float(len(trial.measures))}
    _require_equal(name, "number of measures that may be inexact", before, inexact)
    found |= {f"{CHANNEL_BYTES}{number}": size, **inexact, **offered_bytes_figures(trial)}
    for synopsis in SYNOPSES:
        for capacity in CAPACITIES_PCT:
            one, place = trial.at(capacity, synopsis), f"{synopsis}.{capacity}"
            found[f"error_pct.{place}"] = one.error_pct
            found[f"absent_pct.{place}"] = one.absent_pct
            found[f"over_capacity_pct.{place}"] = one.over_pct
    lake.forget()
    return found


def _require_equal(stream: str, what: str, before: EarlierFigures | None, found: Mapping[str, float]) -> None:
    """Raise an error if both revisions do not measure the same."""
    if before is not None and any(before.figures[figure] != value for figure, value in found.items()):
        rule = f"have the {what} that the old revision was measured on"
        raise InvalidValue(f"stream {stream}", rule, dict(found), REMEASURE, BEFORE.name)


def offered_bytes_figures(trial: SameBytes) -> dict[str, float]:
    """Return the bytes if everything is sent: in total, per row by class of column, and fixed bytes."""
    whole, lab = trial.sent_whole, trial.lab
    contract, tables = lab.contract, lab.lake.tables
    rows = sum(batch.rows or 0 for batch in lab.batches)
    by_class = dict.fromkeys(CLASSES, 0)
    for sizes in whole.batch_bytes.values():
        for name, size in sizes.items():
            by_class[_class_of(contract, name)] += size
    files = [
        file
        for batch in lab.batches
        for file in tables.at("transmitted", lab.stream).files(batch_date=batch.batch_date, batch=batch.batch)
    ]
    columns, sizes_of_files = sum(by_class.values()), sum(file.size for file in files)
    crossed = sum(whole.crossed_bytes.values())
    return {
        "offered_bytes": crossed,
        **{f"{OFFERED_BYTES}{batch}": size for batch, size in sorted(whole.crossed_bytes.items())},
        **{f"bytes_per_row.{one}": size / rows for one, size in by_class.items()},
        "files": len(files),
        "fixed_bytes_per_file.footer": (sizes_of_files - columns) / len(files),
        "fixed_bytes_per_batch.log_and_metadata": (crossed - sizes_of_files) / len(whole.crossed_bytes),
    }


def read_earlier_figures(path: Path = BEFORE) -> dict[str, EarlierFigures]:
    """Return the figures of the old revision by stream."""
    found: dict[str, dict[str, float]] = {}
    with path.open(encoding="utf-8", newline="") as source:
        for row in csv.DictReader(source):
            found.setdefault(row["stream"], {})[row["figure"]] = float(row["value"])
    return {stream: EarlierFigures(figures) for stream, figures in found.items()}


def bytes_before_and_after(book: Book, settings: Settings, seeds: int = 20) -> dict[str, float]:
    """Return the figures of this revision next to the old one's, `bytes.before.<figure>.<stream>` and `bytes.after`."""
    book.section(
        "Before and after: encodings chosen by bytes",
        "Every stream is sent through shares of the bytes that the old revision offered (files, footers, log and "
        "metadata), so that both revisions have the same absolute capacities.",
    )
    old = read_earlier_figures()
    measured = {name: measure(landed, old[name]) for name, landed in evidence_streams(settings)}
    both = {name: (old[name].figures, after) for name, after in measured.items()}
    _tell_bytes(book, both)
    for synopsis in SYNOPSES:
        _tell_errors(book, synopsis, both)
    return summary_figures(both) | {
        f"bytes.{when}.{figure}.{name}": value
        for name, pair in both.items()
        for when, figures in zip(("before", "after"), pair, strict=True)
        for figure, value in figures.items()
        if figure.partition(".")[0] in SHOWN and ".batch_" not in figure
    }


def summary_figures(both: Mapping[str, Pair]) -> dict[str, float]:
    """Return the ratio of bytes after and before by stream, and the number of capacities with more and less error.

    A capacity that a batch exceeds buys less error, so such capacities are counted too, in both revisions.

    >>> old = {"offered_bytes": 200, "error_pct.auto.90": 1.0, "error_pct.auto.75": 5.0}
    >>> new = {"offered_bytes": 100, "error_pct.auto.90": 0.0, "error_pct.auto.75": 5.0}
    >>> summary_figures({"taxis": (old, new)})  # doctest: +NORMALIZE_WHITESPACE
    {'bytes.offered_over_before.taxis': 0.5, 'bytes.offered_over_before_mean': 0.5, 'bytes.capacities': 2,
     'bytes.capacities_with_more_error': 0, 'bytes.capacities_with_less_error': 1,
     'bytes.capacities_exceeded_before': 0, 'bytes.capacities_exceeded_after': 0}
    """
    ratios = {name: new["offered_bytes"] / old["offered_bytes"] for name, (old, new) in both.items()}
    errors = [
        (old[figure], new[figure])
        for old, new in both.values()
        for figure in old
        if figure.startswith("error_pct.")
    ]
    return {
        **{f"bytes.offered_over_before.{name}": ratio for name, ratio in ratios.items()},
        "bytes.offered_over_before_mean": math.exp(sum(map(math.log, ratios.values())) / len(ratios)),
        "bytes.capacities": len(errors),
        "bytes.capacities_with_more_error": sum(new > old + ROUNDING for old, new in errors),
        "bytes.capacities_with_less_error": sum(new < old - ROUNDING for old, new in errors),
        "bytes.capacities_exceeded_before": _exceeded([old for old, _ in both.values()]),
        "bytes.capacities_exceeded_after": _exceeded([new for _, new in both.values()]),
    }


def _exceeded(every: Sequence[Mapping[str, float]]) -> int:
    """Return the number of capacities that a batch of a stream exceeds."""
    return sum(
        value > ROUNDING
        for figures in every
        for name, value in figures.items()
        if name.startswith("over_capacity_pct.")
    )


def _tell_bytes(book: Book, both: Mapping[str, Pair]) -> None:
    classes = [f"bytes_per_row.{one}" for one in CLASSES]
    fixed = ["fixed_bytes_per_file.footer", "fixed_bytes_per_batch.log_and_metadata"]
    rows: list[Sequence[Shown]] = []
    for name, pair in both.items():
        for when, one in zip(("before", "after"), pair, strict=True):
            share = one["offered_bytes"] / pair[0]["offered_bytes"]
            rows.append(
                (
                    name,
                    when,
                    one["rows"],
                    *(one[place] for place in classes + fixed),
                    one["offered_bytes"],
                    share,
                )
            )
    book.table(
        "Bytes if everything is sent",
        ("stream", "", "rows", *(f"{one} / row" for one in CLASSES), "footer / file", "log, metadata / batch",
         "all bytes", "over before"),
        rows,
        [
            "`time` is the order attribute, `other` are protected attributes. The mean of the last column is "
            f"{summary_figures(both)['bytes.offered_over_before_mean']:.3f} (geometric)."
        ],
    )  # fmt: skip


def _tell_errors(book: Book, synopsis: str, both: Mapping[str, Pair]) -> None:
    places = [f"{synopsis}.{capacity}" for capacity in CAPACITIES_PCT]
    rows: list[Sequence[Shown]] = []
    for name, pair in both.items():
        for when, one in zip(("before", "after"), pair, strict=True):
            errors = [one[f"error_pct.{place}"] for place in places]
            over = [one[f"over_capacity_pct.{place}"] or None for place in places]
            rows.append((name, when, *errors, *over))
    book.table(
        f"Error in points at the same capacities, synopsis `{synopsis}`",
        ("stream", "", *(f"error at {one} %" for one in CAPACITIES_PCT),
         *(f"over capacity at {one} %, %" for one in CAPACITIES_PCT)),
        rows,
        [
            "Capacity: a share of all bytes that the old revision offered. `over capacity`: the largest excess of a "
            "batch over its capacity, if the attributes that are always sent and the fixed bytes do not fit."
        ],
    )  # fmt: skip


def _class_of(contract: StreamContract, name: str) -> str:
    if name in OVERHEAD:
        return "seq"
    role = next(one.role for one in contract.attributes if one.name == name)
    return {"key": "key", "order": "time", "measure": "measures"}.get(role, "other")


def _checksum(rows: pa.Table) -> int:
    sink = io.BytesIO()
    pv.write_csv(rows, sink)
    return zlib.crc32(sink.getvalue())


def _trained_on_whole_batches(lake: Lake, stream: str) -> StreamContract:
    """Return the contract with training on the first half of the batches, as the streams of Table 4.1 have it."""
    contract = lake.contracts.streams[stream]
    settings = own_settings(contract)
    batches = lake.batches(stream)
    tuples = sum(batch.rows or 0 for batch in batches[: max(1, len(batches) // 2)])
    return with_settings(contract, replace(settings, training=replace(settings.training, tuples=tuples)))


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure this revision and write it as `before_encodings.csv`."""
    parser = argparse.ArgumentParser(
        description="Measure the revision that PYTHONPATH names, as the one to compare with."
    )
    parser.add_argument(
        "--revision", required=True, help="the name of the revision, for the first column of the file"
    )
    parser.add_argument("--stream", action="append", help="only this stream; may repeat")
    parser.add_argument("--out", type=Path, default=BEFORE, help="the file (default: %(default)s)")
    given = parser.parse_args(arguments)
    with given.out.open("w", encoding="utf-8", newline="") as sink:
        rows = csv.writer(sink, lineterminator="\n")
        rows.writerow(("revision", "stream", "figure", "value"))
        for name, landed in evidence_streams(Settings.from_environment()):
            if given.stream is None or name in given.stream:
                began = time.process_time()
                figures = measure(landed)
                rows.writerows(
                    (given.revision, name, figure, f"{value:.12g}") for figure, value in figures.items()
                )
                sink.flush()
                print(f"{name}: {time.process_time() - began:.0f} CPU seconds", flush=True)


if __name__ == "__main__":
    main()

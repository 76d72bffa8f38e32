"""Schemes, run-length encoded over `seq`, and the table `schemes` that stores them.

A *scheme* says for every attribute whether it is kept, rounded or shed, and at which stage (1: shedding of the stream
itself, 2: of its channel; specs/attributes.md section 8). A *run* is a range of `seq` under one scheme. Code that
depends on the scheme of a row (kernels, sent rows, recovery) looks it up in the runs. The table `schemes` has the runs
of a stream, and the state from which its planner continues.

>>> ways = (AttributeTreatment("temp", "shed"), AttributeTreatment("visib", "keep"))
>>> kept = (AttributeTreatment("temp", "keep"), AttributeTreatment("visib", "keep"))
>>> runs = Runs((Run(0, 9, kept), Run(10, 19, ways)))
>>> runs.mask("temp", "shed", np.array([8, 9, 10, 19])).tolist()
[False, False, True, True]
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import numpy as np

from spillway.batch import SHOWN_BATCHES, Batch
from spillway.errors import InvalidExternalValue, InvalidValue
from spillway.levers.protocol import Views


@dataclass(frozen=True)
class AttributeTreatment:
    """The treatment of one attribute under a scheme, and the reason.

    `precision` is an index into the model's precisions if the attribute is shed, into its roundings if it is rounded,
    and 0 if it is kept.
    """

    attribute: str
    way: str = "keep"
    stage: int = 1
    predictor: str = ""
    reason: str = ""
    precision: int = 0
    """Index of the model's precision (of shedding) or rounding, the finest first."""
    sent: bool = False
    """Whether the synopsis of a shed attribute is sent with the batch."""

    @property
    def treatment(self) -> tuple[str, str, bool]:
        """Return attribute, treatment, and whether the synopsis is sent; without precision and stage."""
        return self.attribute, self.way, self.sent


def scheme_number(ways: Iterable[AttributeTreatment]) -> int:
    """Return the number of the scheme: equal schemes have equal numbers on every machine and in every run.

    It is a checksum (CRC-32) of the treatments other than `keep`. So a rerun, a backfill and two machines agree without
    a registry. The scheme that keeps everything is 0. Rows are resolved by `seq`, never by this number.

    >>> kept, shed = AttributeTreatment("a"), AttributeTreatment("a", "shed")
    >>> scheme_number([kept]), scheme_number([shed]) == scheme_number([shed, AttributeTreatment("b")])
    (0, True)
    """
    text = ";".join(_number_text(way) for way in ways if way.way != "keep")
    return zlib.crc32(text.encode()) if text else 0


def _number_text(way: AttributeTreatment) -> str:
    # the finest precision and held synopses are not written, so that older schemes keep their numbers
    text = f"{way.attribute}={way.way}@{way.stage}" + (f"/{way.precision}" if way.precision else "")
    return text + ("+" if way.sent else "")


@dataclass(frozen=True)
class Run:
    """A range of `seq` under one scheme, with the ranking and the numbers behind it."""

    from_seq: int
    to_seq: int
    ways: tuple[AttributeTreatment, ...]
    ranking: tuple[tuple[str, float, float], ...] = ()
    windows: int = 0
    evaluations: int = 0
    hits: int = -1
    rate_kbps: float = 0.0
    planned_kbps: float = 0.0
    capacity_kbps: float = 0.0
    shortfall_kbps: float = 0.0
    reason: str = ""
    loss: float = 0.0
    """The planned sum of weight x loss."""

    @property
    def scheme(self) -> int:
        return scheme_number(self.ways)

    def attributes_with(self, way: str) -> tuple[str, ...]:
        """Return the attributes that have this treatment."""
        return tuple(one.attribute for one in self.ways if one.way == way)


@dataclass(frozen=True)
class Runs:
    """Runs in `seq` order without overlaps."""

    runs: tuple[Run, ...]
    _from: np.ndarray = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        ordered = tuple(sorted(self.runs, key=lambda run: run.from_seq))
        object.__setattr__(self, "runs", ordered)
        object.__setattr__(self, "_from", np.array([run.from_seq for run in ordered], np.int64))
        for before, after in pairwise(ordered):
            if after.from_seq <= before.to_seq:
                raise InvalidValue(
                    "runs",
                    f"not overlap, as {after.from_seq}.. does",
                    (before.from_seq, before.to_seq),
                    "plan the batch again",
                )

    def __iter__(self) -> Any:
        return iter(self.runs)

    def __len__(self) -> int:
        return len(self.runs)

    def __add__(self, other: Runs) -> Runs:
        return Runs(self.runs + other.runs)

    def within(self, from_seq: int, to_seq: int) -> Runs:
        """Return the runs that overlap a range."""
        return Runs(tuple(run for run in self.runs if run.to_seq >= from_seq and run.from_seq <= to_seq))

    def index(self, seq: np.ndarray) -> np.ndarray:
        """Return the index of the run of every row; raise if a row has no run, because it could not be recovered."""
        if len(self.runs) == 1 and self.runs[0].from_seq <= seq.min() and seq.max() <= self.runs[0].to_seq:
            return np.zeros(len(seq), np.int64)
        at = np.searchsorted(self._from, seq, side="right") - 1
        ends = np.array([run.to_seq for run in self.runs], np.int64)
        outside = (
            (at < 0) | (seq > ends[np.maximum(at, 0)]) if len(self.runs) else np.ones(len(seq), np.bool_)
        )
        if bool(outside.any()):
            raise InvalidValue(
                "seq", "lie under a scheme", int(seq[int(np.argmax(outside))]), "shed its batch again"
            )
        return np.asarray(at)

    def mask(
        self, attribute: str, way: str, seq: np.ndarray, stage: int | None = None, sent: bool | None = None
    ) -> np.ndarray:
        """Return for each row whether the attribute has the treatment `way` (at `stage`, with synopsis `sent`)."""
        if not len(seq):
            return np.zeros(0, np.bool_)

        def fits(one: AttributeTreatment) -> bool:
            same = one.attribute == attribute and one.way == way
            return same and stage in (None, one.stage) and sent in (None, one.sent)

        flags = np.array([any(map(fits, run.ways)) for run in self.runs])
        return np.asarray(flags[self.index(seq)])

    def precision(self, attribute: str, way: str, seq: np.ndarray) -> np.ndarray:
        """Return for each row the index of the precision of the treatment `way`; 0 if the row has another treatment.

        >>> coarse, fine = AttributeTreatment("temp", "shed", precision=2), AttributeTreatment("temp", "shed")
        >>> runs = Runs((Run(0, 9, (coarse,)), Run(10, 19, (fine,))))
        >>> runs.precision("temp", "shed", np.array([8, 9, 10])).tolist()
        [2, 2, 0]
        """
        if not len(seq):
            return np.zeros(0, np.int64)
        found = [
            max((w.precision for w in run.ways if w.attribute == attribute and w.way == way), default=0)
            for run in self.runs
        ]
        return np.asarray(np.array(found, np.int64)[self.index(seq)])

    def attributes(self, way: str) -> tuple[str, ...]:
        """Return every attribute that has this treatment in any run, in contract order."""
        found: dict[str, None] = {}
        for run in self.runs:
            found.update(dict.fromkeys(run.attributes_with(way)))
        return tuple(found)

    def shed_attributes(self, sent: bool) -> tuple[str, ...]:
        """Return every attribute that is shed in any run and whose synopsis is sent (or held, if not `sent`)."""
        ways = (way for run in self.runs for way in run.ways if way.way == "shed" and way.sent == sent)
        return tuple(dict.fromkeys(way.attribute for way in ways))

    def treated_ranges(self, attribute: str, way: str) -> list[tuple[int, int]]:
        """Return the `seq` ranges in which the attribute has the treatment `way`; adjacent ranges are merged."""
        found: list[tuple[int, int]] = []
        for run in self.runs:
            if attribute not in run.attributes_with(way):
                continue
            if found and found[-1][1] + 1 == run.from_seq:
                found[-1] = (found[-1][0], run.to_seq)
            else:
                found.append((run.from_seq, run.to_seq))
        return found


def run_from_row(row: Mapping[str, Any]) -> Run:
    """Return the run of a row of `schemes`."""
    return Run(
        int(row["from_seq"]),
        int(row["to_seq"]),
        tuple(
            AttributeTreatment(
                w["attribute"],
                w["treatment"],
                int(w["stage"]),
                w["predictor"],
                w["reason"],
                int(w.get("precision") or 0),
                bool(w.get("sent")),
            )
            for w in row["attributes"]
        ),
        tuple((r["attribute"], float(r["score"]), float(r["width_bits"])) for r in row["ranking"]),
        int(row["windows"]),
        int(row["evaluations"]),
        int(row["hits"]),
        float(row["rate_kbps"]),
        float(row["planned_kbps"]),
        float(row["capacity_kbps"]),
        float(row["shortfall_kbps"]),
        row["reason"],
        float(row.get("loss") or 0.0),
    )


def run_to_row(run: Run) -> dict[str, Any]:
    """Return the columns of `schemes` that a run has."""
    return {
        "from_seq": run.from_seq,
        "to_seq": run.to_seq,
        "scheme": run.scheme,
        "attributes": [
            (w.attribute, w.way, w.stage, w.predictor, w.reason, w.precision, w.sent) for w in run.ways
        ],
        "ranking": [tuple(one) for one in run.ranking],
        "windows": run.windows,
        "evaluations": run.evaluations,
        "hits": run.hits,
        "rate_kbps": run.rate_kbps,
        "planned_kbps": run.planned_kbps,
        "capacity_kbps": run.capacity_kbps,
        "shortfall_kbps": run.shortfall_kbps,
        "reason": run.reason,
        "loss": run.loss,
    }


SCHEMES = "schemes"


def scheme_rows(tables: Views, stream: str, batches: Iterable[int] | None = None) -> list[dict[str, Any]]:
    """Return the rows of a stream (of some batches) in `seq` order."""
    where: dict[str, Any] = {"stream": stream}
    if batches is not None:
        where["batch"] = sorted(set(batches))
        if not where["batch"]:
            return []
    rows: list[dict[str, Any]] = tables.at(SCHEMES).rows(**where).to_pylist()
    return sorted(rows, key=lambda row: int(row["from_seq"]))


def last_batches(tables: Views, stream: str) -> range:
    """Return the numbers of the last batches, up to the newest that has runs; the report shows these."""
    newest = tables.at(SCHEMES).newest("batch", ["batch"], stream=stream)["batch"].to_pylist()
    last = newest[0] if newest else 0
    return range(max(1, last - SHOWN_BATCHES + 1), last + 1)


def load_runs(tables: Views, stream: str, batches: Iterable[int] | None = None) -> Runs:
    """Return the stream's runs over the batches."""
    return Runs(tuple(run_from_row(row) for row in scheme_rows(tables, stream, batches)))


def state_before(tables: Views, stream: str, batch: int) -> tuple[int, dict[str, Any] | None]:
    """Return the last batch before this one that has runs, and the planner's state at its end; else 0 and None."""
    columns = ["batch", "from_seq", "state"]
    rows = tables.at(SCHEMES).newest("batch", columns, below=batch, stream=stream).to_pylist()
    if not rows:
        return 0, None
    last = max(rows, key=lambda row: int(row["from_seq"]))
    try:
        return int(last["batch"]), json.loads(last["state"])
    except ValueError as problem:
        where = f"{stream}: schemes, batch {last['batch']}"
        raise InvalidExternalValue(
            "state", "be JSON", last["state"][:40], "shed its batch again", where
        ) from problem


def scheme_row(batch: Batch, number: int, run: Run, state: Mapping[str, Any]) -> dict[str, Any]:
    """Return a run as a row; all runs of a batch have the state at the end of the batch."""
    return {
        "stream": batch.stream,
        "batch": batch.batch,
        "batch_date": batch.batch_date,
        "run": number,
        "frame_origin": batch.frame_origin,
        "frame_tuples": batch.frame_tuples,
        "model_version": batch.models["attributes"],
        "state": json.dumps(state, sort_keys=True),
        **run_to_row(run),
    }


def destination_rows(batch: Batch, runs: Iterable[Run]) -> list[dict[str, Any]]:
    """Return the rows of a batch that the destination gets: without reasons, rankings, shortfall and state.

    The shortfall is known only after the size of the draft is measured.
    """
    return [
        scheme_row(
            batch,
            number,
            replace(
                run,
                ways=tuple(replace(way, reason="") for way in run.ways),
                ranking=(),
                shortfall_kbps=0.0,
                reason="",
            ),
            {},
        )
        for number, run in enumerate(runs)
    ]

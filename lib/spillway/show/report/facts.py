"""What the report shows of a stream, read from the tables without Spark.

Figures come from `spillway.show.summary`, which `build/run.json` uses too, so that the page and the file cannot
disagree. Long series are thinned to what a plot can show; nothing is averaged over.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from spillway.contracts import StreamContract
from spillway.settings import Settings
from spillway.show.summary import SENDING_STAGE, StreamFigures
from spillway.store.batches import RETIRED, Batch
from spillway.store.files import data_files, read_rows
from spillway.store.table_contracts import BOUND_SUFFIX, table_contracts
from spillway.store.tables import table_path

Row = Mapping[str, Any]
PLOTTED_TUPLES = 160
READ_TUPLES = 4000


@dataclass(frozen=True)
class Sample:
    """A stretch of one key's values: original, as recovered, and the bound of each recovered value."""

    attribute: str
    key: str
    unit: str
    seq: tuple[int, ...]
    original: tuple[float | None, ...]
    recovered: tuple[float | None, ...]
    bound_pct: tuple[float | None, ...]


@dataclass(frozen=True)
class ThresholdCurve:
    """The stored share of an attribute against its threshold, and the threshold chosen."""

    attribute: str
    points: tuple[tuple[float, float], ...]
    error_pct: float
    source: str


@dataclass(frozen=True)
class StreamFacts:
    """All the report says of a stream."""

    contract: StreamContract
    figures: StreamFigures
    batches: tuple[Batch, ...]
    schemes: tuple[Row, ...]
    ledger: tuple[Row, ...]
    certificates: tuple[Row, ...]
    curves: tuple[ThresholdCurve, ...]
    samples: tuple[Sample, ...]

    @property
    def windows(self) -> int:
        return sum(row["windows"] for row in self.schemes)

    @property
    def evaluations(self) -> int:
        return sum(row["evaluations"] for row in self.schemes)

    @property
    def hits(self) -> int | None:
        """Windows whose scheme a fresh evaluation would give; None where that was not measured."""
        measured = [row["hits"] for row in self.schemes if row["hits"] >= 0]
        return sum(measured) if measured and len(measured) == len(self.schemes) else None

    @property
    def misses(self) -> int | None:
        return None if self.hits is None else self.windows - self.hits

    @property
    def retired_bytes(self) -> int:
        """Bytes of raw that were deleted: what their batches took before shedding, less what stays of them."""
        gone = {batch.batch for batch in self.batches if batch.status == RETIRED}
        recorded = [row for row in self.ledger if row["stage"] == "retire"]
        if recorded:
            return sum(row["bytes_offered"] - row["bytes_kept"] for row in recorded)
        return sum(row["bytes_offered"] for row in self.sent if row["batch"] in gone)

    @property
    def sent(self) -> list[Row]:
        """The ledger's rows that say how many bytes there were, and how many went over the wire."""
        return [row for row in self.ledger if row["stage"] == SENDING_STAGE and row["unit"] == "rows"]

    @property
    def shortfall_kbps(self) -> float:
        return max((row["shortfall_kbps"] for row in self.schemes), default=0.0)


def threshold_curves(models: Sequence[Row]) -> Iterator[ThresholdCurve]:
    """The curves in the newest threshold facts."""
    newest = max((row["version"] for row in models), default=None)
    for row in sorted(models, key=lambda row: str(row["subject"])):
        if row["fact"] != "threshold" or row["version"] != newest:
            continue
        value, evidence = json.loads(row["value"]), json.loads(row["evidence"])
        drawn = evidence.get("curve", evidence)
        points = tuple(zip(drawn.get("error_pct", ()), drawn.get("stored_share_pct", ()), strict=True))
        if len(points) > 1:
            yield ThresholdCurve(
                row["subject"], points, float(value["error_pct"]), str(value.get("source", ""))
            )


def samples(
    settings: Settings, contract: StreamContract, schemes: Sequence[Row], attributes: Sequence[str]
) -> Iterator[Sample]:
    """The last stretch of recovered tuples that raw still has, for each shed attribute, for the busiest key."""
    tables = table_contracts(settings.schemas)
    raw_files = data_files(table_path(settings, tables["raw"], contract.stream))
    recovered_files = data_files(table_path(settings, tables["recovered"], contract.stream))
    last = min(
        (max((int(file.high("seq")) for file in files if file.high("seq") is not None), default=-1))
        for files in (raw_files, recovered_files)
    )
    for attribute in attributes:
        touched = [row for row in schemes if _way(row, attribute) == "shed" and row["from_seq"] <= last]
        if not touched:
            continue
        end = min(int(touched[-1]["to_seq"]), last)
        names = [*contract.keys, attribute]
        raw = read_rows(raw_files, names, end - READ_TUPLES, end)
        back = read_rows(recovered_files, [*names, attribute + BOUND_SUFFIX], end - READ_TUPLES, end)
        found = _sample(contract, attribute, raw, back)
        if found is not None:
            yield found


def _way(scheme: Row, attribute: str) -> str:
    return next((item["way"] for item in scheme["attributes"] if item["attribute"] == attribute), "keep")


def _sample(contract: StreamContract, attribute: str, raw: pa.Table, back: pa.Table) -> Sample | None:
    joined = raw.rename_columns([*raw.column_names[:-1], "original"]).join(
        back.select(["seq", attribute, attribute + BOUND_SUFFIX]), "seq", join_type="inner"
    )
    if joined.num_rows == 0 or not _numeric(joined.schema.field("original").type):
        return None
    joined = joined.sort_by("seq")
    if contract.keys:
        keys = pc.binary_join_element_wise(
            *(pc.cast(joined[name], pa.string()) for name in contract.keys), "/"
        )
        busiest = max(pc.value_counts(keys).to_pylist(), key=lambda pair: pair["counts"])["values"]
        joined = joined.filter(pc.equal(keys, busiest))
    else:
        busiest = contract.stream
    joined = joined.slice(max(joined.num_rows - PLOTTED_TUPLES, 0))
    return Sample(
        attribute,
        str(busiest),
        contract.attribute(attribute).unit or "",
        tuple(joined["seq"].to_pylist()),
        tuple(joined["original"].to_pylist()),
        tuple(joined[attribute].to_pylist()),
        tuple(joined[attribute + BOUND_SUFFIX].to_pylist()),
    )


def _numeric(kind: pa.DataType) -> bool:
    return bool(pa.types.is_floating(kind) or pa.types.is_integer(kind))

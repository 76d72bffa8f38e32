"""What `batches` says of all batches there are, told by columns: how many, how far, when; no batch is read whole."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, datetime

import pyarrow as pa
import pyarrow.compute as pc

from spillway.batch import DONE, RETIRED
from spillway.store.tables import Tables

_COLUMNS = (
    "stream", "batch", "batch_date", "status", "rows", "run_id", "created_at", "updated_at", "revision",
    "validated_revision",
)  # fmt: skip

RunTold = tuple[str, datetime, tuple[str, ...], int, int]
"""Its name, when it last began a batch, its streams, its batches, their tuples."""


@dataclass(frozen=True)
class Held:
    """The columns of every batch."""

    columns: pa.Table

    @staticmethod
    def of(tables: Tables) -> Held:
        return Held(tables.at("batches").rows(_COLUMNS))

    def _mine(self, stream: str, *status: str) -> pa.Table:
        found = self.columns.filter(pc.equal(self.columns["stream"], stream))
        return found.filter(pc.is_in(found["status"], value_set=pa.array(status))) if status else found

    def by_status(self, stream: str) -> dict[str, int]:
        """How many batches there are of each status."""
        counts = pc.value_counts(self._mine(stream)["status"]).to_pylist()
        return {one["values"]: one["counts"] for one in counts}

    def last_date(self, stream: str) -> date | None:
        found: date | None = pc.max(self._mine(stream)["batch_date"]).as_py()
        return found

    def last_done(self, stream: str) -> datetime | None:
        """When a batch that is done was last written."""
        found: datetime | None = pc.max(self._mine(stream, DONE)["updated_at"]).as_py()
        return found

    def unvalidated(self, stream: str, before: int) -> int:
        """How many shed batches below a number have changed since every expectation held for them, if it ever did."""
        mine = self._mine(stream, DONE)
        old = mine.filter(pc.and_(pc.less(mine["batch"], before), pc.greater(mine["rows"], 0)))
        held = pc.fill_null(pc.equal(pc.add(old["validated_revision"], 1), old["revision"]), False)
        return old.num_rows - int(pc.sum(held).as_py() or 0)

    @property
    def streams_with_tuples(self) -> list[str]:
        """The streams of which not every batch is retired."""
        left = self.columns.filter(pc.not_equal(self.columns["status"], RETIRED))
        found: list[str] = left["stream"].unique().to_pylist()
        return found

    def last_runs(self, most: int) -> Iterator[RunTold]:
        """The runs that took something in last, newest first."""
        runs = self.columns.group_by("run_id").aggregate([("created_at", "max")])
        runs = runs.sort_by([("created_at_max", "descending"), ("run_id", "descending")]).slice(0, most)
        for run in runs.to_pylist():
            own = self.columns.filter(pc.equal(self.columns["run_id"], run["run_id"]))
            streams = tuple(sorted(own["stream"].unique().to_pylist()))
            tuples = int(pc.sum(own["rows"]).as_py() or 0)
            yield run["run_id"], run["created_at_max"], streams, own.num_rows, tuples

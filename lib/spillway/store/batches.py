"""The `batches` table: what was taken in, under which numbers, with which models, and how far it has come."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Any

from spillway.settings import Settings
from spillway.store.files import as_date, read_table
from spillway.store.table_contracts import table_contracts
from spillway.store.tables import table_path, where

if TYPE_CHECKING:
    from spillway.store.tables import Lake

RECORDED = "recorded"
TAKEN_IN = "taken_in"
UNTRAINED = "untrained"
PLANNED = "planned"
DONE = "done"
RETIRED = "retired"
PENDING = (RECORDED, TAKEN_IN, UNTRAINED, PLANNED)


@dataclass(frozen=True)
class LandingFile:
    """A delivered file: its name under the landing zone, size, digest, records, and its first seq.

    `records` bounds the line numbers in it; record n of the file has seq `base_seq + n`. `status` is taken,
    duplicate (its digest was taken in before), empty or unreadable.
    """

    name: str
    size: int
    digest: str
    records: int
    base_seq: int
    status: str
    modified_at: datetime | None = None


@dataclass(frozen=True)
class Batch:
    """What one run took in of a stream for one batch date."""

    stream: str
    batch: int
    batch_date: date
    status: str
    files: tuple[LandingFile, ...]
    first_seq: int
    last_seq: int
    run_id: str
    created_at: datetime
    updated_at: datetime
    rows: int | None = None
    rejected: int | None = None
    deduplicated: int | None = None
    seconds_covered: float | None = None
    models: Mapping[str, int] = field(default_factory=dict)
    capacity_kbps: float | None = None
    frame_origin: int | None = None
    frame_tuples: int | None = None
    trunk_kbps: float | None = None

    @property
    def allowed_kbps(self) -> float:
        """The narrower of its part of its channel and of the channel that goes into."""
        own = self.capacity_kbps or 0.0
        return own if self.trunk_kbps is None else min(own, self.trunk_kbps)

    @property
    def taken(self) -> tuple[LandingFile, ...]:
        return tuple(file for file in self.files if file.status == "taken")

    def becomes(self, now: datetime, **changes: Any) -> Batch:
        """The batch with `changes`, stamped `now`."""
        return replace(self, updated_at=now, **changes)

    def row(self) -> dict[str, Any]:
        """The row of `batches`."""
        values = {item.name: getattr(self, item.name) for item in fields(self)}
        values["files"] = [
            tuple(getattr(file, item.name) for item in fields(LandingFile)) for file in self.files
        ]
        values["models"] = dict(self.models)
        return values


def _batch(row: Mapping[str, Any]) -> Batch:
    values = dict(row)
    values["files"] = tuple(LandingFile(**file) for file in values["files"] or ())
    values["models"] = dict(values["models"] or {})
    values["batch_date"] = as_date(values["batch_date"])
    return Batch(**values)


def load_batches(settings: Settings, stream: str | None = None) -> list[Batch]:
    """All batches (of one stream) in order, read without Spark."""
    path = table_path(settings, table_contracts(settings.schemas)["batches"])
    table = read_table(path, filters=[("stream", "=", stream)] if stream else None)
    found = [_batch(row) for row in table.to_pylist()] if table is not None else []
    return sorted(found, key=lambda batch: (batch.stream, batch.batch))


def save_batches(lake: Lake, batches: Sequence[Batch]) -> None:
    """Write the rows of `batches` (of one stream) in one commit, replacing what they were."""
    if batches:
        streams = {batch.stream for batch in batches}
        assert len(streams) == 1, "one commit touches one stream's partition only"
        predicate = where(stream=streams.pop(), batch=[batch.batch for batch in batches])
        lake.replace_rows("batches", [batch.row() for batch in batches], predicate)


def utc_now() -> datetime:
    """The clock, in one place; nothing computed from it is ever recomputed."""
    return datetime.now(UTC)

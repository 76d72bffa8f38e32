"""A batch: what one run takes in of a stream, under which numbers, and how far it has come.

What is pinned here is never worked out again: the order of the levers, the version of each one's facts, the part of the
channel, where frames lie, every reading of a clock. So a rerun does what the first run did.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from datetime import date, datetime
from typing import Any

RECORDED = "recorded"
TAKEN_IN = "taken_in"
UNTRAINED = "untrained"
PLANNED = "planned"
DONE = "done"
RETIRED = "retired"
SET_ASIDE = "set_aside"
PENDING = (RECORDED, TAKEN_IN, UNTRAINED, PLANNED)
IN_WORK = (RECORDED, PLANNED)
"""With these a run may be amid writing what it decided on the batch's row as it stands."""
SHOWN_BATCHES = 1000
"""Of how many of a stream's last batches figures are shown: what is read for a page does not grow with the history."""
MOST_ATTEMPTS = 2
"""How often a batch may fail before it is set aside; a run that dies, or gives way to another, is no failure of it."""
TAKEN, REPLAYED, DUPLICATE, EMPTY, REFUSED, MISSED = (
    "taken", "replayed", "duplicate", "empty", "refused", "missed",
)  # fmt: skip
"""What becomes of a file."""
HELD = (TAKEN_IN, UNTRAINED, PLANNED, DONE, SET_ASIDE)
"""With any of these a batch that has rows has them in `raw`, as `is_in_raw` says."""


@dataclass(frozen=True)
class LandingFile:
    """A delivered file: its name under the landing zone, size, digest, records, and its first seq.

    `records` bounds the line numbers in it; record n of the file has seq `base_seq + n`. `status` is taken,
    duplicate (its digest was taken in before), empty (never final), refused (`reason` says why, and what to do),
    missed (gone or changed before it could be read; it counts as never seen), or replayed: the rows of it that batch
    `replays` had refused, those that broke `rule` where one was asked for, are taken in again.
    """

    name: str
    size: int
    digest: str
    records: int
    base_seq: int
    status: str
    modified_at: datetime | None = None
    reason: str | None = None
    replays: int | None = None
    rule: str | None = None
    header: str | None = None


@dataclass(frozen=True)
class BatchRows:
    """Which rows are a batch's: what of it is known without its files."""

    batch: int
    batch_date: date
    status: str
    first_seq: int
    last_seq: int
    rows: int | None


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
    levers: tuple[str, ...] = ()
    models: Mapping[str, int] = field(default_factory=dict)
    seconds_covered: float | None = None
    capacity_kbps: float | None = None
    trunk_kbps: float | None = None
    frame_origin: int | None = None
    frame_tuples: int | None = None
    attempts: int = 0
    reason: str | None = None
    rate_note: str | None = None
    event_end: datetime | None = None
    """The end of its event time: the next batch covers the time from there."""
    sent_with: int | None = None
    """The first batch of its group, which is sent in one file; None: the batch is sent alone."""
    beside_bytes: int | None = None
    """What its files of `raw` took beside the stream's columns when they were written, with what logs say of them."""
    sent_whole: str | None = None
    """Why nothing of it is shed though its contract lists levers: its stream was exempt, or it was asked for again."""
    revision: int = 0
    """How often its row was saved: a save is refused to whoever read another revision than the one that stands."""
    raw_leaving: tuple[str, ...] = ()
    """Files of `raw` that retiring takes out, until they are gone from the disk."""
    validated_revision: int | None = None
    """The revision of which every expectation held."""
    spends_on: date | None = None
    """If the batch was queued because it did not fit: the day whose quota it spends. None: its batch date."""

    @property
    def allowed_kbps(self) -> float:
        """The narrower of its part of its channel and of the channel that goes into."""
        own = self.capacity_kbps or 0.0
        return own if self.trunk_kbps is None else min(own, self.trunk_kbps)

    @property
    def taken(self) -> tuple[LandingFile, ...]:
        """The files of which tuples are taken in."""
        return tuple(file for file in self.files if file.status in (TAKEN, REPLAYED))

    @property
    def is_in_raw(self) -> bool:
        """Whether its tuples stand in `raw`: taken in, and not retired since."""
        return self.rows is not None and self.status not in (RECORDED, RETIRED)

    @property
    def numbered(self) -> BatchRows:
        """Which rows are its own."""
        return BatchRows(self.batch, self.batch_date, self.status, self.first_seq, self.last_seq, self.rows)

    @property
    def is_pinned(self) -> bool:
        """Whether a run has fixed how the batch is shed."""
        return self.frame_origin is not None

    @property
    def quota_day(self) -> date:
        """The day whose quota the batch spends."""
        return self.spends_on or self.batch_date

    @property
    def is_validated(self) -> bool:
        """Whether every expectation held for the batch, and nothing but that note was saved of it since."""
        return self.validated_revision is not None and self.validated_revision + 1 == self.revision

    def becomes(self, now: datetime, **changes: Any) -> Batch:
        """The batch with `changes`, stamped `now`."""
        return replace(self, updated_at=now, **changes)

    def failed(self, now: datetime, problem: object) -> Batch:
        """The batch after one more failure, set aside by name when that was one too many."""
        attempts = self.attempts + 1
        aside = {"status": SET_ASIDE} if attempts >= MOST_ATTEMPTS else {}
        return self.becomes(now, attempts=attempts, reason=str(problem), **aside)

    def said_aside(self, problem: object) -> str:
        """That it is set aside, why, and how it is taken up again."""
        return (
            f"{self.stream}: batch {self.batch} failed a second time and is set aside: {problem}; mend it, then "
            f"spillway replay {self.stream} --date {self.batch_date}"
        )

    def row(self) -> dict[str, Any]:
        """The row of `batches`."""
        values = {item.name: getattr(self, item.name) for item in fields(self)}
        values["files"] = [
            tuple(getattr(file, item.name) for item in fields(LandingFile)) for file in self.files
        ]
        values["models"], values["levers"] = dict(self.models), list(self.levers)
        values["raw_leaving"] = list(self.raw_leaving)
        return values

    @staticmethod
    def from_row(row: Mapping[str, Any]) -> Batch:
        """A row of `batches` as a batch."""
        values = dict(row)
        values["files"] = tuple(LandingFile(**file) for file in values["files"] or ())
        values["models"], values["levers"] = dict(values["models"] or {}), tuple(values["levers"] or ())
        values["attempts"] = values["attempts"] or 0
        # rows of before they were counted have neither
        values["revision"] = values.get("revision") or 0
        values["raw_leaving"] = tuple(values.get("raw_leaving") or ())
        return Batch(**values)

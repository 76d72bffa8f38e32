"""Define a batch: the rows that one run accepts of a stream for one date, their numbers, and its status.

A batch stores every decision that a rerun must not repeat: the order of the levers, the version of each lever's
facts, its share of the channel, the position of frames, and every reading of a clock. So a rerun does what the
first run did.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from datetime import date, datetime
from typing import Any

RECORDED = "recorded"
INGESTED = "ingested"
UNTRAINED = "untrained"
PLANNED = "planned"
DONE = "done"
RETIRED = "retired"
QUARANTINED = "quarantined"
PENDING = (RECORDED, INGESTED, UNTRAINED, PLANNED)
IN_WORK = (RECORDED, PLANNED)
"""With these statuses a run may be writing data that depends on the batch's row as it is now."""
SHOWN_BATCHES = 1000
"""The number of a stream's last batches that figures cover. It bounds the cost of a page."""
MOST_ATTEMPTS = 2
"""The number of failures after which a batch is quarantined.

A run that dies or loses to a concurrent run does not count.
"""
FILE_INGESTED, REPLAYED, DUPLICATE, EMPTY, REFUSED, MISSED = (
    "ingested", "replayed", "duplicate", "empty", "refused", "missed",
)  # fmt: skip
"""The statuses of a landing file."""
UNPLANNED: Mapping[str, Any] = {
    "status": INGESTED, "levers": (), "models": {}, "capacity_kbps": None, "trunk_kbps": None, "frame_origin": None,
    "frame_tuples": None,
}  # fmt: skip
"""The values of these fields in a batch without a plan."""
HELD = (INGESTED, UNTRAINED, PLANNED, DONE, QUARANTINED)
"""With each of these statuses the rows of a batch, if it has any, are in `raw` (see `is_in_raw`)."""


@dataclass(frozen=True)
class LandingFile:
    """A delivered file: its name below the landing zone, its size, digest and number of records, and its first `seq`.

    `records` is an upper bound of its line numbers; record n of the file has seq `base_seq + n`. `status` is
    one of:

    - `ingested`: its tuples were accepted;
    - `duplicate`: its digest was accepted before;
    - `empty`: it has no records; it may be filled later, so this status is never final;
    - `refused`: rejected as a whole; `reason` says why, and what to do;
    - `missed`: it disappeared or changed before it could be read; it counts as never seen;
    - `replayed`: rows of it that batch `replays` rejected are read again; if `rule` is set, only those that broke it.
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
    """The rows of a batch as numbers, without its files."""

    batch: int
    batch_date: date
    status: str
    first_seq: int
    last_seq: int
    rows: int | None


@dataclass(frozen=True)
class Batch:
    """The rows that one run accepted of a stream for one batch date."""

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
    """The end of the batch's event time; the next batch covers the time from there."""
    sent_with: int | None = None
    """The first batch of its group, which is sent in one file; None: the batch is sent alone."""
    overhead_bytes: int | None = None
    """The bytes of its files of `raw` without the stream's columns, when they were written, plus their log entries."""
    sent_whole: str | None = None
    """Why nothing of the batch is shed although its contract lists levers: an exemption, or a request to resend it."""
    revision: int = 0
    """How often the row was saved.

    A save is rejected if the row has another revision than the one that the run read.
    """
    raw_leaving: tuple[str, ...] = ()
    """Files of `raw` that retiring removes, until they are deleted from the disk."""
    validated_revision: int | None = None
    """The revision for which every expectation held."""
    spends_on: date | None = None
    """If the batch was queued because it did not fit: the day whose quota it spends. None: its batch date."""

    @property
    def allowed_kbps(self) -> float:
        """Return the smaller of its share of its channel and its share of the trunk.

        The trunk is the channel into which its channel goes.
        """
        own = self.capacity_kbps or 0.0
        return own if self.trunk_kbps is None else min(own, self.trunk_kbps)

    @property
    def accepted_files(self) -> tuple[LandingFile, ...]:
        """Return the files whose tuples are accepted."""
        return tuple(file for file in self.files if file.status in (FILE_INGESTED, REPLAYED))

    @property
    def is_in_raw(self) -> bool:
        """Return whether its tuples are in `raw`: accepted and not retired."""
        return self.rows is not None and self.status not in (RECORDED, RETIRED)

    @property
    def row_numbers(self) -> BatchRows:
        """Return the numbers of its rows."""
        return BatchRows(self.batch, self.batch_date, self.status, self.first_seq, self.last_seq, self.rows)

    @property
    def is_pinned(self) -> bool:
        """Return whether a run has fixed how the batch is shed."""
        return self.frame_origin is not None

    @property
    def quota_day(self) -> date:
        """Return the day whose quota the batch spends."""
        return self.spends_on or self.batch_date

    @property
    def is_validated(self) -> bool:
        """Return whether every expectation held for the batch, and only that note was saved since."""
        return self.validated_revision is not None and self.validated_revision + 1 == self.revision

    def with_changes(self, now: datetime, **changes: Any) -> Batch:
        """Return the batch with `changes` and the time `now` of the update."""
        return replace(self, updated_at=now, **changes)

    def failed(self, now: datetime, problem: object) -> Batch:
        """Return the batch after one more failure; it is quarantined if it failed `MOST_ATTEMPTS` times."""
        attempts = self.attempts + 1
        aside = {"status": QUARANTINED} if attempts >= MOST_ATTEMPTS else {}
        return self.with_changes(now, attempts=attempts, reason=str(problem), **aside)

    def quarantine_sentence(self, problem: object) -> str:
        """Return a sentence that the batch is quarantined, why, and how to retry it."""
        return (
            f"{self.stream}: batch {self.batch} failed a second time and is quarantined: {problem}; fix the cause, "
            f"then spillway replay {self.stream} --date {self.batch_date}"
        )

    def row(self) -> dict[str, Any]:
        """Return the row of `batches`."""
        values = {item.name: getattr(self, item.name) for item in fields(self)}
        values["files"] = [
            tuple(getattr(file, item.name) for item in fields(LandingFile)) for file in self.files
        ]
        values["models"], values["levers"] = dict(self.models), list(self.levers)
        values["raw_leaving"] = list(self.raw_leaving)
        return values

    @staticmethod
    def from_row(row: Mapping[str, Any]) -> Batch:
        """Return the batch of a row of `batches`."""
        values = dict(row)
        values["files"] = tuple(LandingFile(**file) for file in values["files"] or ())
        values["models"], values["levers"] = dict(values["models"] or {}), tuple(values["levers"] or ())
        values["attempts"] = values["attempts"] or 0
        # rows written before these columns existed have neither
        values["revision"] = values.get("revision") or 0
        values["raw_leaving"] = tuple(values.get("raw_leaving") or ())
        return Batch(**values)

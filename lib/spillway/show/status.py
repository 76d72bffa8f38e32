"""How the lake stands: last runs, batches by status, the ledger's balance, and what is falling short.

Read by delta-rs from what the stages wrote about themselves; starts no Spark and lists the landing zone only.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any

from spillway.contracts import Contracts, StreamContract, load_contracts
from spillway.intake.pending import new_files
from spillway.settings import Settings
from spillway.show.summary import StreamFigures, stream_figures, table_rows
from spillway.store.batches import PENDING, RETIRED, UNTRAINED, Batch, load_batches

Row = Mapping[str, Any]
RUNS_SHOWN = 5


@dataclass(frozen=True)
class Run:
    """One run that took something in."""

    run_id: str
    at: datetime
    streams: tuple[str, ...]
    batches: int
    tuples: int


@dataclass(frozen=True)
class StreamStatus:
    """One stream: its batches, its model, its figures."""

    stream: str
    channel: str
    mode: str
    batches: Mapping[str, int]
    waiting_files: int
    trained_version: int | None
    last_batch_date: date | None
    figures: StreamFigures


@dataclass(frozen=True)
class Shortage:
    """Something that falls short. `wrong` breaks a promise; the rest is on record and waits for somebody."""

    stream: str
    kind: str
    wrong: bool
    sentence: str
    remedy: str


@dataclass(frozen=True)
class Status:
    """The whole lake."""

    runs: tuple[Run, ...]
    streams: tuple[StreamStatus, ...]
    shortages: tuple[Shortage, ...]
    validated_at: datetime | None

    @property
    def wrong(self) -> bool:
        """Whether a promise is broken."""
        return any(shortage.wrong for shortage in self.shortages)


def status(settings: Settings) -> Status:
    """How things stand now. A lake without tables is a lake where nothing has happened yet."""
    contracts = load_contracts(settings.schemas)
    batches = load_batches(settings)
    names = ("schemes", "ledger", "certificates", "models", "validations")
    rows: dict[str, list[dict[str, Any]]] = {name: table_rows(settings, name) for name in names}
    streams: list[StreamStatus] = []
    shortages: list[Shortage] = []
    for stream, contract in sorted(contracts.streams.items()):
        own = {name: [row for row in rows[name] if row["stream"] == stream] for name in names}
        mine = [batch for batch in batches if batch.stream == stream]
        found = _stream(settings, contract, mine, own)
        streams.append(found)
        shortages += _shortages(found, own)
    shortages += _failed(rows["validations"])
    shortages += _unclaimed(contracts, batches)
    last = max((row["validated_at"] for row in rows["validations"]), default=None)
    return Status(tuple(_runs(batches)), tuple(streams), tuple(sorted(shortages, key=_urgency)), last)


def _urgency(shortage: Shortage) -> tuple[bool, str]:
    return (not shortage.wrong, shortage.stream)


def _stream(
    settings: Settings,
    contract: StreamContract,
    batches: Sequence[Batch],
    rows: Mapping[str, list[dict[str, Any]]],
) -> StreamStatus:
    return StreamStatus(
        stream=contract.stream,
        channel=contract.channel,
        mode=contract.mode,
        batches=dict(Counter(batch.status for batch in batches)),
        waiting_files=len(new_files(contract, settings, list(batches))),
        trained_version=max((row["version"] for row in rows["models"]), default=None),
        last_batch_date=max((batch.batch_date for batch in batches), default=None),
        figures=stream_figures(contract.stream, batches, rows["ledger"], rows["certificates"]),
    )


def _runs(batches: Sequence[Batch]) -> Iterator[Run]:
    """The last runs, newest first."""
    by_run: dict[str, list[Batch]] = {}
    for batch in batches:
        by_run.setdefault(batch.run_id, []).append(batch)
    newest = sorted(
        by_run.items(), key=lambda pair: (max(b.created_at for b in pair[1]), pair[0]), reverse=True
    )
    for run_id, own in newest[:RUNS_SHOWN]:
        yield Run(
            run_id,
            max(batch.created_at for batch in own),
            tuple(sorted({batch.stream for batch in own})),
            len(own),
            sum(batch.rows or 0 for batch in own),
        )


def _shortages(found: StreamStatus, rows: Mapping[str, list[dict[str, Any]]]) -> Iterator[Shortage]:
    stream, figures = found.stream, found.figures
    if figures.ledger_difference:
        yield Shortage(
            stream, "ledger", True, f"the ledger is off by {figures.ledger_difference:,}",
            "see the report's ledger; rerun spillway_shed for the dates at fault",
        )  # fmt: skip
    if figures.violations:
        yield Shortage(
            stream, "bound", True, f"{figures.violations:,} recovered values miss their threshold",
            "see certificates; do not retire raw, and report it: the guarantee is broken",
        )  # fmt: skip
    untrained = found.batches.get(UNTRAINED, 0)
    if untrained or (found.batches and found.trained_version is None):
        yield Shortage(
            stream, "untrained", False, "is taken in but not trained: nothing of it is shed yet",
            "run spillway_train (nightly), or jobs/train.py --stream " + stream,
        )  # fmt: skip
    pending = sum(found.batches.get(name, 0) for name in PENDING if name != UNTRAINED)
    if pending or found.waiting_files:
        yield Shortage(
            stream, "pending", False,
            f"{pending:,} batches are begun and {found.waiting_files:,} delivered files wait",
            "run spillway_shed (every 15 minutes)",
        )  # fmt: skip
    worst = max(rows["schemes"], key=lambda row: row["shortfall_kbps"], default=None)
    if worst is not None and worst["shortfall_kbps"] > 0:
        runs = sum(row["shortfall_kbps"] > 0 for row in rows["schemes"])
        yield Shortage(
            stream, "capacity", False,
            f"{runs:,} runs do not fit, by up to {worst['shortfall_kbps']:.4g} of {worst['capacity_kbps']:.4g} kbps "
            f"(batch {worst['batch']}): {worst['reason']}",
            "widen the channel, raise error_pct, or let more attributes be shed (role: measure)",
        )  # fmt: skip
    certified = {row["batch"] for row in rows["certificates"]}
    shed = {row["batch"] for row in rows["ledger"] if row["stage"] == "attributes" and row["recoverable"] > 0}
    if shed - certified:
        yield Shortage(
            stream, "unvalidated", False, f"{len(shed - certified):,} shed batches are not validated yet",
            "run spillway_validate (nightly), or jobs/validate.py --stream " + stream,
        )  # fmt: skip


def _failed(validations: Sequence[Row]) -> Iterator[Shortage]:
    """What the last validation found."""
    if not validations:
        return
    last = max(validations, key=lambda row: row["validated_at"])["run_id"]
    for row in validations:
        if row["run_id"] == last and not row["success"]:
            yield Shortage(
                row["stream"] or "", "expectation", True, row["sentence"],
                f"expectation {row['expectation']} in expectations/{row['table']}.yaml; mend and run spillway_validate",
            )  # fmt: skip


def _unclaimed(contracts: Contracts, batches: Sequence[Batch]) -> Iterator[Shortage]:
    for stream in sorted(
        {batch.stream for batch in batches if batch.status != RETIRED} - set(contracts.streams)
    ):
        yield Shortage(
            stream, "contract", False, "has batches in the lake but no contract",
            f"restore schemas/streams/{stream}.yaml, or delete its tables",
        )  # fmt: skip

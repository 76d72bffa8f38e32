"""What there is to do, found out in milliseconds: from `batches`, `models` and a listing of the landing zone.

Starting Spark to learn that nothing arrived would cost more than most batches, so the scheduler's first task
asks here. Nothing is read but directory entries and two small tables, by delta-rs.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date

import pyarrow.fs as pafs

from spillway.contracts import StreamContract, load_contracts
from spillway.intake.landing import landing_root
from spillway.settings import Settings
from spillway.store.batches import PENDING, UNTRAINED, Batch, load_batches
from spillway.store.files import delta_table, open_filesystem, read_table
from spillway.store.table_contracts import table_contracts
from spillway.store.tables import table_path


def is_hidden(path: str) -> bool:
    """Whether Spark's file source passes over a path (relative to the landing folder).

    >>> is_hidden("2013-01-01/part-1.json"), is_hidden("2013-01-01/_SUCCESS"), is_hidden(".tmp/part-1.json")
    (False, True, True)
    >>> is_hidden("_day=1/part-1.json"), is_hidden("part-1.json._COPYING_")
    (False, True)
    """
    return any(
        (part.startswith("_") and "=" not in part) or part.startswith(".") or part.endswith("._COPYING_")
        for part in path.split("/")
    )


def landing_files(contract: StreamContract, settings: Settings) -> Iterator[tuple[str, int]]:
    """Name and size of every file the stream has delivered, named as `batches` names them."""
    root = landing_root(contract, settings.landing)
    filesystem, folder = open_filesystem(root)
    below = pafs.FileSelector(folder, allow_not_found=True, recursive=True)
    prefix = settings.landing.rstrip("/") + "/"
    for entry in filesystem.get_file_info(below):
        inside = entry.path.removeprefix(folder).lstrip("/")
        if entry.type == pafs.FileType.File and not is_hidden(inside):
            yield f"{root.rstrip('/')}/{inside}".removeprefix(prefix), int(entry.size)


def new_files(contract: StreamContract, settings: Settings, batches: list[Batch]) -> list[tuple[str, int]]:
    """Delivered (name, size) pairs that no batch knows, in name order; for a table, its version if unknown."""
    known = {(file.name, file.size) for batch in batches for file in batch.files}
    if contract.source.kind == "table":
        table = delta_table(str(contract.source.table))
        delivered = [] if table is None else [(f"{contract.source.table}@{table.version()}", 0)]
    else:
        delivered = sorted(landing_files(contract, settings))
    return [pair for pair in delivered if pair not in known]


def is_trained(settings: Settings, stream: str) -> bool:
    """Whether the stream has any trained fact."""
    models = read_table(
        table_path(settings, table_contracts(settings.schemas)["models"]),
        ["stream"],
        [("stream", "=", stream)],
    )
    return models is not None and models.num_rows > 0


def is_pending(contract: StreamContract, settings: Settings) -> bool:
    """Whether a run would find work: a new file, or a batch that is not done and can be carried on."""
    batches = load_batches(settings, contract.stream)
    if new_files(contract, settings, batches):
        return True
    open_statuses = {batch.status for batch in batches if batch.status in PENDING}
    if open_statuses == {UNTRAINED}:
        return is_trained(settings, contract.stream)
    return bool(open_statuses)


def pending_channels(settings: Settings) -> list[str]:
    """The channels with a stream that has something to do, by name; empty when a run would find nothing."""
    contracts = load_contracts(settings.schemas)
    waiting = {c.channel for c in contracts.streams.values() if is_pending(c, settings)}
    return sorted({contracts.planned_with(channel) for channel in waiting})


def channels_of_dates(settings: Settings, from_date: date, to_date: date) -> list[str]:
    """The channels with a batch of one of the dates, both ends included: what a backfill recomputes."""
    contracts = load_contracts(settings.schemas)
    streams = {b.stream for b in load_batches(settings) if from_date <= b.batch_date <= to_date}
    return sorted(
        {contracts.planned_with(c.channel) for c in contracts.streams.values() if c.stream in streams}
    )

"""Find the delivered files of a stream in the landing zone, tell which of them are new, and give their batch date.

All callers (intake, the check for work, the status report) use `find_landing_files`. A file is *delivered* if all of
these hold:

- It is below the stream's landing folder.
- It is not hidden. A name is hidden if it begins with `.` or `_`, or ends with `._COPYING_`. A name like `_day=1` is a
  partition and is not hidden.
- It has *settled*: `source.settle_seconds` have passed since its last change.

An entry that is no regular file (a link, a pipe), or whose name is not UTF-8, is refused by name.

A file is *known* by its name, size and time. If size or time differ from the record, its digest decides:

- A name that no batch has processed is new. So is a name whose earlier versions were all empty, refused or missed, if
  it differs now. An empty file is never final, and a corrected file is a new delivery.
- A name that was taken in, or skipped as a duplicate, is *doubtful* if size or time differ. Intake reads the file once.
  If the bytes are the same, only the new time is recorded. If they differ, `source.changed: refuse | new_batch`
  decides. In both cases the rows that were taken in stay.

To copy a file into the landing zone, write it under a hidden name and rename it.

>>> is_hidden("2013-01-01/part-1.json"), is_hidden("2013-01-01/_SUCCESS"), is_hidden(".tmp/part-1.json")
(False, True, True)
>>> is_hidden("_day=1/part-1.json"), is_hidden("part-1.json._COPYING_")
(False, True)
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta

from spillway.batch import DUPLICATE, FILE_INGESTED, MISSED, REFUSED, REPLAYED, Batch, LandingFile
from spillway.clock import utc_now
from spillway.contracts import StreamContract
from spillway.errors import InvalidValue
from spillway.settings import Settings
from spillway.store.batches import recorded_files
from spillway.store.landing_zone import leads_outside, list_landing_folder
from spillway.store.tables import Tables

DATED_FOLDER = re.compile(r"(?:^|[/=])(\d{4}-\d{2}-\d{2})/")


@dataclass(frozen=True)
class DeliveredFile:
    """A file in the landing zone; `name` is its path below the landing zone, or its full path if it is elsewhere.

    `problem`: rule, value and remedy if the file is refused without being read.
    """

    name: str
    path: str
    size: int
    modified_at: datetime
    problem: tuple[str, str, str] | None = None


@dataclass(frozen=True)
class Landing:
    """The files found in the landing zone, in name order."""

    fresh: tuple[DeliveredFile, ...]
    """New files: intake takes them in, or refuses them by name."""
    doubtful: tuple[DeliveredFile, ...]
    """Files with a known name but another size or time: intake reads them to see whether their bytes changed."""
    settling: tuple[DeliveredFile, ...]
    """Files that a sender may still be writing."""
    refused: tuple[tuple[DeliveredFile, LandingFile], ...]
    """Refused files that have not changed since, each with its record."""

    @property
    def files_to_process(self) -> tuple[DeliveredFile, ...]:
        """The files that intake must process now; it processes each of them once."""
        return (*self.fresh, *self.doubtful)


def landing_root(contract: StreamContract, landing: str) -> str:
    """Return the folder where the stream's files land."""
    path = contract.path
    return path if "://" in path or path.startswith("/") else f"{landing}/{path}"


def landing_path(landing: str, name: str) -> str:
    """Return the path of a file with this name."""
    return name if "://" in name or name.startswith("/") else f"{landing}/{name}"


def is_hidden(path: str) -> bool:
    """Return whether a path, relative to the landing folder, is hidden and so not (yet) delivered."""
    return any(
        (part.startswith("_") and "=" not in part) or part.startswith(".") or part.endswith("._COPYING_")
        for part in path.split("/")
    )


def list_delivered_files(contract: StreamContract, settings: Settings) -> list[DeliveredFile]:
    """Return all files in the stream's landing folder that are not hidden, in name order, settled or not."""
    return [one for one, _ in _list_files(contract, settings)]


def _list_files(contract: StreamContract, settings: Settings) -> list[tuple[DeliveredFile, bool]]:
    """Return each file, and whether the store shows a file only once it is complete."""
    root = landing_root(contract, settings.landing).rstrip("/")
    outside = leads_outside(root, settings.landing) if root != contract.path.rstrip("/") else None
    if outside is not None:
        raise InvalidValue(
            "source.path", f"lead to a folder below {settings.landing}", outside,
            "land the files there, or write the absolute path in the contract", contract.stream,
        )  # fmt: skip
    prefix = settings.landing.rstrip("/") + "/"
    found = [
        (
            DeliveredFile(one.path.removeprefix(prefix), one.path, one.size, one.modified_at, one.problem),
            one.appears_whole,
        )
        for one in list_landing_folder(root)
        if not is_hidden(one.path.removeprefix(root + "/"))
    ]
    return sorted(found, key=lambda pair: pair[0].name)


def find_landing_files(
    contract: StreamContract,
    tables: Tables,
    now: datetime | None = None,
    batches: Sequence[Batch] | None = None,
) -> Landing:
    """Classify the files in the landing folder by what the stored batches know of them.

    Of the batches, only the entries of the files in the folder are read. `now` is the time by which files have settled
    or not; None is the current time. `batches`: all batches of the stream in order, if the caller has them.
    """
    listed = _list_files(contract, tables.settings)
    there = {one.name for one, _ in listed}
    recorded: Iterable[LandingFile]
    if batches is not None:
        recorded = [file for batch in batches for file in batch.files if file.name in there]
    else:
        recorded = recorded_files(tables, contract.stream, there) if there else []
    known = _by_name(recorded)
    seconds = contract.source.settle_seconds
    settled = (now or utc_now()) - timedelta(seconds=seconds)
    fresh: list[DeliveredFile] = []
    doubtful: list[DeliveredFile] = []
    settling: list[DeliveredFile] = []
    refused: list[tuple[DeliveredFile, LandingFile]] = []
    for one, is_whole in listed:
        entries = known.get(one.name, [])
        same = next((entry for entry in reversed(entries) if _is_as_recorded(one, entry)), None)
        if same is not None:
            if same.status == REFUSED:
                refused.append((one, same))
        elif seconds and not (is_whole or one.problem) and one.modified_at > settled:
            settling.append(one)
        elif one.problem is None and any(entry.status in (FILE_INGESTED, DUPLICATE) for entry in entries):
            doubtful.append(one)
        else:
            fresh.append(one)
    return Landing(tuple(fresh), tuple(doubtful), tuple(settling), tuple(refused))


def _by_name(entries: Iterable[LandingFile]) -> dict[str, list[LandingFile]]:
    """Return the recorded entries of landing files by name, in their order."""
    known: dict[str, list[LandingFile]] = {}
    for file in entries:
        if file.status not in (MISSED, REPLAYED):
            known.setdefault(file.name, []).append(file)
    return known


def _is_as_recorded(one: DeliveredFile, entry: LandingFile) -> bool:
    return one.size == entry.size and entry.modified_at in (None, one.modified_at)


def batch_date_of(name: str, run_date: date) -> date:
    """Return the date in the landing folder's path, or else the run's date.

    >>> batch_date_of("weather/2013-04-30/part-1.json", date(2026, 1, 1))
    datetime.date(2013, 4, 30)
    """
    found = DATED_FOLDER.search(name)
    try:
        return date.fromisoformat(found.group(1)) if found else run_date
    except ValueError:
        return run_date

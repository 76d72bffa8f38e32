"""The landing zone: the one rule for what is delivered and what of it is new, and which date it is of.

A file is delivered when it lies below the stream's landing folder and is not hidden, as a name that begins with `.` or
`_` says (but `_day=1` is a partition), or `._COPYING_` at its end. It is new when no batch knows its name, or knows it
only as empty and it is of another size now: an empty file is never final.

>>> is_hidden("2013-01-01/part-1.json"), is_hidden("2013-01-01/_SUCCESS"), is_hidden(".tmp/part-1.json")
(False, True, True)
>>> is_hidden("_day=1/part-1.json"), is_hidden("part-1.json._COPYING_")
(False, True)
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date, datetime

from spillway.batch import Batch, LandingFile
from spillway.contracts import StreamContract
from spillway.settings import Settings
from spillway.store.blobs import list_files

DATED_FOLDER = re.compile(r"(?:^|[/=])(\d{4}-\d{2}-\d{2})/")
EMPTY = "empty"


@dataclass(frozen=True)
class Delivered:
    """A file as the landing zone shows it; `name` is its path below the landing zone, or all of it from elsewhere."""

    name: str
    path: str
    size: int
    modified_at: datetime


def landing_root(contract: StreamContract, landing: str) -> str:
    """The folder where the stream's files land."""
    path = contract.path
    return path if "://" in path or path.startswith("/") else f"{landing}/{path}"


def path_of(landing: str, name: str) -> str:
    """Where a file of this name lies."""
    return name if "://" in name or name.startswith("/") else f"{landing}/{name}"


def is_hidden(path: str) -> bool:
    """Whether a path, relative to the landing folder, is nobody's delivery (yet)."""
    return any(
        (part.startswith("_") and "=" not in part) or part.startswith(".") or part.endswith("._COPYING_")
        for part in path.split("/")
    )


def delivered(contract: StreamContract, settings: Settings) -> list[Delivered]:
    """Everything the stream has delivered, in name order."""
    root = landing_root(contract, settings.landing).rstrip("/")
    prefix = settings.landing.rstrip("/") + "/"
    found = [
        Delivered(one.path.removeprefix(prefix), one.path, one.size, one.modified_at)
        for one in list_files(root)
        if not is_hidden(one.path.removeprefix(root + "/"))
    ]
    return sorted(found, key=lambda one: one.name)


def new_files(contract: StreamContract, settings: Settings, batches: Iterable[Batch]) -> list[Delivered]:
    """What is delivered and no batch has dealt with, in name order."""
    known = _known(batches)
    return [one for one in delivered(contract, settings) if _is_new(one, known.get(one.name))]


def changed_files(contract: StreamContract, settings: Settings, batches: Iterable[Batch]) -> list[Delivered]:
    """What was taken in under a name that holds another number of bytes now: it is not taken in again."""
    known = _known(batches)
    found = [(one, known.get(one.name)) for one in delivered(contract, settings)]
    return [
        one for one, file in found if file is not None and not _is_new(one, file) and one.size != file.size
    ]


def _known(batches: Iterable[Batch]) -> dict[str, LandingFile]:
    """Each known file by name; one that was empty and came again counts as it came last."""
    return {file.name: file for batch in batches for file in batch.files}


def _is_new(one: Delivered, file: LandingFile | None) -> bool:
    return file is None or (file.status == EMPTY and file.size != one.size)


def batch_date_of(name: str, run_date: date) -> date:
    """The landing folder's date where there is one, else the run's.

    >>> batch_date_of("weather/2013-04-30/part-1.json", date(2026, 1, 1))
    datetime.date(2013, 4, 30)
    """
    found = DATED_FOLDER.search(name)
    try:
        return date.fromisoformat(found.group(1)) if found else run_date
    except ValueError:
        return run_date

"""The landing zone: the one rule for what is delivered and what of it is new, and which date it is of.

Whoever asks (taking in, who has work, status) asks `look`. A file is *delivered* when it lies below the stream's
landing folder, is not hidden, as a name that begins with `.` or `_` says (but `_day=1` is a partition) or `._COPYING_`
at its end, and has *settled*: `source.settle_seconds` have passed since it last changed. What is no regular file there
(a link, a pipe), or has no name in UTF-8, is refused by name.

A file is *known* by its name with its size and time, and where these differ from what was recorded, by its digest:

- a name that no batch has dealt with is new; so is one that was only ever empty, refused or missed and differs now:
  an empty file is never final, and a refused one that was mended is a delivery;
- a name of which tuples were taken in is *doubtful* when size or time differ: taking in reads it once; the same bytes
  are only given their new time; others are a named event, `source.changed: refuse | new_batch`. Either way the rows
  that were taken in stay.

What is copied into place is best written under a hidden name and renamed.

>>> is_hidden("2013-01-01/part-1.json"), is_hidden("2013-01-01/_SUCCESS"), is_hidden(".tmp/part-1.json")
(False, True, True)
>>> is_hidden("_day=1/part-1.json"), is_hidden("part-1.json._COPYING_")
(False, True)
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date, datetime, timedelta

from spillway.batch import DUPLICATE, MISSED, REFUSED, REPLAYED, TAKEN, Batch, LandingFile
from spillway.clock import utc_now
from spillway.contracts import StreamContract
from spillway.errors import Refused
from spillway.settings import Settings
from spillway.store.batches import batches_of_files
from spillway.store.landing_zone import leads_outside, list_landed
from spillway.store.tables import Tables

DATED_FOLDER = re.compile(r"(?:^|[/=])(\d{4}-\d{2}-\d{2})/")


@dataclass(frozen=True)
class Delivered:
    """A file as the landing zone shows it; `name` is its path below the landing zone, or all of it from elsewhere.

    `problem`: why it is refused whatever it holds (rule, value, remedy).
    """

    name: str
    path: str
    size: int
    modified_at: datetime
    problem: tuple[str, str, str] | None = None


@dataclass(frozen=True)
class Landing:
    """What a look at the landing zone found, in name order."""

    fresh: tuple[Delivered, ...]
    """New: to be taken in, or refused by name."""
    doubtful: tuple[Delivered, ...]
    """Known by name, of another size or time: to be read, whether the bytes are others."""
    settling: tuple[Delivered, ...]
    """May still be written to."""
    refused: tuple[tuple[Delivered, LandingFile], ...]
    """Refused as they lie there, with what was recorded of them."""

    @property
    def waiting(self) -> tuple[Delivered, ...]:
        """What taking in has to deal with now; it deals with each once."""
        return (*self.fresh, *self.doubtful)


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
    """Everything that lies in the stream's landing folder and is not hidden, in name order, settled or not."""
    return [one for one, _ in _listed(contract, settings)]


def _listed(contract: StreamContract, settings: Settings) -> list[tuple[Delivered, bool]]:
    """Each file, and whether it is there only once it is whole."""
    root = landing_root(contract, settings.landing).rstrip("/")
    outside = leads_outside(root, settings.landing) if root != contract.path.rstrip("/") else None
    if outside is not None:
        raise Refused(
            "source.path", f"lead to a folder below {settings.landing}", outside,
            "land the files there, or write the absolute path in the contract", contract.stream,
        )  # fmt: skip
    prefix = settings.landing.rstrip("/") + "/"
    found = [
        (
            Delivered(one.path.removeprefix(prefix), one.path, one.size, one.modified_at, one.problem),
            one.appears_whole,
        )
        for one in list_landed(root)
        if not is_hidden(one.path.removeprefix(root + "/"))
    ]
    return sorted(found, key=lambda pair: pair[0].name)


def look(
    contract: StreamContract, settings: Settings, batches: Iterable[Batch], now: datetime | None = None
) -> Landing:
    """What is in the stream's landing folder, by what its batches know; `now` is the clock for what has settled."""
    seconds, known = contract.source.settle_seconds, _known(batches)
    settled = (now or utc_now()) - timedelta(seconds=seconds)
    fresh: list[Delivered] = []
    doubtful: list[Delivered] = []
    settling: list[Delivered] = []
    refused: list[tuple[Delivered, LandingFile]] = []
    for one, is_whole in _listed(contract, settings):
        entries = known.get(one.name, [])
        same = next((entry for entry in reversed(entries) if _is_as_recorded(one, entry)), None)
        if same is not None:
            if same.status == REFUSED:
                refused.append((one, same))
        elif seconds and not (is_whole or one.problem) and one.modified_at > settled:
            settling.append(one)
        elif one.problem is None and any(entry.status in (TAKEN, DUPLICATE) for entry in entries):
            doubtful.append(one)
        else:
            fresh.append(one)
    return Landing(tuple(fresh), tuple(doubtful), tuple(settling), tuple(refused))


def landed(contract: StreamContract, tables: Tables, now: datetime | None = None) -> Landing:
    """A look by what the tables know: of however many batches, those that know a name that lies there are read."""
    there = {one.name for one, _ in _listed(contract, tables.settings)}
    known = batches_of_files(tables, contract.stream, there) if there else []
    return look(contract, tables.settings, known, now)


def _known(batches: Iterable[Batch]) -> dict[str, list[LandingFile]]:
    """By name, what was recorded of files as they lay there, oldest first."""
    known: dict[str, list[LandingFile]] = {}
    for batch in batches:
        for file in batch.files:
            if file.status not in (MISSED, REPLAYED):
                known.setdefault(file.name, []).append(file)
    return known


def _is_as_recorded(one: Delivered, entry: LandingFile) -> bool:
    return one.size == entry.size and entry.modified_at in (None, one.modified_at)


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

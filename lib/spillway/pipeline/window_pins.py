"""Which windows of a join or a query are to be worked out, and what each of them reads.

A window is closed when every input stream has transmitted something later, and it is there where an input has rows. It
is pinned with the batches it reads before anything is worked out, so that a rerun reads what the first run read. What
comes when a window was worked out opens it again, and those that look back at it: they are worked out anew with all of
their rows, so that nothing that is late is lost.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from functools import partial

import numpy as np
import pyarrow as pa

from spillway.batch import DONE, RETIRED, utc_now
from spillway.contracts import Contracts
from spillway.contracts.workload import Workload
from spillway.errors import Refused
from spillway.levers.windows import PLANNED, Window
from spillway.pipeline.facts import newest_facts
from spillway.registry import lever
from spillway.store.files import DataFile, high_edge, low_edge, rows_of
from spillway.store.filters import Between, matching
from spillway.store.tables import Tables

_ROWS_AT_A_TIME = 131_072
Input = tuple[str, int]
"""A stream, and the number of a batch of it."""


def pinned_windows(tables: Tables, contracts: Contracts, contract: Workload) -> list[Window]:
    """The windows that are closed and not worked out, in their order; new ones are pinned here."""
    known = known_windows(tables, contract)
    wanted = windows_to_read(tables, contracts, contract, known)
    now = utc_now()
    pinned = [
        _opened_again(known[number], inputs, now)
        if number in known
        else _new(tables, contracts, contract, number, inputs, now)
        for number, inputs in sorted(wanted.items())
    ]
    if pinned:
        save_windows(tables, pinned)
    waiting = {number: one for number, one in known.items() if one.status == PLANNED}
    return sorted((waiting | {one.window: one for one in pinned}).values(), key=lambda one: one.window)


def known_windows(tables: Tables, contract: Workload) -> dict[int, Window]:
    """The windows that were pinned before, by their number."""
    rows = tables.at("windows").rows(subject=contract.subject).to_pylist()
    return {row["window"]: Window.from_row(row) for row in rows}


def save_windows(tables: Tables, windows: Sequence[Window]) -> None:
    """Write the rows of windows of one subject, replacing what they were."""
    replace = partial(tables.at("windows").replace, subject=windows[0].subject)
    replace([window.row() for window in windows], window=[window.window for window in windows])


def _opened_again(window: Window, inputs: Collection[Input], now: datetime) -> Window:
    return window.becomes(now, status=PLANNED, inputs=tuple(sorted({*window.inputs, *inputs})))


def _new(
    tables: Tables,
    contracts: Contracts,
    contract: Workload,
    number: int,
    inputs: Collection[Input],
    now: datetime,
) -> Window:
    subject, seconds = contract.subject, contract.window.seconds
    begin, end = (datetime.fromtimestamp(edge * seconds, UTC) for edge in (number, number + 1))
    scope = "join" if subject in contracts.joins else "query"
    versions = {
        name: facts.version
        for name in contract.lever_names
        if (facts := newest_facts(tables, subject, name)) is not None
    }
    pinned = tuple(sorted(inputs))
    return Window(
        scope, subject, number, PLANNED, begin, end, pinned, now, now, contract.lever_names, versions
    )


def windows_to_read(
    tables: Tables, contracts: Contracts, contract: Workload, known: Mapping[int, Window]
) -> dict[int, set[Input]]:
    """By closed window, the batches with rows for it that it has not read."""
    seconds, back = contract.window.seconds, windows_back(contract)
    found: dict[int, set[Input]] = {}
    spans: dict[Input, tuple[int, int]] = {}
    closed: list[int] = []
    for stream in dict.fromkeys(contract.inputs):
        order = window_order(contracts, contract, stream)
        last: list[int] = []
        for batch, files in _transmitted(tables, stream).items():
            high = max((edge for file in files if (edge := high_edge(file, order)) is not None), default=None)
            if high is None:
                continue
            last.append(window_at(high, seconds))
            low = min((edge for file in files if (edge := low_edge(file, order)) is not None), default=high)
            spans[stream, batch] = (window_at(low, seconds), last[-1])
            # its windows are pinned in their order: when the last one is, all of them are
            if (stream, batch) in (known[last[-1]].inputs if last[-1] in known else ()):
                continue
            own = _windows_of(files, batch, order, seconds)
            looking = {n for n in known if any(n - back <= number < n for number in own)} if back else set()
            for number in own | looking:
                if number in known and (stream, batch) in known[number].inputs:
                    continue
                found.setdefault(number, set()).add((stream, batch))
        if not last:
            return {}
        closed.append(max(last))
    for number in (number for number in found if back and number not in known):
        found[number] |= {
            one for one, (low, high) in spans.items() if low <= number and high >= number - back
        }
    if contract.window.rows_of == "all":
        found = {
            number: inputs
            for number, inputs in found.items()
            if number in known or {stream for stream, _ in inputs} >= set(contract.inputs)
        }
    return {number: inputs for number, inputs in found.items() if number < min(closed)}


def windows_back(contract: Workload) -> int:
    """How many windows before its own a window may need rows of."""
    (name, *_) = contract.lever_names
    return math.ceil(lever(name).looks_back_seconds(contract) / contract.window.seconds)


def window_order(contracts: Contracts, contract: Workload, stream: str) -> str:
    """The attribute by which an input stream is cut into windows."""
    order = contracts.stream(stream).order
    kind = contracts.stream(stream).attribute(order).type
    if kind not in ("timestamp", "date"):
        raise Refused(
            "inputs",
            f"be ordered by a timestamp or a date to be cut into windows of seconds, and {stream} is by {order}",
            kind,
            "name a stream whose order attribute is one",
            where=contract.subject,
        )
    return order


def window_at(edge: date, seconds: float) -> int:
    """The window that a moment, or the midnight that a date begins with, lies in.

    >>> window_at(date(1970, 1, 3), 86400.0), window_at(datetime(1970, 1, 3, 12, tzinfo=UTC), 3600.0)
    (2, 60)
    """
    moment = edge if isinstance(edge, datetime) else datetime(edge.year, edge.month, edge.day, tzinfo=UTC)
    return math.floor(moment.timestamp() / seconds)


def times_within(kind: str, begin: datetime, end: datetime) -> tuple[date, date]:
    """The first and the last value that an order attribute has from one moment until right before another."""
    last = end - timedelta(microseconds=1)  # the moment after the last belongs to the next window
    return (begin.date(), last.date()) if kind == "date" else (begin, last)


def _transmitted(tables: Tables, stream: str) -> dict[int, list[DataFile]]:
    """Of each batch that the stream has sent, the files that hold its rows."""
    where = {"stream": stream, "status": [DONE, RETIRED], "rows": Between(1)}
    sent = sorted(tables.at("batches").rows(["batch"], **where)["batch"].to_pylist())
    table = tables.at("transmitted", stream)
    return {batch: files for batch in sent if (files := table.files(batch=batch))}


def _windows_of(files: Sequence[DataFile], batch: int, order: str, seconds: float) -> set[int]:
    """The windows in which a batch has rows."""
    found: set[int] = set()
    for file in files:
        low, high = (
            (file.low(order), file.high(order)) if file.low("batch") == file.high("batch") else (None, None)
        )
        if low is not None and high is not None and window_at(low, seconds) == window_at(high, seconds):
            found.add(window_at(low, seconds))  # nothing of it has to be read
            continue
        for part in rows_of(file, ["batch", order], _ROWS_AT_A_TIME):
            mine = part.filter(matching(part, {"batch": batch}))[order].drop_null()
            micros = np.asarray(mine.cast(pa.timestamp("us")).cast(pa.int64()))
            found |= set(np.unique(np.floor(micros / (seconds * 1e6)).astype(np.int64)).tolist())
    return found

"""Which windows of a join or a query are to be worked out, and what each of them reads.

A window is closed when every input stream has transmitted something later, and it is there where an input has rows. It
is pinned with the batches it reads before anything is worked out, so that a rerun reads what the first run read. What
comes when a window was worked out opens it again, and those that look back at it: they are worked out anew with all of
their rows, so that nothing that is late is lost. Where not all of its rows are there any more, because retention has
removed them, a window that was worked out stays as it is and names what came too late; one that never was is given up.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from datetime import datetime
from functools import partial

from spillway.clock import utc_now
from spillway.contracts import Contracts
from spillway.contracts.workload import Workload
from spillway.levers.protocol import Say
from spillway.levers.windows import DONE, GONE, OPEN, PLANNED, Input, Window
from spillway.pipeline.facts import newest_facts
from spillway.pipeline.window_grid import WindowGrid
from spillway.pipeline.window_look import WindowsFound, find_windows, gone, looked_back_at, windows_back
from spillway.store.tables import Table, Tables


def pinned_windows(
    tables: Tables, contracts: Contracts, contract: Workload, say: Say = lambda _: None
) -> list[Window]:
    """The windows that are closed and not worked out, in their order; new ones are pinned here."""
    found = find_windows(tables, contracts, contract)
    pins = _Pins(tables, contracts, contract, found, utc_now())
    changed = {window.window: window for window in [*pins.opened(), *pins.closed(), *pins.opened_again()]}
    if changed:
        save_windows(tables, list(changed.values()))
    for window in changed.values():
        _tell(window, found, say)
    waiting = found.known.with_status(PLANNED) | changed
    planned = (one for one in waiting.values() if one.status == PLANNED)
    return sorted(planned, key=lambda one: one.window)


def save_windows(tables: Tables, windows: Sequence[Window]) -> None:
    """Write the rows of windows of one subject, replacing what they were."""
    replace = partial(tables.at("windows").replace, subject=windows[0].subject)
    replace([window.row() for window in windows], window=[window.window for window in windows])


def claim_windows(tables: Tables, windows: Sequence[Window], written: Iterable[Table]) -> None:
    """Before anything is published of these windows: refused where another run has pinned or claimed them since.

    `written`: the tables that are published to, opened by being named here. Of two runs one claims last, and it has
    read the windows as they stand: whoever claimed before had opened these tables before the last one wrote to them,
    so that either finds the other's commit, and cannot turn the windows done. So an older answer never stays in the
    place of a newer one: what is refused stays planned.
    """
    assert all(table.version >= -1 for table in written)
    now = utc_now()
    save_windows(tables, [window.becomes(now) for window in windows])


class _Pins:
    """The rows that a look makes of windows."""

    def __init__(
        self, tables: Tables, contracts: Contracts, contract: Workload, found: WindowsFound, now: datetime
    ) -> None:
        self._tables, self._contracts, self._contract = tables, contracts, contract
        self._found, self._now = found, now
        self._touched = found.known.numbered(found.came)

    def opened(self) -> Iterable[Window]:
        """Windows that have begun, with the batches that have rows of them so far."""
        for number, inputs in self._found.came.items():
            window = self._touched.get(number) or self._begun(number)
            if window.status == OPEN and number not in self._found.closed:
                yield window.becomes(self._now, inputs=_merged(window.inputs, inputs))

    def closed(self) -> Iterable[Window]:
        """Windows that have ended: pinned with what they read and are worked out by."""
        closed, back = self._found.closed, windows_back(self._contract)
        if not closed:
            return
        low, high = min(closed), max(closed)
        own = {n: set(one.inputs) - set(one.looked_back) for n, one in self._before(low, high, back).items()}
        for number, inputs in self._found.came.items():
            own[number] = own.get(number, set()) | inputs
        known = self._found.known.numbered(closed)
        versions = {
            name: facts.version
            for name in self._contract.lever_names
            if (facts := newest_facts(self._tables, self._contract.subject, name)) is not None
        }
        looks = {number: looked_back_at(own, number, back) - inputs for number, inputs in closed.items()}
        lost = gone(self._tables, {one for number in closed for one in closed[number] | looks[number]})
        for number, inputs in sorted(closed.items()):
            reads = inputs | looks[number]
            yield (known.get(number) or self._begun(number)).becomes(
                self._now,
                created_at=self._now,
                status=GONE if reads & lost else PLANNED,
                inputs=_merged(reads),
                looked_back=_merged(looks[number]),
                levers=self._contract.lever_names,
                models=versions,
            )

    def opened_again(self) -> Iterable[Window]:
        """Windows that something came late for."""
        again = self._found.again
        known = self._found.known.numbered(again)
        lost = gone(self._tables, {one for number in again for one in known[number].inputs})
        for number, inputs in sorted(again.items()):
            window = known[number]
            if window.status == GONE or set(window.inputs) & lost:
                yield window.becomes(self._now, too_late=_merged(window.too_late, inputs))
                continue
            looked_back = inputs - self._found.came.get(number, set())
            yield window.becomes(
                self._now,
                status=PLANNED,
                inputs=_merged(window.inputs, inputs),
                late=_merged(window.late, inputs if window.status == DONE else ()),
                looked_back=_merged(set(window.looked_back) - (inputs - looked_back), looked_back),
            )

    def _before(self, low: int, high: int, back: int) -> dict[int, Window]:
        return self._found.known.between(low - back, high) if back else {}

    def _begun(self, number: int) -> Window:
        scope = "join" if self._contract.subject in self._contracts.joins else "query"
        begin, end = WindowGrid.of(self._contract).span(number)
        now = self._now
        return Window(scope, self._contract.subject, number, OPEN, begin, end, (), now, now)


def _merged(*inputs: Collection[Input]) -> tuple[Input, ...]:
    return tuple(sorted({one for some in inputs for one in some}))


def _tell(window: Window, found: WindowsFound, say: Say) -> None:
    """What cannot be worked out with all of its rows is said."""
    late = found.again.get(window.window, set()) & set(window.too_late)
    batches = ", ".join(f"batch {batch} of {stream}" for stream, batch in sorted(late))
    if late:
        say(
            f"{window.subject}: window {window.window} ({window.from_time:%Y-%m-%d %H:%M}) stays as it is: {batches} "
            "came when rows that it rests on had been removed by retention"
        )
    elif window.status == GONE:
        say(
            f"{window.subject}: window {window.window} ({window.from_time:%Y-%m-%d %H:%M}) is given up: rows of it "
            "were removed by retention before it was closed"
        )

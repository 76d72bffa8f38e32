"""Windows of a query that could not be worked out: they are told, and kept in mind until what is asked is another.

Such a window stays planned and leaves its room to the others, for good. So the next run may have none for it: nothing
of it would be asked, nothing would fail, and an empty answer would be published in the place of a fault. That is why
the window keeps the sentence that it failed with and what was asked then (`failed`, `failed_by`): asked the same, with
no room for any portion, it waits and is told again; asked otherwise, it is worked out as any other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from spillway.clock import utc_now
from spillway.engine.statements import TookTooLong
from spillway.errors import SpillwayError
from spillway.levers.windows import AskingDecision, SqlQuestion, Window
from spillway.pipeline.faults import Faults
from spillway.pipeline.window_pins import save_windows
from spillway.store.tables import Tables

MOST_TOLD = 3
"""Windows of a query that are told one by one where they fail."""
MOST_TOO_LONG = 3
"""Windows of a query that a run waits for in vain: as many as are asked at a time."""
_Work = TypeVar("_Work")


def refuse_unasked(decision: AskingDecision, window: Window, questions: Sequence[SqlQuestion]) -> None:
    """Refuse to call a window empty that failed on its rows, and of which nothing is asked now."""
    if window.failed is not None and window.failed_by == decision.asks and not questions:
        raise _Waits(window.failed, "no room is left in its slice")


class _Waits(SpillwayError):
    """A window that failed before is asked nothing now; `problem` is what it failed by."""

    def __init__(self, problem: str, why: str) -> None:
        super().__init__(
            f"{problem}; it waits, not asked again, as {why}: correct the query, and it is worked out as any other"
        )
        self.problem = problem


class Patience:
    """Which windows of a query are still asked in a run once some take too long.

    Each may take its `most_seconds`, and all other queries and joins wait: behind one without end for every window of
    it, in every run. So a run waits for a few at most; and for one of those that took too long in a run before.
    """

    def __init__(self, asks: str, windows: Sequence[Window]) -> None:
        slow = [
            window.window
            for window in windows
            if window.failed_by == asks and (window.failed or "").endswith(TookTooLong.REMEDY)
        ]
        self._later = frozenset(slow[1:])
        self._late: list[int] = []

    def ask(self, window: Window, work: Callable[[], _Work]) -> _Work:
        """Do the work on a window, or refuse to begin it."""
        if window.window in self._later:
            raise _Waits(str(window.failed), "another of its query did before it")
        if len(self._late) >= MOST_TOO_LONG:
            raise SpillwayError(
                f"not asked, as {len(self._late)} windows of its query took too long in this run; raise most_seconds, "
                "or ask for less"
            )
        try:
            return work()
        except TookTooLong:
            self._late.append(window.window)
            raise


def mark_failed(
    tables: Tables, windows: Sequence[Window], failed: Mapping[int, Exception], asks: str
) -> None:
    """Keep what windows failed by, and what was asked; before anything of their room is published to others."""
    changed = []
    for window in windows:
        problem = failed.get(window.window)
        if problem is None:
            continue
        said = problem.problem if isinstance(problem, _Waits) else str(problem)
        if (window.failed, window.failed_by) != (said, asks):
            changed.append(window.becomes(utc_now(), failed=said, failed_by=asks))
    if changed:
        save_windows(tables, changed)


def tell_failed(
    faults: Faults, subject: str, windows: Sequence[Window], failed: Mapping[int, Exception]
) -> None:
    """Tell of windows that failed: of all in one sentence where they failed alike, else of a few by their time."""
    problems = [(window, failed[window.window]) for window in windows if window.window in failed]
    alike = {str(problem) for _, problem in problems}
    if len(alike) == 1 and len(problems) == len(windows):
        faults.note(subject, "work out", problems[0][1])
        return
    for window, problem in problems[:MOST_TOLD]:
        told = f"{subject}, window of {window.from_time:%Y-%m-%d %H:%M}: {problem}"
        faults.note(subject, "work out", SpillwayError(told))
    if len(problems) > MOST_TOLD:
        told = f"{subject}: {len(problems) - MOST_TOLD} windows more could not be worked out"
        faults.note(subject, "work out", SpillwayError(told))

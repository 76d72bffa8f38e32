"""What is kept and told of windows that could not be worked out."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from spillway.errors import SpillwayError
from spillway.levers.windows import PLANNED, Window
from spillway.settings import Settings
from spillway.store.tables import Tables
from spillway.streams.faults import Faults
from spillway.workloads.run import MOST_TOLD, mark_failed, refuse_window_without_query, report_failed

AT = datetime(2026, 1, 1, tzinfo=UTC)
ASKED: Any = SimpleNamespace(query_fingerprint="sql")
QUESTION: Any = SimpleNamespace()


@pytest.fixture
def tables(request: pytest.FixtureRequest) -> Iterator[Tables]:
    tables = Tables(Settings.in_memory(f"failures-{request.node.name}"))
    yield tables
    tables.forget()


def window(number: int, **more: Any) -> Window:
    at = AT + timedelta(hours=number)
    return Window("query", "warm", number, PLANNED, at, at, (), AT, AT, **more)


def waits(one: Window) -> SpillwayError:
    """What a window is refused with that failed, and is asked the same with no room for it."""
    with pytest.raises(SpillwayError, match=r"^divided by nothing; the window waits, because") as caught:
        refuse_window_without_query(ASKED, one, [])
    return caught.value


def test_a_window_that_failed_waits_only_where_the_same_is_asked_of_none_of_its_rows() -> None:
    failed = window(1, failed="divided by nothing", failed_by="sql")
    waits(failed)
    refuse_window_without_query(ASKED, failed, [QUESTION])
    refuse_window_without_query(SimpleNamespace(query_fingerprint="another"), failed, [])  # type: ignore[arg-type]
    refuse_window_without_query(ASKED, window(1), [])


def test_a_window_keeps_what_it_failed_by_however_often_it_waits(tables: Tables) -> None:
    windows = [window(number) for number in (1, 2)]
    mark_failed(tables, windows, {1: SpillwayError("divided by nothing")}, "sql")
    (kept,) = map(Window.from_row, tables.now().at("windows").rows(subject="warm").to_pylist())
    assert (kept.window, kept.failed, kept.failed_by) == (1, "divided by nothing", "sql")
    before = tables.now().at("windows").version
    mark_failed(tables.now(), [kept], {1: waits(kept)}, "sql")
    assert tables.now().at("windows").version == before, "it says so already"
    mark_failed(tables.now(), [kept], {1: waits(kept)}, "another")
    (again,) = map(Window.from_row, tables.now().at("windows").rows(subject="warm").to_pylist())
    assert (again.failed, again.failed_by) == ("divided by nothing", "another")


def told(windows: int, failed: dict[int, str]) -> list[str]:
    faults = Faults()
    every = [window(number) for number in range(windows)]
    report_failed(faults, "warm", every, {number: SpillwayError(said) for number, said in failed.items()})
    return [fault.sentence for fault in faults.found]


def test_windows_are_told_in_one_sentence_where_all_failed_alike_else_a_few_by_their_time() -> None:
    assert told(3, dict.fromkeys(range(3), "warm is cold")) == ["warm is cold"]
    assert told(3, {1: "warm is cold"}) == ["warm, window of 2026-01-01 01:00: warm is cold"]
    every = told(9, {number: f"fault {number}" for number in range(9)})
    assert every[:MOST_TOLD] == [f"warm, window of 2026-01-01 0{n}:00: fault {n}" for n in range(MOST_TOLD)]
    assert every[MOST_TOLD:] == [f"warm: {9 - MOST_TOLD} more windows could not be computed"]

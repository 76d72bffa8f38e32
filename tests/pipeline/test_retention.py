"""Which rows may go, and what windows still want, is decided from the tables alone, in milliseconds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest
from tests.levers.quality.worlds import COUNT, query
from tests.pipeline.test_room import stream

from spillway.batch import (
    DONE,
    DUPLICATE,
    EMPTY,
    FILE_INGESTED,
    MISSED,
    PENDING,
    PLANNED,
    QUARANTINED,
    REFUSED,
    REPLAYED,
    RETIRED,
    Batch,
    LandingFile,
)
from spillway.contracts import Contracts, read_workload
from spillway.ledger import LedgerRow
from spillway.levers.windows import Window
from spillway.settings import Settings
from spillway.store.batches import save_batches
from spillway.store.tables import Tables
from spillway.streams.drafts import own_table
from spillway.streams.retention import (
    TRANSMITTED,
    ExpiredRows,
    Retention,
    _done_files,
    first_open_batch,
    maintain_lake,
)
from spillway.workloads.windows import StoredWindows, WindowSearchResult, _Pins

NOW = datetime(2026, 3, 1, tzinfo=UTC)
LONG_AGO = date(2020, 1, 1)


@pytest.fixture
def tables(request: pytest.FixtureRequest) -> Iterator[Tables]:
    tables = Tables(Settings.in_memory(f"retention-{request.node.name}"))
    yield tables
    tables.forget()


def batch(number: int, status: str, day: date = LONG_AGO, since: timedelta | None = None) -> Batch:
    """A batch without rows, taken in on its day, or so long ago."""
    at = datetime(day.year, day.month, day.day, tzinfo=UTC) if since is None else NOW - since
    first = 10 * number
    return Batch("net", number, day, status, (), first, first + 9, "run", at, at, 0, 0, 0)


def outlived(tables: Tables, name: str) -> list[ExpiredRows]:
    """What may go of a table."""
    found: list[ExpiredRows] = []
    queries = {"warm": read_workload(query("warm", COUNT, inputs=["net"]))}
    contracts = Contracts({"net": stream("net")}, {}, queries=queries)
    Retention(tables.now(), contracts, NOW).take_expired(found.append)
    return [one for one in found if one.table.contract.table == name]


def test_what_somebody_may_still_work_on_stays_however_old_it_is(tables: Tables) -> None:
    every = [*PENDING, DONE, RETIRED, QUARANTINED, DONE]
    save_batches(tables, [batch(number, status) for number, status in enumerate(every, 1)])
    (found,) = outlived(tables, "batches")
    assert [every[number - 1] for number in found.where["batch"]] == [DONE, RETIRED, QUARANTINED]
    assert len(every) not in found.where["batch"], "the next one counts on from the last"


def test_what_came_late_stays_as_long_as_if_it_were_of_the_day_it_came_on(tables: Tables) -> None:
    days = tables.contract("batches").retain_days
    assert days is not None
    save_batches(
        tables,
        [
            batch(1, DONE, since=timedelta(days=days, hours=1)),
            batch(2, DONE, since=timedelta(days=days, hours=-1)),
            batch(3, DONE),
        ],
    )
    (found,) = outlived(tables, "batches")
    assert found.where["batch"] == [1]
    assert found.rows == 1


def sent(tables: Tables, *numbers: int) -> None:
    """Transmitted rows, one of each of these batches."""
    table = own_table(tables, stream("net"), TRANSMITTED)
    rows = [{"seq": 10 * n, "batch": n, "batch_date": LONG_AGO, "at": n} for n in numbers]
    table.append([{**row, "site": "a", "temp": 0.5} for row in rows])


def window(number: int, *inputs: int, at: datetime, **more: Any) -> dict[str, Any]:
    """A window of a query that was worked out at a moment."""
    read = tuple(("net", one) for one in inputs)
    return Window("query", "warm", number, DONE, at, at, read, at, at, **more).row()


def test_a_window_stays_known_as_long_as_any_row_is_there_that_it_would_be_worked_out_anew_by(
    tables: Tables,
) -> None:
    long_ago = datetime(2020, 1, 1, tzinfo=UTC)
    sent(tables, 1, 2)
    save_batches(tables, [batch(number, DONE) for number in (1, 2, 3, 4)])
    windows = [
        window(1, 1, 3, at=long_ago),
        window(2, 3, 4, at=long_ago),
        window(3, 3, at=long_ago, too_late=(("net", 2),)),
        window(4, 4, at=long_ago),
        window(5, 4, at=NOW),
    ]
    tables.now().at("windows").append(windows)
    (found,) = outlived(tables, "windows")
    assert (found.where["window"], found.rows) == ([2, 4], 2)


def test_what_a_query_left_goes_on_the_day_after_it_has_been_kept_as_long_as_is_said(tables: Tables) -> None:
    days = tables.contract("ledger").retain_days
    assert days is not None
    limit = NOW.date() - timedelta(days=days)
    for number, day in enumerate((limit - timedelta(days=1), limit, NOW.date())):
        line = LedgerRow("query", "warm", number, day, "quality", 1, "rows")
        tables.now().at("ledger").append([line.to_dict()])
    (found,) = outlived(tables, "ledger")
    assert (found.where["batch"], found.rows) == ([0], 1)


def test_a_dry_run_takes_nothing_out_and_says_as_much(tables: Tables) -> None:
    save_batches(tables, [batch(1, DONE), batch(2, DONE), batch(3, DONE)])
    contracts = Contracts({"net": stream("net")}, {})
    told = [maintain_lake(tables, contracts, now=NOW, dry_run=dry).rows_removed for dry in (True, False)]
    assert told == [{"batches": 2}] * 2, "all of it was there still"
    assert tables.now().at("batches").rows(stream="net")["batch"].to_pylist() == [3]


def test_of_delivered_files_only_those_whose_bytes_are_in_a_batch_that_is_through_may_be_put_away(
    tables: Tables,
) -> None:
    fates = (FILE_INGESTED, DUPLICATE, EMPTY, REFUSED, MISSED, REPLAYED)
    for number, status in enumerate((DONE, RETIRED, PLANNED, QUARANTINED), 1):
        files = tuple(LandingFile(f"{status}/{fate}", 1, "d", 1, 0, fate) for fate in fates)
        save_batches(tables, [replace(batch(number, status), files=files)])
    assert sorted(_done_files(tables.now(), "net")) == [
        f"{status}/{fate}" for status in (DONE, RETIRED) for fate in (DUPLICATE, FILE_INGESTED)
    ]


def test_somebody_may_still_work_on_what_waits_and_on_all_of_today(tables: Tables) -> None:
    today, eve = NOW.date(), NOW.date() - timedelta(days=1)
    assert first_open_batch(tables, "net", today) is None
    save_batches(tables, [batch(1, DONE, eve), batch(2, DONE, eve)])
    assert first_open_batch(tables.now(), "net", today) is None
    save_batches(tables.now(), [batch(3, DONE, today), batch(4, DONE, today)])
    assert first_open_batch(tables.now(), "net", today) == 3
    save_batches(tables.now(), [batch(5, PLANNED, eve)])
    assert first_open_batch(tables.now(), "net", today) == 3
    (waiting,) = save_batches(tables.now(), [batch(0, PLANNED, eve)])
    assert first_open_batch(tables.now(), "net", today) == waiting.batch == 0


def test_what_comes_for_a_window_is_late_only_where_it_had_been_worked_out(tables: Tables) -> None:
    sent(tables, 1, 2)
    save_batches(tables, [batch(number, DONE) for number in (1, 2)])
    at, new = datetime(2020, 1, 1, tzinfo=UTC), ("net", 2)
    rows = [{**window(number, 1, at=at), "status": status} for number, status in ((1, PLANNED), (2, DONE))]
    tables.now().at("windows").append(rows)
    contract = read_workload(query("warm", COUNT, inputs=["net"]))
    contracts, now = Contracts({"net": stream("net")}, {}, queries={"warm": contract}), tables.now()
    found = WindowSearchResult(StoredWindows(now, contract), {1: {new}, 2: {new}}, again={1: {new}, 2: {new}})
    pinned = _Pins(now, contracts, contract, found, NOW).reopened()
    assert [(one.status, one.inputs, one.late) for one in pinned] == [
        (PLANNED, (("net", 1), new), ()),
        (PLANNED, (("net", 1), new), (new,)),
    ]

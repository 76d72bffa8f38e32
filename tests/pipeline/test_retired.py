"""Which batches are validated, and which raw dates are deleted: one doubt of a batch keeps its whole date."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import date, datetime, timedelta
from typing import Any

import pytest
from tests.clock import START
from tests.pipeline.test_room import stream

from spillway.batch import DONE, PLANNED, QUARANTINED, RETIRED, Batch
from spillway.checks import Outcome
from spillway.clock import utc_now
from spillway.engine import ProcessEngine
from spillway.engine.protocol import run_alone
from spillway.pipeline.validate import _mark_validated, retire_raw_dates
from spillway.settings import Settings
from spillway.store.batches import load_batches, save_batches
from spillway.store.tables import Tables
from spillway.streams.drafts import own_table

TODAY = START.date()
OLD, OLDER = (TODAY - timedelta(days=days) for days in (31, 32))
CONTRACT = stream("net", retain_raw={"days": 30, "retire": True})


@pytest.fixture
def tables(request: pytest.FixtureRequest) -> Iterator[Tables]:
    tables = Tables(Settings.in_memory(f"retired-{request.node.name}"))
    yield tables
    tables.forget()


def certificate(one: Batch, revision: int, violations: int = 0) -> dict[str, Any]:
    counts = (
        "shed_values",
        "rounded_values",
        "stored_values",
        "column_bytes",
        "wire_bytes",
        "synopsis_bytes",
    )
    place = {"stream": "net", "batch": one.batch, "batch_date": one.batch_date, "created_at": utc_now()}
    said = {"lever": "attributes", "attribute": "temp", "treatment": "shed", "violations": violations}
    return {**place, **said, "revision": revision, **dict.fromkeys(counts, 0)}


def shed(tables: Tables, number: int, day: date, rows: int = 1, **more: Any) -> Batch:
    """A batch with one tuple in `raw`, brought through."""
    at = datetime(2020, 1, 1, tzinfo=utc_now().tzinfo)
    tuples = [
        {"seq": 10 * number, "batch": number, "batch_date": day, "site": "a", "at": number, "temp": 0.5}
    ]
    own_table(tables.now(), CONTRACT, "raw").append(tuples)
    made = Batch("net", number, day, DONE, (), 10 * number, 10 * number, "run", at, at, rows, 0, 0, **more)
    return save_batches(tables.now(), [made])[0]


def proven(tables: Tables, one: Batch, violations: int = 0) -> Batch:
    """The batch, certified and validated as it stands."""
    tables.now().at("certificates").append([certificate(one, one.revision, violations)])
    return save_batches(tables.now(), [replace(one, validated_revision=one.revision)])[0]


def retired(tables: Tables, *needed: int) -> list[int]:
    return [one.batch for one in retire_raw_dates(tables.now(), CONTRACT, needed, lambda _: None)]


def in_raw(tables: Tables) -> list[int]:
    return sorted(tables.now().at("raw", "net").rows(["batch"])["batch"].to_pylist())


DOUBTS = {
    "is not validated": lambda tables, one: tables.at("certificates").append([certificate(one, one.revision)]),
    "has no certificate": lambda tables, one: save_batches(
        tables, [replace(one, validated_revision=one.revision)]
    ),
    "has violations": lambda tables, one: proven(tables, one, violations=1),
    "was certified as it stood before": lambda tables, one: [
        tables.at("certificates").append([certificate(one, one.revision - 1)]),
        save_batches(tables, [replace(one, validated_revision=one.revision)]),
    ],
    "was shed again since": lambda tables, one: save_batches(tables, [proven(tables, one)]),
    "is to be shed again": lambda tables, one: proven(tables, replace(one, status=PLANNED)),
    "was set aside": lambda tables, one: proven(tables, replace(one, status=QUARANTINED)),
}  # fmt: skip


@pytest.mark.parametrize("doubt", DOUBTS)
def test_a_date_of_which_a_batch_is_in_doubt_stays_whole(tables: Tables, doubt: str) -> None:
    proven(tables, shed(tables, 1, OLDER))
    proven(tables, shed(tables, 2, OLD))
    DOUBTS[doubt](tables.now(), shed(tables, 3, OLD))
    assert retired(tables) == [1]
    assert in_raw(tables) == [2, 3]


def test_what_is_needed_stays_and_its_date_with_it_and_what_had_no_tuples_needs_no_proof(
    tables: Tables,
) -> None:
    for number, day in ((1, OLDER), (2, OLD)):
        proven(tables, shed(tables, number, day))
    shed(tables, 3, OLDER, rows=0)
    assert retired(tables, 2) == [1, 3]
    assert retired(tables) == [2]
    assert {one.status for one in load_batches(tables.now(), "net")} == {RETIRED}
    lines = tables.now().at("ledger").rows(["batch", "offered"], stage="retire").to_pylist()
    assert sorted((line["batch"], line["offered"]) for line in lines) == [(1, 1), (2, 1), (3, 0)], "told once"


def test_raw_is_kept_for_as_many_days_as_are_said_and_for_good_where_nothing_is(tables: Tables) -> None:
    for number, day in ((1, OLD), (2, OLD + timedelta(days=1)), (3, TODAY)):
        proven(tables, shed(tables, number, day))
    assert retire_raw_dates(tables.now(), stream("net", retain_raw={"days": 0}), (), lambda _: None) == []
    assert retired(tables) == [1]
    assert in_raw(tables) == [2, 3]


def failing(name: str, day: date | None) -> Outcome:
    return Outcome("ledger", name, day, "ledger_balances", False, "1", "0", "", "a sentence")


@pytest.mark.parametrize(
    ("failed", "held"),
    [
        (("net", OLD), [1]),
        (("net", None), []),
        (("", None), []),
        (("", OLDER), [2]),
        (("other", None), [1, 2]),
    ],
)
def test_a_batch_is_validated_where_nothing_failed_of_its_date_its_stream_or_what_all_share(
    tables: Tables, failed: tuple[str, date | None], held: list[int]
) -> None:
    batches = [shed(tables, 1, OLDER), shed(tables, 2, OLD)]
    reported = replace(failing("net", OLDER), success=True, reported=True)
    step = _mark_validated(tables.now(), batches, [failing(*failed), reported], lambda _: None)
    run_alone(ProcessEngine(), step)
    assert [one.batch for one in load_batches(tables.now(), "net") if one.is_validated] == held


def test_what_was_shed_again_while_it_was_judged_is_not_validated_by_that_and_it_is_said(
    tables: Tables,
) -> None:
    batches, said = [shed(tables, 1, OLDER), shed(tables, 2, OLD)], list[str]()
    save_batches(tables.now(), [batches[1]])
    run_alone(ProcessEngine(), _mark_validated(tables.now(), batches, [], said.append))
    assert [one.batch for one in load_batches(tables.now(), "net") if one.is_validated] == [1]
    assert said == ["net: batches were shed again meanwhile; the next run validates them"]

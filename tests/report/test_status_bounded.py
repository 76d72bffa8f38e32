"""What is read to say how a stream stands does not grow with its history: its last batches, and columns of the rest."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.small_lake import batch_row, small_settings, write_table

from spillway.batch import DONE, PLANNED, QUARANTINED
from spillway.ledger import LedgerRow
from spillway.report import recent
from spillway.report.explain import explain
from spillway.report.metrics import metrics_of
from spillway.report.overview import overview
from spillway.report.page import build_report
from spillway.report.status import status
from spillway.report.summary import run_figures
from spillway.settings import Settings
from spillway.store.tables import Table, Tables

FIRST = date(2026, 1, 1)
LAST = 3
"""Of how many batches these tests show figures."""


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    for one in (recent.read_recent, recent.read_recent_of_all):
        monkeypatch.setattr(one, "__defaults__", (LAST,))


def lake(folder: Path, *statuses: str, part: int = 10, violations: int = 0, **more: Any) -> Settings:
    """A batch of ten tuples a day; the ledger says of the parts of each that they are so many."""
    settings = small_settings(folder, {"river": "uplink"})
    batches, lines, proofs = [], [], []
    for number, one in enumerate(statuses, 1):
        day = FIRST + timedelta(days=number)
        batches.append(batch_row("river", 1, one, batch=number, batch_date=day, **more))
        line = ("stream", "river", number, day)
        lines.append(LedgerRow(*line, "intake", 0, "rows", offered=10, kept=10))
        lines.append(LedgerRow(*line, "intake", 0, "rows", "reason", "x", "x", offered=part, kept=part))
        lines.append(LedgerRow(*line, "sent", 9, "rows", offered=10, kept=10, shortfall=int(number == 1)))
        proofs.append(
            {
                **{
                    "stream": "river",
                    "batch": number,
                    "batch_date": day,
                    "lever": "attributes",
                    "attribute": "a",
                },
                **{"treatment": "shed", "error_pct": 2.0, "created_at": datetime(2026, 6, 1, tzinfo=UTC)},
                **dict.fromkeys(("shed_values", "rounded_values", "stored_values"), 1),
                **dict.fromkeys(("column_bytes", "wire_bytes", "synopsis_bytes"), 1),
                "violations": violations if number == 1 else 0,
            }
        )
    write_table(settings, "batches", batches)
    write_table(settings, "ledger", [row.to_dict() for row in lines])
    write_table(settings, "certificates", proofs)
    return settings


def read_whole(
    monkeypatch: pytest.MonkeyPatch, act: Callable[[Tables], object], settings: Settings
) -> set[int]:
    """The batches of which somebody reads what the ledger, or a certificate, or the whole of `batches` says."""
    found: set[int] = set()
    whole = Table.rows

    def noting(self: Table, *columns: Any, **where: Any) -> Any:
        rows = whole(self, *columns, **where)
        told = self.contract.table
        if told in ("ledger", "certificates") or (told == "batches" and "files" in rows.column_names):
            found.update(rows["batch"].to_pylist() if "batch" in rows.column_names else ())
        return rows

    with monkeypatch.context() as patch:
        patch.setattr(Table, "rows", noting)
        act(Tables(settings))
    return found


@pytest.mark.parametrize(
    "act",
    [
        status,
        lambda tables: metrics_of(tables, datetime(2026, 6, 1, tzinfo=UTC)),
        overview,
        lambda tables: build_report(tables, Path(tables.settings.build, "report.html")),
        run_figures,
        lambda tables: explain(tables, "river", "level"),
    ],
    ids=["status", "metrics", "overview", "report", "figures", "explain"],
)
def test_of_older_batches_nothing_is_read_but_columns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, act: Callable[[Tables], object]
) -> None:
    settings = lake(tmp_path, *[DONE] * 9)
    assert read_whole(monkeypatch, act, settings) <= {7, 8, 9}


def test_what_was_counted_all_along_is_of_all_batches(tmp_path: Path) -> None:
    (stream,) = status(Tables(lake(tmp_path, *[DONE] * 9, violations=4))).streams
    assert (stream.batches, stream.figures.tuples, stream.figures.violations) == ({DONE: 9}, 90, 4)
    assert (stream.last_batch_date, stream.batches_over_capacity) == (FIRST + timedelta(days=9), 0)
    assert stream.figures.shed_values == LAST, "of the last ones"


def test_an_old_batch_that_waits_was_set_aside_or_never_validated_is_named(tmp_path: Path) -> None:
    settings = lake(tmp_path, PLANNED, QUARANTINED, *[DONE] * 7, attempts=2, reason="a kernel failed")
    now = datetime(2026, 6, 1, tzinfo=UTC)
    (stream,) = status(Tables(settings), now).streams
    assert stream.waiting_since is not None
    told = {one.kind: one.sentence for one in status(Tables(settings), now).shortages}
    assert told["quarantined"].startswith("batch 2 of 2026-01-03 failed 2 times")
    assert told["pending"] == "1 batch waits"
    # of 3 to 6 no expectation ever held; what was certified of the last ones is not asked for again
    assert told["unvalidated"] == "4 sent batches are not validated yet"


def off(settings: Settings) -> list[str]:
    return [one.sentence for one in status(Tables(settings)).shortages if one.kind == "ledger"]


def test_parts_of_the_last_batches_that_do_not_add_up_are_wrong(tmp_path: Path) -> None:
    assert off(lake(tmp_path / "sound", DONE)) == []
    assert off(lake(tmp_path / "new", *[DONE] * 2, part=9)) == ["the ledger is off by 4"]


def test_the_last_runs_are_told_newest_first(tmp_path: Path) -> None:
    settings = small_settings(tmp_path, {"river": "uplink", "lake": "uplink"})
    for number in range(1, 8):
        at = datetime(2026, 1, number, tzinfo=UTC)
        for stream in ("river", "lake") if number % 2 else ("lake",):
            row = batch_row(stream, 1, DONE, batch=number, run_id=f"run {number}", created_at=at)
            write_table(settings, "batches", [row])
    runs = status(Tables(settings)).runs
    assert [(one.run_id, one.streams, one.batches, one.tuples) for one in runs[:2]] == [
        ("run 7", ("lake", "river"), 2, 20),
        ("run 6", ("lake",), 1, 10),
    ]
    assert len(runs) == 5


def test_of_outcomes_those_of_the_last_run_are_read(tmp_path: Path) -> None:
    settings = lake(tmp_path, DONE)
    for hour in range(3):
        row = {"run_id": f"run {hour}", "table": "ledger", "expectation": "e", "success": hour != 1}
        row |= {"sentence": f"outcome {hour}", "validated_at": datetime(2026, 6, 1, hour, tzinfo=UTC)}
        write_table(settings, "validations", [row])
    found = status(Tables(settings))
    assert (found.validated_at, found.expectations_failed) == (datetime(2026, 6, 1, 2, tzinfo=UTC), 0)
    row |= {"run_id": "run 9", "success": False, "validated_at": datetime(2026, 6, 2, tzinfo=UTC)}
    write_table(settings, "validations", [row])
    assert status(Tables(settings)).expectations_failed == 1

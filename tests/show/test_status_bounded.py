"""What `spillway status` reads does not grow by parts of the ledger that were judged long ago, nor by old outcomes."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.small_lake import batch_row, small_settings, write_table

from spillway.batch import DONE
from spillway.ledger import TOTAL, LedgerRow
from spillway.settings import Settings
from spillway.show.status import PARTS_LOOKED_AT, status
from spillway.store.tables import Table, Tables

LAST = date(2026, 6, 1)


def lake(folder: Path, *ages: int, part: int = 10) -> Settings:
    """A batch of the river of each age in days, whose ledger says of its parts that they are so many of ten rows."""
    settings = small_settings(folder, {"river": "uplink"})
    for number, age in enumerate(ages, 1):
        day = LAST - timedelta(days=age)
        write_table(settings, "batches", [batch_row("river", 1, DONE, batch=number, batch_date=day)])
        line = ("stream", "river", number, day, "intake", 0, "rows")
        rows = [
            LedgerRow(*line, offered=10, kept=10),
            LedgerRow(*line, "reason", "x", "x", offered=part, kept=part),
        ]
        write_table(settings, "ledger", [row.to_dict() for row in rows])
    return settings


def read_from(monkeypatch: pytest.MonkeyPatch, settings: Settings, table: str) -> list[dict[str, Any]]:
    """The rows of a table that a status reads."""
    found: list[dict[str, Any]] = []
    whole = Table.rows

    def noting(self: Table, *columns: Any, **where: Any) -> Any:
        rows = whole(self, *columns, **where)
        if self.contract.table == table:
            found.extend(rows.to_pylist())
        return rows

    with monkeypatch.context() as patch:
        patch.setattr(Table, "rows", noting)
        status(Tables(settings))
    return found


def off(settings: Settings) -> list[str]:
    return [one.sentence for one in status(Tables(settings)).shortages if one.kind == "ledger"]


def test_of_old_batches_only_totals_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = lake(tmp_path, 400, PARTS_LOOKED_AT.days + 1, PARTS_LOOKED_AT.days, 0)
    read = {(row["batch"], row["dimension_kind"]) for row in read_from(monkeypatch, settings, "ledger")}
    assert read == {(number, TOTAL) for number in (1, 2, 3, 4)} | {(3, "reason"), (4, "reason")}
    (stream,) = status(Tables(settings)).streams
    assert stream.figures.tuples == 40, "figures are of all batches"


def test_parts_of_the_last_month_that_do_not_add_up_are_wrong(tmp_path: Path) -> None:
    assert off(lake(tmp_path / "sound", 0)) == []
    assert off(lake(tmp_path / "new", 400, 0, part=9)) == ["the ledger is off by 2"]


def test_of_outcomes_those_of_the_last_run_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = lake(tmp_path, 0)
    for hour in range(3):
        row = {"run_id": f"run {hour}", "table": "ledger", "expectation": "e", "success": hour != 1}
        row |= {"sentence": f"outcome {hour}", "validated_at": datetime(2026, 6, 1, hour, tzinfo=UTC)}
        write_table(settings, "validations", [row])
    read = read_from(monkeypatch, settings, "validations")
    assert [row["sentence"] for row in read if "sentence" in row] == ["outcome 2"]
    assert status(Tables(settings)).validated_at == datetime(2026, 6, 1, 2, tzinfo=UTC)

"""The figures of a run, against sums done by hand on small tables."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from tests.small_lake import batch_row, write_table

from spillway.batch import DONE
from spillway.ledger import LedgerRow
from spillway.report.summary import lake_figures, run_figures, sum_certificates, write_run
from spillway.settings import Settings
from spillway.store.tables import Tables

AT = ("stream", "river", 1, date(2026, 1, 1))
LEDGER = [
    LedgerRow(*AT, "intake", 0, "rows", offered=11, kept=10, rejected=1, bytes_offered=9000, bytes_kept=4000),
    LedgerRow(*AT, "thin", 1, "rows", offered=10, kept=7, shed=3, recoverable=2, lost=1, bytes_source=200),
    LedgerRow(*AT, "attributes", 2, "rows", offered=7, kept=7),
    LedgerRow(*AT, "attributes", 2, "values", offered=21, kept=15, shed=6, recoverable=6, bytes_source=300),
    LedgerRow(*AT, "attributes", 2, "values", "attribute", "level", offered=7, kept=1, shed=6, recoverable=6),
    LedgerRow(*AT, "attributes", 2, "values", "attribute", "depth", offered=14, kept=14, bytes_source=77),
    LedgerRow(*AT, "sent", 3, "rows", offered=7, kept=7, bytes_offered=4000, bytes_kept=1000),
    LedgerRow(*AT, "sent", 3, "values", offered=15, kept=15),
    LedgerRow(*AT, "retire", -1, "rows", offered=10, shed=10, recoverable=10, bytes_offered=4000),
]
CERTIFICATES = [
    {
        "batch": 1,
        "lever": "attributes",
        "attribute": "level",
        "treatment": "shed",
        "error_pct": 2.0,
        "shed_values": 6,
    }
    | {"stored_values": 3, "mean_error_pct": 1.0, "max_error_pct": 1.0},
    {"batch": 1, "lever": "attributes", "attribute": "depth", "treatment": "shed+round", "error_pct": 8.0}
    | {"shed_values": 2, "rounded_values": 8, "stored_values": 1, "mean_error_pct": 4.0, "max_error_pct": 6.0}
    | {"violations": 2},
    {"batch": 1, "lever": "thin", "attribute": "", "treatment": "shed", "shed_values": 3, "violations": 1},
]


def lake(settings: Settings) -> Iterator[Tables]:
    tables = Tables(settings)
    yield tables
    tables.forget()


@pytest.fixture
def tables(tmp_path: Path) -> Iterator[Tables]:
    settings = replace(Settings.in_memory(str(tmp_path)), build=str(tmp_path / "build"))
    first = batch_row("river", 1, DONE, seconds_covered=4.0, rejected=1, capacity_kbps=2.0)
    # not sent yet: its time must not thin out the rate, its part of the channel counts
    second = batch_row("river", 2, "planned", seconds_covered=1.0, rows=None, capacity_kbps=12.0)
    write_table(settings, "batches", [first, second])
    ingested = replace(LEDGER[0], batch=2)
    write_table(settings, "ledger", [row.to_dict() for row in (*LEDGER, ingested)])
    write_table(settings, "certificates", [row | {"stream": "river"} for row in CERTIFICATES])
    yield from lake(settings)


def test_a_streams_figures_are_the_sums_of_its_tables(tables: Tables) -> None:
    (river,) = lake_figures(tables)
    assert (river.tuples, river.rejected, river.shed_values, river.violations) == (10, 1, 8, 3)
    assert river.rate_in_kbps == 4000 * 8 / 1000 / 4
    assert river.rate_out_kbps == 1000 * 8 / 1000 / 4
    assert river.capacity_kbps == (4 * 2.0 + 1 * 12.0) / 5
    assert river.stored_share_pct == 100 * (3 + 1) / 8
    assert (river.wire_bytes_saved, river.synopsis_bytes) == (3000, 200 + 300)
    assert river.recovery_accuracy_pct == 100 - (6 * 1.0 + 10 * 4.0) / 16
    assert river.ledger_difference == 0
    assert (river.shed_attributes, river.rounded_attributes) == (("depth", "level"), ("depth",))


def test_rows_that_went_are_counted_on_the_way_and_not_beside_it(tables: Tables) -> None:
    (river,) = lake_figures(tables)
    assert (river.rows_shed, river.rows_lost) == (3, 1)


def test_the_worst_error_is_over_its_own_threshold_and_not_over_the_loosest(tables: Tables) -> None:
    (river,) = lake_figures(tables)
    assert river.worst_error_over_threshold == 6.0 / 8.0
    write_table(
        tables.settings,
        "certificates",
        [{**CERTIFICATES[0], "stream": "river", "batch": 2, "max_error_pct": 1.9}],
    )
    (river,) = lake_figures(tables.now())
    assert river.worst_error_over_threshold == 1.9 / 2.0


def test_certificates_of_nothing_shed_say_that_all_is_exact() -> None:
    kept: dict[str, Any] = {"error_pct": 5.0, "shed_values": 0, "rounded_values": 0, "stored_values": 0}
    kept |= {"mean_error_pct": None, "max_error_pct": None, "violations": 0}
    assert (sum_certificates([kept]).accuracy_pct, sum_certificates([]).accuracy_pct) == (100.0, 100.0)


@pytest.mark.parametrize(
    ("line", "change", "difference"),
    [
        (0, {"kept": 9}, 2),  # its own balance, and what is handed on
        (5, {"kept": 13}, 2),  # its own balance, and the sum of the attributes
        (1, {"lost": 2}, 1),
        (6, {"offered": 6, "kept": 6}, 1),
    ],
)
def test_a_ledger_that_does_not_balance_is_seen(
    tmp_path: Path, line: int, change: dict[str, int], difference: int
) -> None:
    settings = Settings.in_memory(str(tmp_path))
    rows = [row.to_dict() for row in LEDGER]
    rows[line] |= change
    write_table(settings, "batches", [batch_row("river", 1, DONE)])
    write_table(settings, "ledger", rows)
    for tables in lake(settings):
        (river,) = lake_figures(tables)
        assert river.ledger_difference == difference


def test_a_stream_that_was_only_taken_in_has_figures_without_division_by_nothing(tmp_path: Path) -> None:
    settings = Settings.in_memory(str(tmp_path))
    write_table(settings, "batches", [batch_row("river", 1, "untrained", seconds_covered=None)])
    write_table(settings, "ledger", [LEDGER[0].to_dict()])
    for tables in lake(settings):
        (river,) = lake_figures(tables)
        assert (river.tuples, river.wire_bytes_saved) == (10, 0)
        assert river.recovery_accuracy_pct == 100.0
        assert all(value == value for value in river.flat().values())


def test_the_run_file_holds_flat_numbers_and_names_versions_and_machine(tables: Tables) -> None:
    outcome = {"table": "ledger", "expectation": "balance", "run_id": "r"}
    write_table(tables.settings, "validations", [outcome | {"success": True}, outcome | {"success": False}])
    write_run(tables, {"total": 12.5, "validation": 3.0})
    written = json.loads((Path(tables.settings.build) / "run.json").read_text())
    for name in (
        "tuples", "rejected", "rate_in_kbps", "rate_out_kbps", "capacity_kbps", "shed_values",
        "stored_share_pct", "wire_bytes_saved", "synopsis_bytes", "recovery_accuracy_pct",
        "worst_error_over_threshold", "violations", "ledger_difference", "rows_shed", "rows_lost",
    ):  # fmt: skip
        assert isinstance(written[f"{name}.river"], int | float), name
    assert (written["seconds.total"], written["seconds.validation"]) == (12.5, 3.0)
    assert (written["expectations.run"], written["expectations.failed"]) == (2, 1)
    assert written["version.pyspark"].count(".") == 2
    assert written["machine.cores"] >= 1


def test_figures_asked_for_later_keep_the_seconds_of_the_last_run(tables: Tables) -> None:
    write_run(tables, {"total": 12.5})
    assert run_figures(tables)["seconds.total"] == 12.5
    elsewhere = replace(tables.settings, build=f"{tables.settings.build}-other")
    assert "seconds.total" not in run_figures(Tables(elsewhere))

"""The figures of a run, against sums done by hand on small tables."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from tests.small_lake import batch_row, small_settings, write_table

from spillway.settings import Settings
from spillway.show.summary import lake_figures, ledger_difference, run_figures, write_run
from spillway.store.batches import DONE

LEDGER = [
    {"batch": 1, "stage": "ingest", "unit": "rows", "offered": 11, "kept": 10, "rejected": 1}
    | {"bytes_offered": 9000, "bytes_kept": 4000},
    {"batch": 1, "stage": "transmitted", "unit": "rows", "offered": 10, "kept": 10}
    | {"bytes_offered": 4000, "bytes_kept": 1000},
    {"batch": 1, "stage": "attributes", "unit": "values", "attribute": "level", "offered": 10, "kept": 4}
    | {"shed": 6, "recoverable": 6, "bytes_offered": 3000, "bytes_synopsis": 500},
    {"batch": 1, "stage": "transmitted", "unit": "values", "attribute": "level", "offered": 4, "kept": 4}
    | {"bytes_offered": 3000, "bytes_kept": 0},
]
CERTIFICATES = [
    {"batch": 1, "attribute": "level", "way": "shed", "shed_values": 6, "stored_values": 3}
    | {"mean_error_pct": 1.0, "worst_over_threshold": 0.5},
    {"batch": 1, "attribute": "depth", "way": "shed+round", "shed_values": 2, "rounded_values": 8}
    | {"stored_values": 1, "mean_error_pct": 4.0, "worst_over_threshold": 0.75, "violations": 2},
]


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    found = small_settings(tmp_path, {"river": "uplink"})
    first = batch_row("river", 1, DONE, seconds_covered=4.0, rejected=1, capacity_kbps=2.0)
    # not sent yet: its time must not thin out the rate, its part of the channel counts
    second = batch_row("river", 2, "planned", seconds_covered=1.0, rows=None, capacity_kbps=12.0)
    write_table(found, "batches", [first, second])
    write_table(found, "ledger", [row | {"stream": "river"} for row in LEDGER])
    write_table(found, "certificates", [row | {"stream": "river"} for row in CERTIFICATES])
    return found


def test_a_streams_figures_are_the_sums_of_its_tables(settings: Settings) -> None:
    (river,) = lake_figures(settings)
    assert (river.tuples, river.rejected, river.shed_values, river.violations) == (10, 1, 8, 2)
    assert river.rate_in_kbps == 4000 * 8 / 1000 / 4
    assert river.rate_out_kbps == 1000 * 8 / 1000 / 4
    assert river.capacity_kbps == (4 * 2.0 + 1 * 12.0) / 5
    assert river.stored_share_pct == 100 * (3 + 1) / 8
    assert (river.wire_bytes_saved, river.synopsis_bytes) == (3000, 500)
    assert river.recovery_accuracy_pct == 100 - (6 * 1.0 + 10 * 4.0) / 16
    assert river.worst_error_over_threshold == 0.75
    assert river.ledger_difference == 0
    assert (river.shed_attributes, river.rounded_attributes) == (("depth", "level"), ("depth",))


@pytest.mark.parametrize(
    ("line", "change", "difference"),
    [(0, {"kept": 9}, 2), (2, {"shed": 5}, 2), (2, {"lost": 4}, 4), (1, {"offered": 9, "kept": 9}, 1)],
)
def test_a_ledger_that_does_not_balance_is_seen(line: int, change: dict[str, int], difference: int) -> None:
    blank = dict.fromkeys(("offered", "kept", "shed", "deduplicated", "rejected", "recoverable", "lost"), 0)
    rows = [blank | row for row in LEDGER]
    rows[line] |= change
    assert ledger_difference(rows) == difference


def test_a_stream_that_was_only_taken_in_has_figures_without_division_by_nothing(tmp_path: Path) -> None:
    found = small_settings(tmp_path, {"river": "uplink"})
    write_table(found, "batches", [batch_row("river", 1, "untrained", seconds_covered=None)])
    (river,) = lake_figures(found)
    assert river.tuples == 10
    assert river.recovery_accuracy_pct == 100.0
    assert all(value == value for value in river.flat().values())


def test_the_run_file_holds_flat_numbers_and_names_versions_and_machine(settings: Settings) -> None:
    outcome = {"table": "ledger", "expectation": "balance", "run_id": "r"}
    write_table(settings, "validations", [outcome | {"success": True}, outcome | {"success": False}])
    write_run(settings, {"total": 12.5, "validation": 3.0})
    written = json.loads((Path(settings.build) / "run.json").read_text())
    for name in (
        "tuples", "rejected", "rate_in_kbps", "rate_out_kbps", "capacity_kbps", "shed_values",
        "stored_share_pct", "wire_bytes_saved", "synopsis_bytes", "recovery_accuracy_pct",
        "worst_error_over_threshold", "violations", "ledger_difference",
    ):  # fmt: skip
        assert isinstance(written[f"{name}.river"], int | float), name
    assert (written["seconds.total"], written["seconds.validation"]) == (12.5, 3.0)
    assert (written["expectations.run"], written["expectations.failed"]) == (2, 1)
    assert written["version.pyspark"].count(".") == 2
    assert written["machine.cores"] >= 1


def test_figures_asked_for_later_keep_the_seconds_of_the_last_run(settings: Settings) -> None:
    write_run(settings, {"total": 12.5})
    assert run_figures(settings)["seconds.total"] == 12.5
    assert "seconds.total" not in run_figures(replace(settings, build=f"{settings.build}-other"))

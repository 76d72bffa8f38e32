"""The same inputs become the same rows: the frozen lake equals its reference. Its digests find what differs."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from tests.frozen.digest import digest_tables, table_differences

ROOT = Path(__file__).resolve().parents[1]
ROWS: list[dict[str, Any]] = [
    {
        "stream": "a",
        "batch": 1,
        "treatment": "keep",
        "error": 0.5,
        "at": datetime(2026, 1, 1, tzinfo=UTC),
        "seconds": 0.1,
    },
    {
        "stream": "a",
        "batch": 2,
        "treatment": "shed",
        "error": None,
        "at": datetime(2026, 1, 2, tzinfo=UTC),
        "seconds": 0.2,
    },
    {
        "stream": "b",
        "batch": 1,
        "treatment": "keep",
        "error": 0.0,
        "at": datetime(2026, 1, 1, tzinfo=UTC),
        "seconds": 0.3,
    },
]


@pytest.mark.long
def test_frozen_lake_equals_its_reference() -> None:
    """If a change of stored rows or texts is intended: `make frozen-lake`, and say in the commit what changed."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.frozen", "same"], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr


def lake_of(folder: Path, rows: list[dict[str, Any]]) -> dict[str, Any]:
    write_deltalake(str(folder / "lake" / "certificates"), pa.Table.from_pylist(rows))
    return digest_tables(folder)


def test_digest_does_not_depend_on_the_order_of_rows_or_on_measured_times(tmp_path: Path) -> None:
    before = lake_of(tmp_path / "before", ROWS)
    after = lake_of(tmp_path / "after", [{**row, "seconds": 9.9} for row in reversed(ROWS)])
    assert before == after


def test_changed_value_is_reported_by_table_stream_and_column(tmp_path: Path) -> None:
    before = lake_of(tmp_path / "before", ROWS)
    changed = [{**row, "error": 0.5000000000000001} if row["error"] == 0.5 else row for row in ROWS]
    after = lake_of(tmp_path / "after", changed)
    (line,) = table_differences(before, after)
    assert line == "lake/certificates: rows of a differ; columns with other values: error"


def test_lost_row_and_new_word_are_reported(tmp_path: Path) -> None:
    before = lake_of(tmp_path / "before", ROWS)
    after = lake_of(tmp_path / "after", [{**ROWS[0], "treatment": "round"}, ROWS[2]])
    (line,) = table_differences(before, after)
    assert "rows of a (2 rows became 1 rows) differ" in line
    assert "words treatment: ['keep', 'shed'] became ['keep', 'round']" in line


def test_renamed_column_and_swapped_values_are_reported(tmp_path: Path) -> None:
    before = lake_of(tmp_path / "before", ROWS)
    renamed = lake_of(tmp_path / "renamed", [{**row, "day": date(2026, 1, 1)} for row in ROWS])
    assert "day (new)" in "".join(table_differences(before, renamed))
    batches = {1: 2, 2: 1}
    swapped = [{**row, "batch": batches[row["batch"]]} if row["stream"] == "a" else row for row in ROWS]
    assert list(table_differences(before, lake_of(tmp_path / "swapped", swapped))) == [
        "lake/certificates: rows of a differ"
    ]

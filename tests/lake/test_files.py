"""Reading tables without Spark."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pyarrow as pa
from deltalake import write_deltalake


def test_a_process_that_ends_right_after_reading_ends_well(tmp_path: Path) -> None:
    for number in range(9):
        write_deltalake(str(tmp_path / "table"), pa.table({"a": [number]}), mode="append")
    code = "import sys; from spillway.lake.files import read_table; print(read_table(sys.argv[1]).num_rows)"

    ran = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "table")], capture_output=True, text=True, check=False
    )

    assert (ran.returncode, ran.stdout) == (0, "9\n"), ran.stderr

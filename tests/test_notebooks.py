"""The notebooks of the documentation run from the first cell to the last, and are stored without outputs."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]
NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))


def code_cells(path: Path) -> list[dict[str, Any]]:
    return [cell for cell in json.loads(path.read_text("utf-8"))["cells"] if cell["cell_type"] == "code"]


def named(path: Path) -> str:
    return path.stem


@pytest.mark.parametrize("path", NOTEBOOKS, ids=named)
def test_a_notebook_is_stored_without_outputs(path: Path) -> None:
    document = json.loads(path.read_text("utf-8"))
    assert (document["nbformat"], document["nbformat_minor"]) == (4, 5)
    ids = [cell["id"] for cell in document["cells"]]
    assert len(set(ids)) == len(ids)
    for cell in code_cells(path):
        assert (cell["outputs"], cell["execution_count"]) == ([], None)
        compile("".join(cell["source"]), str(path), "exec")


def run_cells(path: Path, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """Run the code cells of a notebook in order, with its workspace in a folder."""
    for name in [name for name in os.environ if name.startswith("SPILLWAY_")]:
        monkeypatch.delenv(name)
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    # the cells set it; monkeypatch sets it back
    monkeypatch.setenv("SPILLWAY_HOME", str(folder))
    names: dict[str, Any] = {"__name__": "__main__"}
    for number, cell in enumerate(code_cells(path), 1):
        exec(compile("".join(cell["source"]), f"{path.name}, cell {number}", "exec"), names)


@pytest.mark.long
@pytest.mark.parametrize("path", [one for one in NOTEBOOKS if "spark" not in one.stem], ids=named)
def test_a_notebook_runs(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_cells(path, monkeypatch, tmp_path)


@pytest.mark.long
def test_the_notebook_on_spark_runs(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_cells(ROOT / "docs" / "notebooks" / "recovery_in_spark.ipynb", monkeypatch, tmp_path)

"""A job that fails says why in sentences, and leaves them where whoever started it asks for them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from spillway.errors import SpillwayError
from spillway.job import FAILURE_FILE, run_job


def failing(problem: Exception, folder: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    def main() -> None:
        raise problem

    monkeypatch.setenv(FAILURE_FILE, str(folder / "failed"))
    monkeypatch.setattr(sys, "argv", ["jobs/shed.py"])
    with pytest.raises(SystemExit) as ended:
        run_job(main)
    assert ended.value.code == 1
    return (folder / "failed").read_text()


def test_each_sentence_stands_on_a_marked_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    left = failing(SpillwayError("a: must; do\nb: must; do"), tmp_path, monkeypatch)
    assert left == "a: must; do\nb: must; do\n"
    told = capsys.readouterr()
    assert told.out == "spillway: failed: a: must; do\nspillway: failed: b: must; do\n"
    assert told.err == ""


def test_what_nobody_foresaw_leaves_its_stack_and_then_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    left = failing(KeyError("site"), tmp_path, monkeypatch)
    assert left.startswith("`shed.py` must end without an unexpected error, got \"KeyError: 'site'\"; ")
    told = capsys.readouterr()
    assert told.out == f"spillway: failed: {left}"
    assert "Traceback" in told.err

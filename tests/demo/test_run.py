"""`make run` never touches a lake that is not its own, and says why something failed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from rich.console import Console

from demo.run import MARKER, StepFailed, job_message, reset_lake, run_dags, sentence, where_to_look
from spillway.report.result import Progress
from spillway.report.text import PAGE
from spillway.settings import Settings

OURS = ("weather", "stocks")


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings.from_environment({"SPILLWAY_HOME": str(tmp_path)})


def put(settings: Settings, name: str) -> Path:
    file = Path(settings.lake) / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("x")
    return file


def test_a_lake_that_is_not_there_is_made_and_marked(settings: Settings) -> None:
    assert "fresh" in reset_lake(settings, OURS, keep=False)
    assert (Path(settings.lake) / MARKER).is_file()


def test_the_demos_own_lake_is_emptied(settings: Settings) -> None:
    reset_lake(settings, OURS, keep=False)
    table = put(settings, "raw/weather/part.parquet")
    assert "fresh" in reset_lake(settings, OURS, keep=False)
    assert not table.exists()
    assert (Path(settings.lake) / MARKER).is_file()


def test_a_lake_without_the_demos_mark_is_kept(settings: Settings) -> None:
    table = put(settings, "raw/weather/part.parquet")
    assert "is not the demo's and is kept" in reset_lake(settings, OURS, keep=False)
    assert table.exists()
    assert not (Path(settings.lake) / MARKER).exists()


@pytest.mark.parametrize("table", ["raw", "transmitted"])
def test_a_lake_that_holds_another_stream_is_kept(settings: Settings, table: str) -> None:
    reset_lake(settings, OURS, keep=False)
    other = put(settings, f"{table}/payroll/part.parquet")
    assert "also holds payroll" in reset_lake(settings, OURS, keep=False)
    assert other.exists()


def test_keep_keeps(settings: Settings) -> None:
    reset_lake(settings, OURS, keep=False)
    table = put(settings, "raw/weather/part.parquet")
    assert "is kept" in reset_lake(settings, OURS, keep=True)
    assert table.exists()


def test_a_lake_elsewhere_is_kept() -> None:
    settings = Settings.from_environment({"SPILLWAY_LAKE": "s3a://bucket/lake"})
    assert "s3a://bucket/lake is kept" in reset_lake(settings, OURS, keep=False)


def test_lines_for_people_lose_what_airflow_puts_around_them() -> None:
    line = (
        "2026-11-18T11:50:38.004032Z [info     ] spillway: stocks: took in 9 tuples [see rejected] "
        "[airflow.task.hooks.airflow.providers.apache.spark.hooks.spark_submit.SparkSubmitHook] loc=s.py:965\n"
    )
    assert job_message(line) == "stocks: took in 9 tuples [see rejected]"
    assert job_message("26/11/18 WARN SparkContext: spilled\n") is None


def test_the_sentence_of_a_failure_is_ours_where_there_is_one() -> None:
    log = [
        "spillway.store.tables.ConcurrentRun: raw/s: another run wrote it; run it again",
        "py4j.protocol.Py4JJavaError: An error occurred",
        "airflow.sdk.exceptions.AirflowException: Cannot execute: spark-submit. Error code is: 1.",
    ]
    assert sentence(log) == "raw/s: another run wrote it; run it again"
    assert sentence(["ValueError: not ours", "airflow.exceptions.AirflowException: x"]) == "not ours"
    assert sentence(["nothing"]) == "no error was logged"


def stand_in(folder: Path, script: str) -> dict[str, str]:
    """An environment in which the pipeline is `script`."""
    package = folder / "stand-in" / "demo"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "pipeline.py").write_text(script)
    return os.environ | {"PYTHONPATH": str(folder / "stand-in")}


def test_each_dag_is_timed_logged_and_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script = (
        "print('starting airflow')\n"
        "for dag in ('spillway_train', 'spillway_shed'):\n"
        "    print('spillway-step start', dag)\n"
        "    print('noise of', dag)\n"
        "    print('spillway: weather: done by', dag)\n"
        "    print('spillway: weather: 1 batch could lose less; planned again with the measured sizes')\n"
        "    print('spillway-step end', dag, 'success')\n"
    )
    progress = Progress(Console(width=100))
    seconds = run_dags(stand_in(tmp_path, script), tmp_path / "logs", progress)
    assert list(seconds) == ["train", "shed"]
    shown = capsys.readouterr().out
    assert "weather: done by spillway_train" in shown
    assert "noise" not in shown
    assert "planned again" not in shown, "how a plan was found stays in the log"
    assert "planned again" in (tmp_path / "logs" / "spillway_shed.log").read_text()
    assert "noise of spillway_shed" in (tmp_path / "logs" / "spillway_shed.log").read_text()
    assert "starting airflow" in (tmp_path / "logs" / "airflow.log").read_text()


def test_a_failure_says_its_sentence_and_where_the_log_is(tmp_path: Path) -> None:
    script = (
        "print('spillway-step start spillway_train')\n"
        "print('spillway.errors.SpillwayError: `rate` must be known, got None; declare it')\n"
        "raise SystemExit(1)\n"
    )
    with pytest.raises(
        StepFailed, match=r"spillway_train failed: `rate` must be known(.|\n)*spillway_train\.log"
    ):
        run_dags(stand_in(tmp_path, script), tmp_path / "logs", Progress(Console()))


def test_what_is_told_while_it_runs_folds_into_the_page(capsys: pytest.CaptureFixture[str]) -> None:
    progress = Progress(Console(width=PAGE))
    progress.step("Shed to capacity")
    progress.detail("weather: batch 1: " + ", ".join(f"attribute_{n}" for n in range(40)) + "; done")
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= PAGE
    assert "Shed to capacity" in lines[0]
    assert lines[-1].endswith("done")


def test_where_to_look_fits_and_names_a_command_that_writes_nothing(settings: Settings) -> None:
    figures = {"expectations.run": 79, "expectations.failed": 0, "seconds.total": 120.0}
    lines = where_to_look(settings, figures, ["stocks"])
    home = str(Path(settings.lake).parent)  # as long as pytest's folders are
    assert max(len(line.replace(home, "/home/somebody/spillway")) for line in lines) <= PAGE
    said = " ".join(" ".join(lines).split())
    assert "79 expectations, 0 failed; 120 s in all" in said
    assert "Details: .venv/bin/spillway status --details." in said
    assert "spillway plan stocks" in said

"""What the README tells a newcomer to type works, on a lake made from the demo's own data."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from demo.data import write_demo
from spillway.cli import main
from spillway.contracts import load_contracts
from spillway.engine import ProcessEngine
from spillway.pipeline.run import run_channel, sketch_channel
from spillway.pipeline.validate import validate
from spillway.report.overview import overview, overview_lines
from spillway.report.result import MOST_LINES, result_lines, run_result
from spillway.report.text import PAGE
from spillway.settings import Settings
from spillway.store.tables import Tables
from spillway.streams.train import train_streams

ROOT = Path(__file__).resolve().parents[1]
STREAMS = ("network", "stocks", "weather")
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^( *)```{language}\n(.*?)^\1```", README, re.S | re.M)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder like the checkout after `make run`."""
    folder = tmp_path_factory.mktemp("readme")
    (folder / "schemas").symlink_to(ROOT / "schemas")
    write_demo(folder / "landing")
    settings = Settings.from_environment({"SPILLWAY_HOME": str(folder)})
    contracts, tables, engine = load_contracts(settings.schemas), Tables(settings), ProcessEngine()
    train_streams(tables, engine, contracts, STREAMS, "readme")
    for channel in sorted({contracts.streams[name].channel for name in STREAMS}):
        run_channel(tables, engine, contracts, channel, "readme")
        sketch_channel(tables, engine, contracts, channel)
    validate(tables, engine, contracts, "readme", streams=STREAMS)
    return folder


def run(home: Path, command: list[str]) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "lib"), "SPILLWAY_HOME": str(home)}
    return subprocess.run(command, cwd=home, env=environment, capture_output=True, text=True, check=False)


def tables_of(home: Path) -> Tables:
    return Tables(Settings.from_environment({"SPILLWAY_HOME": str(home)}))


def test_something_is_kept_something_is_shed_and_the_schedule_changes(home: Path) -> None:
    seen = overview(tables_of(home))
    ways = {
        way
        for stream in seen.streams
        for one in stream.measures
        for way, share in one.treatment_shares.items()
        if share > 1
    }
    assert ways >= {"kept", "as synopsis"}
    rows = tables_of(home).at("schemes").rows(["stream", "batch", "scheme"]).to_pylist()
    schemes: dict[str, set[int]] = {}
    for row in rows:
        schemes.setdefault(row["stream"], set()).add(row["scheme"])
    assert len(schemes["weather"]) > 1, "from month to month"
    assert all(stream.rows_missing == stream.figures.violations == 0 for stream in seen.streams)


def test_the_demo_keeps_within_its_links_and_loses_little_where_they_are_too_narrow(home: Path) -> None:
    seen = overview(tables_of(home))
    channels = {channel.channel: channel for channel in seen.channels}
    assert max(channel.used_pct for channel in channels.values()) <= 100
    weather = channels["messages"]
    assert 30 <= weather.dropping_rows_pct <= 55
    assert weather.loss_pct < 1.0
    assert weather.used_pct >= 90
    assert [channels[name].loss_pct < 0.01 for name in ("cellular", "satellite")] == [True, True]
    assert all(stream.figures.recovery_accuracy_pct >= 99.5 for stream in seen.streams)
    assert max(map(len, overview_lines(seen))) <= PAGE


def test_no_month_of_messages_exceeds_its_plan(home: Path) -> None:
    """The bytes are those of the ledger. No month leaves bytes unused while its values have errors."""
    lines = tables_of(home).at("ledger").rows(subject="weather", stage="sent", unit="rows").to_pylist()
    months = {line["batch_date"]: line["bytes_kept"] for line in lines if line["dimension_kind"] == "total"}
    assert len(months) == 12
    assert max(months.values()) <= 12_000
    assert min(months.values()) >= 10_000


def test_the_last_screen_starts_with_what_was_checked_and_has_the_bytes_of_gzip_and_xz(home: Path) -> None:
    tables = tables_of(home)
    contracts = load_contracts(tables.settings.schemas)
    found = run_result(tables, contracts, STREAMS, rivals=True)
    lines = result_lines(found)
    assert len(lines) <= MOST_LINES
    assert max(map(len, lines)) <= PAGE
    shown = " ".join(" ".join(lines).split())
    values = sum(one.values_checked for one in found.seen)
    assert shown.startswith(f"{values:,} rounded or recovered values checked")
    assert "none outside its bound, none missing. Sent" in shown
    for one in found.streams:
        assert one.rivals is not None
        assert one.seen.exact_bytes < one.rivals["gzip -9"]
        assert one.seen.sent_bytes <= 1.005 * one.seen.exact_bytes


@pytest.mark.parametrize(("stream", "event"), [("weather", "precip"), ("network", "packet_loss_pct")])
def test_rare_events_survive(home: Path, stream: str, event: str) -> None:
    happened = [
        {
            seq
            for seq, value in zip(*(found[name].to_pylist() for name in ("seq", event)), strict=True)
            if value is not None and value > 0
        }
        for table in ("raw", "recovered")
        if (found := tables_of(home).at(table, stream).rows(["seq", event]))
    ]
    assert 0 < len(happened[0]) < 3_500
    assert happened[0] == happened[1]


def test_the_ways_to_read_streams_and_tables_run_as_printed(home: Path) -> None:
    printed = [code for _, code in blocks("python")]
    assert len(printed) == 5
    session = "from spillway.engine.spark import spark_session\nspark = spark_session('readme')"
    done = run(home, [sys.executable, "-c", "\n".join([session, *printed, "print(len(frame), 'hours')"])])
    assert done.returncode == 0, done.stderr
    assert "avg(temp)" in done.stdout
    assert "25 hours" in done.stdout


def exit_code(words: list[str]) -> int:
    """Of the command in this process; `--help` ends by itself."""
    try:
        return main(words)
    except SystemExit as end:
        return int(end.code or 0)


@pytest.mark.parametrize(
    "command",
    sorted(set(re.findall(r"(?:\.venv/bin/|`)(spillway [a-z][^\n`|>]*)", README))),
)
def test_every_command_the_readme_shows_runs(
    home: Path,
    command: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = shlex.split(command)
    if "sample.csv" in words:
        (home / "sample.csv").write_text(
            "turbine,at,watts\na,2026-01-01T00:00:00Z,12.5\nb,2026-01-01T00:00:00Z,11\n"
        )
        words[words.index("my_link")] = "cellular"
        words[words.index("--output") + 1] = str(tmp_path / "turbines.yaml")
    monkeypatch.chdir(home)
    monkeypatch.setenv("SPILLWAY_HOME", str(home))
    code = exit_code(words[1:])
    told = capsys.readouterr()
    assert code == 0, told.out + told.err
    assert told.out.strip()


def test_every_make_target_the_readme_names_exists() -> None:
    targets = set(re.findall(r"`?make ([a-z]+)", README))
    known = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M))
    assert targets
    assert targets <= known


def test_every_file_the_readme_points_to_exists() -> None:
    for name in re.findall(r"`((?:schemas|infra)/[A-Za-z_./]*[A-Za-z_])`", README):
        if "turbines" not in name:
            assert (ROOT / name).exists(), name

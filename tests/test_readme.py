"""What the README tells a newcomer to type works, on a lake made from the demo's own data."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import time
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


PAGES = [
    ROOT / "README.md",
    *sorted(path for path in (ROOT / "docs").rglob("*.md") if "reference" not in path.parts),
]
TEXT = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)
PLACEHOLDER = re.compile(r"[A-Z]{3,}|turbines|\.\.\.")
"""What only stands for a name, or belongs to the stream of one's own, which has a test below."""


def blocks(language: str, text: str = TEXT) -> list[str]:
    """Return the code blocks of a language, without those that carry a reason why they do not run."""
    found = re.finditer(rf"^```{language}\n(.*?)^```\n", text, re.S | re.M)
    return [block[1] for block in found if not text[block.end() :].startswith("<!-- not run")]


def shown_commands() -> list[str]:
    """Return every command of the pages that the demo can run."""
    inline = re.findall(r"`(spillway [a-z][^`|]*)`", TEXT)
    lines = [line.partition(" #")[0] for block in blocks("sh") for line in block.splitlines()]
    named = [line if len(line.split()) > 3 else f"{line} --help" for line in inline]
    found = {" ".join(line.split()) for line in [*named, *lines] if line.startswith("spillway ")}
    return sorted(line for line in found if not PLACEHOLDER.search(line))


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


END = "import gc; print(len(frame), 'rows'); gc.collect()"
"""Threads of Arrow may abort a Python process that ends while they read: github.com/apache/arrow/issues/34314."""


@pytest.mark.long
def test_every_python_block_runs(home: Path) -> None:
    session = "from spillway.engine.spark import spark_session\nspark = spark_session('readme')"
    printed = [block for block in blocks("python") if "turbines" not in block]
    assert len(printed) >= 3
    done = run(home, [sys.executable, "-c", "\n".join([session, *printed, END])])
    assert done.returncode == 0, done.stderr
    assert "rows" in done.stdout


def exit_code(words: list[str]) -> int:
    """Of the command in this process; `--help` ends by itself."""
    try:
        return main(words)
    except SystemExit as end:
        return int(end.code or 0)


@pytest.mark.parametrize("command", shown_commands())
def test_every_command_of_the_documentation_runs(
    home: Path, command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(home)
    monkeypatch.setenv("SPILLWAY_HOME", str(home))
    code = exit_code(shlex.split(command)[1:])
    printed = capsys.readouterr()
    assert code == 0, printed.out + printed.err
    assert printed.out.strip()


@pytest.mark.parametrize("page", ["docs/quickstart.md", pytest.param("README.md", marks=pytest.mark.long)])
def test_stream_of_ones_own_works_as_the_page_shows(page: str, tmp_path: Path) -> None:
    """The blocks of the page are one script; only what installs is left out."""
    text = (ROOT / page).read_text(encoding="utf-8")
    script = [block for block in blocks("sh", text) if "turbines" in block or "SPILLWAY_HOME" in block]
    own = "\n".join(line for block in script for line in block.splitlines() if "activate" not in line)
    channels = re.search(r"^```yaml\n(channels:.*?)^```", text, re.S | re.M)
    if channels:
        own = own.replace(
            "spillway contracts new",
            f"printf '%s' '{channels[1]}' > mine/schemas/channels.yaml\nspillway contracts new",
            1,
        )
    rows = (
        f"{name},2026-01-01T{n // 60:02}:{n % 60:02}:00Z,{12.5 + n % 7 + k},{n}"
        for n in range(600)
        for k, name in enumerate("ab")
    )
    (tmp_path / "sample.csv").write_text("\n".join(["turbine,at,power_kw,energy_kwh", *rows]) + "\n")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("SPILLWAY_")}
    environment |= {
        "PYTHONPATH": str(ROOT / "lib"),
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }
    # a file counts when it has not changed for a minute: the sample of the page is older
    os.utime(tmp_path / "sample.csv", (time.time() - 600,) * 2)
    done = subprocess.run(
        ["bash", "-e", "-c", own], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "none missing" in " ".join(done.stdout.split())


def test_every_make_target_the_readme_names_exists() -> None:
    targets = set(re.findall(r"(?:`|^)make ([a-z]+)", TEXT, re.M))
    known = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M))
    assert targets
    assert targets <= known


def test_every_file_the_readme_points_to_exists() -> None:
    for name in re.findall(r"`((?:schemas|infra)/[A-Za-z_./]*[A-Za-z_])`", TEXT):
        if "turbines" not in name:
            assert (ROOT / name).exists(), name

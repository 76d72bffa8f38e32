"""Every command's output on a small lake fits a screen: at most 25 lines, and no line wider than the terminal."""

from __future__ import annotations

import re
import shlex

import pytest
import yaml
from tests.pipeline.streams import METERS, SITES, World, csv_lines, json_lines, meters, sites

from spillway.cli import main, parser
from spillway.contracts import load_contracts
from spillway.engine import ProcessEngine
from spillway.report.text import NARROWEST, page_width
from spillway.workloads.run import run_workloads

LINES = 25
QUERY = {
    "name": "means",
    "inputs": ["sites"],
    "window": {"seconds": 600},
    "capacity_group": "desk",
    "levers": [
        {
            "lever": "quality",
            "sql": "SELECT site, avg(temp) AS mean FROM sites GROUP BY site",
            "capacity": {"tuples": 40},
            "portion_tuples": 10,
        }
    ],
}
SCREENS = [
    "status",
    "plan sites",
    "plan narrow --capacity '6 kbps'",
    "plan sites --rows 3",
    "explain sites",
    "explain sites temp",
    "explain means",
    "recover sites --attributes temp --seq 7",
    "recover sites --from-seq 1 --to-seq 8",
    "ask sites",
    "ask sites temp quantile 0.5 0.99",
    "join-advice sites sites --on sky --lasts 600",
    "what-if desk --capacity 60",
    "keep --dry-run",
    "migrate --dry-run",
    "contracts check",
    "replay sites",
    "exempt sites --until 2099-01-01 --reason audit",
]
LONGER = {"plan narrow --capacity '6 kbps'": 40, "plan sites --rows 3": 34}
"""Screens of several streams, or with rows that were requested."""
WIDER = {"join-advice sites sites --on sky --lasts 600"}
"""Screens whose text columns are too many for 80 characters."""
NOT_ROUND = re.compile(r"\d[eE][-+]\d")


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> World:
    """Two streams that were shed, recovered and validated, and a query."""
    folder = tmp_path_factory.mktemp("screens")
    sketched = {**SITES, "sketches": [{"kind": "quantiles", "attributes": ["temp"]}]}
    world = World.begin(ProcessEngine(), folder, sketched, METERS)
    (folder / "schemas" / "queries").mkdir()
    (folder / "schemas" / "queries" / "means.yaml").write_text(yaml.safe_dump(QUERY))
    world.contracts = load_contracts(folder / "schemas")
    world.deliver("sites/2020-01-01/a.json", json_lines(sites(0, 330)))
    world.deliver("meters/2020-01-01/a.csv", csv_lines(meters(0, 350)))
    world.shed()
    world.train("sites", "meters")
    world.shed()
    world.sketch()
    run_workloads(world.tables.now(), world.engine, world.contracts, None, world.said.append)
    world.validate()
    return world


@pytest.fixture
def at_home(lake: World, monkeypatch: pytest.MonkeyPatch) -> World:
    for name in ("home", "lake", "destination", "landing", "schemas", "build"):
        monkeypatch.setenv(f"SPILLWAY_{name.upper()}", getattr(lake.settings, name))
    return lake


def screen(command: str, capsys: pytest.CaptureFixture[str]) -> list[str]:
    assert main(shlex.split(command)) in (0, 1), command
    return capsys.readouterr().out.splitlines()


@pytest.mark.parametrize("width", [120, 80])
@pytest.mark.parametrize("command", SCREENS)
def test_a_screen_has_25_lines_and_fits_the_terminal(
    at_home: World,
    command: str,
    width: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    lines = screen(command, capsys)
    assert lines
    if width == 120:
        assert len(lines) <= LONGER.get(command, LINES), "\n".join(lines)
    if width == 120 or command not in WIDER:
        assert max(map(len, lines)) <= width, max(lines, key=len)
    assert not NOT_ROUND.search("\n".join(lines)), "decimals, not exponents"


def test_identifiers_have_no_thousands_separators(at_home: World, capsys: pytest.CaptureFixture[str]) -> None:
    """`mmsi 211253074` was shown as `211,253,074`."""
    text = "\n".join(screen("recover meters --attributes count --from-seq 1 --to-seq 3", capsys))
    assert re.search(r"\b100\d\d\b", text), text
    assert "10,0" not in text


@pytest.mark.parametrize("command", ["", "status", "run", "recover", "ask", "join-advice", "explain"])
def test_help_fits_80_columns(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit):
        main([*command.split(), "--help"])
    description = capsys.readouterr().out.partition("examples:")[0]
    assert max(map(len, description.splitlines())) <= 80


def test_a_page_is_as_wide_as_the_terminal_within_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    for columns, width in ((80, 80), (300, 100), (20, NARROWEST)):
        monkeypatch.setenv("COLUMNS", str(columns))
        assert page_width() == width


def test_every_command_is_looked_at() -> None:
    (commands,) = [one for one in parser()._actions if one.dest == "command"]
    assert commands.choices is not None
    seen = {command.split()[0] for command in SCREENS}
    # run and resend process data, report writes a page, doctor and register start
    # programs, parity reads files
    assert set(commands.choices) - seen == {"run", "resend", "report", "doctor", "register", "parity"}

"""Examples of the help name things that exist; explain, report, recover and sifters answer as people expect."""

from __future__ import annotations

import json
import shlex
from dataclasses import replace
from pathlib import Path

import pytest
from tests.pipeline.streams import METERS, SITES, World, json_lines, sites
from tests.report.test_overview import TRADE

from spillway.cli import main, parser
from spillway.contracts import load_contracts
from spillway.engine import ProcessEngine
from spillway.errors import InvalidValue
from spillway.levers.sifters.dimensions import Dimension
from spillway.levers.sifters.predicates import parse_predicate
from spillway.report.trade_off import NEAR_PCT, to_channel_trade_off, trade_off_pictures

ROOT = Path(__file__).resolve().parents[1]


def examples() -> list[list[str]]:
    (commands,) = [one for one in parser()._actions if one.dest == "command"]
    assert commands.choices is not None
    found = []
    for made in commands.choices.values():
        for line in (made.epilog or "").splitlines():
            words = shlex.split(line, comments=True) if line.strip().startswith("spillway ") else []
            found += [words[1:]] if words else []
    return found


@pytest.mark.parametrize("words", examples(), ids=" ".join)
def test_an_example_names_what_exists(words: list[str]) -> None:
    """Newcomer B17: `explain calms` and `what-if analysts` named nothing that exists."""
    contracts = load_contracts(ROOT / "schemas")
    subjects = {*contracts.streams, *contracts.joins, *contracts.queries}
    rooms = {query.capacity_group for query in contracts.queries.values()}
    known = {
        "explain": subjects,
        "ask": subjects,
        "recover": subjects,
        "replay": subjects,
        "exempt": subjects,
        "resend": subjects,
        "join-advice": subjects,
        "plan": subjects | set(contracts.channels),
        "what-if": rooms,
    }
    if words[0] in known:
        assert words[1] in known[words[0]]
    if words[0] == "explain" and len(words) > 2 and not words[2].startswith("-"):
        assert words[2] in contracts.stream(words[1]).names


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    found = World.begin(ProcessEngine(), tmp_path, SITES, METERS)
    found.deliver("sites/2020-01-01/a.json", json_lines(sites(0, 330)))
    for name in ("home", "lake", "destination", "landing", "schemas", "build"):
        monkeypatch.setenv(f"SPILLWAY_{name.upper()}", getattr(found.settings, name))
    return found


def test_explain_of_a_stream_gives_an_overview(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    """Newcomer B18: `explain STREAM` was an error."""
    assert main(["explain", "sites"]) == 0
    assert "No batch was processed yet" in capsys.readouterr().out
    world.shed()
    world.train("sites")
    world.shed()
    world.validate()
    assert main(["explain", "sites"]) == 0
    told = capsys.readouterr().out
    for name in ("temp", "level", "pulses", "sky", "always exact", "spillway explain sites ATTRIBUTE"):
        assert name in told
    assert main(["explain", "sites", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [one["attribute"] for one in found["overview"]["attributes"]] == list(found["attributes"])
    assert main(["explain", "sities"]) == 2
    assert "did you mean sites?" in capsys.readouterr().err


def test_a_report_is_not_written_into_a_folder_that_is_not_there(
    world: World, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Newcomer B19: the command made a folder at the root."""
    assert main(["report", "--output", str(tmp_path / "none" / "x.html")]) == 2
    assert "must be a file in a folder that exists" in capsys.readouterr().err
    assert not (tmp_path / "none").exists()
    assert main(["report", "--output", str(tmp_path / "x.html")]) == 0


@pytest.mark.parametrize("name", ["now", "current_date", "rand"])
def test_a_function_with_another_value_each_time_is_refused_by_its_name(name: str) -> None:
    """Newcomer B16: `what anonymous makes of it is no attribute`."""
    with pytest.raises(InvalidValue, match=rf"{name}\(\) has another value in each run.*write a constant"):
        parse_predicate(f"at > {name}()", {"at": Dimension("at", "timestamp")})


def test_a_function_that_spark_does_not_know_is_named() -> None:
    with pytest.raises(InvalidValue, match=r"the result of my_rule\(\) is not an attribute"):
        parse_predicate("level > my_rule(3)", {"level": Dimension("level", "double")})


def test_the_picture_near_the_ground_holds_the_point_in_use() -> None:
    """Newcomer B12: a flat line at 0 with the label `in use: 6.2 %`."""
    shown = to_channel_trade_off(TRADE)
    curve = tuple(
        replace(point, loss_pct=2 * NEAR_PCT if point.in_use else point.loss_pct) for point in shown.curve
    )
    _, near = trade_off_pictures(replace(shown, curve=curve, loss_pct=2 * NEAR_PCT))
    assert (near.data["mark"][0], 2 * NEAR_PCT) in near.data["lines"][0]["points"]

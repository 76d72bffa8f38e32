"""`spillway plan`: what would be done, in words that fit, from tables that stay as they are."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import pytest
from tests.pipeline.streams import METERS, SITES, World, json_lines, sites

from spillway.cli import main
from spillway.engine import ProcessEngine
from spillway.ledger import TOTAL
from spillway.report.text import PAGE


@pytest.fixture
def at_home(world: World, monkeypatch: pytest.MonkeyPatch) -> World:
    stand_in(world, monkeypatch)
    return world


def stand_in(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("SPILLWAY_")]:
        monkeypatch.delenv(name)
    for name in ("home", "lake", "landing", "build", "schemas"):
        monkeypatch.setenv(f"SPILLWAY_{name.upper()}", getattr(world.settings, name))


def told(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    code = main(arguments)
    captured = capsys.readouterr()
    return code, captured.out + captured.err


def document(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    code, text = told(capsys, *arguments, "--json")
    assert code == 0, text
    found: dict[str, Any] = json.loads(text)
    return found


def digests(folder: Path) -> dict[str, str]:
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def test_it_says_what_would_be_done_and_writes_nothing(
    at_home: World, capsys: pytest.CaptureFixture[str]
) -> None:
    before = digests(at_home.folder)
    code, text = told(capsys, "plan", "sites", "--capacity", "13 kbps", "--rows", "3")
    assert digests(at_home.folder) == before
    assert code == 0, text
    said = " ".join(text.split())
    for words in (
        "A dry run: no table is written.",
        "sites, batch 3 of 2020-01-02: 250 rows",
        "attribute treatment bound mean error worst offered sent",
        "site, at: always exact",
        "rows at the source and at the destination",
        "Loss: the mean error of a value of a measure at the destination; an absent value counts 100 %",
        "<- in use",
        "10 % more capacity would",
    ):
        assert words in said, text
    assert "meters, batch" not in said, "it is planned beside it, and not asked for"
    assert max(map(len, text.splitlines())) <= PAGE


def test_a_wider_channel_loses_less_until_nothing_is_touched(
    at_home: World, capsys: pytest.CaptureFixture[str]
) -> None:
    losses = []
    for capacity in ("6 kbps", "13 kbps", "200 kbps"):
        (one,) = document(capsys, "plan", "sites", "--capacity", capacity)["streams"]
        losses.append(one["loss_pct"])
    assert losses[0] > losses[1] > losses[2] == 0.0
    assert one["before"] == one["after"]
    assert len(one["before"]) == 10


def test_what_the_destination_would_have_is_within_the_bound_or_absent(
    at_home: World, capsys: pytest.CaptureFixture[str]
) -> None:
    (one,) = document(capsys, "plan", "sites", "--capacity", "11 kbps")["streams"]
    assert one["fixed_bytes"] > 0
    figures = {figure["attribute"]: figure for figure in one["overview"]["attributes"]}
    touched = [name for name, figure in figures.items() if figure["rounded"] or figure["shed"]]
    assert touched
    for was, now in zip(one["before"], one["after"], strict=True):
        for name in was:
            if name not in touched:
                assert now[name] == was[name]
            elif now[name] is None:
                assert was[name] is None or figures[name]["absent"] == figures[name]["values"]
            else:
                assert abs(now[name] - was[name]) <= figures[name]["bound_pct"] / 100 * abs(was[name])


def test_a_channel_shows_all_of_its_streams(at_home: World, capsys: pytest.CaptureFixture[str]) -> None:
    found = document(capsys, "plan", "narrow")
    assert [one["overview"]["figures"]["stream"] for one in found["streams"]] == ["meters", "sites"]
    assert found["trade"]["streams"] == ["meters", "sites"]
    capacities = [point["capacity_kbps"] for point in found["trade"]["curve"]]
    assert capacities == sorted(capacities)


def test_plan_of_a_quota_says_what_earlier_batches_spent(
    at_home: World, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = at_home.at("ledger").rows(["bytes_kept"], stage="sent", unit="rows", dimension_kind=TOTAL)
    assert sum(lines["bytes_kept"].to_pylist()) > 0
    code, text = told(capsys, "plan", "sites", "--capacity", "200 kB/month")
    shown = " ".join(text.split())
    assert code == 0
    assert "narrow has a quota of 200 kB/month. Earlier batches spent" in shown
    assert "of it, or wait and will spend it. This plan divides the rest as a run does." in shown
    assert "has a quota" not in told(capsys, "plan", "sites", "--capacity", "13 kbps")[1]


def test_a_stream_that_was_never_trained_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    world = World.begin(ProcessEngine(), tmp_path, SITES, METERS, capacity="20 kbps")
    stand_in(world, monkeypatch)
    code, nothing = told(capsys, "plan", "sites")
    assert code == 0
    assert "sites: nothing of it is at hand: deliver a file, then spillway run." in nothing
    world.deliver("sites/2020-01-01/a.json", json_lines(sites(0, 330)))
    world.shed()
    code, text = told(capsys, "plan", "sites")
    said = " ".join(text.split())
    assert code == 0, text
    assert (
        "sites is not trained: this plan uses models that were learned in memory, from this batch alone"
        in said
    )
    assert "sites, batch 1 of 2020-01-01: 330 rows" in said
    assert not world.at("models").exists


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["plan", "sitse"], "`sitse` must be a stream or a channel"),
        (["plan", "sites", "--batch", "nine"], "`--batch` must be a number or latest, got 'nine'"),
        (
            ["plan", "sites", "--batch", "9"],
            "`batch` must be one of sites whose raw tuples are there (1, 2, 3), got 9",
        ),
        (["plan", "narrow", "--batch", "1"], "`--batch` must go with a stream"),
        (["plan", "sites", "--capacity", "much"], "capacity"),
    ],
)
def test_what_cannot_be_planned_is_a_usage_error(
    at_home: World, capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    code, text = told(capsys, *arguments)
    assert (code, said in text) == (2, True), text


def test_explain_shows_the_channels_trade(at_home: World, capsys: pytest.CaptureFixture[str]) -> None:
    code, text = told(capsys, "explain", "sites", "temp")
    assert code == 0
    assert "narrow: 10 % more capacity would" in text
    assert "Other capacities: spillway plan sites" in " ".join(text.split())
    found = document(capsys, "explain", "sites", "temp")
    assert found["trade"]["channel"] == "narrow"
    (in_use,) = [point for point in found["trade"]["curve"] if point["in_use"]] or [None]
    assert in_use is None or in_use["capacity_kbps"] == found["trade"]["capacity_kbps"]

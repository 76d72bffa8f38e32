"""The jobs as people and schedulers run them: arguments in, lines that start with `spillway:` out, exit codes."""

from __future__ import annotations

import runpy
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from tests.pipeline.streams import ROOT, World, brought_through

Run = Callable[..., tuple[int, str]]


@pytest.fixture
def world(spark: Any, tmp_path_factory: pytest.TempPathFactory, tmp_path: Path) -> World:
    return brought_through(spark, lambda: tmp_path_factory.mktemp("world")).copy(tmp_path)


@pytest.fixture
def run(world: World, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Run:
    """A job by name with its arguments, on the world's lake and the session that is there."""
    from spillway.engine import session

    @contextmanager
    def shared(_name: str, _settings: Any) -> Iterator[Any]:
        yield world.lake

    monkeypatch.setattr(session, "open_lake", shared)
    for name in ("home", "lake", "destination", "landing", "schemas", "build"):
        monkeypatch.setenv(f"SPILLWAY_{name.upper()}", getattr(world.settings, name))

    def job(name: str, *arguments: str) -> tuple[int, str]:
        monkeypatch.setattr(sys, "argv", [name, *arguments])
        capfd.readouterr()
        code = 0
        try:
            runpy.run_path(str(ROOT / "jobs" / f"{name}.py"), run_name="__main__")
        except SystemExit as end:
            code = int(end.code or 0)
        return code, capfd.readouterr().out

    return job


def test_shedding_with_nothing_new_says_so_and_succeeds(run: Run) -> None:
    code, said = run("shed", "--channel", "narrow")
    assert code == 0
    assert "spillway: narrow: 0 batches done" in said


def test_an_unknown_channel_is_a_sentence_and_exit_code_one(run: Run) -> None:
    code, said = run("shed", "--channel", "narow")
    assert code == 1
    assert "spillway: failed: `channel` must be one of narrow, wide, got 'narow'; see channels.yaml" in said
    assert "Traceback" not in said


def test_a_stream_that_cannot_be_trained_keeps_no_other_from_it(run: Run, world: World) -> None:
    for path in (Path(world.settings.landing) / "watched").rglob("*.parquet"):
        path.unlink()
    world.contract_becomes(*_contracts("sites"), {**_contracts("watched")[0], "stream": "novel"})
    code, said = run("train", "--stream", "novel", "--stream", "sites")
    assert code == 1
    assert "novel: not trained: novel: training must have at least two tuples, got 0" in said
    assert "sites: trained version 2 on" in said


def test_recovering_writes_what_was_asked_for(run: Run, world: World, tmp_path: Path) -> None:
    output = tmp_path / "out" / "temps.parquet"
    wanted = ("--key", "site=site-2", "--from-seq", "100", "--to-seq", "220", "--output", str(output))
    code, said = run("recover", "--stream", "sites", "--attributes", "temp", *wanted)
    assert code == 0
    assert "spillway: sites: 20 tuples from 2 frames" in said
    given = pq.read_table(output).to_pandas()
    whole = world.frame("recovered", "sites")
    expected = whole[(whole["site"] == "site-2") & whole["seq"].between(100, 220)]
    assert given["seq"].tolist() == expected["seq"].tolist()
    assert given["temp"].dropna().tolist() == expected["temp"].dropna().tolist()
    assert "sky" not in given


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--stream", "sites", "--output", "x.txt"), "`output` must end in .parquet or .csv, got 'x.txt'"),
        (("--stream", "sites", "--attributes", "tmp"), "`attributes` must be of the stream sites, got tmp"),
        (("--stream", "sites", "--key", "site-2"), "`key` must be written name=value, got 'site-2'"),
        (("--stream", "site"), "`stream` must have a contract, got 'site'"),
        (
            ("--stream", "sites", "--from-seq", "5000"),
            "the range must hold transmitted tuples, got none for seq 5000",
        ),
    ],
)
def test_what_cannot_be_recovered_is_said_in_a_sentence(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, arguments: tuple[str, ...], sentence: str
) -> None:
    monkeypatch.chdir(tmp_path)
    code, said = run("recover", *arguments)
    assert code == 1
    assert "spillway: failed: " in said
    assert sentence in said


def _contracts(*names: str) -> list[dict[str, Any]]:
    from tests.pipeline import streams

    return [getattr(streams, name.upper()) for name in names]

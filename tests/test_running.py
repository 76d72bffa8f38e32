"""`spillway run`, `exempt` and `resend`: streams all the way through without Airflow, red with a sentence a fault."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.pipeline.streams import METERS, SITES, World, csv_lines, day, json_lines, meters, sites

from spillway.batch import DONE
from spillway.cli import main
from spillway.cli import run as cli_run
from spillway.engine import ProcessEngine
from spillway.errors import ConcurrentRun, SpillwayError
from spillway.intake.ingest import ingest
from spillway.pipeline.pending import waiting_values
from spillway.pipeline.run import run_streams
from spillway.report.result import Progress
from spillway.streams import train


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    """Two streams on one channel, landed and never seen."""
    found = World.begin(ProcessEngine(), tmp_path, SITES, METERS)
    found.deliver("sites/2020-01-01/a.json", json_lines(sites(0, 330)))
    found.deliver("meters/2020-01-01/a.csv", csv_lines(meters(0, 350)))
    for name in ("home", "lake", "destination", "landing", "schemas", "build"):
        monkeypatch.setenv(f"SPILLWAY_{name.upper()}", getattr(found.settings, name))
    return found


def statuses(world: World, stream: str) -> list[tuple[str, tuple[str, ...]]]:
    return [(batch.status, batch.levers) for batch in world.batches(stream)]


def test_run_brings_all_streams_through_with_progress_report_and_metrics(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", "--verbose"]) == 0
    told = capsys.readouterr().out
    for part in (
        "sites: took in batch 1",
        "sites: trained attributes, version 1",
        "meters: batch 1",
        "0 failed",
    ):
        assert part in told
    assert "FAILED" not in told
    result = told[told.index("checked against the source") :]
    assert main(["run"]) == 0
    quiet = capsys.readouterr().out
    assert quiet.split("\n")[0].partition(" ")[2].startswith("rounded or recovered values checked"), quiet
    assert "took in" not in quiet, "progress is for a terminal"
    assert result.splitlines()[1:] == quiet.splitlines()[1:]
    assert len(quiet.splitlines()) <= 25
    for stream in ("sites", "meters"):
        assert statuses(world, stream) == [(DONE, ("attributes",))]
        assert len(world.rows("recovered", stream)) == len(world.rows("raw", stream)) > 0
    assert (Path(world.settings.build) / "report.html").is_file()
    assert 'spillway_tuples_ingested{stream="sites"} 330' in (
        Path(world.settings.build) / "metrics" / "spillway.prom"
    ).read_text(encoding="utf-8")
    before = world.everything("sites", "meters")
    assert main(["run"]) == 0
    assert world.everything("sites", "meters") == before


def failures_of(capsys: pytest.CaptureFixture[str]) -> list[str]:
    """The sentences that a run ends with: it exits with 1 and says so."""
    capsys.readouterr()
    assert main(["run", "--json"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert told["ok"] is False
    found: list[str] = told["failed"]
    return found


def test_a_file_that_is_refused_whole_fails_the_run_once_and_the_rest_goes_through(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    """Newcomer B8: whole files were refused and the exit code was 0."""
    world.deliver("meters/2020-01-01/b.csv", b"meter;at;power;count\nm0;2026-01-01T00:00:00Z;1;2\n")
    (failed,) = failures_of(capsys)
    assert failed.startswith("meters/2020-01-01/b.csv")
    assert "; " in failed, "it says what to do"
    assert statuses(world, "meters") == [(DONE, ("attributes",))]
    assert len(world.rows("recovered", "meters")) == 350
    assert main(["run"]) == 0, "nothing new: status still lists it"


def test_a_batch_that_exceeds_its_channel_fails_the_run_with_a_remedy(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    """Newcomer B8: a batch took five times its channel and the exit code was 0."""
    world.contract_becomes(SITES, METERS, capacity="0.05 kbps")
    failed = failures_of(capsys)
    assert [line.partition(":")[0] for line in failed] == ["meters", "sites"]
    for line in failed:
        assert "a batch must fit into its share of channel narrow, got 1 batch that does not" in line
        assert "; widen the channel, let more be shed, or deliver larger batches less often" in line
    assert statuses(world, "sites") == [(DONE, ("attributes",))]
    assert main(["run"]) == 0


def test_a_stream_that_is_only_observed_may_exceed_its_channel(world: World) -> None:
    world.contract_becomes(*({**one, "mode": "observe"} for one in (SITES, METERS)), capacity="0.05 kbps")
    assert main(["run"]) == 0


def test_a_stream_that_another_run_took_in_first_is_left_to_that_run(
    world: World, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It was never trained, so that it is taken in apart; shedding it as well both runs could give way."""

    def outrun(tables: Any, engine: Any, contract: Any, *rest: Any) -> list[Any]:
        if contract.stream == "sites":
            ingest(tables, engine, contract, *rest)
            raise ConcurrentRun("sites: another run has changed batch 1; nothing was doubled, run it again")
        return ingest(tables, engine, contract, *rest)

    monkeypatch.setattr("spillway.pipeline.run.ingest", outrun)
    assert main(["run"]) == 1
    assert "FAILED: sites: another run has changed batch 1" in capsys.readouterr().out
    assert [status for status, _ in statuses(world, "sites")] == ["ingested"]
    assert statuses(world, "meters") == [(DONE, ("attributes",))]


def test_a_run_ends_with_its_result(
    world: World, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", "--stream", "sites"]) == 0
    shown = capsys.readouterr().out
    assert "none missing" in shown
    assert "narrow, 12 kbps" in shown
    assert "meters" not in shown[shown.index("none missing") :]

    def breaks(*_: Any) -> Any:
        raise SpillwayError("`ledger` must be readable, got a stranger's; mend it")

    monkeypatch.setattr("spillway.report.result.stream_overviews", breaks)
    assert main(["run", "--stream", "sites"]) == 0, "what was done is done"
    assert "the result cannot be shown: `ledger` must be readable" in capsys.readouterr().out


@pytest.mark.parametrize("which", [["--stream", "sites"], ["--channel", "narrow"]])
def test_one_stream_or_one_channel(
    world: World, which: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", *which, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    streams = ["sites"] if "--stream" in which else ["meters", "sites"]
    assert (told["ok"], told["streams"], told["failed"]) == (True, streams, [])
    assert statuses(world, "sites") == [(DONE, ("attributes",))]
    assert bool(statuses(world, "meters")) == ("meters" in streams)


def test_a_run_that_goes_wrong_ends_red_with_one_sentence_a_fault_and_the_others_go_through(
    world: World, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    real = train._lessons

    def crashes(tables: Any, shares: Any, name: str, say: Any) -> Any:
        return 1 / 0 if name == "meters" else real(tables, shares, name, say)

    monkeypatch.setattr(train, "_lessons", crashes)
    contract = dict(SITES) | {"stream": "broken", "channel": "nowhere"}
    contract["source"] = {"kind": "files", "path": "broken", "format": "json"}
    (Path(world.settings.schemas) / "streams" / "broken.yaml").write_text(yaml.safe_dump(contract))
    assert main(["run"]) == 1
    told = capsys.readouterr().out
    _, *failed = " ".join(told.split()).split("FAILED: ")
    assert len(failed) == 2, told
    assert any("`channel` must be a channel of channels.yaml" in line for line in failed)
    assert any(line.startswith("meters") for line in failed)
    assert statuses(world, "sites") == [(DONE, ("attributes",))]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["run", "--stream", "site"], "`stream` must have a contract, got 'site'; did you mean sites?"),
        (["run", "--channel", "wide"], "`--channel` must be one of narrow, got 'wide'"),
        (["exempt", "sites", "--until", "soon", "--reason", "x"], "`--until` must be a date or time like"),
        (["exempt", "sites", "--until", "2020-01-01", "--reason", "x"], "`--until` must be later than now"),
        (["exempt", "sites", "--until", "2100-01-01", "--reason", " "], "`reason` must be a sentence"),
        (["resend", "sites", "--from", "2020-01-01"], "`--from` must be a date that has batches"),
    ],
)
def test_what_cannot_be_meant_is_a_sentence(
    world: World, words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) in (1, 2)
    told = capsys.readouterr()
    assert said in told.err
    assert "Traceback" not in told.err + told.out


def test_exempt_and_resend_do_as_they_say(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--stream", "sites"]) == 0
    assert main(["resend", "sites", "--from", str(day(0)), "--json"]) == 0
    assert json.loads(capsys.readouterr().out.split("\n{", 1)[-1].join(["{", ""])) == {
        "stream": "sites",
        "batches": [1],
        "tuples": 330,
    }
    assert statuses(world, "sites") == [(DONE, ())]
    assert main(["exempt", "sites", "--until", "2100-01-01", "--reason", "audit"]) == 0
    assert "sites is exempt until 2100-01-01 00:00 UTC: audit" in capsys.readouterr().out
    world.deliver("sites/2020-01-02/b.json", json_lines(sites(330, 100)))
    assert main(["run", "--stream", "sites"]) == 0
    assert statuses(world, "sites") == [(DONE, ()), (DONE, ())]
    assert main(["exempt", "sites", "--until", "now", "--reason", "over"]) == 0
    assert "no longer exempt" in capsys.readouterr().out


def test_run_by_spark_is_a_choice(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    from contextlib import contextmanager

    from spillway.engine import spark

    asked: list[str] = []

    @contextmanager
    def here(name: str) -> Any:
        asked.append(name)
        yield ProcessEngine()

    monkeypatch.setattr(spark, "spark_engine", here)
    assert main(["run", "--stream", "sites", "--engine", "spark"]) == 0
    assert asked == ["spillway run"]


def test_run_uses_spark_where_much_waits(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    sites, meters = ["sites"], ["meters"]
    few = waiting_values(world.tables.now(), world.contracts, sites)
    assert 0 < few < cli_run.AUTO_VALUES
    assert waiting_values(world.tables.now(), world.contracts, [*sites, *meters, "nobody"]) > few
    assert cli_run.chosen_engine(world.tables.now(), world.contracts, sites) == "process"
    monkeypatch.setattr(cli_run, "AUTO_VALUES", few)
    monkeypatch.setenv("SPILLWAY_MASTER", "sc://127.0.0.1:1")
    assert cli_run.chosen_engine(world.tables.now(), world.contracts, sites) == "spark"
    world.shed()
    world.train("sites", "meters")
    world.shed()
    assert waiting_values(world.tables.now(), world.contracts, [*sites, *meters]) == 0


def test_explain_says_that_the_stream_is_exempt_and_until_when(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["exempt", "sites", "--until", "2099-01-01", "--reason", "an audit"]) == 0
    capsys.readouterr()
    assert main(["explain", "sites", "temp"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert said.startswith(
        "sites is exempt until 2099-01-01 00:00 UTC: an audit: from its next batch on, nothing of it is shed"
    )
    assert main(["explain", "sites", "temp", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["exempt"] == "exempt until 2099-01-01 00:00 UTC: an audit"
    assert main(["explain", "meters", "power", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["exempt"] is None


def test_status_tells_of_columns_that_came_or_went(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [{**row, "gust": 1} for row in sites(0, 330)]
    for row in rows:
        del row["pulses"]
    (Path(world.settings.landing) / "sites" / "2020-01-01" / "a.json").write_bytes(json_lines(rows))
    world.shed()
    assert main(["status", "--json"]) == 0
    (one,) = [one for one in json.loads(capsys.readouterr().out)["shortages"] if one["kind"] == "columns"]
    assert (one["stream"], one["wrong"]) == ("sites", False)
    assert "330 records with field gust unknown" in one["sentence"]
    assert "330 records with column pulses absent" in one["sentence"]
    assert "schemas/streams/sites.yaml" in one["remedy"]


def test_a_plan_of_one_stream_does_not_ask_for_the_contract_of_another(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    world.shed()
    contract = Path(world.settings.schemas) / "streams" / "meters.yaml"
    contract.write_text(contract.read_text() + "mode: [")
    assert main(["plan", "sites", "--json"]) == 0
    (one,) = json.loads(capsys.readouterr().out)["streams"]
    assert one["overview"]["figures"]["stream"] == "sites"
    assert main(["plan", "narrow"]) == 0
    assert "meters" in capsys.readouterr().out, "what cannot be planned is said"
    assert main(["plan", "meters"]) == 1
    assert "`the file` must be YAML" in capsys.readouterr().err


def until(true: Callable[[], bool], what: str) -> None:
    """Wait until something is true, at most two minutes."""
    for _ in range(1200):
        if true():
            return
        time.sleep(0.1)
    raise AssertionError(f"{what} must happen")


def test_run_every_goes_on_after_a_fault_and_ends_between_two_steps(
    world: World, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a user does meanwhile: land a file, break a contract, correct it, land another file, end the process."""
    path = Path(world.settings.schemas, "streams", "sites.yaml")
    was, faults = path.read_text(encoding="utf-8"), list[BaseException]()
    said: list[str] = []
    failed = Progress.failed
    monkeypatch.setattr(Progress, "failed", lambda self, text: (said.append(text), failed(self, text))[1])

    def meanwhile() -> None:
        try:
            until(lambda: statuses(world, "sites") == [(DONE, ("attributes",))], "the first batch")
            path.write_text(was.replace("role: key", "role: king"), encoding="utf-8")
            world.deliver("sites/2020-01-01/b.json", json_lines(sites(330, 130)))
            until(lambda: any("king" in one for one in said), "the sentence of the fault")
            path.write_text(was, encoding="utf-8")
            until(lambda: len(world.rows("recovered", "sites")) == 460, "the recovery of the second batch")
        except BaseException as problem:
            faults.append(problem)
        finally:
            os.kill(os.getpid(), signal.SIGTERM)

    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    thread = threading.Thread(target=meanwhile)
    thread.start()
    try:
        assert main(["run", "--every", "0.2s", "--stream", "sites"]) == 0
    finally:
        thread.join()
        for number, handler in before.items():
            signal.signal(number, handler)
    assert faults == []
    assert len(said) == 1, "a fault that stays is told once"
    told = capsys.readouterr().out
    assert "stopped between two steps" in told
    assert told.count("nothing was shed since the last validation") < 5
    assert statuses(world, "sites") == [(DONE, ("attributes",))] * 2
    assert world.rows("transmitted", "meters") == [], "only the stream that was asked for"


def test_a_run_that_is_to_end_leaves_the_steps_that_follow_to_the_next_run(world: World) -> None:
    steps = iter([False, False, True])
    run_streams(
        world.tables, world.engine, world.contracts, ["sites"], "run", stopped=lambda: next(steps, True)
    )
    assert [status for status, _ in statuses(world, "sites")] == [DONE]
    assert world.rows("recovered", "sites") == []
    run_streams(world.tables, world.engine, world.contracts, ["sites"], "run 2")
    assert len(world.rows("recovered", "sites")) == 330


@pytest.mark.parametrize("given", ["0s", "soon", "-1", "5 days"])
def test_a_time_between_runs_that_is_none_is_refused(given: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["run", f"--every={given}"])
    assert ended.value.code == 2
    assert "must be a time like 30s" in capsys.readouterr().err


def test_run_every_has_no_document_to_print(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--every", "1s", "--json"]) == 2
    assert "`--json` must be absent with --every" in capsys.readouterr().out

"""The jobs as people and schedulers run them: arguments in, lines that start with `spillway:` out, exit codes."""

from __future__ import annotations

import json
from pathlib import Path

from tests.jobs.conftest import Run
from tests.pipeline import streams
from tests.pipeline.streams import World, json_lines, sites

from spillway.batch import DONE
from spillway.engine.spark import spark_engine


def test_a_file_that_landed_is_shed_and_validated_by_two_jobs(run: Run, world: World) -> None:
    world.deliver("sites/2020-01-03/d.json", json_lines(sites(710, 60)))
    code, said = run("shed", "--channel", "narrow", "--run-id", "r7")
    assert (code, said.count("spillway: narrow: 1 batches done")) == (0, 1), said
    newest = world.batches("sites")[-1]
    assert (newest.status, newest.run_id, newest.rows) == (DONE, "r7", 60)
    code, said = run("validate", "--stream", "sites")
    assert code == 0
    assert "spillway: sites: recovered 1 batch in" in said
    report = Path(world.settings.build, "report.html")
    assert f"spillway: report: {report}" in said
    assert report.is_file()


def test_dates_are_shed_again_and_no_others(run: Run, world: World) -> None:
    before = world.files("transmitted", "sites")
    code, said = run("shed", "--channel", "narrow", "--from-date", "2020-01-02")
    assert code == 0
    assert "spillway: narrow: 1 batches done" in said
    now = world.files("transmitted", "sites")
    assert {day for path, day in now.items() if path not in before} == {"2020-01-02"}


def test_shedding_with_nothing_new_says_so_and_succeeds(run: Run) -> None:
    code, said = run("shed", "--channel", "narrow")
    assert code == 0
    assert "spillway: narrow: 0 batches done" in said


def test_joins_and_queries_that_have_nothing_to_do_say_so_and_one_that_is_not_there_is_refused(
    run: Run,
) -> None:
    code, said = run("workloads")
    assert (code, "spillway: 0 windows computed" in said, "spillway: report: " in said) == (0, True, True)
    code, said = run("workloads", "--subject", "nobody")
    assert (code, "spillway: failed: `workload` must have a contract, got 'nobody'" in said) == (1, True)


def test_an_unknown_channel_is_a_sentence_and_exit_code_one(run: Run) -> None:
    code, said = run("shed", "--channel", "narow")
    assert code == 1
    assert "spillway: failed: `channel` must be one of narrow, wide, got 'narow'; see channels.yaml" in said
    assert "Traceback" not in said


def test_a_stream_that_cannot_be_trained_keeps_no_other_from_it(run: Run, world: World) -> None:
    world.contract_becomes(streams.SITES, {**streams.WATCHED, "stream": "novel"})
    for path in (Path(world.settings.landing) / "watched").rglob("*.parquet"):
        path.unlink()
    world.deliver("watched/2020-01-05/one.parquet", streams.parquet_bytes(streams.sites(0, 1)))
    code, said = run("train", "--stream", "novel", "--stream", "sites")
    assert code == 1
    assert "not done: novel: training must have at least two tuples, got 1" in said
    assert "sites: trained attributes, version 2" in said


def test_an_engine_that_nobody_asks_for_anything_is_never_started() -> None:
    with spark_engine("nothing to do") as engine:
        assert engine.map(json.dumps, []) == []
        assert not engine.started

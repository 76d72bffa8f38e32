"""The last screen has 25 lines, a verdict that claims only what was checked, and the bytes of gzip and xz."""

from __future__ import annotations

import csv
import gzip
import io
import lzma
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from tests.levers.sifters.logs import logged
from tests.pipeline.streams import SITES, World, json_lines, made_once, sites
from tests.report.test_overview import FIGURES, TEMP, WEATHER

from demo.run import where_to_look
from spillway.batch import INGESTED
from spillway.clock import utc_now
from spillway.engine import ProcessEngine
from spillway.lossless import csv_bytes
from spillway.report.explain import WorkloadExplanation
from spillway.report.overview import StreamOverview, WorkloadOverview
from spillway.report.result import (
    GZIP,
    MOST_LINES,
    XZ,
    RunResult,
    StreamResult,
    format_stream_loss,
    result_lines,
    rival_bytes,
    run_result,
    verdict,
    workload_lines,
)
from spillway.report.text import PAGE, StageSum
from spillway.store.batches import save_batches

SENT = replace(
    WEATHER, rows=26_115, exact_bytes=247_000, sent_bytes=142_000, batches=12, values_checked=235_035,
    attributes=(replace(TEMP, absent=0),),
)  # fmt: skip
"""A stream of 12 batches, all validated; its values are off by 0.3 % on average."""
EXACT = replace(SENT, attributes=(), figures=replace(FIGURES, stream="stocks"), values_checked=0)


def screen(*streams: StreamOverview, failed: int = 0) -> str:
    found = RunResult(tuple(StreamResult(one, "messages, 12 kB/month") for one in streams), failed)
    return " ".join(" ".join(result_lines(found)).split())


def shed_once(folder: Path) -> World:
    """A stream that was shed and is not validated yet."""
    found = World.begin(ProcessEngine(), folder, SITES, capacity="3 kbps")
    found.deliver("sites/2020-01-01/a.json", json_lines(sites(0, 330)))
    found.shed()
    found.train("sites")
    found.shed()
    return found


@pytest.fixture
def world(tmp_path: Path) -> World:
    return made_once(tmp_path, shed_once)


def result(world: World) -> RunResult:
    return run_result(world.tables.now(), world.contracts)


def test_first_sentence_states_what_was_checked_and_sent() -> None:
    assert screen(SENT).startswith(
        "235,035 rounded or recovered values checked against the source one by one, everything else by checksum: "
        "none outside its bound, none missing. Sent 142 kB and saved 42.5 %: all rows take 247 kB as Parquet"
    )


def test_values_outside_their_bound_rows_missing_and_failed_expectations_come_first() -> None:
    outside = replace(SENT, figures=replace(FIGURES, violations=3))
    assert screen(outside).startswith("WRONG: 3 values are outside their bound. 235,035 values checked")
    assert screen(replace(SENT, rows_missing=1)).startswith("WRONG: 1 row is missing.")
    assert screen(SENT, failed=2).startswith("WRONG: 2 expectations failed.")
    both = replace(outside, rows_missing=7)
    assert "3 values are outside their bound, 7 rows are missing" in screen(both)
    for wrong in (outside, both):
        assert "none outside" not in screen(wrong)
        assert "none missing" not in screen(wrong)


def test_verdict_claims_nothing_about_unvalidated_batches() -> None:
    none = replace(SENT, batches_unchecked=12, values_checked=0)
    assert screen(none).startswith("Nothing was checked: of 12 batches sent, none is validated.")
    assert "none missing" not in screen(none)
    some = replace(SENT, batches_unchecked=2)
    assert "Not validated yet: 2 of 12 batches." in screen(some)
    wrong = replace(none, figures=replace(FIGURES, violations=1))
    assert screen(wrong).startswith("WRONG: 1 value is outside its bound")


def test_a_run_that_sent_nothing_says_so() -> None:
    assert result_lines(RunResult(())) == ["Nothing was checked: no batch was sent yet."]


def test_summary_names_rows_that_wait() -> None:
    waiting = replace(EXACT, rows_waiting=10_177)
    assert "Lost: nothing. Not sent yet: stocks 10,177 rows." in screen(waiting)
    assert "Not sent yet" not in screen(EXACT)


def test_rows_that_were_taken_in_and_not_sent_wait(world: World) -> None:
    before = {one.seen.figures.stream: one.seen.rows_waiting for one in result(world).streams}
    assert before["sites"] == 0
    (batch,) = world.batches("sites")[-1:]
    waits = replace(batch, batch=batch.batch + 1, status=INGESTED, rows=40, attempts=0)
    save_batches(world.tables.now(), [waits.with_changes(utc_now(), revision=0)])
    after = {one.seen.figures.stream: one.seen.rows_waiting for one in result(world).streams}
    assert after == before | {"sites": 40}


def test_verdict_of_exact_streams_states_no_loss() -> None:
    assert format_stream_loss(EXACT) == "nothing"
    assert screen(EXACT).startswith(
        "Everything that was sent was checked against the source by checksum: no difference, none missing."
    )
    assert "Lost: nothing." in screen(EXACT)
    assert "Lost: weather values off by 0.3 % on average." in screen(EXACT, SENT)


def test_dropped_rows_and_held_values_are_named_as_exceptions() -> None:
    dropped = replace(EXACT, figures=replace(FIGURES, rows_lost=9_062))
    assert "none missing except 9,062 dropped rows." in screen(dropped)
    held = replace(SENT, figures=replace(FIGURES, source_values=1))
    assert "none missing except 1 value kept at the source." in screen(held)
    assert "1 value kept at the source" in format_stream_loss(held)
    assert "off by" not in format_stream_loss(held), (
        "a mean over absent values is no error of those that are there"
    )


def test_lost_rows_state_the_share_that_queries_have() -> None:
    dropped = replace(
        EXACT, figures=replace(FIGURES, rows_lost=9), queries=6, rows_asked=40, rows_answered=40
    )
    assert format_stream_loss(dropped) == "9 rows, none that its 6 queries ask for"
    assert (
        format_stream_loss(replace(dropped, rows_answered=31))
        == "9 rows, its 6 queries have 77.5 % of their rows"
    )


def test_screen_has_25_lines_and_fits_the_page(tmp_path: Path, world: World) -> None:
    wide = replace(
        SENT, figures=replace(FIGURES, stream="s" * 20, rows_lost=123_456), queries=12, rows_asked=10_000,
        rows_answered=9_999,
    )  # fmt: skip
    sizes = {GZIP: 123_456_789, XZ: 123_456_789}
    four = [
        StreamResult(replace(wide, figures=replace(wide.figures, stream=f"stream_{at}")), "l" * 24, sizes)
        for at in range(4)
    ]
    lines = result_lines(RunResult(tuple(four)))
    figures = {"expectations.run": 520, "expectations.failed": 0, "seconds.total": 120.0}
    queries = workload_lines([workload(f"mean_response_{at}", stage("rows", 9, 4)) for at in range(6)])
    last = ["", *lines, *queries, "", *where_to_look(world.settings, figures, ["weather"])]
    assert len(last) <= 25
    assert max(map(len, lines)) <= PAGE
    many = result_lines(RunResult(tuple(four * 5)))
    assert len(many) <= MOST_LINES
    shown = sum(line.startswith("stream_") for line in many)
    assert shown >= 1
    assert many[-1] == f"and {20 - shown} more streams: spillway status"


def test_rival_bytes_are_shown_only_if_measured() -> None:
    measured = StreamResult(SENT, "messages, 12 kB/month", {GZIP: 328_000, XZ: 265_000})
    both = " ".join(result_lines(RunResult((measured, StreamResult(EXACT, "satellite, 2.4 kbps")))))
    assert "328 kB" in both
    assert "CSV with" not in both, "a sum over some of the streams would be compared with all of them"
    alone = " ".join(" ".join(result_lines(RunResult((measured,)))).split())
    assert "328 kB as CSV with gzip, 265 kB as CSV with xz." in alone
    assert RunResult((measured,)).flat()["xz_bytes.weather"] == 265_000


def test_a_real_run_claims_nothing_before_it_is_validated(world: World) -> None:
    assert verdict(result(world)).startswith("Nothing was checked: of 1 batch sent, none is validated.")
    world.validate()
    proofs = [row for row in world.rows("certificates") if row["attribute"]]
    values = sum(row["shed_values"] + row["rounded_values"] for row in proofs)
    assert values > 0
    assert verdict(result(world)).startswith(f"{values:,} rounded or recovered values checked")
    assert "none missing" in verdict(result(world))
    world.deliver("sites/2020-01-02/b.json", json_lines(sites(330, 120)))
    world.shed()
    assert verdict(result(world)).endswith("Not validated yet: 1 of 2 batches.")


def test_bytes_sent_and_exact_are_those_of_the_ledger(world: World) -> None:
    (one,) = result(world).seen
    last = [
        row
        for row in world.rows("ledger")
        if (row["stage"], row["unit"], row["dimension_kind"]) == ("sent", "rows", "total")
    ]
    assert [one.sent_bytes, one.exact_bytes] == [last[0]["bytes_kept"], last[0]["bytes_offered"]]
    assert one.rows == 330


def test_verdict_is_wrong_if_recovered_rows_are_gone(world: World) -> None:
    world.validate()
    world.tables.now().at("recovered", "sites").delete(batch=1)
    assert verdict(result(world)).startswith("WRONG: 330 rows are missing.")


def test_joins_and_queries_state_the_share_of_their_work() -> None:
    query = stage("rows", 40_000, 17_480)
    whole = stage("rows", 3_000, 3_000)
    join = stage("comparisons", 1_000, 261)
    told = [
        workload("mean_response", query),
        workload("quotes", whole),
        workload("pairs", join),
        workload("idle"),
    ]
    assert " ".join(" ".join(workload_lines(told)).split()) == (
        "Joins and queries, share of the work done: mean_response 43.7 % of rows; quotes 100 % of rows; "
        "pairs 26.1 % of comparisons."
    )
    assert workload_lines([workload("idle")]) == []


def stage(unit: str, offered: int, handed_on: int) -> StageSum:
    return StageSum(
        "quality", unit, "", 2, offered, handed_on, 0, offered - handed_on, 0, offered - handed_on
    )


def workload(name: str, *stages: StageSum) -> WorkloadOverview:
    return WorkloadOverview(WorkloadExplanation(name, ("network",), "", (), stages))


def test_rivals_compress_one_file_per_batch(world: World) -> None:
    world.deliver("sites/2020-01-02/b.json", json_lines(sites(330, 120)))
    world.shed()
    contract = world.contracts.stream("sites")
    sizes: Mapping[str, int] | None = rival_bytes(world.tables.now(), contract)
    texts = []
    for batch in (1, 2):
        rows = world.at("raw", "sites").rows(["seq", *contract.names], batch=batch).sort_by("seq")
        texts.append(csv_bytes(rows.drop_columns(["seq"])))
    assert sizes == {
        GZIP: sum(len(gzip.compress(text, 9, mtime=0)) for text in texts),
        XZ: sum(
            min(len(lzma.compress(text, preset=preset)) for preset in (9, 9 | lzma.PRESET_EXTREME))
            for text in texts
        ),
    }
    back = [row for text in texts for row in csv.DictReader(io.StringIO(text.decode()))]
    assert [row["site"] for row in back] == [row["site"] for row in sites(0, 450)]
    assert [float(row["temp"]) if row["temp"] else None for row in back] == [
        row["temp"] for row in sites(0, 450)
    ]


def test_rivals_are_not_measured_if_rows_are_gone(world: World) -> None:
    world.tables.now().at("raw", "sites").delete(batch=1)
    assert rival_bytes(world.tables.now(), world.contracts.stream("sites")) is None


def test_result_has_the_rows_that_queries_ask_for(tmp_path: Path) -> None:
    sifted = logged(ProcessEngine(), tmp_path, capacity="2.5 kbps")
    (one,) = result(sifted).streams
    lines = [
        row
        for row in sifted.rows("ledger")
        if (row["dimension_kind"], row["unit"], row["subject"]) == ("query", "rows", "logs")
    ]
    assert one.seen.queries == 3
    assert one.seen.rows_asked == sum(row["offered"] for row in lines) > 0
    assert one.seen.rows_answered == sum(row["kept"] for row in lines)
    assert f"{one.seen.figures.rows_lost:,} rows" in format_stream_loss(one.seen)

"""Every expectation holds on sound tables, and each is tripped by the one thing it is there to notice.

All faults are judged in one run, each in a stream of its own named after the expectation: starting Great
Expectations once per fault would cost minutes and show nothing more.
"""

from __future__ import annotations

import copy
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import astuple, replace
from datetime import timedelta
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.checks.sound import (
    DAY,
    NOW,
    ROWS,
    SCHEME,
    Rows,
    arrow,
    contract,
    examined_results,
    pair,
    region,
    sifted_stream,
    sound_stream,
    thinned_stream,
    tuples,
    way,
)

from spillway import ledger
from spillway.batch import LandingFile
from spillway.checks import ExpectationsFailed, Outcome, StoredRows, failures, load_suites, run_suites
from spillway.checks.gx import Validator
from spillway.checks.outcomes import by_stream
from spillway.checks.outcomes import expectation_outcomes as outcomes_of
from spillway.checks.run import checksum_outcomes, suite_folders
from spillway.checks.suites import Expectation, Suite
from spillway.contracts.sections import EVENTS
from spillway.engine.local import ProcessEngine
from spillway.errors import InvalidValue
from spillway.levers.attributes.columns import Column
from spillway.levers.attributes.synopsis.bounds import certify
from spillway.levers.quality.intervals import UNEVEN_SIZES
from spillway.settings import Settings
from spillway.sketches.pair_count import PairCount, PairCountParameters
from spillway.store.files import DataFile
from spillway.store.schemas import table_contracts

HOME = Path(__file__).resolve().parents[2]
SUITES = load_suites(suite_folders())
OWN = ("raw", "transmitted", "recovered", "sifted_rows")
RESULTS = ("joined", "results")
BETWEEN = "expect_column_values_to_be_between"
EQUAL = "expect_column_pair_values_to_be_equal"
UNIQUE = "expect_compound_columns_to_be_unique"
Spoil = Callable[[Rows], Any]


def put(table: str, row: int = 0, **values: Any) -> Spoil:
    return lambda rows: rows[table][row].update(values)


def again(table: str, row: int = -1, **values: Any) -> Spoil:
    return lambda rows: rows[table].append({**copy.deepcopy(rows[table][row]), **values})


def all_of(table: str, **values: Any) -> Spoil:
    return lambda rows: [row.update(values) for row in rows[table]]


def without(table: str, row: int) -> Spoil:
    return lambda rows: rows[table].pop(row)


def ways(*attributes: dict[str, Any]) -> Spoil:
    return put("schemes", 0, attributes=list(attributes))


def swap_keys(table: str) -> Spoil:
    def spoil(rows: Rows) -> None:
        first, second = rows[table][0], rows[table][1]
        first["site"], second["site"] = second["site"], first["site"]

    return spoil


def file(status: str) -> tuple[Any, ...]:
    return astuple(LandingFile("b.json", 9, "another digest", 1, 0, status))


def alike() -> bytes:
    """Six rows of which every two agree in both attributes."""
    sketch = PairCount(PairCountParameters(2, 1, width=64))
    return sketch.update(np.ones((6, 2), dtype=np.uint64), np.arange(6)).to_bytes()


INTAKE, WHOLE, VALUES, TEMP, MOOD, SENT, SENT_VALUES, MET = range(8)
"""Rows of the sound ledger."""

FAULTS: dict[tuple[str, str], Spoil] = {
    ("batches", "one_row_per_batch"): again("batches"),
    ("batches", "known_status"): put("batches", status="lost"),
    ("batches", "every_file_has_a_fate"): put("batches", files=[file("forgotten")]),
    ("batches", "a_file_is_taken_in_once"): put("batches", files=[file("ingested"), file("ingested")]),
    ("batches", "seq_numbers_are_its_own"): again(
        "batches", batch=2, first_seq=5, last_seq=9, files=[], rows=1
    ),
    ("batches", "every_row_has_a_seq"): put("batches", last_seq=4),
    ("windows", "a_window_stands_once"): again("windows"),
    ("windows", "a_window_goes_forward"): put("windows", to_time=NOW),
    ("windows", "a_window_reads_something"): put("windows", inputs=[]),
    ("windows", "a_window_is_somewhere_on_its_way"): put("windows", status="lost"),
    ("windows", "a_window_is_of_a_join_or_a_query"): put("windows", scope="stream"),
    ("models", "one_row_per_fact_and_version"): again("models"),
    ("models", "versions_count_from_one"): put("models", version=0),
    ("models", "value_is_json"): put("models", value="{not json"),
    ("models", "evidence_is_json"): put("models", evidence="{not json"),
    ("models", "trained_on_something"): put("models", trained_from_seq=6),
    ("models", "known_facts"): put("models", 3, fact="guess"),
    ("models", "a_version_is_whole"): without("models", 1),
    ("models", "what_may_be_shed_has_a_threshold"): put("models", 2, subject="mood"),
    ("schemes", "runs_do_not_overlap"): put("schemes", 0, to_seq=3),
    ("schemes", "known_ways"): ways(way("temp", "drop", "why")),
    ("schemes", "keys_order_and_protected_are_kept"): ways(way("site", "shed", "why")),
    ("schemes", "every_choice_says_why"): ways(way("temp", "shed", " ")),
    ("schemes", "planned_rate_within_capacity"): put("schemes", planned_kbps=2.5),
    ("schemes", "shortfall_says_why"): put("schemes", planned_kbps=2.5, shortfall_kbps=0.5, reason=""),
    ("schemes", "counts_are_possible"): put("schemes", evaluations=3),
    ("transmitted", "required_columns_are_filled"): put("transmitted", seq=None),
    ("transmitted", "no_key_is_shed"): put("transmitted", site=None),
    ("transmitted", "every_tuple_is_sent"): without("transmitted", 2),
    ("transmitted", "the_tuples_sent_are_the_raw_ones"): swap_keys("transmitted"),
    ("transmitted", "what_was_kept_is_sent_as_it_came"): put("transmitted", at=None),
    ("transmitted", "seq_is_of_the_batch"): put("transmitted", 5, seq=600),
    ("transmitted", "raw_is_what_was_taken_in"): without("raw", 2),
    ("transmitted", "every_tuple_has_a_scheme"): put("transmitted", scheme=None),
    ("transmitted", "scheme_is_known"): put("transmitted", scheme=7),
    ("transmitted", "transmitted_rate_within_capacity"): put("ledger", SENT, bytes_kept=251),
    ("synopsis", "one_block_per_frame"): again("synopsis"),
    ("synopsis", "no_more_entries_than_values"): put("synopsis", entries=7),
    ("synopsis", "entries_have_bytes"): put("synopsis", payload=b""),
    ("synopsis", "blocks_lie_in_their_frame"): put("synopsis", first_seq=6),
    ("sent_synopsis", "one_block_per_frame"): again("sent_synopsis"),
    ("sent_synopsis", "no_more_entries_than_values"): put("sent_synopsis", entries=7),
    ("sent_synopsis", "entries_have_bytes"): put("sent_synopsis", payload=b""),
    ("sent_synopsis", "blocks_lie_in_their_frame"): put("sent_synopsis", first_seq=6),
    ("recovered", "required_columns_are_filled"): put("recovered", seq=None),
    ("recovered", "every_tuple_is_recovered"): again("recovered"),
    ("recovered", "the_tuples_recovered_are_the_raw_ones"): swap_keys("recovered"),
    ("recovered", "what_was_kept_is_as_it_came"): put("recovered", at=NOW + timedelta(seconds=7)),
    ("recovered", "keys_survive"): put("recovered", site=None),
    ("recovered", "no_scheme_is_lost"): put("recovered", scheme=None),
    ("recovered", "scheme_is_as_transmitted"): put("recovered", scheme=8),
    ("certificates", "one_certificate_per_attribute"): again("certificates"),
    ("certificates", "every_error_within_the_threshold"): put("certificates", violations=1),
    ("certificates", "worst_error_within_the_threshold"): put("certificates", worst_over_threshold=1.01),
    ("certificates", "mean_accuracy_floor"): put("certificates", mean_error_pct=10.5),
    ("certificates", "no_more_stored_than_shed"): put("certificates", stored_values=7),
    ("ledger", "ledger_balances"): put("ledger", VALUES, shed=5, recoverable=5),
    ("ledger", "shed_is_recoverable_or_lost"): put("ledger", VALUES, lost=1),
    ("ledger", "nothing_is_negative"): put("ledger", bytes_kept=-1),
    ("ledger", "rounded_ones_are_kept"): put("ledger", TEMP, rounded=1),
    ("ledger", "what_is_too_much_was_kept"): put("ledger", SENT, shortfall=7),
    ("ledger", "known_scopes"): put("ledger", scope="lake"),
    ("ledger", "known_units"): put("ledger", unit="crates"),
    ("ledger", "known_kinds_of_dimension"): put("ledger", TEMP, dimension_kind="mood"),
    ("ledger", "dimensions_are_named"): put("ledger", TEMP, dimension=""),
    ("ledger", "one_row_per_place"): again("ledger", SENT),
    ("ledger", "parts_add_up"): without("ledger", MOOD),
    ("ledger", "stages_hand_over_everything"): put("ledger", INTAKE, kept=5, rejected=1),
    ("ledger", "everything_shed_is_certified"): put("certificates", shed_values=5),
    ("ledger", "only_what_the_contract_allows_is_lost"): put("ledger", VALUES, recoverable=5, lost=1),
    ("sketches", "one_sketch_per_batch"): again("sketches"),
    ("sketches", "parameters_are_json"): put("sketches", parameters="{not json"),
    ("sketches", "payload_is_there"): put("sketches", payload=b""),
    ("sketches", "payload_can_be_read"): put("sketches", kind="pair_count", payload=b"torn"),
    ("sketches", "named_after_its_attributes"): put("sketches", name="site"),
    ("sketches", "covers_its_batch"): put("sketches", rows=5),
    ("sketches", "few_rows_have_a_twin"): put(
        "sketches", kind="pair_count", name="site+temp", attributes=["site", "temp"], payload=alike()
    ),
    ("daily_sketches", "one_sketch_per_day"): again("daily_sketches"),
    ("daily_sketches", "parameters_are_json"): put("daily_sketches", parameters="{not json"),
    ("daily_sketches", "payload_is_there"): put("daily_sketches", payload=b""),
    ("daily_sketches", "named_after_its_attributes"): put("daily_sketches", name="site"),
    ("daily_sketches", "sums_up_several_batches"): put("daily_sketches", batches=1),
    ("daily_sketches", "covers_something"): put("daily_sketches", rows=0),
    ("daily_sketches", "says_what_it_was_made_of"): put("daily_sketches", made_of=" "),
    ("sifters", "thresholds_are_shares"): put("sifters", regions=[region(0, 1.5, 0, 0)]),
    ("sifters", "every_region_lost_what_its_threshold_says"): put("sifters", regions=[region(0, 0.5, 6, 6)]),
    ("sifters", "what_must_be_kept_is_kept"): put("sifters", regions=[region(-1, 0.0, 2, 1)]),
    ("sifters", "the_ledger_says_the_same"): again("ledger", WHOLE, stage="sifters", kept=5, shed=1),
    ("sifters", "every_filter_says_why"): put("sifters", reason=" "),
    ("sifted_rows", "what_is_kept_aside_can_be_given_back"): lambda rows: rows.update(
        sifted_rows=tuples(range(2))
    ),
    ("join_windows", "a_window_is_worked_out_once"): again("join_windows"),
    ("join_windows", "no_more_is_compared_than_there_is"): put("join_windows", compared=10),
    ("join_windows", "without_a_budget_everything_is_compared"): put("join_windows", budget_steps=None),
    ("join_windows", "the_estimate_lies_in_its_interval"): put("join_windows", missed=9.0),
    ("join_windows", "the_sample_is_of_the_comparisons"): put("join_windows", sampled=700),
    ("joined", "required_columns_are_filled"): put("joined", weight=None),
    ("joined", "a_pair_is_found_once"): again("joined"),
    ("joined", "as_many_pairs_as_were_counted"): without("joined", 1),
    ("joined", "pairs_are_worth_what_was_counted"): put("joined", utility=2.0),
    ("joined", "the_ledger_says_the_same"): put("ledger", MET, kept=3),
    ("joined", "both_rows_are_in_the_inputs"): put("joined", left_seq=ROWS),
    ("joined", "every_pair_matches"): put("joined", **pair(3, 1)),
    ("joined", "no_pair_is_out_of_its_window"): put("joined", **pair(4, 1)),
    ("joined", "a_pair_stands_for_itself_at_least"): put("joined", weight=0.5),
    ("joined", "sic_is_a_share"): put("joined", sic=0.9),
    ("results", "required_columns_are_filled"): put("results", coverage=None),
    ("results", "rows_are_numbered"): all_of("results", row=2),
    ("results", "as_many_rows_as_were_counted"): without("results", 0),
    ("results", "sic_is_a_share"): put("results", sic=-0.75),
    ("results", "rows_carry_the_coverage"): put("results", sic=0.5),
    ("results", "coverage_is_that_of_the_window"): put("results", coverage=1.0),
    ("results", "estimates_lie_in_their_intervals"): put("results", n__low=9.5),
    ("results", "no_interval_is_withheld_without_reason"): put(
        "results", n__low=None, n__high=None, n__no_interval=UNEVEN_SIZES
    ),
    ("coverage", "coverage_is_a_share"): put("coverage", sic=1.5),
    ("coverage", "no_query_falls_below_its_floor"): put("coverage", sic=0.25),
    ("coverage", "tuples_are_kept_or_shed"): put("coverage", tuples_shed=1),
    ("coverage", "what_was_produced_arrived_or_was_lost"): put("coverage", produced=9),
    ("coverage", "no_more_portions_than_there_are"): put("coverage", portions_kept=5),
    ("exemptions", "the_last_one_is_known"): again("exemptions", reason="another"),
    ("exemptions", "every_exemption_says_why"): put("exemptions", reason=" "),
    ("alerts", "told_once"): again("alerts"),
    ("alerts", "known_events"): put("alerts", event="rumour"),
    ("alerts", "told_or_failed"): put("alerts", status="perhaps"),
    ("alerts", "was_tried"): put("alerts", tries=0),
    ("alerts", "says_what_was_told"): put("alerts", sentence=" "),
    ("validations", "every_outcome_has_a_sentence"): put("validations", sentence=" "),
    ("validations", "every_failure_has_a_figure"): put("validations", success=False, observed=None),
}
"""What trips each expectation that fails a task."""

REPORTED: dict[tuple[str, str], Spoil] = {
    ("schemes", "nothing_falls_short"): put(
        "schemes", planned_kbps=2.5, shortfall_kbps=0.5, reason="cannot fit"
    ),
    ("transmitted", "what_exceeds_is_on_record"): put("ledger", SENT, bytes_kept=300),
    ("certificates", "the_way_pays"): put("certificates", wire_bytes=40),
    ("sifters", "nothing_is_too_much"): put("sifters", shortfall_kbps=1.0),
    ("coverage", "a_query_answers_something"): put("coverage", sic=1.0, rows=0, tuples_kept=6, tuples_shed=0),
    ("ledger", "nothing_is_lost_for_good"): put("ledger", VALUES, recoverable=5, lost=1),
}
"""What falls short with its reason on record: told, and the task goes on."""


def stream_of(fault: tuple[str, str]) -> str:
    return "_".join(fault)


def contracts_of(names: Any) -> dict[str, Any]:
    modes = {"transmitted_what_exceeds_is_on_record": "observe"}
    return {name: contract(name, mode=modes.get(name, "shed")) for name in names}


def added(names: Any) -> dict[str, list[tuple[str, str, str]]]:
    return {name: [SCHEME] for name in names}


def stored(folder: Path, name: str, rows: list[dict[str, Any]]) -> StoredRows:
    """The rows in a file, with their partition's column out of it."""
    table, _, stream = name.partition("/")
    owner = [(a.name, a.type) for a in contract(stream).attributes]
    columns = table_contracts()[table].with_attributes(owner, [] if table == "raw" else [SCHEME])
    path = folder / f"{table}_{stream}.parquet"
    pq.write_table(pa.Table.from_pylist(rows, columns.file_schema), path)
    return StoredRows(
        {column.name: column.type for column in columns.columns},
        (DataFile(str(path), path.stat().st_size, (("batch_date", DAY),)),),
        frozenset({1}),
        ("site", "at", "temp"),
    )


def lake_of(settings: Settings, streams: Mapping[str, Rows]) -> dict[str, Any]:
    """The tables of these streams."""
    shared: Rows = {}
    tables: dict[str, Any] = {}
    Path(settings.build).mkdir(parents=True, exist_ok=True)
    folder = Path(mkdtemp(dir=settings.build))
    for stream, rows in streams.items():
        for table, found in rows.items():
            if table in OWN:
                tables[f"{table}/{stream}"] = stored(folder, f"{table}/{stream}", found)
            elif table in RESULTS:
                tables[f"{table}/{stream}"] = examined_results(table, stream, found)
            else:
                shared.setdefault(table, []).extend(found)
    return tables | {table: arrow(table, rows) for table, rows in shared.items()}


def spoilt(faults: Mapping[tuple[str, str], Spoil]) -> dict[str, Rows]:
    """A sound stream, two behind another lever, and a spoilt one per fault."""
    streams = {"sound": sound_stream("sound"), "thinned": thinned_stream("thinned")}
    streams["sifted"] = sifted_stream("sifted")
    for fault, spoil in faults.items():
        streams[stream_of(fault)] = sound_stream(stream_of(fault))
        spoil(streams[stream_of(fault)])
    return streams


def judge(
    settings: Settings, streams: Mapping[str, Rows], tables: Mapping[str, Any] | None = None, **more: Any
) -> list[Outcome]:
    given = lake_of(settings, streams) if tables is None else tables
    return run_suites(
        ProcessEngine(), given, contracts_of(streams), settings, **{"added": added(streams)} | more
    )


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[Outcome], Settings]:
    settings = Settings.from_environment(
        {"SPILLWAY_HOME": str(HOME), "SPILLWAY_BUILD": str(tmp_path_factory.mktemp("build"))}
    )
    return judge(settings, spoilt(FAULTS | REPORTED)), settings


def found(judged: tuple[list[Outcome], Settings], table: str, expectation: str, stream: str) -> list[Outcome]:
    return [o for o in judged[0] if (o.table, o.expectation, o.stream) == (table, expectation, stream)]


def test_everything_holds_on_a_sound_stream(judged: Any) -> None:
    own = [outcome for outcome in judged[0] if outcome.stream == "sound"]

    assert [outcome.sentence for outcome in own if not outcome.success or outcome.reported] == []
    held = [(outcome.table, outcome.expectation) for outcome in own]
    assert len(held) == len(set(held))
    aside = [outcome for outcome in judged[0] if outcome.stream == "sifted" and "sift" in outcome.table]
    assert all(outcome.success for outcome in aside)
    held += [(outcome.table, outcome.expectation) for outcome in aside]
    assert set(held) >= {(suite.table, rule.name) for suite in SUITES.values() for rule in suite.expectations}
    assert {table for table, name in held if name == "columns_as_contracted"} == {
        suite.table for suite in SUITES.values()
    }


def test_a_loss_that_the_contract_allows_is_reported_and_any_other_fails(judged: Any) -> None:
    """The lever `sifters` may drop rows for good, the lever `thin` may not."""

    def said(stream: str) -> list[tuple[bool, str]]:
        own = [outcome for outcome in judged[0] if outcome.stream == stream]
        return [(one.success, one.sentence) for one in own if not one.success or one.reported]

    assert said("sifted") == [(True, "ledger: sifted, batch 1, stage sifters: 1 rows were lost (too old)")]
    assert said("thinned") == [
        (
            False,
            "ledger: thinned, batch 1, stage thin: 1 rows were lost, and no lever of the contract may drop "
            "them (too old)",
        ),
        (True, "ledger: thinned, batch 1, stage thin: 1 rows were lost (too old)"),
    ]


def docs_index(build: str) -> str:
    return Path(build, "data_docs", "index.html").read_text(encoding="utf-8")


def test_data_docs_report_an_allowed_loss_and_do_not_call_it_failed(settings: Settings) -> None:
    """Newcomer B1: Data Docs said "ledger: 1 of 15 failed" where screen and `validations` said 0 failed."""
    outcomes = judge(settings, {"sifted": sifted_stream("sifted")}, only=["ledger"])
    docs = Path(settings.build, "data_docs")
    (page,) = (docs / "validations" / "ledger").glob("**/*.html")
    text = page.read_text(encoding="utf-8")

    assert failures(outcomes) == []
    assert ">held, 1 reported</a>" in docs_index(settings.build)
    assert "failed</a>" not in docs_index(settings.build)
    assert "No expectation failed in 1 suites; 1 reported" in docs_index(settings.build)
    body = text[text.index("<body") :]
    assert (body.count("fa-times"), body.count("fa-info-circle")) == (0, 1)
    assert "reported: its reason is on record, it is no failure" in body
    assert "Succeeded" in body


def test_data_docs_hold_all_suites_of_a_run_that_judges_in_several_calls(settings: Settings) -> None:
    """Newcomer B1: Data Docs held the last channel's suites alone."""
    for stream in ("sound", "sifted"):
        streams = {stream: sound_stream(stream) if stream == "sound" else sifted_stream(stream)}
        judge(settings, streams, only=["ledger", "certificates"], run_id="one")
    index = docs_index(settings.build)
    links = re.findall(r'<td>(\w+)</td><td>(\w+)</td><td><a href="(validations[^"]+)"', index)

    assert [link[:2] for link in links] == [
        ("certificates", "sifted"),
        ("certificates", "sound"),
        ("ledger", "sifted"),
        ("ledger", "sound"),
    ]
    assert all(Path(settings.build, "data_docs", link[2]).is_file() for link in links)
    assert len({link[2] for link in links}) == 4
    assert "Earlier runs" not in index

    judge(settings, {"sound": sound_stream("sound")}, only=["ledger"], run_id="two")
    assert "Earlier runs" in docs_index(settings.build)
    assert "<td>certificates</td>" not in docs_index(settings.build)


@pytest.mark.parametrize("fault", FAULTS, ids=stream_of)
def test_a_fault_fails_its_expectation_in_a_sentence(judged: Any, fault: tuple[str, str]) -> None:
    outcomes = found(judged, *fault, stream_of(fault))

    assert [outcome.success for outcome in outcomes] == [False]
    assert stream_of(fault) in outcomes[0].sentence
    assert "{" not in outcomes[0].sentence
    assert outcomes[0].observed != ""


@pytest.mark.parametrize("fault", REPORTED, ids=stream_of)
def test_what_is_on_record_is_reported_and_does_not_fail(judged: Any, fault: tuple[str, str]) -> None:
    outcomes = found(judged, *fault, stream_of(fault))

    assert [(outcome.success, outcome.reported) for outcome in outcomes] == [(True, True)]
    assert failures(outcomes) == []


ODD_VALUES: dict[tuple[str, str], Spoil] = {
    ("schemes", "planned_rate_within_capacity"): put("schemes", capacity_kbps=math.nan),
    ("transmitted", "what_exceeds_is_on_record"): put("batches", capacity_kbps=math.nan),
    ("certificates", "mean_accuracy_floor"): put("certificates", mean_error_pct=math.nan),
    ("certificates", "worst_error_within_the_threshold"): put("certificates", worst_over_threshold=math.nan),
    ("ledger", "only_what_the_contract_allows_is_lost"): put("ledger", WHOLE, lost=-1),
    ("ledger", "ledger_balances"): put("ledger", WHOLE, kept=None),
    ("daily_sketches", "parameters_are_json"): put("daily_sketches", parameters=None),
    ("daily_sketches", "payload_is_there"): put("daily_sketches", payload=None),
    ("sketches", "parameters_are_json"): put("sketches", parameters=None),
    ("sketches", "payload_is_there"): put("sketches", payload=None),
    ("models", "value_is_json"): put("models", value=None),
    ("synopsis", "blocks_lie_in_their_frame"): put("synopsis", frame=None),
    ("exemptions", "every_exemption_says_why"): put("exemptions", reason=None),
}
"""Values that are no number, negative or null, where a comparison could overlook them."""


def test_nan_null_and_negative_values_break_the_rule_of_their_column(settings: Settings) -> None:
    streams = {stream_of(fault): sound_stream(stream_of(fault)) for fault in ODD_VALUES}
    for fault, spoil in ODD_VALUES.items():
        spoil(streams[stream_of(fault)])
    outcomes = judge(settings, streams)

    broken = {(one.stream, one.table, one.expectation) for one in outcomes if not one.success or one.reported}
    assert {(stream_of(fault), *fault) for fault in ODD_VALUES} - broken == set()


def test_every_expectation_has_a_fault_that_trips_it() -> None:
    rules = {(s.table, rule.name): rule for s in SUITES.values() for rule in s.expectations}

    assert {name for name, rule in rules.items() if rule.severity == "critical"} == set(FAULTS)
    assert {name for name, rule in rules.items() if rule.severity == "info"} == set(REPORTED)


def test_there_is_a_suite_for_every_curated_table() -> None:
    curated = {name for name, table in table_contracts().items() if table.curated}

    assert {suite.table for suite in SUITES.values()} == curated


def test_suites_know_the_words_of_the_ledger() -> None:
    words = {rule.name: rule.kwargs.get("value_set") for rule in SUITES["ledger"].expectations}

    assert words["known_scopes"] == list(ledger.SCOPES)
    assert words["known_units"] == list(ledger.UNITS)
    assert words["known_kinds_of_dimension"] == list(ledger.DIMENSIONS)
    (parts,) = (rule for rule in SUITES["ledger"].expectations if rule.name == "parts_add_up")
    assert all(f"'{kind}'" in parts.view for kind in ledger.ADDS_UP)


def test_suites_know_the_events_of_alerts() -> None:
    (rule,) = (rule for rule in SUITES["alerts"].expectations if rule.name == "known_events")

    assert rule.kwargs["value_set"] == list(EVENTS)


def test_a_failure_says_what_where_and_how_much(judged: Any) -> None:
    (outcome,) = found(judged, "ledger", "ledger_balances", "ledger_ledger_balances")

    assert outcome.sentence == (
        "ledger: ledger_ledger_balances, batch 1, stage attributes, values, total: 12 offered, but kept 6 + shed 5 + "
        "deduplicated 0 + rejected 0 is 11: a difference of 1"
    )
    assert outcome.where == "batch 1, stage attributes, unit values, dimension total"
    assert (outcome.observed, outcome.expected) == ("offered 12, accounted 11", "offered = accounted")
    assert str(outcome.batch_date) == "2026-01-02"


def judged_rows(
    docs: Path, type: str, kwargs: Mapping[str, Any], rows: list[dict[str, Any]], sentence: str = "{x} is far"
) -> list[Outcome]:
    """The outcomes of one rule on these rows."""
    rule = Expectation("far", type, kwargs, "Near.", sentence)
    suite, table = Suite("of", "ledger", "", "", (rule,)), pa.Table.from_pylist(rows)
    verdict = Validator(docs).validate(suite, table)["far"]
    return outcomes_of(suite, rule, verdict, by_stream(table.to_pylist()))


def rows_of(*values: Any, **more: Any) -> list[dict[str, Any]]:
    return [{"stream": f"s{place}", "batch_date": DAY, "x": x, **more} for place, x in enumerate(values)]


@pytest.mark.parametrize(
    ("edge", "worst"),
    [({"max_value": 1}, "9"), ({"min_value": 10}, "2"), ({"min_value": 0, "max_value": 1}, "9")],
)
def test_of_several_rows_at_fault_the_sentence_is_about_the_worst(
    tmp_path: Path, edge: dict[str, int], worst: str
) -> None:
    rows = [{"stream": "s", "batch_date": DAY, "x": x} for x in (3, 9, 2)]
    (outcome,) = judged_rows(tmp_path, BETWEEN, {"column": "x", **edge}, rows)
    assert outcome.sentence == f"ledger: {worst} is far (2 more like it on that date)"
    assert outcome.observed == worst


def test_pairs_that_are_not_equal_report_the_largest_difference(tmp_path: Path) -> None:
    rows = [{"stream": "s", "batch_date": DAY, "x": x, "y": 5} for x in (4, 9, 5)]
    (outcome,) = judged_rows(
        tmp_path, EQUAL, {"column_A": "x", "column_B": "y"}, rows, "{x}: {difference} off"
    )
    assert outcome.sentence == "ledger: 9: 4 off (1 more like it on that date)"
    assert outcome.observed == "x 9, y 5"


def test_rows_with_equal_keys_are_reported_once_with_their_number(tmp_path: Path) -> None:
    rows = [{"stream": "s", "batch_date": DAY, "x": x} for x in (1, 2, 2, 2, 1)]
    (outcome,) = judged_rows(
        tmp_path, UNIQUE, {"column_list": ["stream", "x"]}, rows, "{x} has {copies} rows"
    )
    assert outcome.sentence == "ledger: 2 has 3 rows (1 more like it on that date)"
    assert outcome.observed == "copies 3"


def test_expectation_that_names_no_rows_fails_for_all_streams(tmp_path: Path) -> None:
    """A suite of another lever may use a type such as the largest value."""
    type = "expect_column_max_to_be_between"
    (outcome,) = judged_rows(tmp_path, type, {"column": "x", "max_value": 1}, rows_of(1, 2))
    assert (outcome.success, outcome.stream) == (False, "")
    assert outcome.sentence == "ledger: Near. Found 2, expected x at most 1."


@pytest.mark.parametrize("edge", [{"max_value": 1.0}, {"min_value": 0.0}])
def test_nan_breaks_a_range_and_null_does_not(tmp_path: Path, edge: dict[str, float]) -> None:
    """An error that could not be computed would be within its threshold, if pandas took NaN for null."""
    outcomes = judged_rows(tmp_path, BETWEEN, {"column": "x", **edge}, rows_of(0.5, math.nan, None))
    assert [(one.stream, one.success) for one in outcomes] == [("s0", True), ("s2", True), ("s1", False)]
    assert outcomes[-1].sentence == "ledger: nan is far"


@pytest.mark.parametrize("type", ["expect_column_pair_values_a_to_be_greater_than_b", EQUAL])
def test_nan_breaks_a_pair_and_null_does_not_if_it_may_be_missing(tmp_path: Path, type: str) -> None:
    kwargs: dict[str, Any] = {"column_A": "x", "column_B": "y", "ignore_row_if": "either_value_is_missing"}
    if type != EQUAL:
        kwargs["or_equal"] = True
    outcomes = judged_rows(tmp_path, type, kwargs, rows_of(0.5, math.nan, None, y=0.5))
    assert [(one.stream, one.success) for one in outcomes] == [("s0", True), ("s2", True), ("s1", False)]


def test_large_whole_numbers_are_compared_exactly_next_to_a_null(tmp_path: Path) -> None:
    """A float has 53 bits: 2**53 and 2**53 + 1 would be equal."""
    kwargs = {"column_A": "x", "column_B": "y", "ignore_row_if": "either_value_is_missing"}
    outcomes = judged_rows(tmp_path, EQUAL, kwargs, rows_of(2**53, 2**53 + 1, None, y=2**53))
    assert [(one.stream, one.success) for one in outcomes] == [("s0", True), ("s2", True), ("s1", False)]


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        (
            "stages_hand_over_everything",
            "batch 1: stage intake kept 5 rows, but 6 were offered to stage attributes",
        ),
        (
            "parts_add_up",
            "batch 1, stage attributes: the values by attribute add up to 0 kept, but the total is 6: "
            "a difference of 6",
        ),
        (
            "everything_shed_is_certified",
            "attribute temp: the ledger of attributes counts 6 recoverable values, but 5",
        ),
    ],
)
def test_what_the_ledger_lacks_is_said_in_full(judged: Any, rule: str, said: str) -> None:
    (outcome,) = found(judged, "ledger", rule, f"ledger_{rule}")

    assert said in outcome.sentence


def test_failures_are_raised_with_their_sentences(judged: Any) -> None:
    failed = failures(judged[0])

    message = str(ExpectationsFailed(failed))

    assert message.startswith(f"{len(failed)} expectations failed:\n- alerts: ")
    assert message.endswith("more, see `spillway status` and Data Docs")


def test_data_docs_show_every_table_judged(judged: Any) -> None:
    docs = Path(judged[1].build, "data_docs")

    assert "ledger" in (docs / "index.html").read_text(encoding="utf-8")
    assert {page.stem for page in (docs / "expectations").glob("*.html")} == set(SUITES)


def page_of(judged: Any, suite: str) -> str:
    """The text of the page of a suite, without markup."""
    (page,) = Path(judged[1].build, "data_docs", "validations", suite).glob("**/*.html")
    body = page.read_text(encoding="utf-8").partition("<body")[2]
    return " ".join(re.sub(r"<[^>]+>", " ", body).split())


@pytest.mark.parametrize(
    ("suite", "shown"),
    [
        (  # a column
            "certificates",
            "Every recovered or rounded value is within its bound. (violations = 0) 1 unexpected values found. "
            "≈0.7194% of 139 total rows. Unexpected Value Count stream batch lever attribute "
            "1 1 certificates_every_error_within_the_threshold 1 attributes temp",
        ),
        (  # a pair of columns
            "batches",
            "A batch starts after the last seq of the batch before it. (first_seq &gt; previous_last_seq) 2 unexpected "
            "values found. 100% of 138 total rows. Unexpected Value Count stream batch "
            "first_seq 0, previous_last_seq 5 1 batches_one_row_per_batch 1 "
            "first_seq 5, previous_last_seq 5 1 batches_seq_numbers_are_its_own 2",
        ),
        (  # several columns
            "models",
            "A version of a fact has one row. (stream, lever, fact, subject, version unique) 2 unexpected values "
            "found. ≈0.3676% of 544 total rows. Unexpected Value Count stream lever fact subject version "
            "stream models_one_row_per_fact_and_version, lever attributes, fact attribute, subject temp, version 1 2 ",
        ),
        (  # a view
            "recovered",
            "No row of view keys_survive: Recovery keeps every key. stream batch batch_date row_count null_keys "
            "expected_null_keys lost_keys recovered_keys_survive 1 2026-01-02 6 1 0 1 1 row",
        ),
    ],
)
def test_data_docs_show_keys_and_values_of_the_rows_that_break_a_rule(
    judged: Any, suite: str, shown: str
) -> None:
    assert shown in page_of(judged, suite)


def test_data_docs_show_a_view_without_rows(settings: Settings) -> None:
    judge(settings, {"sound": sound_stream("sound")}, only=["windows", "batches"])

    text = page_of((None, settings), "batches")
    assert "No row of view a_file_is_taken_in_once: No file content is taken in twice. 0 rows" in text
    assert "A batch has one row. (stream, batch unique) 0% unexpected" in text


def test_data_docs_show_markup_in_the_data_as_text(settings: Settings) -> None:
    """Once as the value of a column, once in the row of a view."""
    evil = "<img src=x onerror=alert(1)>"
    streams = {"sound": sound_stream("sound")}
    put("batches", status=evil, files=[file(evil)])(streams["sound"])
    judge(settings, streams, only=["batches"])

    (page,) = Path(settings.build, "data_docs", "validations").glob("**/*.html")
    text = page.read_text(encoding="utf-8")
    assert evil not in text
    assert text.count("&lt;img src=x onerror=alert(1)&gt;") == 2


def test_data_docs_begin_with_accuracy_and_bounds_of_recovery(judged: Any) -> None:
    suites = re.findall(r"<tr><td>(\w+)</td>", docs_index(judged[1].build))

    assert suites[:2] == ["certificates", "recovered"]
    assert suites[2:] == sorted(suites[2:])


def test_every_suite_names_the_columns_that_identify_a_row() -> None:
    assert [suite.name for suite in SUITES.values() if not suite.keys] == []


def test_outcomes_become_rows_of_the_validations_table(judged: Any) -> None:
    row = judged[0][0].row("run", None)

    assert tuple(row) == table_contracts()["validations"].names


def sentences(outcomes: list[Outcome]) -> list[str]:
    return [outcome.sentence for outcome in outcomes if not outcome.success or outcome.reported]


def test_a_table_with_other_columns_fails_on_its_contract_alone(settings: Settings) -> None:
    streams = {"sound": sound_stream("sound")}
    tables = lake_of(settings, streams)
    sent = tables["transmitted/sound"]
    tables["transmitted/sound"] = replace(sent, types={**sent.types, "temp": "bigint"})
    ledger_names = {"kept": "held"}
    odd = tables["ledger"].drop_columns(["lost"])
    tables["ledger"] = odd.rename_columns([ledger_names.get(name, name) for name in odd.column_names])

    outcomes = judge(settings, streams, tables, only=["ledger", "transmitted", "recovered"])

    assert sentences(outcomes) == [
        "ledger:  must have the columns of its table's contract: `kept` is missing; `lost` is missing; "
        "`held` is in no contract",
        "transmitted: sound must have the columns of its table's contract: `temp` must be double, found bigint",
    ]
    assert {outcome.table for outcome in outcomes if outcome.success} == {"recovered"}, (
        "it reads the ledger too"
    )


def test_a_table_that_cannot_be_read_fails_by_name_and_keeps_no_other_from_being_judged(
    settings: Settings,
) -> None:
    streams = {name: sound_stream(name) for name in ("sound", "torn")}
    tables = lake_of(settings, streams)
    Path(tables["transmitted/torn"].files[0].path).write_bytes(b"PAR1")

    outcomes = judge(settings, streams, tables, only=["transmitted"])

    (failed,) = failures(outcomes)
    assert (failed.table, failed.stream, failed.expectation) == ("transmitted", "torn", "table_can_be_read")
    assert failed.sentence.startswith("transmitted, torn: its files must exist and be complete, got ")
    assert {outcome.stream for outcome in outcomes if outcome.success} >= {"sound"}


def test_only_of_what_may_be_shed_a_bound_has_to_stand_beside_what_was_given_back(settings: Settings) -> None:
    streams = {"sound": sound_stream("sound")}
    tables = lake_of(settings, streams)
    given = tables["recovered/sound"]
    bare = {name: kind for name, kind in given.types.items() if not name.endswith("__bound_pct")}
    tables["recovered/sound"] = replace(given, types=bare)

    assert sentences(judge(settings, streams, tables, only=["recovered"])) == [
        "recovered: sound must have the columns of its table's contract: `temp__bound_pct` is missing"
    ]


def test_checksums_are_on_record_of_the_columns_that_were_neither_shed_nor_rounded() -> None:
    columns = [{"name": name, "checksum": place} for place, name in enumerate(("kept", "shed", "rounded"))]
    sums = [pa.Table.from_pylist([{"stream": "s", "batch": 1, "batch_date": DAY, "columns": columns}])]
    certificates = pa.Table.from_pylist(
        [
            {"stream": "s", "batch": batch, "attribute": name, "shed_values": shed, "rounded_values": rounded}
            for batch, name, shed, rounded in ((1, "shed", 2, 0), (1, "rounded", 0, 2), (2, "kept", 2, 2))
        ]
    )
    (one,) = checksum_outcomes({"raw": sums, "recovered": sums}, certificates)
    assert one.observed == one.expected == "kept=0000000000000000"


def test_a_column_that_a_lever_adds_must_be_there(settings: Settings) -> None:
    streams = {"sound": sound_stream("sound")}
    weight = ("weight", "double", "how many tuples it stands for")

    outcomes = judge(settings, streams, added={"sound": [SCHEME, weight]}, only=["transmitted"])

    assert sentences(outcomes) == [
        "transmitted: sound must have the columns of its table's contract: `weight` is missing"
    ]


def test_tables_without_rows_yield_nothing(settings: Settings) -> None:
    assert judge(settings, {}, {"ledger": arrow("ledger", [])}) == []
    assert judge(settings, {}, {}) == []


def certified(sparse: list[float], given: list[float], **bound: float) -> dict[str, Any]:
    """What a row of certificates says of a column, as it is measured."""
    one = certify(Column.real(sparse), Column.real(given), **{"error_pct": math.inf, **bound})
    found = {
        name: getattr(one, name)
        for name in (
            "shed_values",
            "violations",
            "max_error_pct",
            "mean_error_pct",
            "worst_over_threshold",
            "max_error",
        )
    }
    bounds = {
        name: None if math.isinf(getattr(one, name)) else getattr(one, name)
        for name in ("error_pct", "error")
    }
    return found | bounds


@pytest.mark.parametrize(
    "bound", [{"error_pct": 90.0}, {"error": 1000.0}, {"error_pct": 90.0, "error": 1000.0}]
)
def test_no_column_of_zeros_passes_the_floor_however_rare_its_values_and_loose_its_bound(
    settings: Settings, bound: dict[str, float]
) -> None:
    rare = [0.0] * 999 + [3.5]
    held, lost = certified(rare, rare, **bound), certified(rare, [0.0] * 1000, **bound)
    streams = {name: sound_stream(name) for name in ("held", "lost")}
    for name, row in (("held", held), ("lost", lost)):
        put("certificates", **row)(streams[name])
    tables = {"certificates": lake_of(settings, streams)["certificates"]}

    outcomes = judge(settings, streams, tables)

    failed = {(one.stream, one.expectation) for one in outcomes if not one.success}
    assert failed == {
        ("lost", "every_error_within_the_threshold"),
        ("lost", "worst_error_within_the_threshold"),
        ("lost", "mean_accuracy_floor"),
    }


def test_a_floor_can_be_raised_for_a_run(settings: Settings) -> None:
    streams = {"sound": sound_stream("sound")}
    tables = {"certificates": lake_of(settings, streams)["certificates"]}

    outcomes = judge(settings, streams, tables, parameters={"accuracy_floor_pct": 99.7})

    assert sentences(outcomes) == [
        "certificates: sound, batch 1, temp (shed) has a mean accuracy of only 99.6 %"
    ]


def test_without_raw_what_was_sent_is_the_truth(settings: Settings) -> None:
    streams = {
        "whole": sound_stream("whole"),
        "thinned": thinned_stream("thinned"),
        "odd": sound_stream("odd"),
    }
    swap_keys("recovered")(streams["odd"])
    for rows in streams.values():
        del rows["raw"]

    outcomes = judge(settings, streams, only=["transmitted", "recovered"])

    assert sentences(outcomes) == [
        "recovered: odd, batch 1 recovers 6 tuples whose seq and keys differ from those of the raw ones"
    ]


def test_rows_that_are_shed_must_come_back_unless_they_are_lost_on_record(settings: Settings) -> None:
    streams = {"thinned": thinned_stream("thinned")}
    streams["thinned"]["recovered"] = [r for r in streams["thinned"]["recovered"] if r["seq"] != 3]

    assert sentences(judge(settings, streams, only=["recovered"])) == [
        "recovered: thinned, batch 1 recovers 4 tuples of 5 (3 were transmitted, 1 were lost): a difference of 1"
    ]


def test_nothing_that_was_taken_in_disappears_with_its_whole_batch(settings: Settings) -> None:
    streams = {"sound": sound_stream("sound")}
    streams["sound"] |= {"transmitted": [], "recovered": []}

    assert sentences(judge(settings, streams, only=["recovered"])) == [
        "recovered: sound, batch 1 recovers 0 tuples of 6 (0 were transmitted, 0 were lost): a difference of 6"
    ]


def test_a_row_given_back_from_before_its_scheme_has_none_but_no_other_loses_its_own(
    settings: Settings,
) -> None:
    streams = {"thinned": thinned_stream("thinned")}
    streams["thinned"]["recovered"][0]["scheme"] = None

    assert sentences(judge(settings, streams, only=["recovered"])) == [
        "recovered: thinned, batch 1 recovers 1 of 5 tuples without their scheme"
    ]


def test_a_batch_that_the_attribute_lever_never_saw_needs_no_scheme(settings: Settings) -> None:
    streams = {"plain": sound_stream("plain")}
    rows = streams["plain"]
    rows["batches"][0]["levers"] = []
    rows["transmitted"] = tuples()
    rows["recovered"] = tuples()
    del rows["schemes"]

    assert sentences(judge(settings, streams, only=["transmitted", "recovered"], added={})) == []


@pytest.mark.parametrize("certified", [2, 3])
def test_values_of_rows_that_a_later_lever_loses_need_no_certificate(
    settings: Settings, certified: int
) -> None:
    lost_later = sound_stream("late")
    whole = lost_later["ledger"][WHOLE]
    dropped = {"stage": "sifters", "ordinal": 2, "kept": 2, "shed": 4, "lost": 4}
    sent = {"stage": "sent", "ordinal": 3, "offered": 2, "kept": 2}
    lost_later["ledger"][SENT:] = [whole | dropped, whole | sent]
    put("batches", levers=["attributes", "sifters"])(lost_later)
    put("certificates", shed_values=certified)(lost_later)

    assert not failures(judge(settings, {"late": lost_later}, only=["ledger"]))


@pytest.mark.parametrize("certified", [1, 7])
def test_but_values_of_the_rows_that_are_left_do(settings: Settings, certified: int) -> None:
    lost_later = sound_stream("late")
    whole = lost_later["ledger"][WHOLE]
    lost_later["ledger"][SENT:] = [
        whole | {"stage": "sifters", "ordinal": 2, "kept": 2, "shed": 4, "lost": 4},
        whole | {"stage": "sent", "ordinal": 3, "offered": 2, "kept": 2},
    ]
    put("batches", levers=["attributes", "sifters"])(lost_later)
    put("certificates", shed_values=certified)(lost_later)

    assert sentences(failures(judge(settings, {"late": lost_later}, only=["ledger"]))) == [
        "ledger: late, batch 1, attribute temp: the ledger of attributes counts 6 "
        f"recoverable values, but {certified} are certified"
    ]


def test_the_narrower_of_the_channel_and_the_one_it_goes_into_is_the_capacity(settings: Settings) -> None:
    streams = {"wide": sound_stream("wide"), "narrow": sound_stream("narrow")}
    put("batches", trunk_kbps=3.0)(streams["wide"])
    put("batches", trunk_kbps=1.6)(streams["narrow"])

    assert sentences(failures(judge(settings, streams, only=["transmitted"]))) == [
        "transmitted: narrow, batch 1 sends 2 kbps through 1.6 kbps: an excess of 0.4 kbps without a recorded shortfall"
    ]


def test_rows_by_query_need_not_add_up(settings: Settings) -> None:
    streams = {"asked": sound_stream("asked")}
    again("ledger", SENT, dimension_kind="query", dimension="hot", offered=4, kept=4)(streams["asked"])
    again("ledger", SENT, dimension_kind="query", dimension="cold", offered=5, kept=5)(streams["asked"])

    assert sentences(judge(settings, streams, only=["ledger"])) == []


def test_what_happens_beside_the_way_hands_nothing_over(settings: Settings) -> None:
    streams = {"gone": sound_stream("gone")}
    again("ledger", INTAKE, stage="retire", ordinal=-1, kept=0, shed=6, recoverable=6)(streams["gone"])
    again("ledger", INTAKE, stage="move", ordinal=-1, offered=9, kept=9)(streams["gone"])

    assert sentences(judge(settings, streams, only=["ledger"])) == []


def test_a_stage_is_followed_unit_by_unit(settings: Settings) -> None:
    streams = {"asked": sound_stream("asked")}
    put("ledger", SENT_VALUES, offered=5, kept=5)(streams["asked"])

    assert sentences(judge(settings, streams, only=["ledger"])) == [
        "ledger: asked, batch 1: stage attributes kept 6 values, but 5 were offered to stage sent"
    ]


def test_the_order_of_rows_changes_nothing(settings: Settings) -> None:
    streams = spoilt({name: spoil for name, spoil in FAULTS.items() if name[0] in ("ledger", "models")})
    tables = lake_of(settings, streams)
    order = np.random.default_rng(1)
    mixed = {
        name: table.take(order.permutation(table.num_rows)) if isinstance(table, pa.Table) else table
        for name, table in tables.items()
    }
    names = ["ledger", "models"]

    assert judge(settings, streams, mixed, only=names) == judge(settings, streams, tables, only=names)


def suite_of(folder: Path, text: str) -> list[Path]:
    (folder / "certificates.yaml").write_text(text, encoding="utf-8")
    return [folder]


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (
            "expect_compound_",
            "expect_compund_",
            "certificates.yaml: `one_certificate_per_attribute` must be an expectation that Great Expectations knows",
        ),
        (
            "{certificates}",
            "{certificats}",
            "certificates.yaml: `view` must read tables of the lake, got 'certificats'; choose from ",
        ),
        ("violations,", "violation,", "certificates.yaml: `view` must be SQL over the columns of its tables"),
        (
            "column: accuracy_pct",
            "column: accuracy",
            "`mean_accuracy_floor` must be computable on its view",
        ),
    ],
)
def test_a_suite_that_cannot_be_judged_is_refused_by_name(
    tmp_path: Path, settings: Settings, old: str, new: str, said: str
) -> None:
    text = (HOME / "expectations" / "certificates.yaml").read_text(encoding="utf-8")
    streams = {"sound": sound_stream("sound")}
    tables = {"certificates": lake_of(settings, streams)["certificates"]}

    with pytest.raises(InvalidValue) as caught:
        judge(settings, streams, tables, folders=suite_of(tmp_path, text.replace(old, new, 1)))

    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("leger", "`tables` must be tables with a contract, got 'leger'"),
        ("raw/nobody", "`tables` must name streams with a contract, got 'raw/nobody'"),
        ("raw", "`tables` must be of their kind, got 'raw'; a stream's own table is given as StoredRows"),
    ],
)
def test_a_table_that_nobody_knows_is_refused_by_name(settings: Settings, name: str, said: str) -> None:
    with pytest.raises(InvalidValue) as caught:
        judge(settings, {}, {name: StoredRows({}, (), frozenset())})

    assert said in str(caught.value)

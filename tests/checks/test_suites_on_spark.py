"""Every expectation holds on sound tables, and each is tripped by the one thing it is there to notice.

All faults are judged in one run, each in a stream of its own named after the expectation: starting Great
Expectations once per fault would cost minutes and show nothing more.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.checks.sound import DAY, Rows, contract, sound_stream

from spillway.checks import ExpectationsFailed, Outcome, StoredRows, failures, load_suites, run_suites
from spillway.settings import Settings
from spillway.sketches.pair_count import PairCount, PairCountParameters
from spillway.store.files import DataFile
from spillway.store.table_contracts import table_contracts

EXPECTATIONS = Path(__file__).resolve().parents[2] / "expectations"
Spoil = Callable[[Rows], Any]


def put(table: str, row: int = 0, **values: Any) -> Spoil:
    return lambda rows: rows[table][row].update(values)


def again(table: str, **values: Any) -> Spoil:
    return lambda rows: rows[table].append({**copy.deepcopy(rows[table][-1]), **values})


def ways(*attributes: tuple[Any, ...]) -> Spoil:
    return put("schemes", 0, attributes=list(attributes))


def swap_keys(table: str) -> Spoil:
    def spoil(rows: Rows) -> None:
        first, second = rows[table][0], rows[table][1]
        first["site"], second["site"] = second["site"], first["site"]

    return spoil


def file(status: str) -> tuple[Any, ...]:
    return ("b.json", 9, "another digest", 1, 0, status, None)


def alike() -> bytes:
    """Six rows of which every two agree in both attributes."""
    sketch = PairCount(PairCountParameters(2, 1, width=64))
    return sketch.update(np.ones((6, 2), dtype=np.uint64), np.arange(6)).to_bytes()


FAULTS: dict[tuple[str, str], Spoil] = {
    ("batches", "one_row_per_batch"): again("batches"),
    ("batches", "known_status"): put("batches", status="lost"),
    ("batches", "every_file_has_a_fate"): put("batches", files=[file("forgotten")]),
    ("batches", "a_file_is_taken_in_once"): put("batches", files=[file("taken"), file("taken")]),
    ("batches", "seq_numbers_are_its_own"): again(
        "batches", batch=2, first_seq=5, last_seq=9, files=[], rows=1
    ),
    ("batches", "every_row_has_a_seq"): put("batches", last_seq=4),
    ("models", "one_row_per_fact_and_version"): again("models"),
    ("models", "versions_count_from_one"): put("models", version=0),
    ("models", "value_is_json"): put("models", value="{not json"),
    ("models", "evidence_is_json"): put("models", evidence="{not json"),
    ("models", "trained_on_something"): put("models", trained_from_seq=6),
    ("schemes", "runs_do_not_overlap"): put("schemes", 0, to_seq=3),
    ("schemes", "known_ways"): ways(("temp", "drop", 1, None, "why")),
    ("schemes", "keys_order_and_protected_are_kept"): ways(("site", "shed", 1, None, "why")),
    ("schemes", "every_choice_says_why"): ways(("temp", "shed", 1, None, " ")),
    ("schemes", "planned_rate_within_capacity"): put("schemes", planned_kbps=2.5),
    ("schemes", "shortfall_says_why"): put("schemes", planned_kbps=2.5, shortfall_kbps=0.5, reason=""),
    ("schemes", "counts_are_possible"): put("schemes", evaluations=3),
    ("transmitted", "required_columns_are_filled"): put("transmitted", scheme=None),
    ("transmitted", "no_key_is_shed"): put("transmitted", site=None),
    ("transmitted", "every_tuple_is_sent"): lambda rows: rows["transmitted"].pop(2),
    ("transmitted", "the_tuples_sent_are_the_raw_ones"): swap_keys("transmitted"),
    ("transmitted", "seq_is_of_the_batch"): put("transmitted", 5, seq=600),
    ("transmitted", "scheme_is_known"): put("transmitted", scheme=7),
    ("transmitted", "transmitted_rate_within_capacity"): put("ledger", 1, bytes_kept=251),
    ("synopsis", "one_block_per_frame"): again("synopsis"),
    ("synopsis", "no_more_entries_than_values"): put("synopsis", entries=7),
    ("synopsis", "entries_have_bytes"): put("synopsis", payload=b""),
    ("synopsis", "blocks_lie_in_their_frame"): put("synopsis", first_seq=6),
    ("recovered", "required_columns_are_filled"): put("recovered", scheme=None),
    ("recovered", "recovered_rows_equal_transmitted_rows"): again("recovered"),
    ("recovered", "the_tuples_recovered_are_the_transmitted_ones"): swap_keys("recovered"),
    ("recovered", "keys_survive"): put("recovered", site=None),
    ("recovered", "scheme_is_as_transmitted"): put("recovered", scheme=8),
    ("certificates", "one_certificate_per_attribute"): again("certificates"),
    ("certificates", "every_error_within_the_threshold"): put("certificates", violations=1),
    ("certificates", "worst_error_within_the_threshold"): put("certificates", worst_over_threshold=1.01),
    ("certificates", "mean_accuracy_floor"): put("certificates", mean_error_pct=10.5),
    ("certificates", "no_more_stored_than_shed"): put("certificates", stored_values=7),
    ("ledger", "ledger_balances"): put("ledger", 2, shed=5, recoverable=5),
    ("ledger", "shed_is_recoverable_or_lost"): put("ledger", 2, lost=1),
    ("ledger", "nothing_is_negative"): put("ledger", bytes_kept=-1),
    ("ledger", "rounded_ones_are_kept"): put("ledger", 2, rounded=1),
    ("ledger", "stages_hand_over_everything"): put("ledger", 0, kept=5, rejected=1),
    ("ledger", "stages_hand_over_every_value"): again(
        "ledger", stage="transmitted", shed=0, recoverable=0, kept=6
    ),
    ("ledger", "every_shed_value_is_certified"): put("certificates", shed_values=5),
    ("sketches", "one_sketch_per_batch"): again("sketches"),
    ("sketches", "parameters_are_json"): put("sketches", parameters="{not json"),
    ("sketches", "payload_is_there"): put("sketches", payload=b""),
    ("sketches", "named_after_its_attributes"): put("sketches", name="site"),
    ("sketches", "covers_its_batch"): put("sketches", rows=5),
    ("sketches", "near_duplicates_are_few"): put("sketches", kind="pair_count", payload=alike()),
    ("validations", "every_outcome_has_a_sentence"): put("validations", sentence=" "),
    ("validations", "every_failure_has_a_figure"): put("validations", success=False, observed=None),
}
"""What trips each expectation that fails a task."""

REPORTED: dict[tuple[str, str], Spoil] = {
    ("schemes", "nothing_falls_short"): put(
        "schemes", planned_kbps=2.5, shortfall_kbps=0.5, reason="cannot fit"
    ),
    ("transmitted", "what_exceeds_is_on_record"): put("ledger", 1, bytes_kept=300),
    ("certificates", "the_way_pays"): put("certificates", wire_bytes=40),
    ("ledger", "nothing_is_lost_for_good"): put("ledger", 2, recoverable=5, lost=1),
}
"""What falls short with its reason on record: told, and the task goes on."""


def stream_of(fault: tuple[str, str]) -> str:
    return "_".join(fault)


def contracts_of(faults: list[tuple[str, str]]) -> dict[str, Any]:
    modes = {"transmitted_what_exceeds_is_on_record": "observe"}
    names = ["sound", *map(stream_of, faults)]
    return {name: contract(name, mode=modes.get(name, "shed")) for name in names}


def stored(folder: Path, name: str, table: Any, rows: list[dict[str, Any]]) -> StoredRows:
    """The rows in a file, with their partition's column out of it."""
    schema = pa.schema([(c.name, ARROW[c.type]) for c in table.columns if c.name != "batch_date"])
    path = folder / f"{name.replace('/', '_')}.parquet"
    pq.write_table(pa.Table.from_pylist(rows, schema), path)
    return StoredRows(
        {column.name: column.type for column in table.columns},
        (DataFile(str(path), path.stat().st_size, (("batch_date", DAY),)),),
        frozenset({1}),
    )


def frames(spark: Any, settings: Settings, faults: dict[tuple[str, str], Spoil]) -> dict[str, Any]:
    """The tables of a sound stream and of a spoilt one per fault; a stream's own where the fault is about them."""
    tables = table_contracts(settings.schemas)
    shared: Rows = {}
    frames: dict[str, Any] = {}
    Path(settings.build).mkdir(parents=True, exist_ok=True)
    folder = Path(mkdtemp(dir=settings.build))
    for fault, spoil in {("sound", ""): lambda rows: None, **faults}.items():
        name = stream_of(fault).rstrip("_")
        rows = sound_stream(name)
        rows["raw"] = [
            {k: v for k, v in row.items() if k != "scheme"} for row in copy.deepcopy(rows["transmitted"])
        ]
        spoil(rows)
        for own in ("raw", "transmitted", "recovered"):
            found = rows.pop(own)
            if fault[0] in ("sound", "transmitted", "recovered"):
                owner = [(a.name, a.type) for a in contract(name).attributes]
                table = tables[own].with_attributes(owner)
                frames[f"{own}/{name}"] = stored(folder, f"{own}/{name}", table, found)
        for table, found in rows.items():
            shared.setdefault(table, []).extend(found)
    return frames | {table: frame(spark, tables[table], rows) for table, rows in shared.items()}


ARROW = {"bigint": pa.int64(), "string": pa.string(), "date": pa.date32(), "double": pa.float64()}
ARROW |= {"timestamp": pa.timestamp("us", "UTC")}


def frame(spark: Any, table: Any, rows: list[dict[str, Any]]) -> Any:
    if all(
        column.type in ARROW for column in table.columns
    ):  # Spark holds Arrow rows as they are: no task to run
        schema = pa.schema([(column.name, ARROW[column.type]) for column in table.columns])
        return spark.createDataFrame(pa.Table.from_pylist(rows, schema))
    ddl = ", ".join(f"`{column.name}` {column.type}" for column in table.columns)
    return spark.createDataFrame([tuple(row.get(name) for name in table.names) for row in rows], ddl)


@pytest.fixture(scope="module")
def judged(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> tuple[list[Outcome], Settings]:
    home = EXPECTATIONS.parent
    settings = Settings.from_environment(
        {"SPILLWAY_HOME": str(home), "SPILLWAY_BUILD": str(tmp_path_factory.mktemp("build"))}
    )
    faults = FAULTS | REPORTED
    return run_suites(spark, frames(spark, settings, faults), contracts_of(list(faults)), settings), settings


def found(judged: tuple[list[Outcome], Settings], table: str, expectation: str, stream: str) -> list[Outcome]:
    return [o for o in judged[0] if (o.table, o.expectation, o.stream) == (table, expectation, stream)]


def test_everything_holds_on_a_sound_stream(judged: Any) -> None:
    own = [outcome for outcome in judged[0] if outcome.stream == "sound"]

    assert [outcome.sentence for outcome in own if not outcome.success or outcome.reported] == []
    held = {(outcome.table, outcome.expectation) for outcome in own}
    suites = load_suites(EXPECTATIONS)
    assert held >= {(suite.table, rule.name) for suite in suites.values() for rule in suite.expectations}
    assert {table for table, name in held if name == "columns_as_contracted"} == set(suites)


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


def test_every_expectation_has_a_fault_that_trips_it() -> None:
    rules = {
        (s.table, rule.name): rule for s in load_suites(EXPECTATIONS).values() for rule in s.expectations
    }

    assert {name for name, rule in rules.items() if rule.severity == "critical"} == set(FAULTS)
    assert {name for name, rule in rules.items() if rule.severity == "info"} == set(REPORTED)


def test_there_is_a_suite_for_every_curated_table(settings: Settings) -> None:
    curated = {name for name, table in table_contracts(settings.schemas).items() if table.curated}

    assert set(load_suites(EXPECTATIONS)) == curated


def test_a_failure_says_what_where_and_how_much(judged: Any) -> None:
    (outcome,) = found(judged, "ledger", "ledger_balances", "ledger_ledger_balances")

    assert outcome.sentence == (
        "ledger: ledger_ledger_balances, batch 1, stage attributes, values temp: 6 offered, but kept 0 + shed 5 + "
        "deduplicated 0 + rejected 0 is 5, 1 apart"
    )
    assert outcome.where == "batch 1, stage attributes, unit values, attribute temp"
    assert (outcome.observed, outcome.expected) == ("1", "difference = 0")
    assert str(outcome.batch_date) == "2026-01-02"


def test_failures_are_raised_with_their_sentences(judged: Any) -> None:
    failed = failures(judged[0])

    message = str(ExpectationsFailed(failed))

    assert message.startswith(f"{len(failed)} expectations failed:\n- batches: ")
    assert message.endswith("more, see `spillway status` and Data Docs")


def test_data_docs_show_every_table_judged(judged: Any) -> None:
    docs = Path(judged[1].build, "data_docs")

    assert "ledger" in (docs / "index.html").read_text(encoding="utf-8")
    assert {page.stem for page in (docs / "expectations").glob("*.html")} == set(load_suites(EXPECTATIONS))


def test_outcomes_become_rows_of_the_validations_table(judged: Any, settings: Settings) -> None:
    row = judged[0][0].row("run", None)

    assert tuple(row) == table_contracts(settings.schemas)["validations"].names


def test_a_table_with_other_columns_fails_on_its_contract_alone(spark: Any, settings: Settings) -> None:
    tables = frames(spark, settings, {})
    sent = tables["transmitted/sound"]
    tables["transmitted/sound"] = replace(sent, types={**sent.types, "temp": "bigint"})
    tables["ledger"] = tables["ledger"].drop("lost").withColumnRenamed("kept", "held")

    outcomes = run_suites(spark, tables, contracts_of([]), settings, only=["ledger", "transmitted"])

    assert [outcome.sentence for outcome in outcomes] == [
        "ledger:  must have the columns of schemas/tables: `kept` is missing; `lost` is missing; "
        "`held` is in no contract",
        "transmitted: sound must have the columns of schemas/tables: `temp` must be double, found bigint",
    ]
    assert not any(outcome.success for outcome in outcomes)


def test_tables_without_rows_yield_nothing(spark: Any, settings: Settings) -> None:
    tables = {"ledger": frames(spark, settings, {})["ledger"].where("false")}

    assert run_suites(spark, tables, contracts_of([]), settings) == []
    assert run_suites(spark, {}, {}, settings) == []


def test_a_floor_can_be_raised_for_a_run(spark: Any, settings: Settings) -> None:
    tables = {"certificates": frames(spark, settings, {})["certificates"]}

    outcomes = run_suites(spark, tables, contracts_of([]), settings, {"accuracy_floor_pct": 99.7})

    assert [outcome.sentence for outcome in failures(outcomes)] == [
        "certificates: sound, batch 1, temp (shed) is accurate to 99.6 % on average only"
    ]


def test_an_expectation_that_great_expectations_does_not_know_is_refused_by_name(
    spark: Any, settings: Settings, tmp_path: Path
) -> None:
    from spillway.errors import SpillwayError

    folder = tmp_path / "expectations"
    folder.mkdir()
    text = (EXPECTATIONS / "models.yaml").read_text(encoding="utf-8")
    (folder / "models.yaml").write_text(
        text.replace("expect_column_min_", "expect_colum_min_"), encoding="utf-8"
    )
    models = {"models": frames(spark, settings, {})["models"]}

    with pytest.raises(
        SpillwayError, match=r"models\.yaml: `versions_count_from_one` must be an expectation"
    ):
        run_suites(spark, models, contracts_of([]), replace(settings, home=str(tmp_path)))

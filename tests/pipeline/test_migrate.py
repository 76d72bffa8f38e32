"""A lake that an earlier Spillway wrote becomes one of this: nothing is lost, run again it has nothing to do."""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from tests.pipeline.renamed_lake import as_it_was as with_earlier_names
from tests.small_lake import batch_row, write_table

from spillway.batch import Batch
from spillway.errors import InvalidValue, SpillwayError
from spillway.pipeline.validate import changed_batches
from spillway.settings import Settings
from spillway.store import delta_log
from spillway.store import tables as stored
from spillway.store.batches import load_batches
from spillway.store.delta_log import FORMAT_PROPERTY, PROPERTIES
from spillway.store.renames import RENAMES
from spillway.store.schemas import TableContract
from spillway.store.tables import Tables
from spillway.streams import migrate as migrating
from spillway.streams.migrate import migrate

NOW = datetime(2026, 1, 1, tzinfo=UTC)
NEW = {"way": "treatment", "beside_bytes": "overhead_bytes"}
GAINED = {
    "certificates": (
        "error",
        "max_error",
        "mean_error",
        "revision",
        "offered_values",
        "source_values",
        "lost_values",
    ),
    "batches": ("revision", "validated_revision", "raw_leaving", "attempts", "reason", "rate_note"),
}
"""What tables have gained since commit 9eec88c, whose certificates could not be without `error_pct`."""


def as_it_was(contract: TableContract) -> TableContract:
    """The column contract of that commit, with the names of that time."""
    gone = GAINED.get(contract.table, ())
    columns = tuple(
        replace(one, nullable=one.nullable and one.name != "error_pct")
        for one in contract.columns
        if one.name not in gone
    )
    then = replace(contract, columns=columns)
    return with_earlier_names(then) if contract.table in RENAMES else then


def certificate(batch: int, at: datetime, **more: Any) -> dict[str, Any]:
    row = {"stream": "s", "batch": batch, "batch_date": date(2026, 1, batch), "lever": "attributes"}
    counts = dict.fromkeys(
        ("shed_values", "rounded_values", "stored_values", "violations", "column_bytes", "wire_bytes"), 1
    )
    made = {"attribute": "temp", "treatment": "shed", "error_pct": 2.0, "synopsis_bytes": 1, "created_at": at}
    return row | counts | made | more


@pytest.fixture
def old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """A lake as it was: without the property, its version in the table's description, and columns fewer."""
    settings = Settings.from_environment({"SPILLWAY_HOME": str(tmp_path)})
    with monkeypatch.context() as patch:

        def plainly(self: delta_log.DeltaLog, contract: TableContract) -> None:
            self._table = DeltaTable.create(
                self.path,
                contract.arrow_schema,
                partition_by=list(contract.partitioned_by),
                description=contract.description,
                configuration={name: PROPERTIES[name] for name in list(PROPERTIES)[:3]},
            )

        patch.setattr(delta_log.DeltaLog, "create", plainly)
        patch.setattr(delta_log.DeltaLog, "set_format", lambda *_: None)
        contracts = {name: as_it_was(one) for name, one in Tables(settings).contracts.items()}
        patch.setattr(stored, "table_contracts", lambda: contracts)
        rows = [batch_row("s", n, "done", updated_at=NOW) for n in (1, 2, 3)]
        kept = [{k: v for k, v in row.items() if k not in GAINED["batches"]} for row in rows]
        tables = Tables(settings)
        for row in kept:
            row["files"] = []
            row["beside_bytes"] = row.pop("overhead_bytes", None)
        tables.at("batches").append(kept)
        later = NOW + timedelta(hours=1)
        for number in (1, 2):
            row = certificate(number, later)
            row["way"] = row.pop("treatment")
            tables.at("certificates").append([row])
        outcome = {"table": "certificates", "stream": "s", "expectation": "e", "sentence": "s", "run_id": "r"}
        said = [(date(2026, 1, 1), True), (date(2026, 1, 2), False)]
        write_table(
            settings,
            "validations",
            [{**outcome, "batch_date": day, "success": held, "validated_at": later} for day, held in said],
        )
    return settings


def test_an_old_lake_is_refused_with_the_remedy(old: Settings) -> None:
    tables = Tables(old)
    assert DeltaTable(tables.path("certificates")).metadata().configuration.get(FORMAT_PROPERTY) is None
    for name, found in (("batches", 3), ("certificates", 4)):
        assert stored_version(old, name) == found
        with pytest.raises(
            InvalidValue, match=f"be at least {found + 1}.*got {found}; run `spillway migrate`"
        ):
            tables.at(name)


def stored_version(settings: Settings, name: str) -> int | None:
    tables = Tables(settings)
    return tables.own(tables.path(name), tables.contract(name)).format_version


def test_a_null_that_the_table_cannot_hold_is_refused_with_the_remedy(tmp_path: Path) -> None:
    tables = Tables(Settings.from_environment({"SPILLWAY_HOME": str(tmp_path)}))
    contract = tables.contract("validations")
    strict = tuple(replace(one, nullable=one.nullable and one.name != "stream") for one in contract.columns)
    row = {"table": "ledger", "stream": "s", "expectation": "e", "sentence": "s", "run_id": "r"}
    row |= {"success": True, "validated_at": NOW}
    tables.own(tables.path("validations"), replace(contract, columns=strict)).append([row])
    with pytest.raises(
        InvalidValue, match="let `stream` be null, as version 1 does, got 1; run `spillway migrate`"
    ):
        tables.at("validations").append([{**row, "stream": None}])


def test_it_is_said_before_it_is_done(old: Settings) -> None:
    names = ("batches", "certificates", "validations")
    before = {name: DeltaTable(Tables(old).path(name)).version() for name in names}
    said: list[str] = []
    found = migrate(old, said.append, dry_run=True)
    assert {name: DeltaTable(Tables(old).path(name)).version() for name in before} == before
    assert any("`error_pct` may be null" in one for one in said)
    assert said[-1] == f"{len(found)} changes would be made"


def test_what_was_there_is_there_and_what_could_not_be_can(old: Settings) -> None:
    rows = DeltaTable(Tables(old).path("certificates")).to_pyarrow_table().to_pylist()
    rows = [{NEW.get(name, name): value for name, value in row.items()} for row in rows]
    rows.sort(key=lambda row: row["batch"])
    migrate(old)
    tables = Tables(old)
    contract = tables.contract("certificates")
    table = DeltaTable(tables.path("certificates"))
    assert table.metadata().configuration[FORMAT_PROPERTY] == str(contract.version)
    found = tables.at("certificates").rows(sorted(rows[0])).sort_by("batch").to_pylist()
    assert found == [dict(sorted(row.items())) for row in rows]
    tables.at("certificates").replace([certificate(3, NOW, error_pct=None, error=0.5)], stream="s", batch=3)
    assert tables.at("certificates").rows(["error"], batch=3).to_pylist() == [{"error": 0.5}]
    assert {one.name: one.nullable for one in tables.at("certificates").schema}["error_pct"]


def test_what_was_validated_stays_validated(old: Settings) -> None:
    migrate(old)
    assert [one.batch for one in changed_batches(Tables(old), "s")] == [2, 3], (
        "one failed, one has no certificate"
    )


def test_run_again_it_has_nothing_to_do_whenever_it_died(
    old: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = 0
    fitting, saving = stored.Table.evolve_schema, migrating.save_batches

    def dies_at(last: int) -> None:
        nonlocal steps
        steps = 0

        def counted(step: Any) -> Any:
            def call(*given: Any, **more: Any) -> Any:
                nonlocal steps
                steps += 1
                if steps > last:
                    raise KeyboardInterrupt
                return step(*given, **more)

            return call

        monkeypatch.setattr(stored.Table, "evolve_schema", counted(fitting))
        monkeypatch.setattr(migrating, "save_batches", counted(saving))

    for last in range(6):
        dies_at(last)
        try:
            migrate(old)
            break
        except KeyboardInterrupt:
            continue
    monkeypatch.undo()
    assert migrate(old) == []
    assert [one.batch for one in changed_batches(Tables(old), "s")] == [2, 3]


def test_infinity_is_no_longer_the_bound_of_a_value_that_is_there(tmp_path: Path) -> None:
    """Until version 3 it also meant that no relative bound holds; since then it means absent."""
    settings = Settings.from_environment({"SPILLWAY_HOME": str(tmp_path)})
    table = Tables(settings).at("recovered", "s").with_attributes([("temp", "double"), ("wind", "double")])
    bounds = [(1.5, 2.0), (0.2, math.inf), (None, math.inf), (7.0, None), (None, None)]
    own = {"batch": 1, "batch_date": date(2026, 1, 1), "wind": 1.0, "wind__bound_pct": None}
    rows = [
        {**own, "seq": n, "temp": value, "temp__bound_pct": bound} for n, (value, bound) in enumerate(bounds)
    ]
    table.append(rows)
    found = migrate(settings, dry_run=True)
    assert [(one.name, "1 rows have NaN" in one.sentence) for one in found] == [("recovered/s", True)]
    assert migrate(settings) == found
    assert migrate(settings) == []
    got = Tables(settings).at("recovered", "s").rows(["seq", "temp", "temp__bound_pct", "wind"]).to_pylist()
    told = {row["seq"]: row["temp__bound_pct"] for row in got}
    assert (told[0], told[2], told[3], told[4]) == (2.0, math.inf, None, None)
    assert math.isnan(told[1])
    assert {row["seq"]: (row["temp"], row["wind"]) for row in got} == {
        n: (value, 1.0) for n, (value, _) in enumerate(bounds)
    }


def test_a_later_version_is_refused_by_name_and_nothing_is_written(old: Settings) -> None:
    path = Tables(old).path("validations")
    DeltaTable(path).alter.set_table_properties({FORMAT_PROPERTY: "99"}, raise_if_not_exists=False)
    before = DeltaTable(Tables(old).path("certificates")).version()
    rule = "`format version` must be at most 1, got 99; a later Spillway wrote the table: use that one"
    with pytest.raises(InvalidValue, match=rule):
        migrate(old)
    with pytest.raises(InvalidValue, match=rule):
        Tables(old).at("validations")
    assert DeltaTable(Tables(old).path("certificates")).version() == before


def test_a_column_of_another_type_is_refused_and_no_table_is_touched(
    old: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    contracts = dict(Tables(old).contracts)
    ledger = contracts["validations"]
    columns = tuple(replace(c, type="bigint") if c.name == "sentence" else c for c in ledger.columns)
    contracts["validations"] = replace(ledger, columns=columns, version=2)
    monkeypatch.setattr(stored, "table_contracts", lambda: contracts)
    before = DeltaTable(Tables(old).path("certificates")).version()
    with pytest.raises(SpillwayError, match="column `sentence` must stay string, got bigint"):
        migrate(old)
    assert DeltaTable(Tables(old).path("certificates")).version() == before


def test_a_lake_of_today_is_as_it_should_be(tmp_path: Path) -> None:
    settings = Settings.from_environment({"SPILLWAY_HOME": str(tmp_path)})
    write_table(settings, "batches", [batch_row("s", 1, "done")])
    said: list[str] = []
    assert migrate(settings, said.append) == []
    assert said == ["every table is as it should be"]
    assert isinstance(load_batches(Tables(settings))[0], Batch)

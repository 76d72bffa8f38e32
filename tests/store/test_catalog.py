"""Curated tables in a catalog of Spark: what `spillway register` makes, leaves, renews and refuses."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, Schema
from tests.store.rows_of_tables import send, tell

from spillway.errors import UsageError
from spillway.settings import Settings
from spillway.store.catalog import (
    CREATED,
    REFUSED,
    UNCHANGED,
    UPDATED,
    Registration,
    metastore_conf,
    register_tables,
)
from spillway.store.tables import Tables

DATABASE = "curated"


@pytest.fixture
def lake(tmp_path: Path) -> Settings:
    settings = Settings.from_environment(
        {"SPILLWAY_HOME": str(tmp_path), "SPILLWAY_LAKE": str(tmp_path / "lake")}
    )
    tell(Tables(settings))
    send(Tables(settings), 1, 3)
    return settings


@pytest.fixture
def catalog(spark: Any) -> Iterator[Any]:
    yield spark
    spark.sql(f"DROP DATABASE IF EXISTS {DATABASE} CASCADE")


def actions(found: list[Registration]) -> dict[str, str]:
    return {one.name.removeprefix(f"{DATABASE}."): one.action for one in found}


def versions(lake: Settings) -> list[int]:
    tables = Tables(lake)
    return [DeltaTable(tables.path(*name)).version() for name in (("models", None), ("transmitted", "s"))]


def gain_a_column(path: str) -> None:
    new = pa.field("gained", pa.string(), metadata={"comment": "it came later"})
    DeltaTable(path).alter.add_columns(Schema.from_arrow(pa.schema([new])).fields)


def test_curated_tables_are_registered_with_columns_and_comments_and_again_without_a_change(
    catalog: Any, lake: Settings
) -> None:
    before, said = versions(lake), list[str]()
    made = register_tables(catalog, Tables(lake), DATABASE, said.append)
    assert actions(made) == {"models": CREATED, "transmitted_s": CREATED}
    assert said == [f"{one.name}: created, at {one.path}" for one in made]
    assert catalog.table(f"{DATABASE}.transmitted_s").count() == 3
    contract = Tables(lake).contract("models")
    columns = {row["col_name"]: row for row in catalog.sql(f"DESCRIBE TABLE {DATABASE}.models").collect()}
    for column in contract.columns:
        assert (columns[column.name]["data_type"], columns[column.name]["comment"]) == (
            column.type,
            column.meaning,
        )
    entry = catalog._jsparkSession.sharedState().externalCatalog().getTable(DATABASE, "models")
    stored = {
        one["name"]: one["metadata"].get("comment") for one in json.loads(entry.schema().json())["fields"]
    }
    assert stored == {column.name: column.meaning for column in contract.columns}
    assert entry.comment().get() == contract.description
    again = register_tables(catalog, Tables(lake), DATABASE)
    assert actions(again) == {"models": UNCHANGED, "transmitted_s": UNCHANGED}
    assert versions(lake) == before, "registering commits nothing"


def test_a_table_that_has_gained_a_column_is_registered_again(catalog: Any, lake: Settings) -> None:
    register_tables(catalog, Tables(lake), DATABASE)
    gain_a_column(Tables(lake).path("models"))
    would = register_tables(catalog, Tables(lake), DATABASE, dry_run=True)
    assert actions(would) == {"models": UPDATED, "transmitted_s": UNCHANGED}
    assert actions(register_tables(catalog, Tables(lake), DATABASE)) == actions(would)
    assert actions(register_tables(catalog, Tables(lake), DATABASE))["models"] == UNCHANGED
    entry = catalog._jsparkSession.sharedState().externalCatalog().getTable(DATABASE, "models")
    assert "it came later" in entry.schema().json()
    assert catalog.table(f"{DATABASE}.models").count() == 1


def test_a_name_of_another_table_is_refused_and_the_others_are_registered(
    catalog: Any, lake: Settings, tmp_path: Path
) -> None:
    catalog.sql(f"CREATE DATABASE {DATABASE} LOCATION '{tmp_path}/of_others'")
    catalog.sql(f"CREATE TABLE {DATABASE}.models (a INT) USING parquet LOCATION '{tmp_path}/elsewhere'")
    found = register_tables(catalog, Tables(lake), DATABASE)
    assert actions(found) == {"models": REFUSED, "transmitted_s": CREATED}
    assert found[0].sentence == (
        f"`{DATABASE}.models` must be free, or name the table at {lake.lake}/models, got 'a parquet table at "
        f"file:{tmp_path}/elsewhere'; choose another --database, or drop that entry"
    )
    assert catalog.table(f"{DATABASE}.models").columns == ["a"]


def test_a_dry_run_makes_nothing(catalog: Any, lake: Settings) -> None:
    would = register_tables(catalog, Tables(lake), DATABASE, dry_run=True)
    assert actions(would) == {"models": CREATED, "transmitted_s": CREATED}
    assert not catalog.catalog.databaseExists(DATABASE)


@pytest.mark.parametrize(
    ("metastore", "connect", "said"),
    [
        (None, False, "`--metastore` must name a Hive metastore, got none"),
        ("meta:9083", False, "`--metastore` must begin with thrift:// or jdbc:"),
        ("thrift://meta:9083", True, "`--metastore` must be absent with Spark Connect"),
    ],
)
def test_a_metastore_that_cannot_be_used_is_refused(metastore: str | None, connect: bool, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        metastore_conf(metastore, connect, {})


def test_a_configured_metastore_needs_no_address(tmp_path: Path) -> None:
    (tmp_path / "hive-site.xml").write_text("<configuration/>")
    said = metastore_conf(None, False, {"SPARK_CONF_DIR": str(tmp_path)})
    assert said == {"spark.sql.catalogImplementation": "hive"}
    assert metastore_conf(None, True, {}) == {}


@pytest.mark.long
def test_a_hive_metastore_keeps_the_tables_for_other_sessions(lake: Settings, tmp_path: Path) -> None:
    metastore = f"jdbc:derby:;databaseName={tmp_path}/metastore;create=true"
    env = {**os.environ, "SPILLWAY_HOME": str(tmp_path), "SPILLWAY_LAKE": lake.lake}
    env["SPILLWAY_JARS"] = str(Path(__file__).resolve().parents[2] / ".jars")

    def register() -> dict[str, str]:
        command = [sys.executable, "-m", "spillway.cli", "register", "--metastore", metastore, "--json"]
        ran = subprocess.run(command, env=env, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert ran.returncode == 0, ran.stderr
        return {one["name"]: one["action"] for one in json.loads(ran.stdout)}

    assert register() == {"spillway.models": CREATED, "spillway.transmitted_s": CREATED}
    gain_a_column(Tables(lake).path("models"))
    assert register() == {"spillway.models": UPDATED, "spillway.transmitted_s": UNCHANGED}

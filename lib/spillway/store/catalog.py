"""Register the curated tables of a lake in Spark's session catalog, as external Delta tables.

A curated table is one that its column contract calls `curated`. `ledger` is registered under its own name, a table per
stream with the stream's name at its end: `recovered_weather`. The catalog stores the location, the description, and the
columns with their comments, so that programs which do not read Delta logs can show them. Rows are never copied, and no
commit is made: Spillway stays the only program that writes to these tables.

Registering again is safe. An entry whose columns are those of the table is left as it is. If the table has gained
columns, its entry is removed and made again; an external entry can be removed without a change of the table. A name
that belongs to another table is refused.

The catalog is that of the session: a Hive metastore, or what a server of Spark Connect uses.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote

from spillway.engine.spark import spark_session
from spillway.errors import InvalidValue, UsageError
from spillway.levers.protocol import Say
from spillway.store.blobs import MEMORY, plain_uri
from spillway.store.tables import Table, Tables

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CREATED, UPDATED, UNCHANGED, REFUSED = "created", "updated", "unchanged", "refused"
_DATABASE = re.compile(r"[A-Za-z][A-Za-z0-9_]*\Z")
_STORE_SCHEMA = "spark.databricks.delta.catalog.update.enabled"
"""The setting by which Delta stores a table's columns in the catalog; otherwise they are only in the table's log."""


@dataclass(frozen=True)
class Registration:
    """The action of one registration: a table, and what was changed in the catalog."""

    name: str
    path: str
    action: str
    problem: str = ""

    @property
    def sentence(self) -> str:
        return f"{self.name}: {self.action}, at {self.path}" if not self.problem else self.problem


@dataclass(frozen=True)
class _Entry:
    """A table as the catalog has it."""

    location: str
    type: str
    provider: str
    schema: str


def register_tables(
    spark: SparkSession,
    tables: Tables,
    database: str = "spillway",
    say: Say = lambda _: None,
    dry_run: bool = False,
) -> list[Registration]:
    """Register every curated table that exists; return the actions. A dry run only returns them.

    The database is created if the catalog does not have it. A table whose name is taken is refused, and the others are
    registered.
    """
    if not _DATABASE.match(database):
        raise UsageError(
            f"`database` must be a name of letters, digits and _, got {database!r}; choose another one"
        )
    wanted = dict(_curated_tables(tables))
    known = _entries(spark, database)
    if known is None and wanted and not dry_run:
        folder = f"{tables.settings.destination}/{database}.db"
        _make_database(spark, database, folder)
    found = []
    for name, table in wanted.items():
        one = _register(spark, f"{database}.{name}", table, (known or {}).get(name.lower()), dry_run)
        say(one.sentence)
        found.append(one)
    return found


def _curated_tables(tables: Tables) -> Iterator[tuple[str, Table]]:
    for name, stream in tables.names():
        if tables.contract(name).curated:
            table = tables.at(name, stream)
            if table.exists:
                if table.path.startswith(MEMORY):
                    rule, remedy = "be on a disk or in an object store", "set SPILLWAY_LAKE"
                    raise InvalidValue("lake", rule, table.path, remedy)
                yield (name if stream is None else f"{name}_{stream}"), table


def _entries(spark: SparkSession, database: str) -> dict[str, _Entry] | None:
    """Return the tables of a database by name; None if the catalog has no such database."""
    if not spark.catalog.databaseExists(database):
        return None
    rows = spark.sql(f"SHOW TABLE EXTENDED IN `{database}` LIKE '*'").collect()
    return {row["tableName"].lower(): _entry(row["information"]) for row in rows if not row["isTemporary"]}


def _entry(information: str) -> _Entry:
    """Parse an entry from Spark's description: lines of `Name: value`, then the columns as a tree."""
    about, _, schema = information.partition("\nSchema: ")
    said = dict(line.split(": ", 1) for line in about.splitlines() if ": " in line)
    return _Entry(said.get("Location", ""), said.get("Type", ""), said.get("Provider", ""), schema.strip())


def _register(
    spark: SparkSession, name: str, table: Table, known: _Entry | None, dry_run: bool
) -> Registration:
    if known is None:
        if not dry_run:
            _create(spark, name, table)
        return Registration(name, table.path, CREATED)
    is_ours = (known.type, known.provider.lower()) == ("EXTERNAL", "delta")
    if not is_ours or _place(known.location) != _place(table.path):
        kind = f"{known.provider or known.type} table".lower()
        problem = InvalidValue(
            name,
            f"be free, or name the table at {table.path}",
            f"a {kind} at {known.location or 'no location'}",
            "choose another --database, or drop that entry",
        )
        return Registration(name, table.path, REFUSED, str(problem))
    if known.schema == _tree(table):
        return Registration(name, table.path, UNCHANGED)
    if not dry_run:
        spark.sql(f"DROP TABLE {_quoted(name)}")  # external: only the entry is removed
        _create(spark, name, table)
    return Registration(name, table.path, UPDATED)


def _create(spark: SparkSession, name: str, table: Table) -> None:
    with _setting(spark, _STORE_SCHEMA, "true"):
        spark.sql(
            f"CREATE TABLE {_quoted(name)} USING delta COMMENT {_text(table.contract.description)} "
            f"LOCATION {_text(table.path)}"
        )


def _make_database(spark: SparkSession, database: str, folder: str) -> None:
    spark.sql(
        f"CREATE DATABASE IF NOT EXISTS `{database}` COMMENT 'Tables of Spillway; only Spillway writes to them' "
        f"LOCATION {_text(folder)}"
    )


def _tree(table: Table) -> str:
    """Return the columns of a table as Spark shows them."""
    from pyspark.sql.pandas.types import from_arrow_schema

    return from_arrow_schema(table.schema).treeString().strip()


def _place(location: str) -> str:
    """Return a location in one spelling.

    >>> _place("file:/lake/ledger/"), _place("file:///lake/a%20b"), _place("s3a://b/ledger")
    ('/lake/ledger', '/lake/a b', 's3://b/ledger')
    """
    local = re.sub(r"^file:/*", "/", location)
    return (unquote(local) if local != location else plain_uri(location)).rstrip("/")


def _quoted(name: str) -> str:
    return ".".join(f"`{part}`" for part in name.split("."))


def _text(value: str) -> str:
    """Return a text as a literal of Spark SQL.

    >>> _text("the stream's rows")
    "'the stream\\\\'s rows'"
    """
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"


@contextmanager
def _setting(spark: SparkSession, name: str, value: str) -> Iterator[None]:
    before = spark.conf.get(name, None)
    spark.conf.set(name, value)
    try:
        yield
    finally:
        if before is None:
            spark.conf.unset(name)
        else:
            spark.conf.set(name, before)


@contextmanager
def catalog_session(
    metastore: str | None = None, environment: Mapping[str, str] | None = None
) -> Iterator[SparkSession]:
    """Yield a session with the catalog of a Hive metastore, or with that of a server of Spark Connect.

    `metastore`: its address, `thrift://host:port`, or `jdbc:...` of the database that it uses. Without it, Spark's own
    configuration (`hive-site.xml` in `SPARK_CONF_DIR`) must name it.
    """
    env = os.environ if environment is None else environment
    connect = env.get("SPILLWAY_MASTER", "").startswith("sc://")
    session = spark_session("spillway register", **metastore_conf(metastore, connect, env))
    try:
        yield session
    finally:
        session.stop()


def metastore_conf(metastore: str | None, connect: bool, environment: Mapping[str, str]) -> dict[str, str]:
    """Return Spark's settings for a Hive metastore.

    >>> metastore_conf("thrift://meta:9083", False, {})["spark.hadoop.hive.metastore.uris"]
    'thrift://meta:9083'
    """
    if connect:
        if metastore is not None:
            raise UsageError(
                f"`--metastore` must be absent with Spark Connect, got {metastore!r}; its server has a catalog"
            )
        return {}
    hive = {"spark.sql.catalogImplementation": "hive"}
    if metastore is None:
        folder = environment.get("SPARK_CONF_DIR") or f"{environment.get('SPARK_HOME', '')}/conf"
        if not Path(folder, "hive-site.xml").is_file():
            raise UsageError(
                "`--metastore` must name a Hive metastore, got none; write thrift://HOST:9083, or have "
                "hive-site.xml in SPARK_CONF_DIR"
            )
        return hive
    if metastore.startswith("thrift://"):
        return {**hive, "spark.hadoop.hive.metastore.uris": metastore}
    if metastore.startswith("jdbc:"):
        return {**hive, "spark.hadoop.javax.jdo.option.ConnectionURL": metastore}
    raise UsageError(
        f"`--metastore` must begin with thrift:// or jdbc:, got {metastore!r}; write thrift://HOST:9083"
    )

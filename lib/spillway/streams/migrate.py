"""Migrate the tables of an earlier version of Spillway to the column contracts of this version.

Tables are migrated one by one. Each step is a commit, and the version is set after it, so an interrupted migration can
be run again. These steps are taken:

1. a table with another name now is copied to the folder of the new name, and its earlier folder is removed;
2. columns, fields and values with other names now are renamed: every file of the table is rewritten, in one commit;
3. columns and fields that the contract has gained are added;
4. columns that may be null now are made nullable;
5. the version of the table is set;
6. values that a version derives from other tables are filled in.

Rows are not rewritten for a new column: it is null in them. Some changes cannot be made in place: another column type,
or a table of a later version. They are refused with the table's name before anything is written. Until a table is
renamed, every other command refuses it (`store.renames`). No run may write to the lake while it is migrated.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spillway.batch import DONE, RETIRED, Batch
from spillway.contracts import load_usable
from spillway.contracts.column_names import BOUND_SUFFIX, bounded_attribute
from spillway.errors import ContractError, SpillwayError
from spillway.intake.rejected_rows import mark_as_replayed
from spillway.levers.protocol import Say
from spillway.settings import Settings
from spillway.store import blobs
from spillway.store.batches import load_batches, save_batches
from spillway.store.blobs import list_folders
from spillway.store.maintenance import correct_rows, has_earlier_names, rename_columns
from spillway.store.renames import RENAMES, Renames, rename_schema
from spillway.store.schemas import SchemaDifferences, refuse_newer, schema_differences
from spillway.store.tables import Table, Tables
from spillway.streams.destination import move_metadata
from spillway.streams.presence import WHOLE_ROWS, presence


@dataclass(frozen=True)
class Migration:
    """The differences between a table and its contract."""

    name: str
    from_version: int
    to_version: int
    changes: tuple[str, ...]

    @property
    def sentence(self) -> str:
        what = "; ".join(self.changes) or "nothing to change"
        return f"{self.name}: version {self.from_version} to {self.to_version}: {what}"


def migrate(settings: Settings, say: Say = lambda _: None, dry_run: bool = False) -> list[Migration]:
    """Migrate every table to its contract; return what was done, or, for a dry run, would be done."""
    tables = Tables(settings)
    found = list(_differing(tables))
    earlier = [name for name, one in RENAMES.items() if _is_under_earlier_name(tables, name, one)]
    impossible = [
        f"{table.path}: column `{name}` must stay {was}, got {now} in its column contract; write the table anew under "
        "another name, or use the Spillway that wrote it"
        for table, _, lacks in found
        for name, was, now in lacks.impossible
    ]
    if impossible:
        raise SpillwayError("\n".join(impossible))
    done: list[Migration] = []
    for name in earlier:
        one = Migration(
            name, 1, tables.contract(name).version, (f"its earlier name was `{RENAMES[name].table}`",)
        )
        if not dry_run:
            move_metadata(tables)
        say(one.sentence)
        done.append(one)
    for table, renames, lacks in found:
        name = table.path.removeprefix(settings.lake + "/").removeprefix(settings.destination + "/")
        changes = [*(renames.summary if renames else ()), *lacks.summary]
        if table.lacks_change_feed:
            changes.append("a change data feed from now on")
        one = Migration(name, table.format_version or 1, table.contract.version, tuple(changes))
        if not dry_run:
            if renames:
                rename_columns(table, renames)
            table.evolve_schema(relax=True)
        say(one.sentence)
        done.append(one)
    if dry_run and (earlier or any(renames for _, renames, _ in found)):
        say("what is derived from these tables is found out when they have the new names")
    else:
        done += _derived(settings, say, dry_run)
    count = len(done)
    say(f"{count} changes {'would be ' if dry_run else ''}made" if done else "every table is as it should be")
    return done


def _derived(settings: Settings, say: Say, dry_run: bool) -> list[Migration]:
    """Fill in the values that a version derives from other tables; return what was done."""
    tables, done = Tables(settings), list[Migration]()
    held = _validated_before(tables)
    if held:
        count = sum(map(len, held.values()))
        version = tables.contract("batches").version
        change = f"{count:,} batches are noted as validated, by their certificates and validations"
        for batches in held.values() if not dry_run else ():
            save_batches(tables, batches)
        one = Migration("batches", version, version, (change,))
        say(one.sentence)
        done.append(one)
    noted = sum(_read_again_before(tables, dry_run))
    if noted:
        version = tables.contract("rejected").version
        one = Migration("rejected", version, version, (f"{noted:,} rows are noted as read again since",))
        say(one.sentence)
        done.append(one)
    filled = list(_presence_before(tables, dry_run))
    if filled:
        version = tables.contract("certificates").version
        change = f"present and absent values filled in for {sum(filled):,} rows"
        one = Migration("certificates", version, version, (change,))
        say(one.sentence)
        done.append(one)
    for name, rows in _bounds_before(tables, dry_run):
        version = tables.contract("recovered").version
        change = f"{rows:,} rows have NaN, and no longer infinity, as a bound of a value that is there"
        one = Migration(name, version, version, (change,))
        say(one.sentence)
        done.append(one)
    return done


def _is_under_earlier_name(tables: Tables, name: str, renames: Renames) -> bool:
    folder = tables.path(name).removesuffix(name)
    return renames.table is not None and blobs.folder_exists(f"{folder}{renames.table}")


def _differing(tables: Tables) -> Iterator[tuple[Table, Renames | None, SchemaDifferences]]:
    """Yield the tables that have an earlier version or lack something, with their renames and other differences."""
    for name, stream in tables.names():
        contract = tables.contract(name)
        table = tables.own(tables.path(name, stream), contract)
        refuse_newer(table.path, contract, table.format_version)
        renames = RENAMES.get(name)
        if renames is not None and not (
            table.exists
            and (table.format_version or 1) < renames.version
            and has_earlier_names(table, renames)
        ):
            renames = None
        schema = rename_schema(table.schema, renames) if renames else table.schema
        lacks = schema_differences(schema, contract)
        behind = table.format_version != contract.version or table.lacks_change_feed
        if table.exists and (behind or lacks.summary or lacks.impossible):
            yield table, renames, lacks


def _read_again_before(tables: Tables, dry_run: bool) -> Iterator[int]:
    """Mark rows of `rejected` that were replayed before the table had that column; yield their number by stream."""
    rejected = tables.at("rejected")
    unmarked = rejected.rows(["stream"], replayed_by=None)
    for stream in sorted(unmarked["stream"].unique().to_pylist()):
        known = load_batches(tables, stream)
        read = [batch for batch in known if batch.rows is not None]
        yield mark_as_replayed(rejected, stream, read, known, dry_run)


def _presence_before(tables: Tables, dry_run: bool) -> Iterator[int]:
    """Fill in the counts of present and absent values of older certificates, by stream, from the ledger.

    If the contract of a stream cannot be used, its certificates are unchanged.
    """
    certificates = tables.at("certificates")
    unfilled = certificates.rows(["stream", "batch"], offered_values=None)
    try:
        streams = load_usable(tables.settings.schemas).streams if unfilled.num_rows else {}
    except ContractError:
        return  # a contract may be broken while a lake is migrated; the next `spillway migrate` fills these in
    for stream in sorted(set(unfilled["stream"].to_pylist()) & streams.keys()):
        numbers = unfilled["batch"].filter(pc.equal(unfilled["stream"], stream)).unique().to_pylist()
        batches = load_batches(tables, stream, batch=numbers)
        ledger = tables.at("ledger").rows(scope="stream", subject=stream, batch=numbers).to_pylist()
        there = presence(tables, streams[stream], batches, ledger)
        known = [one.batch for one in batches]
        rows = certificates.rows(stream=stream, batch=known).to_pylist()
        for row in rows:
            found = there.get((row["batch"], row["attribute"])) or there[row["batch"], WHOLE_ROWS]
            row |= {"offered_values": found.offered, "source_values": found.held, "lost_values": found.lost}
        if rows and not dry_run:
            certificates.replace(rows, stream=stream, batch=known)
        if rows:
            yield len(rows)


def _bounds_before(tables: Tables, dry_run: bool) -> Iterator[tuple[str, int]]:
    """Yield tables of recovered rows with the number of rows that have an infinite bound of a value that is present.

    Before version 3, a value without a relative bound had an infinite bound in per cent. Since then, infinity means
    absent. The bound in the attribute's own unit was not stored; `spillway.read` returns it.
    """
    for stream in list_folders(f"{tables.settings.destination}/recovered"):
        table = tables.at("recovered", stream)
        names = [one.name for one in table.schema]
        pairs = [
            (bounded_attribute(name), name)
            for name in names
            if name.endswith(BOUND_SUFFIX) and bounded_attribute(name) in names
        ]
        bounded = [name for pair in pairs for name in pair]
        count = correct_rows(table, bounded, partial(_with_nan, pairs=pairs), dry_run) if pairs else 0
        if count:
            yield f"recovered/{stream}", count


def _with_nan(rows: pa.Table, pairs: Sequence[tuple[str, str]]) -> tuple[pa.Table, int]:
    """Return the rows with NaN for each infinite bound of a value that is present, and the number of changed rows."""
    wrong = pa.array(np.zeros(rows.num_rows, np.bool_))
    for name, bound in pairs:
        here = pc.and_(rows[name].is_valid(), pc.fill_null(pc.is_inf(rows[bound]), False))
        if pc.any(here).as_py():
            place = rows.column_names.index(bound)
            rows = rows.set_column(place, rows.field(place), pc.if_else(here, math.nan, rows[bound]))
            wrong = pc.or_(wrong, here)
    return rows, int(pc.sum(wrong).as_py() or 0)


def _validated_before(tables: Tables) -> dict[str, list[Batch]]:
    """Return, by stream, the batches that were validated before `batches` had that column, marked as validated.

    They are the batches that were certified since they last changed. Without this, the next night would validate all
    old batches again.
    """
    unmarked = tables.at("batches").rows(["stream", "batch", "validated_revision"], status=[DONE, RETIRED])
    waiting = unmarked.filter(pc.is_null(unmarked["validated_revision"]))
    numbers = {
        stream: waiting["batch"].filter(pc.equal(waiting["stream"], stream)).to_pylist()
        for stream in waiting["stream"].unique().to_pylist()
    }
    outcomes = _outcomes(tables) if numbers else []
    found: dict[str, list[Batch]] = {}
    for stream, mine in numbers.items():
        certified: dict[int, datetime] = {}
        where = {"stream": stream, "batch": mine}
        for row in tables.at("certificates").rows(["batch", "created_at"], **where).to_pylist():
            at = certified.get(row["batch"], row["created_at"])
            certified[row["batch"]] = max(row["created_at"], at)
        held = [
            replace(batch, validated_revision=batch.revision)
            for batch in load_batches(tables, stream, batch=sorted(certified))
            if _held_since(batch, certified[batch.batch], outcomes)
        ]
        found |= {stream: held} if held else {}
    return found


def _outcomes(tables: Tables) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (
        tables.at("validations").rows(["stream", "batch_date", "success", "validated_at"]).to_pylist()
    )
    return found


def _held_since(batch: Batch, at: datetime, outcomes: list[dict[str, Any]]) -> bool:
    mine = [
        row["success"]
        for row in outcomes
        if row["validated_at"] >= at
        and row["stream"] in (None, "", batch.stream)
        and row["batch_date"] in (None, batch.batch_date)
    ]
    return at >= batch.updated_at and bool(mine) and all(mine)

"""Judging: every expectation suite over what changed, the outcomes written, what failed noted."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from spillway.batch import Batch
from spillway.checks import ExpectationsFailed, Outcome, StoredRows, failures, run_suites
from spillway.checks.views import types_of
from spillway.clock import utc_now
from spillway.contracts import Contracts, StreamContract
from spillway.engine.protocol import Engine
from spillway.levers.protocol import Say
from spillway.levers.windows import Window
from spillway.pipeline.drafting import added_columns
from spillway.pipeline.facts import newest_facts
from spillway.pipeline.faults import Faults
from spillway.pipeline.judged_windows import tables_of_windows
from spillway.pipeline.train import edge_of
from spillway.registry import lever
from spillway.store.tables import Between, Tables


def judge_changed(
    tables: Tables,
    engine: Engine,
    contracts: Contracts,
    work: Mapping[str, Sequence[Batch]],
    windows: Mapping[str, Sequence[Window]],
    run_id: str,
    say: Say,
    faults: Faults,
) -> list[Outcome]:
    """Run every suite over the batches and windows that changed, write the outcomes, note those that failed."""
    started, now = time.monotonic(), utc_now()
    streams = {stream: contracts.streams[stream] for stream in work}
    added = {stream: added_columns(contract) for stream, contract in streams.items()}
    judged = _judged_tables(tables, streams, work) if work else {}
    looked_at = partial(_window_tables, tables, contracts, windows)
    for mine in faults.each("examine", windows, looked_at).values():
        for name, part in mine.items():
            judged[name] = pa.concat_tables([judged[name], part]) if name in judged else part
    outcomes = run_suites(engine, judged, streams, tables.settings, added=added, run_id=run_id)
    for stream, contract in streams.items():
        for found in _noticed(tables, contract, work[stream]):
            say(found.sentence)
            outcomes.append(found)
    rows = [outcome.row(run_id, now) for outcome in outcomes]
    # what was said of others in this run stays: a run may judge channel by channel
    whose = [*work, *windows, None]
    seen = {row["table"] for row in rows}
    tables.at("validations").replace(rows, table=sorted(seen), run_id=run_id, stream=whose)
    failed = failures(outcomes)
    rules = {(o.table, o.expectation) for o in outcomes}
    took = time.monotonic() - started
    say(f"{len(rules)} expectations on {len(seen)} tables, {len(failed)} failed, in {took:.1f} s")
    if failed:
        faults.note("", "judge", ExpectationsFailed(failed))
    return outcomes


def _window_tables(
    tables: Tables, contracts: Contracts, windows: Mapping[str, Sequence[Window]], subject: str
) -> dict[str, Any]:
    return tables_of_windows(tables, contracts, subject, windows[subject])


def _judged_tables(
    tables: Tables, streams: Mapping[str, StreamContract], work: Mapping[str, Sequence[Batch]]
) -> dict[str, Any]:
    """What suites may read: the shared tables' rows of the batches, and where the streams' own rows lie."""
    found: dict[str, Any] = {}
    numbers = sorted({batch.batch for batches in work.values() for batch in batches})
    since = min(batch.updated_at for batches in work.values() for batch in batches)
    for name, contract in tables.contracts.items():
        if "window" in contract.names:
            continue  # of joins and queries, judged by window: `tables_of_windows`
        table = tables.at(name) if contract.scope == "shared" else None
        if table is None:
            for stream in streams:
                kept = kept_columns(tables, streams[stream], work[stream])
                own = tables.at(name, stream)
                if own.exists:
                    days = sorted({batch.batch_date for batch in work[stream]})
                    mine = [batch.batch for batch in work[stream]]
                    files = own.files(batch_date=days, batch=mine)
                    types = types_of(own.schema)
                    summed = tuple(column for column in kept if column in types)
                    found[f"{name}/{stream}"] = StoredRows(types, tuple(files), frozenset(mine), summed)
        elif table.exists:
            columns = contract.names
            where: dict[str, Any] = {}
            of = next((column for column in ("stream", "subject") if column in columns), None)
            if of is not None and contract.curated and name != "validations":
                where[of] = list(work)
            if where and "batch" in columns:
                where["batch"] = numbers
            if name == "models":
                # what these were shed with, and what the next ones will be
                where["version"] = _versions(tables, work)
            if name == "validations":
                where = {"validated_at": Between(since), "stream": [*work, None]}
            if contract.curated:
                rows = table.rows(**where)
                found[name] = _of_these(rows, of, work) if of and "batch" in where else rows
    return found


def _of_these(rows: pa.Table, of: str, work: Mapping[str, Sequence[Batch]]) -> pa.Table:
    """The rows of these batches: numbers alone would take another stream's old batch of the same number."""
    changed = {(stream, batch.batch) for stream, batches in work.items() for batch in batches}
    pairs = zip(rows[of].to_pylist(), rows["batch"].to_pylist(), strict=True)
    return rows.filter(pa.array([pair in changed for pair in pairs], pa.bool_()))


def kept_columns(tables: Tables, contract: StreamContract, batches: Sequence[Batch]) -> list[str]:
    """The attributes that are as they came in at least one of the batches: what certificates do not speak of."""
    rows = tables.at("certificates").rows(
        ["batch", "attribute", "shed_values", "rounded_values"],
        stream=contract.stream,
        batch=[batch.batch for batch in batches],
    )
    touched: dict[str, set[int]] = {}
    for row in rows.to_pylist():
        if row["shed_values"] or row["rounded_values"]:
            touched.setdefault(row["attribute"], set()).add(row["batch"])
    return [name for name in contract.names if len(touched.get(name, ())) < len(batches)]


def _versions(tables: Tables, work: Mapping[str, Sequence[Batch]]) -> list[int]:
    """The versions of facts that batches were shed with, and all that came later."""
    used = {version for batches in work.values() for batch in batches for version in batch.models.values()}
    newest = tables.at("models").rows(["version"], stream=list(work))["version"]
    return (
        sorted(used | set(pc.unique(newest.filter(pc.greater_equal(newest, max(used)))).to_pylist()))
        if used
        else []
    )


def _noticed(tables: Tables, contract: StreamContract, batches: Sequence[Batch]) -> Iterator[Outcome]:
    """What the newest of these batches says of the facts in force; reported, never a failure."""
    edge = edge_of(tables, contract.stream, batches[-1:])
    for name in contract.lever_names:
        facts = newest_facts(tables, contract.stream, name)
        for one in lever(name).noticed(contract, facts, edge) if facts is not None else ():
            yield Outcome(
                "models",
                contract.stream,
                None,
                one.rule,
                True,
                one.observed,
                one.expected,
                contract.stream,
                one.sentence,
                True,
            )

"""Validating: recover what changed, certify it against raw, run the expectation suites, retire, report.

Only batches that were shed since they were last certified are recovered and validated, in one application. A failed
expectation fails the run with a sentence; only what passed may be retired.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any

from spillway.checks import ExpectationsFailed, Outcome, StoredRows, failures, run_suites
from spillway.checks.views import types_of
from spillway.contracts import Contracts, StreamContract
from spillway.job import side_by_side
from spillway.levers.attributes.attempt import framing_of, synopsis_bytes
from spillway.levers.attributes.drift import drift_outcomes
from spillway.levers.attributes.frame_plan import FrameTask
from spillway.levers.attributes.plan import certificates
from spillway.levers.attributes.planner import STRETCH
from spillway.levers.attributes.scheme import Runs
from spillway.pipeline.recover import Plan, recover_batches, recovery_plan
from spillway.settings import Settings
from spillway.store.batches import DONE, RETIRED, Batch, load_batches, save_batches, utc_now
from spillway.store.files import column_bytes, read_table
from spillway.store.ledger import LedgerRow, write_ledger
from spillway.store.rows import stream_files
from spillway.store.table_contracts import table_contracts
from spillway.store.tables import Lake, table_path, where

Say = Callable[[str], None]


def changed_batches(settings: Settings, stream: str, every: bool = False) -> list[Batch]:
    """Shed batches without a certificate as new as they are that every expectation held for; or all, with `every`.

    A run that failed, or died before it judged, leaves certificates: what it left is looked at again.
    """
    done = [batch for batch in load_batches(settings, stream) if batch.status == DONE and batch.rows]
    if every:
        return done
    path = table_path(settings, table_contracts(settings.schemas)["certificates"])
    table = read_table(path, ["batch", "created_at"], [("stream", "=", stream)])
    certified: dict[int, Any] = {}
    for row in table.to_pylist() if table is not None else []:
        certified[row["batch"]] = max(row["created_at"], certified.get(row["batch"], row["created_at"]))
    judged = _judged(settings, stream, min(certified.values())) if certified else []
    return [b for b in done if not (b.batch in certified and _holds(b, certified[b.batch], judged))]


def _judged(settings: Settings, stream: str, since: datetime) -> list[dict[str, Any]]:
    path = table_path(settings, table_contracts(settings.schemas)["validations"])
    columns = ["stream", "batch_date", "success", "validated_at"]
    table = read_table(path, columns, [("validated_at", ">=", since)])
    rows: list[dict[str, Any]] = table.to_pylist() if table is not None else []
    return [row for row in rows if row["stream"] == stream or not row["stream"]]


def _holds(batch: Batch, certified_at: datetime, judged: Sequence[dict[str, Any]]) -> bool:
    """Whether the batch's certificate is of what it is now, and all that was judged since holds for its date."""
    since = [row for row in judged if row["validated_at"] >= certified_at]
    mine = [row["success"] for row in since if row["batch_date"] in (None, batch.batch_date)]
    return certified_at >= batch.updated_at and bool(mine) and all(mine)


def validate(
    lake: Lake,
    contracts: Contracts,
    run_id: str,
    say: Say = lambda _: None,
    streams: Sequence[str] | None = None,
    every: bool = False,
) -> list[Outcome]:
    """Recover, certify and validate what changed; returns the outcomes, or raises with the sentences of what failed."""
    chosen = [contracts.stream(name) for name in (streams or contracts.streams)]
    work = {one.stream: changed_batches(lake.settings, one.stream, every) for one in chosen}
    work = {stream: batches for stream, batches in work.items() if batches}
    if not work:
        say("nothing was shed since the last validation")
        outcomes: list[Outcome] = []
    else:

        def recover_and_certify(stream: str) -> None:
            started = time.monotonic()
            recover_batches(lake, contracts.streams[stream], work[stream])
            say(f"{stream}: recovered {len(work[stream])} batches in {time.monotonic() - started:.1f} s")
            _certify(lake, contracts.streams[stream], work[stream], say)

        side_by_side(recover_and_certify, list(work))
        outcomes = _judge(lake, contracts, work, run_id, say)
    for contract in chosen:
        retire(lake, contract, say)
    return outcomes


def _certify(lake: Lake, contract: StreamContract, batches: Sequence[Batch], say: Say) -> None:
    """Measure every shed and rounded value against raw, and write the certificates."""
    stream, settings = contract.stream, lake.settings
    plan = recovery_plan(settings, contract, None, batches)
    numbers = [batch.batch for batch in batches]
    bounds = {
        batch.batch: {
            name: model.error_pct for name, model in plan.trained[batch.models["attributes"]].models.items()
        }
        for batch in batches
    }
    tasks = [
        FrameTask(framing_of(batch), low, low, min(low + STRETCH - 1, batch.last_seq))
        for batch in batches
        for low in range(batch.first_seq, batch.last_seq + 1, STRETCH)
    ]
    measured = certificates(
        lake.spark,
        tasks,
        stream_files(settings, "raw", stream, batches),
        stream_files(settings, "recovered", stream, batches),
        plan.recovery.runs,
        bounds,
    ).collect()
    rows = list(_certificate_rows(settings, contract, batches, plan, bounds, measured))
    lake.replace_rows("certificates", rows, where(stream=stream, batch=numbers))
    touched = [row for row in rows if row["shed_values"] or row["rounded_values"]]
    values = sum(row["shed_values"] + row["rounded_values"] for row in touched)
    mean = sum(row["mean_error_pct"] * (row["shed_values"] + row["rounded_values"]) for row in touched)
    violations = sum(row["violations"] for row in touched)
    say(
        f"{stream}: certified {values:,} shed or rounded values: {violations} outside their threshold, "
        f"accuracy {100 - mean / max(1, values):.2f} %"
    )


def _certificate_rows(
    settings: Settings,
    contract: StreamContract,
    batches: Sequence[Batch],
    plan: Plan,
    bounds: Any,
    measured: Any,
) -> Any:
    stored = _stored(settings, contract.stream, [batch.batch for batch in batches])
    spent = synopsis_bytes(settings, contract.stream, [batch.batch for batch in batches])
    now = utc_now()
    for batch in batches:
        names = list(bounds[batch.batch])
        before = column_bytes(stream_files(settings, "raw", contract.stream, [batch]), names)
        after = column_bytes(stream_files(settings, "transmitted", contract.stream, [batch]), names)
        runs = plan.recovery.runs.within(batch.first_seq, batch.last_seq)
        for name in names:
            parts = [row for row in measured if row["batch"] == batch.batch and row["attribute"] == name]
            shed = sum(row["shed_values"] for row in parts)
            rounded = sum(row["rounded_values"] for row in parts)
            # a row that only one side has is a violation of every attribute's promise
            violations = sum(row["violations"] + row["strays"] for row in parts)
            worst = max((row["max_error_pct"] for row in parts), default=0.0)
            bound = bounds[batch.batch][name]
            entries = stored.get((batch.batch, name), 0)
            yield {
                "stream": contract.stream,
                "batch": batch.batch,
                "batch_date": batch.batch_date,
                "attribute": name,
                "way": _ways(runs, name),
                "error_pct": bound,
                "shed_values": shed,
                "rounded_values": rounded,
                "stored_values": entries,
                "stored_share_pct": 100.0 * entries / shed if shed else None,
                "max_error_pct": worst if shed + rounded else None,
                "mean_error_pct": sum(r["sum_error_pct"] for r in parts) / (shed + rounded)
                if shed + rounded
                else None,
                "worst_over_threshold": _over(worst, bound) if shed + rounded else None,
                "violations": violations,
                "column_bytes": before[name],
                "wire_bytes": after[name],
                "synopsis_bytes": spent.get((batch.batch, name), 0),
                "created_at": now,
            }


def _over(worst: float, bound: float) -> float:
    if worst == 0:
        return 0.0
    return worst / bound if bound else float("inf")


def _ways(runs: Runs, name: str) -> str:
    found = {way.way for run in runs for way in run.ways if way.attribute == name}
    return "+".join(way for way in ("shed", "round", "keep") if way in found) or "keep"


def _stored(settings: Settings, stream: str, batches: Sequence[int]) -> dict[tuple[int, str], int]:
    path = table_path(settings, table_contracts(settings.schemas)["synopsis"])
    filters = [("stream", "=", stream), ("batch", "in", list(batches))]
    table = read_table(path, ["batch", "attribute", "entries"], filters)
    found: dict[tuple[int, str], int] = {}
    for row in table.to_pylist() if table is not None else []:
        place = (row["batch"], row["attribute"])
        found[place] = found.get(place, 0) + row["entries"]
    return found


def _judge(
    lake: Lake, contracts: Contracts, work: dict[str, list[Batch]], run_id: str, say: Say
) -> list[Outcome]:
    """Run every suite over what changed, write the outcomes, raise when one failed."""
    numbers = {stream: [batch.batch for batch in batches] for stream, batches in work.items()}
    of_work = " OR ".join(f"({where(stream=stream, batch=found)})" for stream, found in numbers.items())
    tables: dict[str, Any] = {"synopsis": lake.read("synopsis", predicate=of_work)}
    changed = [[("stream", "=", stream), ("batch", "in", found)] for stream, found in numbers.items()]
    for table in ("batches", "schemes", "certificates", "ledger"):
        tables[table] = read_table(lake.path(table), filters=changed)
    for table in ("models", "sketches"):
        tables[table] = read_table(lake.path(table), filters=[("stream", "in", list(work))])
    tables["validations"] = read_table(lake.path("validations"))
    tables = {name: table for name, table in tables.items() if table is not None}
    for stream, batches in work.items():
        for table in ("raw", "transmitted", "recovered"):
            tables[f"{table}/{stream}"] = StoredRows(
                types_of(lake.read(table, stream)),
                tuple(stream_files(lake.settings, table, stream, batches)),
                frozenset(numbers[stream]),
            )
    started = time.monotonic()
    streams = {stream: contracts.streams[stream] for stream in work}
    outcomes = run_suites(lake.spark, tables, streams, lake.settings)
    for stream, batches in work.items():
        for found in drift_outcomes(lake.settings, contracts.streams[stream], batches):
            say(found.sentence)
            outcomes.append(found)
    now = utc_now()
    rows = [outcome.row(run_id, now) for outcome in outcomes]
    lake.replace_rows("validations", rows, where(table={row["table"] for row in rows}, run_id=run_id))
    failed = failures(outcomes)
    rules, judged = {(o.table, o.expectation) for o in outcomes}, {o.table for o in outcomes}
    took = time.monotonic() - started
    say(f"{len(rules)} expectations on {len(judged)} tables, {len(failed)} failed, in {took:.1f} s")
    if failed:
        raise ExpectationsFailed(failed)
    return outcomes


def retire(lake: Lake, contract: StreamContract, say: Say) -> list[Batch]:
    """Delete raw dates older than `retain_raw` whose recovery was validated, if the contract says so; no others."""
    if not contract.retain_raw.retire:
        return []
    limit = utc_now().date() - timedelta(days=contract.retain_raw.days)
    every = load_batches(lake.settings, contract.stream)
    waiting = {batch.batch for batch in changed_batches(lake.settings, contract.stream)}
    good = _without_violations(lake.settings, contract.stream)
    gone: list[Batch] = []
    for day in sorted({batch.batch_date for batch in every if batch.batch_date < limit}):
        dated = [batch for batch in every if batch.batch_date == day]
        if all(b.status == RETIRED for b in dated):
            continue
        ready = all(b.status in (DONE, RETIRED) and b.batch not in waiting for b in dated)
        if ready and all(b.batch in good or b.status == RETIRED or not b.rows for b in dated):
            gone += [batch for batch in dated if batch.status == DONE]
    freed = {batch.batch: _raw_bytes(lake.settings, batch) for batch in gone}
    if gone:
        ledger = [
            LedgerRow(
                batch.stream,
                batch.batch,
                batch.batch_date,
                "retire",
                "raw was deleted after validation",
                batch.rows or 0,
                shed=batch.rows or 0,
                recoverable=batch.rows or 0,
                bytes_offered=freed[batch.batch],
            )
            for batch in gone
        ]
        write_ledger(lake, contract.stream, [batch.batch for batch in gone], "retire", ledger)
        now = utc_now()
        # known as retired before they are: a backfill of tuples that are gone would send nothing in their place
        save_batches(lake, [batch.becomes(now, status=RETIRED) for batch in gone])
    _delete_retired(lake, contract.stream)
    if not gone:
        return []
    days = {str(batch.batch_date) for batch in gone}
    say(f"{contract.stream}: retired raw of {', '.join(sorted(days))}: {sum(freed.values()):,} bytes")
    return gone


def _delete_retired(lake: Lake, stream: str) -> None:
    """Delete raw tuples of retired batches, those of a run that died before it could included."""
    retired = [batch for batch in load_batches(lake.settings, stream) if batch.status == RETIRED]
    left = [batch for batch in retired if stream_files(lake.settings, "raw", stream, [batch])]
    if left:
        days = {str(batch.batch_date) for batch in left}
        lake.delete("raw", where(batch_date=days, batch=[batch.batch for batch in left]), stream)
        lake.vacuum("raw", stream)


def _raw_bytes(settings: Settings, batch: Batch) -> int:
    return sum(file.size for file in stream_files(settings, "raw", batch.stream, [batch]))


def _without_violations(settings: Settings, stream: str) -> set[int]:
    path = table_path(settings, table_contracts(settings.schemas)["certificates"])
    table = read_table(path, ["batch", "violations"], [("stream", "=", stream)])
    rows = table.to_pylist() if table is not None else []
    bad = {row["batch"] for row in rows if row["violations"]}
    return {row["batch"] for row in rows} - bad

"""Taking in: landing files to `raw`, exactly once, every tuple numbered, every defect kept by name.

Structured Streaming (`availableNow`, file source) says which files are new since its checkpoint; the table
`batches` knows every file ever taken in, so a lost checkpoint re-reads nothing twice, and a digest seen before
is skipped under whatever name it comes. A batch is recorded (files in fixed order, seq numbers set aside)
before any row of it is written; whoever finds it merely recorded writes the same rows again.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, date, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs as pafs

from spillway.contracts import StreamContract
from spillway.errors import SpillwayError
from spillway.intake.landing import (
    Seen,
    batch_date_of,
    content_of,
    digests_of,
    empty_files,
    landing_root,
    name_of,
    path_of,
    plain_path,
)
from spillway.intake.repeats import DELIVERED_BEFORE, Repeated, drop_repeated, find_repeated, kept_aside
from spillway.records import parse_records
from spillway.store.batches import RECORDED, TAKEN_IN, Batch, LandingFile, load_batches, save_batches, utc_now
from spillway.store.driver_writes import ConcurrentRun
from spillway.store.files import as_date, column_bytes, data_files, open_filesystem, read_rows, read_table
from spillway.store.ledger import LedgerRow, write_ledger
from spillway.store.tables import Lake, union, where

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

BINARY_FILES = "path string, modificationTime timestamp, length bigint, content binary"
TASK_BYTES = 32 * 1024 * 1024
PARTS_OF_A_DEFECT = ("file", "line", "field", "rule", "value", "remedy", "reason", "original")
ASIDE = "__"
"""What marks a defect's columns among those of a stream, which may have a `value` or a `reason` of its own."""
CONCURRENT_QUERY = re.compile(
    r"CONCURRENT_STREAM_LOG_UPDATE|CONCURRENT_QUERY|multiple streaming queries are concurrently|"
    r"Concurrent update to the log|another query with same id is already active",
    re.I,
)


def take_in(
    lake: Lake, contract: StreamContract, run_id: str, say: Callable[[str], None] = lambda _: None
) -> list[Batch]:
    """Take in whatever is new of the stream; returns the batches this call wrote, oldest first."""
    stream = contract.stream
    root = landing_root(contract, lake.settings.landing)
    written = _write(
        lake, contract, [b for b in load_batches(lake.settings, stream) if b.status == RECORDED], say
    )
    filesystem, path = open_filesystem(root)
    if filesystem.get_file_info(path).type == pafs.FileType.NotFound:
        say(f"{stream}: nothing to take in, there is no {root} yet")
        return written
    empty = empty_files(filesystem, path, root)
    failure: list[Exception] = []

    def on_files(files: DataFrame, _epoch: int) -> None:
        try:
            rows = files.select("path", "length", "modificationTime").collect()
            seen = [Seen(plain_path(r[0]), int(r[1]), r[2].astimezone(UTC)) for r in rows]
            recorded = _record(lake, contract, [*seen, *empty], run_id)
            written.extend(_write(lake, contract, recorded, say))
        except Exception as problem:
            failure.append(problem)
            raise

    spark = lake.spark
    source = spark.readStream.format("binaryFile").schema(BINARY_FILES).option("recursiveFileLookup", "true")
    new_files = source.option("maxFileAge", "36500d").load(root).select("path", "length", "modificationTime")
    writer = new_files.writeStream.foreachBatch(on_files).trigger(availableNow=True)
    try:
        writer.option(
            "checkpointLocation", f"{lake.settings.lake}/_checkpoints/{stream}"
        ).start().awaitTermination()
    except Exception as problem:
        if failure:
            raise failure[0] from None
        if CONCURRENT_QUERY.search(str(problem)):
            raise ConcurrentRun(
                f"{stream}: another run is taking in at the same time; nothing was doubled, run it again"
            ) from problem
        raise
    # where only empty files are new, no micro-batch has seen them
    written.extend(_write(lake, contract, _record(lake, contract, empty, run_id), say))
    return sorted(written, key=lambda batch: batch.batch)


def _record(lake: Lake, contract: StreamContract, seen: Sequence[Seen], run_id: str) -> list[Batch]:
    """Record the new files among `seen` as batches, one a batch date, before anything of them is written."""
    stream = contract.stream
    known = load_batches(lake.settings, stream)
    names = {file.name for batch in known for file in batch.files}
    digests = {file.digest for batch in known for file in batch.files if file.status == "taken"}
    fresh = sorted(
        ((name_of(lake, file.path), file) for file in seen if name_of(lake, file.path) not in names),
        key=lambda x: x[0],
    )
    if not fresh:
        return []
    measured = digests_of(lake, contract, [file.path for _, file in fresh])
    now = utc_now()
    by_date: dict[date, list[tuple[str, Seen]]] = {}
    for name, file in fresh:
        by_date.setdefault(batch_date_of(name, now.date()), []).append((name, file))
    number = max((batch.batch for batch in known), default=0)
    seq = max((batch.last_seq for batch in known), default=-1) + 1
    arrived = max((f.modified_at for b in known for f in b.files if f.modified_at), default=None)
    batches = []
    for batch_date in sorted(by_date):
        number += 1
        first_seq = seq
        files = []
        for name, file in by_date[batch_date]:
            digest, records = measured[file.path]
            again = digest in digests and contract.duplicates.files == "skip"
            status = "empty" if not records else "duplicate" if again else "taken"
            # record n has seq base + n, and n starts at 1
            files.append(LandingFile(name, file.size, digest, records, seq - 1, status, file.modified_at))
            if status == "taken":
                digests.add(digest)
                seq += records
        batches.append(
            Batch(
                stream,
                number,
                batch_date,
                RECORDED,
                tuple(files),
                first_seq,
                seq - 1,
                run_id,
                now,
                now,
                seconds_covered=_arrival_seconds([f for _, f in by_date[batch_date]], arrived),
            )
        )
        arrived = max(f.modified_at for _, f in by_date[batch_date])
    save_batches(lake, batches)
    return batches


def _arrival_seconds(files: Sequence[Seen], arrived: datetime | None) -> float | None:
    """Seconds since the last arrival before these files, or across them; None where one moment is all we know."""
    last = max(file.modified_at for file in files)
    first = arrived if arrived is not None else min(file.modified_at for file in files)
    return (last - first).total_seconds() or None


def _write(
    lake: Lake, contract: StreamContract, batches: Sequence[Batch], say: Callable[[str], None]
) -> list[Batch]:
    """Write `raw`, `rejected` and the ledger's first stage of recorded batches; all are replaced, never added to."""
    if not batches:
        return []
    from pyspark.sql import Observation
    from pyspark.sql import functions as sql

    stream = contract.stream
    numbers = [batch.batch for batch in batches]
    attributes = [(a.name, a.type) for a in contract.attributes]
    parsed = _parsed(lake, contract, batches)
    seen = Observation(f"taken in of {stream}")
    counts = []
    for number in numbers:
        here = sql.col("batch") == number
        counts.append(sql.count_if(here & sql.col(ASIDE + "reason").isNull()).alias(f"kept_{number}"))
        counts.append(sql.count_if(here & sql.col(ASIDE + "reason").isNotNull()).alias(f"rejected_{number}"))
    good = parsed.observe(seen, *counts).where(f"{ASIDE}reason IS NULL")
    good = good.drop(*(ASIDE + name for name in PARTS_OF_A_DEFECT))
    dates = sorted({str(batch.batch_date) for batch in batches})
    predicate = where(batch_date=dates, batch=numbers)
    lake.replace(good, "raw", predicate, stream=stream, attributes=attributes)
    count = seen.get
    repeated = {one.batch.batch: one for one in find_repeated(lake, contract, batches)}
    defect = [sql.col(ASIDE + name).alias(name) for name in PARTS_OF_A_DEFECT]
    bad = parsed.where(f"{ASIDE}reason IS NOT NULL").select(
        sql.lit(stream).alias("stream"), "batch", "batch_date", "seq", *defect
    )
    bad = union([bad, *(kept_aside(lake, contract, one) for one in repeated.values() if one.rows)])
    reasons: dict[int, dict[str, int]] = {}
    if any(count[f"rejected_{number}"] for number in numbers) or any(one.rows for one in repeated.values()):
        mine = where(stream=stream, batch=numbers)
        lake.replace(bad, "rejected", mine)
        found = read_table(
            lake.path("rejected"),
            ["batch", "field", "rule", "reason"],
            [("stream", "=", stream), ("batch", "in", numbers)],
        )
        for row in found.to_pylist() if found is not None else []:
            if row["reason"] == DELIVERED_BEFORE:
                continue
            reason = f"{row['field'] or 'record'} must {row['rule']}"
            counts_of = reasons.setdefault(row["batch"], {})
            counts_of[reason] = counts_of.get(reason, 0) + 1
    elif lake.exists("rejected"):
        lake.delete("rejected", where(stream=stream, batch=numbers))
    drop_repeated(lake, contract, list(repeated.values()))
    now = utc_now()
    widths = _raw_bytes(lake, contract, numbers)
    ledger: list[LedgerRow] = []
    done = []
    for batch in batches:
        again = repeated.get(batch.batch)
        rows = int(count[f"kept_{batch.batch}"]) - (again.rows if again else 0)
        rejected = int(count[f"rejected_{batch.batch}"])
        _refuse_too_many(contract, batch, rows, rejected)
        deduplicated = sum(file.records for file in batch.files if file.status == "duplicate")
        ledger += _intake_ledger(
            batch, rows, reasons.get(batch.batch, {}), deduplicated, widths.get(batch.batch, 0), again
        )
        deduplicated += again.rows if again else 0
        seconds = _seconds_covered(lake, contract, batch, rows)
        done.append(
            batch.becomes(
                now,
                status=TAKEN_IN,
                rows=rows,
                rejected=rejected,
                deduplicated=deduplicated,
                seconds_covered=seconds,
            )
        )
        parts = [f"{rows:,} tuples"]
        parts += [f"{rejected:,} refused (see rejected)"] * bool(rejected)
        parts += [f"{deduplicated:,} delivered before"] * bool(deduplicated)
        say(f"{stream}: took in batch {batch.batch} of {batch.batch_date}: {', '.join(parts)}")
    write_ledger(lake, stream, numbers, "ingest", ledger)
    save_batches(lake, done)
    return done


def _parsed(lake: Lake, contract: StreamContract, batches: Sequence[Batch]) -> DataFrame:
    """Every record of the batches' files: attributes where it is good, the defect where it is not."""
    groups = _tasks([(batch, file) for batch in batches for file in batch.taken])
    landing = lake.settings.landing
    raw = lake.contract("raw", [(a.name, a.type) for a in contract.attributes])
    kinds = {"line": "bigint", "original": "binary"}
    defect = [f"`{ASIDE}{name}` {kinds.get(name, 'string')}" for name in PARTS_OF_A_DEFECT]
    schema = ", ".join([*(f"`{c.name}` {c.type}" for c in raw.columns), *defect])
    target = _arrow_schema(contract)

    def parse(rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for row in rows:
            for index in row.column(0).to_pylist():
                for batch, file in groups[index]:
                    content = content_of(path_of(landing, file.name))
                    if hashlib.sha256(content).hexdigest() != file.digest:
                        raise SpillwayError(
                            f"{file.name}: a landing file must not change once it is recorded, its digest did; "
                            "deliver the change as a new file"
                        )
                    found = parse_records(contract, file.name, content)
                    yield from _numbered(found, batch, file, target)

    return lake.spark.range(0, len(groups), 1, max(1, len(groups))).mapInArrow(parse, schema)


def _numbered(parsed: Any, batch: Batch, file: LandingFile, target: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The parsed records of a file in the columns of `_parsed`."""
    for part in (parsed.table, parsed.rejected):
        if not part.num_rows:
            continue
        line = part["line"].cast(pa.int64())
        # line 0 is the whole file: no tuple, no number
        seq = pc.if_else(pc.equal(line, 0), None, pc.add(line, file.base_seq))
        extra = {
            "seq": seq,
            "batch": pa.array([batch.batch] * part.num_rows, pa.int64()),
            "batch_date": pa.array([batch.batch_date] * part.num_rows, pa.date32()),
        }
        if part is parsed.rejected:
            extra |= {ASIDE + name: part[name] for name in PARTS_OF_A_DEFECT if name in part.column_names}
            extra[ASIDE + "file"] = pa.array([file.name] * part.num_rows)
        else:
            extra |= {name: part[name] for name in part.column_names if name != "line"}
        arrays = []
        for item in target:
            if item.name in extra:
                arrays.append(extra[item.name].cast(item.type))
            else:
                arrays.append(pa.nulls(part.num_rows, item.type))
        yield from pa.table(arrays, schema=target).to_batches(max_chunksize=65536)


def _arrow_schema(contract: StreamContract) -> pa.Schema:
    numbered = [("seq", pa.int64()), ("batch", pa.int64()), ("batch_date", pa.date32())]
    kinds = {"line": pa.int64(), "original": pa.binary()}
    defect = [(ASIDE + name, kinds.get(name, pa.string())) for name in PARTS_OF_A_DEFECT]
    return pa.schema([*numbered, *((a.name, a.arrow_type) for a in contract.attributes), *defect])


def _tasks(files: Sequence[tuple[Batch, LandingFile]]) -> list[list[tuple[Batch, LandingFile]]]:
    """Consecutive files in groups of about `TASK_BYTES`, never across a batch, so that rows lie in seq order."""
    groups: list[list[tuple[Batch, LandingFile]]] = []
    size = 0
    for batch, file in files:
        if not groups or size + file.size > TASK_BYTES or groups[-1][0][0].batch != batch.batch:
            groups.append([])
            size = 0
        groups[-1].append((batch, file))
        size += file.size
    return groups


def _intake_ledger(
    batch: Batch,
    rows: int,
    reasons: dict[str, int],
    deduplicated: int,
    raw_bytes: int,
    again: Repeated | None,
) -> Iterable[LedgerRow]:
    landed = sum(file.size for file in batch.taken)
    line = partial(LedgerRow, batch.stream, batch.batch, batch.batch_date, "ingest")
    yield line(reason="taken in", offered=rows, kept=rows, bytes_offered=landed, bytes_kept=raw_bytes)
    for reason, count in sorted(reasons.items()):
        yield line(reason=reason, offered=count, rejected=count)
    if deduplicated:
        yield line(reason="file delivered before", offered=deduplicated, deduplicated=deduplicated)
    if again is not None:
        yield line(reason=again.reason, offered=again.rows, deduplicated=again.rows)


def _refuse_too_many(contract: StreamContract, batch: Batch, rows: int, rejected: int) -> None:
    limit = 0.0 if contract.bad_records.action == "fail" else contract.bad_records.max_share_pct
    share = 100.0 * rejected / max(1, rows + rejected)
    if rejected and share > limit:
        raise SpillwayError(
            f"{batch.stream}: batch {batch.batch} must have at most {limit:g} % bad records "
            f"(bad_records in the contract), got {share:.2f} % ({rejected:,} of {rows + rejected:,}); they are in "
            "`rejected` with file, line and reason: mend the source, or raise bad_records.max_share_pct"
        )


def _seconds_covered(lake: Lake, contract: StreamContract, batch: Batch, rows: int) -> float | None:
    """The time the batch took to arrive: by declared line rate, by event time, or by the files' arrival."""
    if contract.rate.from_ == "declared":
        return rows / float(contract.rate.tuples_per_second or 1.0)
    if contract.rate.from_ == "arrival":
        return batch.seconds_covered
    lows, highs, moments = [], [], 0
    for file in data_files(lake.path("raw", contract.stream)):
        if as_date(file.value("batch_date")) == batch.batch_date and file.low("batch") == batch.batch:
            order = read_rows([file], [contract.order], batch.first_seq, batch.last_seq)[contract.order]
            kind = contract.attribute(contract.order).type
            order = order if kind == "integer" else order.cast(pa.timestamp("us"))
            order = order.cast(pa.int64())
            edges = pc.min_max(order).as_py()
            lows.append(edges["min"])
            highs.append(edges["max"])
            # a moment that two files share counts twice: one in thousands
            moments += int(pc.count_distinct(order).as_py())
    if moments < 2 or min(lows) == max(highs):
        return None
    unit = 1.0 if contract.attribute(contract.order).type == "integer" else 1e-6
    # n moments span n - 1 steps; the last step's tuples take one step more
    return (max(highs) - min(lows)) * unit * moments / (moments - 1)


def _raw_bytes(lake: Lake, contract: StreamContract, numbers: Sequence[int]) -> dict[int, int]:
    """Compressed bytes of the contract's attributes and seq in raw, by batch."""
    by_batch: dict[int, list[Any]] = {}
    for file in data_files(lake.path("raw", contract.stream)):
        if file.low("batch") in numbers:
            by_batch.setdefault(int(file.low("batch")), []).append(file)
    columns = ["seq", *(a.name for a in contract.attributes)]
    return {batch: sum(column_bytes(files, columns).values()) for batch, files in by_batch.items()}

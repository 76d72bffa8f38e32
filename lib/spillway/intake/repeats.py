"""Rows that were delivered before: found exactly, or suspected by a stable Bloom filter, and kept aside.

Opt-in (`duplicates.rows` in the contract), because real rows repeat. A row is the same as another when the attributes
`duplicates.on` are (null equals null), whenever the other came. `exact` looks into all of `raw` that is still there.
`stable_bloom` keeps `memory_kib` for a stream of any length and looks into that alone; it may take a new row for an
old one, so that what it suspects is looked up afterwards, and the ledger says how often it was wrong beside how often
it was expected to be. Either way the row leaves the stream and stands in `rejected` with its values: none is lost.

The filter's state after each batch is a row of `sketches`, which names the state it went on from. A batch written again
starts where it had started, so it ends in the same rows.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from spillway.contracts import StreamContract
from spillway.sketches.plan import confirmed, pass_through, repeats, table_row
from spillway.sketches.specification import SketchSpec
from spillway.sketches.stable_bloom import StableBloom
from spillway.store.batches import Batch
from spillway.store.files import data_files, holding, read_table
from spillway.store.tables import Lake, union, where

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

DELIVERED_BEFORE = "delivered before"
"""The reason of such rows in `rejected`; all others are defects."""


@dataclass(frozen=True)
class Repeated:
    """What one batch repeats: how many rows, what the ledger says of them, and their `seq`."""

    batch: Batch
    rows: int
    reason: str
    seqs: DataFrame


def find_repeated(lake: Lake, contract: StreamContract, batches: Sequence[Batch]) -> list[Repeated]:
    """Per batch, oldest first, the rows just written to `raw` that were delivered before."""
    ways = {"none": _nothing, "exact": _exactly, "stable_bloom": _suspected}
    return ways[contract.duplicates.rows](lake, contract, sorted(batches, key=lambda batch: batch.batch))


def _nothing(_lake: Lake, _contract: StreamContract, _batches: Sequence[Batch]) -> list[Repeated]:
    return []


def _exactly(lake: Lake, contract: StreamContract, batches: Sequence[Batch]) -> list[Repeated]:
    found = []
    for batch in batches:
        frame, history = _sides(lake, contract, batch)
        seqs = repeats(frame, _on(contract), history).localCheckpoint()
        found.append(Repeated(batch, seqs.count(), "row delivered before", seqs))
    return found


def _suspected(lake: Lake, contract: StreamContract, batches: Sequence[Batch]) -> list[Repeated]:
    spec, found, states = filter_of(contract), [], []
    before, started_from = _state_before(lake, contract.stream, spec, batches[0].batch)
    for batch in batches:
        frame, history = _sides(lake, contract, batch)
        files = holding(data_files(lake.path("raw", contract.stream)), [(batch.batch_date, batch.batch)])
        passed = pass_through(lake.spark, files, (batch.first_seq, batch.last_seq), spec, before)
        suspected = passed.suspected.count()
        truly = confirmed(passed.suspected, frame, spec.attributes, history).count() if suspected else 0
        states.append(
            table_row(
                contract.stream,
                spec,
                batch.batch,
                batch.batch_date,
                frame.count(),
                passed.state.to_bytes(),
                started_from,
                before.digest() if before is not None else None,
            )
        )
        found.append(
            Repeated(batch, suspected, _told(spec, suspected, truly, states[-1]["rows"]), passed.suspected)
        )
        before, started_from = passed.state, batch.batch
    numbers = [batch.batch for batch in batches]
    lake.replace_rows("sketches", states, where(stream=contract.stream, batch=numbers, kind="stable_bloom"))
    return found


def _told(spec: SketchSpec, suspected: int, truly: int, rows: int) -> str:
    """How often the filter was wrong, beside the bound of its theory."""
    empty = spec.empty()
    assert isinstance(empty, StableBloom)
    wrong = 100.0 * (suspected - truly) / max(1, rows - truly)
    return (
        f"row suspected by a filter of {spec.memory_kib:,} KiB: {truly:,} were truly delivered before; "
        f"{wrong:.3g} % of the new rows taken for old, at most {100 * empty.parameters.false_positive_bound:.3g} % "
        "expected"
    )


def filter_of(contract: StreamContract) -> SketchSpec:
    """The filter a contract asks for with `duplicates`."""
    asked, types = contract.duplicates, {a.name: a.type for a in contract.attributes}
    return SketchSpec(
        "stable_bloom",
        _on(contract),
        tuple(types[name] for name in _on(contract)),
        memory_kib=asked.memory_kib,
        false_positive_pct=asked.false_positive_pct,
        shards=asked.shards,
    )


def _on(contract: StreamContract) -> tuple[str, ...]:
    return contract.duplicates.on or contract.names


def _sides(lake: Lake, contract: StreamContract, batch: Batch) -> tuple[DataFrame, DataFrame | None]:
    """The batch as it was taken in, and all that came before it."""
    raw = lake.read("raw", contract.stream)
    mine = raw.where(where(batch_date=str(batch.batch_date), batch=batch.batch))
    return mine, raw.where(f"batch < {batch.batch}") if batch.batch > 1 else None


def _state_before(
    lake: Lake, stream: str, spec: SketchSpec, batch: int
) -> tuple[StableBloom | None, int | None]:
    """The filter after the last batch before this one; none where there was none of this shape."""
    mine: list[Any] = [("stream", "=", stream), ("kind", "=", "stable_bloom"), ("name", "=", spec.name)]
    known = read_table(lake.path("sketches"), ["batch", "parameters"], [*mine, ("batch", "<", batch)])
    shape = json.dumps(spec.parameters, sort_keys=True)
    fitting = [row["batch"] for row in known.to_pylist() if row["parameters"] == shape] if known else []
    if not fitting:
        return None, None
    rows = read_table(lake.path("sketches"), ["payload"], [*mine, ("batch", "=", max(fitting))])
    assert rows is not None
    return StableBloom.from_bytes(rows["payload"][0].as_py()), max(fitting)


def kept_aside(lake: Lake, contract: StreamContract, found: Repeated) -> DataFrame:
    """The repeated rows as `rejected` has them: file and line they came from, and their values as JSON."""
    from pyspark.sql import functions as sql

    batch, frame = found.batch, _sides(lake, contract, found.batch)[0]
    files = [(f.name, f.base_seq, f.base_seq + 1, f.base_seq + f.records) for f in batch.taken]
    of_seq = sql.broadcast(
        lake.spark.createDataFrame(files, "file string, base bigint, first bigint, last bigint")
    )
    rows = frame.join(sql.broadcast(found.seqs), "seq", "left_semi")
    rows = rows.join(of_seq, sql.col("seq").between(sql.col("first"), sql.col("last")))
    on = ", ".join(_on(contract))
    none = sql.lit(None).cast("string")
    return rows.select(
        sql.lit(contract.stream).alias("stream"),
        "batch",
        "batch_date",
        "seq",
        "file",
        (sql.col("seq") - sql.col("base")).alias("line"),
        none.alias("field"),
        sql.lit(f"differ from every earlier row in {on}").alias("rule"),
        none.alias("value"),
        sql.lit(
            "nothing, if it was delivered twice; otherwise set duplicates.rows: none in the contract"
        ).alias("remedy"),
        sql.lit(DELIVERED_BEFORE).alias("reason"),
        sql.to_json(sql.struct(*(f"`{name}`" for name in contract.names))).cast("binary").alias("original"),
    )


def drop_repeated(lake: Lake, contract: StreamContract, found: Sequence[Repeated]) -> None:
    """Write the batches' raw rows anew without those that were delivered before."""
    from pyspark.sql import functions as sql

    here = [one for one in found if one.rows]
    if not here:
        return
    numbers = [one.batch.batch for one in here]
    mine = where(batch_date={str(one.batch.batch_date) for one in here}, batch=numbers)
    seqs = sql.broadcast(union([one.seqs for one in here]))
    left = lake.read("raw", contract.stream, mine).join(seqs, "seq", "left_anti")
    attributes = [(a.name, a.type) for a in contract.attributes]
    lake.replace(left, "raw", mine, stream=contract.stream, attributes=attributes)

"""A batch whose rows mostly have a twin is told, however many rows it has; a few repeats in a small one are not."""

from __future__ import annotations

import json
from datetime import date
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.checks.sound import NOW, contract

from spillway.batch import DONE, Batch
from spillway.checks.run import suite_folders
from spillway.checks.suites import load_suites
from spillway.checks.views import ViewedTables, stream_facts
from spillway.contracts import Contracts
from spillway.pipeline.validate import _suite_tables
from spillway.settings import Settings
from spillway.sketches.specification import SketchSpec
from spillway.store.schemas import table_contracts
from spillway.store.tables import Tables

SUITE = load_suites(suite_folders())["sketches"]
NAMES = ("a", "b", "c", "d", "e")
ATTRIBUTES = [
    {"name": "site", "type": "string", "role": "key"},
    {"name": "at", "type": "timestamp", "role": "order"},
    *({"name": name, "type": "string"} for name in NAMES),
]


def times(rows: int, times: int) -> Any:
    return np.repeat(np.arange(5 * rows // times, dtype=np.uint64).reshape(-1, 5), times, axis=0)


def with_repeats(rows: int, repeats: int) -> Any:
    found = times(rows, 1)
    found[-repeats:] = found[:repeats]
    return found


def row(stream: str, batch: int, records: Any) -> dict[str, Any]:
    spec = SketchSpec("pair_count", NAMES, ("string",) * 5, at_least=5)
    sketch: Any = spec.empty()
    payload = sketch.update(records, np.arange(len(records))).to_bytes()
    return spec.row(stream, batch, date(2026, 1, batch), len(records), payload)


def judged(rows: list[dict[str, Any]], **fields: Any) -> list[dict[str, Any]]:
    asked = {"kind": "pair_count", "attributes": list(NAMES), "at_least": 5, **fields}
    streams = {name: contract(name, sketches=[asked], attributes=ATTRIBUTES) for name in ("late", "soon")}
    known = table_contracts()
    tables = {name: known[name].arrow_schema.empty_table() for name in ("batches", "sketches")}
    tables["sketches"] = pa.Table.from_pylist(rows, known["sketches"].arrow_schema)
    with ViewedTables(tables | stream_facts(streams)) as views:
        return views.rows(SUITE.view, "sketches.yaml").to_pylist()


@pytest.mark.parametrize(
    ("records", "fails"),
    [
        (times(100_000, 10), True),
        (times(10_000, 2), True),
        (times(300, 10), True),
        (with_repeats(20, 2), False),
        (with_repeats(2000, 100), False),
        (times(10_000, 1), False),
    ],
    ids=["ten times", "twice", "few rows ten times", "two of twenty", "one of twenty", "no repeats"],
)
def test_it_is_pairs_a_row_that_count(records: Any, fails: bool) -> None:
    (found,) = judged([row("late", 1, records)])
    assert (found["twins_pct"] > found["limit_pct"]) == fails
    assert found["limit_pct"] == 10


def test_the_contract_says_how_many_are_too_many() -> None:
    rows = [row("late", 1, with_repeats(2000, 100))]
    (strict,) = judged(rows, twins_pct=2)
    assert strict["twins_pct"] > strict["limit_pct"] == 2
    (free,) = judged([row("late", 1, times(300, 10))], twins_pct=None)
    assert free["limit_pct"] is None


def test_an_old_batch_fails_no_later_validation() -> None:
    """Nor that of another stream whose changed batch has the same number."""
    tables = Tables(Settings.in_memory("twins"))
    rows = [row("late", 1, times(300, 10)), row("late", 2, times(300, 1)), row("soon", 1, times(300, 1))]
    for one in rows:
        tables.at("sketches").replace([one], stream=one["stream"], batch=one["batch"])
    streams = {name: contract(name) for name in ("late", "soon")}
    batches = [
        Batch(stream, number, date(2026, 1, number), DONE, (), 0, 299, "run", NOW, NOW, rows=300)
        for stream, number in (("late", 2), ("soon", 1))
    ]
    work = {batch.stream: [batch] for batch in batches}
    found = _suite_tables(tables.now(), Contracts(streams, {}).streams, work)["sketches"]
    assert sorted(zip(found["stream"].to_pylist(), found["batch"].to_pylist(), strict=True)) == [
        ("late", 2), ("soon", 1),
    ]  # fmt: skip
    assert json.loads(found["parameters"][0].as_py())["similarity"] == 5
    tables.forget()

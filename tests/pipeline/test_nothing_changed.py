"""Validation certifies each file in the task that wrote it; where nothing changed, nothing is started."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.pipeline.streams import World

from spillway.checks import gx
from spillway.engine import ProcessEngine
from spillway.engine.task_errors import Item, Result
from spillway.errors import SpillwayError
from spillway.pipeline import validate as validating
from spillway.store import drafts
from spillway.store.drafts import FileTask
from spillway.store.file_writer import write_file


@dataclass
class Counting:
    """The engine that is this process, and how often it was asked for something."""

    cores: int = 1
    passes: list[int] = field(default_factory=list)
    loads: int = 0

    def load(self) -> None:
        self.loads += 1

    def map(self, function: Callable[[Item], Result], items: Sequence[Item], label: str = "") -> list[Result]:
        self.passes.append(len(items))
        return ProcessEngine().map(function, items)


def test_where_nothing_changed_no_pass_is_made_and_nothing_is_loaded(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake, engine, started = world.copy(tmp_path), Counting(), list[str]()
    lake.engine = engine
    lake.validate(every=True)
    assert len(engine.passes) == 2, "one recovers and certifies all streams, one is for all checksums"
    engine.passes.clear()
    before = {name: lake.at(name).version for name in ("validations", "certificates", "batches")}
    monkeypatch.setattr(gx.Validator, "__init__", lambda *_: started.append("suites"))
    monkeypatch.setattr(validating, "load_in_background", lambda: started.append("load"))
    lake.validate()
    assert (engine.passes, engine.loads, started) == ([], 1, [])
    assert lake.said[-1] == "nothing was shed since the last validation"
    assert {name: lake.at(name).version for name in before} == before


def test_an_engine_has_imported_what_it_needs_before_anything_is_imported_beside_it(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Great Expectations imports PySpark too: a thread that meets another within its circle finds half a package."""
    lake, engine, loads = world.copy(tmp_path), Counting(), list[int]()
    lake.engine = engine
    monkeypatch.setattr(validating, "load_in_background", lambda: loads.append(engine.loads))
    lake.validate(every=True)
    assert loads == [1]


def test_a_certificate_is_of_the_file_that_was_written_and_not_of_the_rows_in_memory(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def torn(folder: str, *given: Any, **named: Any) -> Any:
        """What a disk that spoils a value leaves of a file."""
        written = write_file(folder, *given, **named)
        if written is not None and "recovered/sites" in folder:
            path = f"{folder}/{written.path}"
            rows = pq.ParquetFile(path).read()
            place = rows.column_names.index("temp")
            values = rows["temp"].to_pylist()
            values[0] += 1e6
            pq.write_table(rows.set_column(place, "temp", pa.array(values, pa.float64())), path)
        return written

    lake = world.copy(tmp_path)
    monkeypatch.setattr(drafts, "write_file", torn)
    with pytest.raises(SpillwayError, match="temp") as raised:
        lake.validate("sites", every=True)
    found = {
        (row["batch"], row["attribute"]): row for row in lake.rows("certificates") if row["stream"] == "sites"
    }
    ways = {batch.batch: found[batch.batch, "temp"]["treatment"] for batch in lake.batches("sites")}
    assert "shed" in ways.values()
    for batch, way in ways.items():
        if way == "keep":  # no certificate counts what was sent exact: its checksum must differ
            assert f"batch {batch} recovers 1 kept columns with values" in str(raised.value)
        else:
            assert found[batch, "temp"]["violations"] > 0
    assert not any(row["violations"] for (_, name), row in found.items() if name != "temp")


def test_what_is_found_of_a_piece_comes_with_its_draft_and_a_refusal_leaves_no_file(
    world: World, tmp_path: Path
) -> None:
    table = world.copy(tmp_path).at("recovered", "sites")
    rows = table.rows(batch=1)
    pieces = [FileTask({"batch_date": "2020-01-01"}, 1, number) for number in (1, 0)]

    def make(number: int, counts: dict[str, int]) -> list[pa.Table]:
        return [rows] if number else []

    draft = table.draft(
        ProcessEngine(), pieces, make, lambda of, files: (of, [file.records for file in files])
    )
    assert draft.found == ((1, [rows.num_rows]), (0, []))
    table.discard(draft)

    before = set(Path(table.path).rglob("*.parquet"))

    def refuse(of: int, files: Sequence[Any]) -> None:
        raise SpillwayError("the file must hold")

    with pytest.raises(SpillwayError, match="the file must hold"):
        table.draft(ProcessEngine(), [replace(pieces[0])], make, refuse)
    assert set(Path(table.path).rglob("*.parquet")) == before

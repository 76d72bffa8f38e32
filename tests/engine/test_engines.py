"""Both engines do the same with the same pieces, and say the same of what goes wrong."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from spillway.engine import Engine, ProcessEngine
from spillway.engine import spark as engine_spark
from spillway.engine.protocol import map_each
from spillway.engine.spark import MOST_IN_PLAN, RESULT_BYTES, SparkEngine
from spillway.engine.task_errors import JobFailed, TaskFailed, cause_of
from spillway.errors import ConcurrentRun, ContractError, InvalidValue, Problem, SpillwayError, UsageError
from spillway.kernel_cache import sources_key
from spillway.settings import Settings
from spillway.store.tables import FileTask, Tables

DAY = date(2026, 1, 1)


@pytest.fixture(params=["in process", "spark"])
def engine(request: pytest.FixtureRequest, spark: Any) -> Engine:
    return ProcessEngine() if request.param == "in process" else SparkEngine(lambda: spark)


def described(item: Any, of: str) -> tuple[str, Any]:
    return of, item


def failing(item: int, problems: dict[int, Exception]) -> int:
    if item in problems:
        raise problems[item]
    return item


@pytest.mark.parametrize("count", [0, 1, 2, 57])
def test_results_come_in_the_order_of_the_pieces(engine: Engine, count: int) -> None:
    items = [{"number": number, "day": DAY, "bytes": b"\0" * number, "none": None} for number in range(count)]
    assert engine.map(partial(described, of="a"), items) == [("a", item) for item in items]


def test_a_piece_may_be_a_table_and_so_may_its_result(engine: Engine) -> None:
    table = pa.table({"a": [1, 2], "b": [None, "x"]})
    (found,) = engine.map(lambda piece: piece.append_column("c", [[3, 4]]), [table])
    assert found.equals(table.append_column("c", [[3, 4]]))


def cache_in_use(_: int) -> tuple[str, str]:
    """Where the process that works on a piece keeps the kernels that it compiles."""
    from numba import config

    import spillway.sketches.hashing  # defines kernels

    return str(config.CACHE_DIR), str(Path(spillway.sketches.hashing.__file__).parents[1])


def test_kernels_are_kept_in_the_folder_of_these_sources_wherever_a_piece_is_worked_on(
    engine: Engine,
) -> None:
    for folder, package in engine.map(cache_in_use, [1, 2, 3]):
        assert Path(folder).name == f"spillway-kernels-{sources_key(Path(package))}"


def test_an_engine_knows_how_much_it_does_at_a_time(engine: Engine) -> None:
    assert engine.cores >= 1


@pytest.mark.parametrize(
    "problem",
    [
        SpillwayError("a sentence"),
        InvalidValue("cycle_length", "be positive", 0, "train the cycle again", "weather.yaml"),
        ConcurrentRun("another run wrote it"),
        UsageError("cannot be meant"),
        ContractError(
            [Problem("a.yaml", "mode", "be shed", "drop", "write shed"), Problem("", "b", "c", 1, "d")]
        ),
    ],
    ids=lambda problem: type(problem).__name__,
)
def test_a_refusal_in_a_task_is_told_as_it_was_said_there(engine: Engine, problem: SpillwayError) -> None:
    with pytest.raises(SpillwayError) as found:
        engine.map(partial(failing, problems={3: problem}), range(6))
    assert type(found.value) is type(problem)
    assert str(found.value) == str(problem)
    assert getattr(found.value, "problem", None) == getattr(problem, "problem", None)
    assert getattr(found.value, "problems", None) == getattr(problem, "problems", None)


def test_the_first_of_several_refusals_is_told(engine: Engine) -> None:
    problems: dict[int, Exception] = {number: SpillwayError(f"piece {number}") for number in (4, 2, 5)}
    with pytest.raises(SpillwayError, match="piece 2"):
        engine.map(partial(failing, problems=problems), range(6))


def test_a_fault_in_a_task_is_no_result(engine: Engine) -> None:
    with pytest.raises(Exception, match="by zero") as found:
        engine.map(lambda number: 1 // number, [1, 0])
    assert not isinstance(found.value, SpillwayError)


def test_an_error_of_a_task_keeps_its_type_and_brings_its_stack(spark: Any) -> None:
    with pytest.raises(KeyError, match="'site'") as found:
        SparkEngine(lambda: spark).map(partial(failing, problems={1: KeyError("site")}), range(3))
    assert "in failing" in str(found.value.__cause__)


class Odd(Exception):
    """An exception that pickles, and cannot be made again from its pickle."""

    def __init__(self, one: str, other: str) -> None:
        super().__init__(f"{one} and {other}")


def odd(_: int) -> int:
    raise Odd("this", "that")


def test_an_error_that_cannot_be_pickled_is_told_by_its_stack(spark: Any) -> None:
    with pytest.raises(TaskFailed) as found:
        SparkEngine(lambda: spark).map(odd, range(3))
    assert cause_of(found.value).endswith("Odd: this and that")


def repeated(count: int) -> bytes:
    return count.to_bytes(8, "big") * count


@pytest.mark.parametrize("at_most", [RESULT_BYTES, 1000])
def test_results_of_any_size_come_back_whole(
    spark: Any, monkeypatch: pytest.MonkeyPatch, at_most: int
) -> None:
    monkeypatch.setattr(engine_spark, "RESULT_BYTES", at_most)
    counts = [0, 1, 2_000_000, 125, 126, 7]  # the third has 16 MB, in several rows
    assert SparkEngine(lambda: spark).map(repeated, counts) == [repeated(count) for count in counts]


def folder_and_size(item: tuple[bytes, str]) -> tuple[int, list[str]]:
    content, folder = item
    return len(content), sorted(path.name for path in Path(folder).rglob("*") if path.is_file())


def test_large_items_travel_as_files_which_are_removed(spark: Any, tmp_path: Path) -> None:
    engine = SparkEngine(lambda: spark, folder=str(tmp_path / "tasks"))
    small = engine.map(folder_and_size, [(b"a", str(tmp_path)), (b"ab", str(tmp_path))])
    assert small == [(1, []), (2, [])]
    large = engine.map(folder_and_size, [(b"a" * MOST_IN_PLAN, str(tmp_path)), (b"ab", str(tmp_path))])
    assert large == [(MOST_IN_PLAN, ["0", "1", "function"]), (2, ["0", "1", "function"])]
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def dying(item: int, at: int) -> int:
    if item == at:
        os.kill(os.getpid(), signal.SIGKILL)
    return item


def test_a_task_that_kills_its_worker_is_isolated_and_told_by_its_cause(spark: Any) -> None:
    found = map_each(SparkEngine(lambda: spark), partial(dying, at=3), range(5))
    assert [one for one in found if not isinstance(one, Exception)] == [0, 1, 2, 4]
    assert isinstance(found[3], JobFailed)
    assert "Python worker exited unexpectedly" in str(found[3])


def test_an_item_that_fails_leaves_the_others_their_results(engine: Engine) -> None:
    found = map_each(engine, partial(failing, problems={1: MemoryError("too much")}), range(3))
    assert (found[0], found[2]) == (0, 2)
    assert isinstance(found[1], MemoryError)


def test_a_draft_is_the_same_whoever_writes_it(engine: Engine, tmp_path: Path) -> None:
    lake = {"SPILLWAY_HOME": str(tmp_path), "SPILLWAY_LAKE": str(tmp_path / "lake")}
    tables = Tables(Settings.from_environment(lake))
    table = tables.at("transmitted", "s").with_attributes([("v", "double")])

    def make(of: int, counts: dict[str, int]) -> list[pa.Table]:
        counts["made"] = of
        return [pa.table({"seq": [of * 10 + i], "batch": [of], "v": [i / 3]}) for i in range(of)]

    pieces = [FileTask({"batch_date": str(DAY)}, number, number) for number in (3, 0, 2)]
    draft = table.draft(engine, pieces, make)
    assert [(piece.batch, one.rows) for piece, one in draft.parts] == [(3, 3), (2, 2)]
    assert draft.counts == {number: {"made": number} for number in (3, 0, 2)}
    widths = draft.column_bytes(3, ["seq", "v"])
    assert widths == table.draft(ProcessEngine(), pieces, make).column_bytes(3, ["seq", "v"])
    table.publish(draft.written, batch_date=DAY, batch=[0, 2, 3])
    assert sorted(tables.now().at("transmitted", "s").rows(["seq"])["seq"].to_pylist()) == [
        20,
        21,
        30,
        31,
        32,
    ]


def refused() -> Any:
    raise AssertionError("there was nothing to run")


def test_no_session_is_made_for_nothing() -> None:
    engine = SparkEngine(refused)
    assert engine.map(str, []) == []
    assert not engine.started
    engine.stop()
    with pytest.raises(AssertionError, match="nothing to run"):
        engine.map(str, [1])


def test_a_session_leaves_no_warehouse_where_it_was_started(spark: Any) -> None:
    before = set(Path.cwd().iterdir())
    assert spark.sql("CREATE DATABASE IF NOT EXISTS somewhere").collect() == []
    assert spark.sql("DROP DATABASE somewhere").collect() == []
    warehouse = Path(spark.conf.get("spark.sql.warehouse.dir").removeprefix("file:"))
    assert Path.cwd() not in (warehouse, *warehouse.parents)
    assert "spark-warehouse" not in {path.name for path in set(Path.cwd().iterdir()) - before}
    assert not Path("spark-warehouse").exists()


def test_one_session_is_made_and_ended(spark: Any) -> None:
    made: list[Any] = []

    class Session:
        """The suite's session, which must outlive this test."""

        stopped = False

        def __getattr__(self, name: str) -> Any:
            return getattr(spark, name)

        def stop(self) -> None:
            self.stopped = True

    def session() -> Any:
        made.append(Session())
        return made[-1]

    engine = SparkEngine(session)
    run: Callable[[], list[str]] = lambda: engine.map(str, [1, 2])  # noqa: E731
    assert (run(), run(), engine.started, len(made)) == (["1", "2"], ["1", "2"], True, 1)
    engine.stop()
    assert made[0].stopped

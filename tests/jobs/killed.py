"""A shed run that kills itself, JVM and all, where it is told to. Run by test_kill.py, in a process group of its own.

    python tests/jobs/killed.py here never            it lives, its engine this process (or `spark`)

python tests/jobs/killed.py here before TABLE N   before its n-th write to a table
python tests/jobs/killed.py here within TABLE     within a task that has written a file of a table
python tests/jobs/killed.py here made TABLE       just after the table was made, before anything is in it
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from spillway.contracts import load_contracts
from spillway.engine import Engine, ProcessEngine
from spillway.engine.spark import SparkEngine, spark_session
from spillway.intake import raw as taking_in
from spillway.job import run_job, say
from spillway.pipeline.run import run_channel
from spillway.settings import Settings
from spillway.store.delta_log import DeltaLog
from spillway.store.drafts import FileMaker
from spillway.store.tables import Table, Tables

GROUP = os.getpgid(0)


def die(*_: Any, **__: Any) -> Any:
    """The driver, its JVM and whoever else is of the group, at once; workers have groups of their own."""
    os.killpg(GROUP, signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)


@dataclass(frozen=True)
class Doomed:
    """An engine of which no task lives to say what it has made."""

    engine: Engine

    @property
    def cores(self) -> int:
        return self.engine.cores

    def map(self, function: Callable[[Any], Any], items: Sequence[Any], label: str = "") -> list[Any]:
        def last(item: Any) -> None:
            function(item)
            die()

        return self.engine.map(last, items)


def before(table: str, count: int) -> None:
    """Die before the n-th write to the table."""
    seen = 0

    def instead(whole: Callable[..., Any]) -> Callable[..., Any]:
        def write(self: Table, *args: Any, **more: Any) -> Any:
            nonlocal seen
            seen += self.contract.table == table
            if seen == count:
                die()
            return whole(self, *args, **more)

        return write

    for method in ("publish", "replace", "append", "delete"):
        setattr(Table, method, instead(getattr(Table, method)))


def within(table: str) -> None:
    """Die while the table is drafted: a file is written and nothing committed."""
    if table == "raw":
        write = taking_in._write
        taking_in._write = lambda tables, engine, *rest: write(tables, Doomed(engine), *rest)
        return
    whole = Table.maker

    def maker(self: Table, make: Any, check: Any = None, *rest: Any, **named: Any) -> FileMaker:
        return whole(self, make, die if self.contract.table == table else check, *rest, **named)

    Table.maker = maker  # type: ignore[method-assign]


def made(table: str) -> None:
    """Die when the table has just been made."""
    whole = DeltaLog.create

    def create(self: DeltaLog, contract: Any) -> None:
        whole(self, contract)
        if contract.table == table:
            die()

    DeltaLog.create = create  # type: ignore[method-assign]


@contextmanager
def engine_called(name: str) -> Iterator[Engine]:
    if name == "here":
        yield ProcessEngine()
        return
    spark = SparkEngine(lambda: spark_session("killed", "local[2]", **{"spark.driver.memory": "512m"}))
    try:
        yield spark
    finally:
        spark.stop()


def main() -> None:
    engine, *told = sys.argv[1:]
    match told:
        case "before", table, count:
            before(table, int(count))
        case "within", table:
            within(table)
        case "made", table:
            made(table)
    settings = Settings.from_environment()
    with engine_called(engine) as found:
        run_channel(Tables(settings), found, load_contracts(settings.schemas), "narrow", "killed", say)


if __name__ == "__main__":
    run_job(main)

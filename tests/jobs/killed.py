"""A shed run that kills itself, JVM and all, where it is told to. Run by test_kill.py, in a process group of its own.

    python tests/jobs/killed.py never             it lives

python tests/jobs/killed.py before TABLE N    before its n-th write to a table
python tests/jobs/killed.py within raw        from a Python worker that parses a landing file
python tests/jobs/killed.py within TABLE      from a Python worker that writes a file of a table
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from typing import Any

from spillway.contracts import load_contracts
from spillway.engine.session import spark_session
from spillway.intake import take_in as intake
from spillway.job import run_job, say
from spillway.pipeline.shed import shed_channel
from spillway.settings import Settings
from spillway.store.tables import Lake
from spillway.store.task_files import Make

GROUP = os.getpgid(0)


def die(*_: Any, **__: Any) -> Any:
    """The driver, its JVM and whoever else is of the group, at once; workers have groups of their own."""
    os.killpg(GROUP, signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)


def before(table: str, count: int) -> None:
    """Die before the n-th write to the table."""
    seen = 0

    def instead(whole: Callable[..., None], at: int) -> Callable[..., None]:
        def write(self: Lake, *args: Any, **more: Any) -> None:
            nonlocal seen
            seen += args[at] == table
            if seen == count:
                die()
            whole(self, *args, **more)

        return write

    for method, at in (("replace", 1), ("replace_in_tasks", 0), ("replace_rows", 0), ("delete", 0)):
        setattr(Lake, method, instead(getattr(Lake, method), at))


def within(table: str) -> None:
    """Die while the table is written: from a Python worker, the rows of a file made and nothing committed."""
    if table == "raw":
        intake.parse_records = die
        return
    whole = Lake.replace_in_tasks

    def write(self: Lake, written: str, pieces: Any, make: Make, *args: Any, **more: Any) -> None:
        def doomed(piece: Any) -> Iterator[Any]:
            yield from make(piece)
            die()

        whole(self, written, pieces, doomed if written == table else make, *args, **more)

    Lake.replace_in_tasks = write  # type: ignore[method-assign]


def main() -> None:
    match sys.argv[1:]:
        case "before", table, count:
            before(table, int(count))
        case "within", table:
            within(table)
    settings = Settings.from_environment()
    lake = Lake(spark_session("killed", "local[2]", **{"spark.driver.memory": "512m"}), settings)
    shed_channel(lake, load_contracts(settings.schemas), "narrow", "killed", say)


if __name__ == "__main__":
    run_job(main)

"""Kill a process at a chosen point: before, within or after its n-th write to the store."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from spillway.store import blobs, file_writer
from spillway.store.delta_log import DeltaLog

PHASES = ("before", "within", "after")


class Writes:
    """Counts writes to the disk: files written and removed, commits, tables created, columns added."""

    def __init__(self, die_at: int | None = None, phase: str = "before") -> None:
        self.count = 0
        self._die_at, self._phase = die_at, phase

    def watch(self) -> None:
        """Count from now on, in this process."""
        for name in ("commit", "create", "add_columns"):
            setattr(DeltaLog, name, self._around(getattr(DeltaLog, name), making=name == "create"))
        blobs.remove = self._around(blobs.remove)
        setattr(file_writer, "open_for_writing", self._around_sink(blobs.open_for_writing))  # noqa: B010

    def _is_last(self) -> bool:
        self.count += 1
        return self.count == self._die_at

    def _around(self, whole: Callable[..., Any], making: bool = False) -> Callable[..., Any]:
        def write(*given: Any, **named: Any) -> Any:
            last = self._is_last()
            if last and self._phase == "before":
                _die()
            if last and self._phase == "within":
                if making:
                    # as the library does it: the folder of the log first, its first commit by a name of its own
                    log = Path(given[0].path, "_delta_log")
                    log.mkdir(parents=True, exist_ok=True)
                    (log / f"_commit_{os.getpid()}.json.tmp").write_text('{"protocol":', encoding="utf-8")
                _die()
            found = whole(*given, **named)
            if last:
                _die()
            return found

        return write

    def _around_sink(self, whole: Callable[..., Any]) -> Callable[..., Any]:
        @contextmanager
        def write(path: str) -> Iterator[Any]:
            last = self._is_last()
            if last and self._phase == "before":
                _die()
            with whole(path) as sink:
                if last and self._phase == "within":
                    sink.write(b"PAR1 and no more")
                    sink.flush()
                    _die()
                yield sink
            if last:
                _die()

        return write


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)

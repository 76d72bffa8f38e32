"""What whoever opened a table knows of it, to tell whether others have changed it since."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import dataclass, field

from spillway.store.files import DataFile
from spillway.store.filters import Filter, may_hold
from spillway.store.logs import Log


@dataclass
class OpenedLog:
    """A table's log, and the files of which whoever opened it knows: those it found, and what it did since."""

    log: Log
    lock: threading.RLock = field(default_factory=threading.RLock)
    known: dict[str, DataFile] | None = None

    def found(self) -> dict[str, DataFile]:
        if self.known is None:
            self.known = {file.path: file for file in self.log.files()}
        return self.known

    def note(self, gone: Iterable[DataFile], added: Iterable[DataFile]) -> None:
        """Take down what a commit took out and in."""
        known = self.found()
        for file in gone:
            known.pop(file.path, None)
        known |= {file.path: file for file in added}

    def is_overtaken(self, where: Filter) -> bool:
        """Whether others have changed rows of these since the table was opened."""
        known, live = self.found(), {file.path: file for file in self.log.files()}
        strange = [live[path] if path in live else known[path] for path in live.keys() ^ known.keys()]
        return any(may_hold(file, where) for file in strange)

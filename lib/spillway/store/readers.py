"""What tasks read of a table: its files of one batch date, along an ordered column."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date

from spillway.store.files import DataFile, RowReader, as_date


@dataclass(frozen=True)
class StoredFiles:
    """Files of a table, small enough to travel; `on` a date they are read.

    A reader made by `on` goes forward through the files and decodes every row group once.
    """

    files: tuple[DataFile, ...]
    order: str = "seq"

    def on(self, day: date) -> RowReader:
        """The files of one batch date: a frame has no rows elsewhere."""
        return RowReader(
            [file for file in self.files if as_date(file.value("batch_date")) == day], self.order
        )

"""Rows and tables as levers are handed them: read by what is asked for, whatever lies behind."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import date
from typing import Any, Protocol

import numpy as np
import pyarrow as pa


class Rows(Protocol):
    """The rows of one batch date at some stage, read by columns and a range of `seq`, in `seq` order."""

    def __call__(self, columns: Sequence[str], from_seq: int, to_seq: int) -> pa.Table:
        """`seq` and the columns of the rows with `from_seq <= seq <= to_seq`; a column nobody has is null."""

    def values(self, seq: np.ndarray) -> np.ndarray:
        """How many values each of these rows carries: one an attribute, less what was shed of it."""

    @property
    def asked_back_bytes(self) -> int:
        """Bytes kept at the source that were read to give these rows back."""


class View(Protocol):
    """A table as a lever is handed it."""

    @property
    def exists(self) -> bool:
        """Whether there is such a table here."""

    def rows(self, columns: Sequence[str] | None = None, **where: Any) -> pa.Table:
        """The rows that match; none where there is no table."""

    def newest(
        self, by: str, columns: Sequence[str] | None = None, below: int | None = None, **where: Any
    ) -> pa.Table:
        """Of the rows that match, those with the largest `by` (below a number)."""

    def last(self, by: str, most: int, columns: Sequence[str] | None = None, **where: Any) -> pa.Table:
        """Of the rows that match, those with the so many largest `by`; of others that column alone is read."""

    def stored(self, order: str = "seq", **where: Any) -> Stored:
        """What tasks read of it, along an ordered column."""


class Stored(Protocol):
    """Files of a table, on their way to tasks."""

    def on(self, day: date) -> Callable[[Sequence[str], int, int], pa.Table]:
        """Those of one batch date, to be read by columns and a range of the ordered column."""


class Views(Protocol):
    """The tables of a step, each opened once."""

    def at(self, table: str, stream: str | None = None) -> View:
        """The table."""

"""Apply the filters of batches in tasks: select the rows to send, store the dropped rows at the source, recover them.

The rows of a piece are always selected over the whole piece (`filter.sift_rows`), even if a task reads only a range of
it. So a task reads the dimensions of a piece once, and caches its decision for the next ranges of the piece.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date

import numpy as np
import pyarrow as pa

from spillway.levers.certificate import Certificate
from spillway.levers.protocol import Decision, FrameSlice, Rows, SliceCertificate, StoredFiles
from spillway.levers.sifters.boxes import Product, products_contain
from spillway.levers.sifters.dimensions import Dimension
from spillway.levers.sifters.filter import MUST_KEEP, PIECE_SEQS, SifterFilter, piece_of
from spillway.levers.sifters.time_cells import TimeCells

ASIDE = "sifted_rows"
PIECES_HELD = 4


@dataclass(frozen=True)
class CountedQueries:
    """Queries for which tasks count the rows that match and, of these, the rows that are kept."""

    dimensions: tuple[Dimension, ...] = ()
    products: tuple[tuple[Product, ...], ...] = ()


@dataclass(frozen=True)
class SiftedBatch:
    """A batch and its filter; without a filter (None), all rows are sent."""

    batch: int
    first_seq: int
    last_seq: int
    filter: SifterFilter | None
    drops: bool = True
    """Whether rows are dropped; if not (`mode: observe`), the rows that would be dropped are only counted."""
    keep_at_source: bool = False
    """Whether dropped rows are stored at the source, so that they are recoverable."""
    cells: TimeCells | None = None
    """The cells of event time by which the batch's rows are counted; None: they are not counted."""


@dataclass(frozen=True)
class SifterDecision(Decision):
    """The decision which rows of some batches are sent."""

    batches: tuple[SiftedBatch, ...]
    """The batches in order of `seq`, with the other batches of the same dates."""
    columns: tuple[str, ...]
    """All columns that reach this stage of the shed path."""
    counted: CountedQueries = field(default_factory=CountedQueries)
    aside_rows: StoredFiles | None = None

    def apply(self, before: Rows, day: date) -> Rows:
        return KeptRows(self, before)

    def rows_kept_at_source(
        self, table: str, parts: Sequence[FrameSlice], before: Rows, counts: dict[str, int]
    ) -> Iterator[pa.Table]:
        """Yield the dropped rows if the batch stores them at the source; count rows by region.

        `counts` receives the offered, kept and marked rows of each region, and the counts by event time and by query.
        """
        judged = _SiftedPieces(self, before)
        for low, high in _spans(parts):
            one = self.batch_of_seq(low)
            if one is None or one.filter is None:
                continue
            for piece in judged.pieces(one, low, high):
                mine = piece.within(low, high)
                self._count(mine, one, counts)
                gone = mine.seq[~mine.kept]
                if not len(gone):
                    continue
                counts["values"] = counts.get("values", 0) + int(before.values(gone).sum())
                if one.keep_at_source and one.drops:
                    rows = before(self.columns, int(gone[0]), int(gone[-1]))
                    rows = rows.filter(pa.array(np.isin(np.asarray(rows["seq"]), gone)))
                    yield rows.append_column("batch", pa.array(np.full(rows.num_rows, parts[0].batch)))

    def _count(self, piece: SiftedPiece, one: SiftedBatch, counts: dict[str, int]) -> None:
        assert one.filter is not None
        places = np.where(piece.regions == MUST_KEEP, one.filter.count, piece.regions)
        size = one.filter.count + 1
        for name, rows in (("offered", slice(None)), ("kept", piece.kept), ("marked", piece.marked)):
            found = np.bincount(places[rows], minlength=size)
            for region in np.flatnonzero(found):
                key = f"{name}.{region}"
                counts[key] = counts.get(key, 0) + int(found[region])
        if one.cells is not None:
            never = np.append(one.filter.thresholds >= 1.0, False)[places]
            one.cells.count(piece.rows[one.cells.order], piece.kept, never, counts)
        if self.counted.products:
            keys = [dimension.keys_of(piece.rows[dimension.name]) for dimension in self.counted.dimensions]
            for place, products in enumerate(self.counted.products):
                wants = products_contain(products, keys)
                for name, rows in (("wanted", wants), ("got", wants & piece.kept)):
                    key = f"{name}.{place}"
                    counts[key] = counts.get(key, 0) + int(rows.sum())

    def batch_of_seq(self, seq: int) -> SiftedBatch | None:
        """Return the batch that contains a `seq`; None if there is none."""
        return next((one for one in self.batches if one.first_seq <= seq <= one.last_seq), None)

    def overlapping_batches(self, from_seq: int, to_seq: int) -> list[SiftedBatch]:
        """Return the batches that overlap a range of `seq`."""
        return [one for one in self.batches if one.first_seq <= to_seq and from_seq <= one.last_seq]

    def recover(self, after: Rows, day: date) -> Rows:
        return after if self.aside_rows is None else RecoveredRows(after, self.aside_rows, day)

    def certify(self, part: FrameSlice, truth: Rows, given: Rows) -> list[SliceCertificate]:
        """Certify that exactly the rows that the filter drops are missing.

        If the batch stores dropped rows at the source, certify that no row is missing.
        """
        judged = _SiftedPieces(self, truth)
        back = np.asarray(given([], part.from_seq, part.to_seq)["seq"])
        was = np.asarray(truth([], part.from_seq, part.to_seq)["seq"])
        gone = np.empty(0, np.int64)
        one = self.batch_of_seq(part.from_seq)
        if one is not None and one.filter is not None and one.drops:
            pieces = [
                piece.within(part.from_seq, part.to_seq)
                for piece in judged.pieces(one, part.from_seq, part.to_seq)
            ]
            gone = np.concatenate([piece.seq[~piece.kept] for piece in pieces]) if pieces else gone
        # rows that are dropped for good are not guaranteed; the guarantee is that only these rows are missing
        aside = one is not None and one.keep_at_source
        shed = len(gone) if aside else 0
        expected = was if aside else np.setdiff1d(was, gone)
        violations = len(np.setxor1d(expected, back))
        certificate = Certificate(0.0, shed_values=shed, stored_values=shed, violations=violations)
        return [SliceCertificate(part.batch, "", frozenset(["shed"] if shed else []), certificate)]


@dataclass(frozen=True)
class SiftedPiece:
    """A piece in order of `seq`, with the region and the decision of each row."""

    rows: pa.Table
    seq: np.ndarray
    regions: np.ndarray
    kept: np.ndarray
    marked: np.ndarray

    def within(self, from_seq: int, to_seq: int) -> SiftedPiece:
        """Return the rows of a range of `seq`."""
        low, high = np.searchsorted(self.seq, [from_seq, to_seq + 1])
        if low == 0 and high == len(self.seq):
            return self
        part = slice(low, high)
        return SiftedPiece(
            self.rows.slice(low, high - low),
            self.seq[part],
            self.regions[part],
            self.kept[part],
            self.marked[part],
        )


class _SiftedPieces:
    """The decided pieces of a task, with a cache of the last `PIECES_HELD`."""

    def __init__(self, plan: SifterDecision, before: Rows) -> None:
        self.plan, self.before = plan, before
        self._held: dict[int, SiftedPiece] = {}

    def pieces(self, one: SiftedBatch, from_seq: int, to_seq: int) -> Iterator[SiftedPiece]:
        """Yield the pieces of a batch that overlap a range of `seq`."""
        low, high = max(from_seq, one.first_seq), min(to_seq, one.last_seq)
        begin, _ = piece_of(low, one.first_seq)
        for first in range(begin, high + 1, PIECE_SEQS):
            if first not in self._held:
                while len(self._held) >= PIECES_HELD:
                    self._held.pop(next(iter(self._held)))
                self._held[first] = self._sift(one, first)
            yield self._held[first]

    def _sift(self, one: SiftedBatch, first: int) -> SiftedPiece:
        assert one.filter is not None
        counted = [d.name for d in self.plan.counted.dimensions]
        names = dict.fromkeys([*one.filter.columns, *counted, *([one.cells.order] if one.cells else [])])
        rows = self.before(list(names), first, min(one.last_seq, first + PIECE_SEQS - 1))
        seq = np.asarray(rows["seq"])
        regions = one.filter.regions_of(rows)
        kept, marked = one.filter.decide(seq, regions, one.first_seq, first)
        return SiftedPiece(rows, seq, regions, kept, marked)


class KeptRows:
    """The rows that are sent, each with its weight: the number of offered rows that it represents."""

    def __init__(self, plan: SifterDecision, before: Rows) -> None:
        self.plan, self.before = plan, before
        self._judged = _SiftedPieces(plan, before)

    @property
    def bytes_read_at_source(self) -> int:
        return self.before.bytes_read_at_source

    def values(self, seq: np.ndarray) -> np.ndarray:
        return self.before.values(seq)

    def __call__(self, columns: Sequence[str], from_seq: int, to_seq: int) -> pa.Table:
        own = [name for name in columns if name in ("weight", "in_sample")]
        rows = self.before([name for name in columns if name not in own], from_seq, to_seq)
        seq = np.asarray(rows["seq"])
        kept, marked = np.ones(len(seq), bool), np.zeros(len(seq), bool)
        weights = np.ones(len(seq))
        for one in self.plan.overlapping_batches(from_seq, to_seq) if len(seq) else ():
            if one.filter is None:
                continue
            for piece in self._judged.pieces(one, from_seq, to_seq):
                mine = piece.within(from_seq, to_seq)
                at = (
                    slice(*np.searchsorted(seq, [mine.seq[0], mine.seq[-1] + 1]))
                    if len(mine.seq)
                    else slice(0)
                )
                kept[at] = mine.kept | (not one.drops)
                marked[at] = mine.marked
                if one.drops:
                    weights[at] = one.filter.weights[mine.regions]
        if not kept.all():
            rows = rows.filter(pa.array(kept))
        made: Mapping[str, pa.Array] = {
            "weight": pa.array(weights[kept]),
            "in_sample": pa.array(marked[kept]),
        }
        for name in own:
            rows = rows.append_column(name, made[name])
        return rows.select(["seq", *(name for name in columns if name != "seq")])


class RecoveredRows:
    """The sent rows and the rows stored at the source, merged in order of `seq`; each row has weight 1 again."""

    def __init__(self, after: Rows, aside: StoredFiles, day: date) -> None:
        self.after, self.aside = after, aside.reader_for(day)
        self._asked = 0

    @property
    def bytes_read_at_source(self) -> int:
        return self.after.bytes_read_at_source + self._asked

    def values(self, seq: np.ndarray) -> np.ndarray:
        return self.after.values(seq)

    def __call__(self, columns: Sequence[str], from_seq: int, to_seq: int) -> pa.Table:
        stayed, gone = (side(columns, from_seq, to_seq) for side in (self.after, self.aside))
        if not gone.num_rows:
            return stayed
        self._asked += gone.nbytes
        # a column that exists on one side only is null on the other side
        missing = [name for name in stayed.column_names if name not in gone.column_names]
        for name in missing:
            gone = gone.append_column(name, pa.nulls(gone.num_rows, stayed[name].type))
        rows = pa.concat_tables([stayed, gone.select(stayed.column_names)], promote_options="permissive")
        if "weight" in rows.column_names:
            place = rows.schema.get_field_index("weight")
            rows = rows.set_column(place, "weight", pa.array(np.ones(rows.num_rows)))
        return rows.sort_by("seq")


def _spans(parts: Sequence[FrameSlice]) -> Iterator[tuple[int, int]]:
    """Merge adjacent frame parts into as few ranges of `seq` as possible."""
    low, high = parts[0].from_seq, parts[0].to_seq
    for part in parts[1:]:
        if part.from_seq == high + 1:
            high = part.to_seq
        else:
            yield low, high
            low, high = part.from_seq, part.to_seq
    yield low, high

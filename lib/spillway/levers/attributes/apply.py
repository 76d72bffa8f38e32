"""Apply a decision about attributes: the rows that are sent, the synopses that are stored, and the recovered rows.

`AttributeDecision` holds what both ends need: the treatment of every attribute at every `seq` (`Runs`), and the models.
Rows are views. A call for some columns of a range reads only what it needs from the previous stage. It does not read a
column that is replaced by nulls, and columns that are kept do not pass the kernels.

The columns `<attribute>__bound_pct` and `<attribute>__bound` have the bound of each value.

Null: the value is exact. It equals the one at the source; of a value that was shed, -0.0 comes back as 0.0, and every
NaN as one NaN. A number: the value was rounded, or shed and recovered. It is within that many per cent of the truth
(`__bound_pct`), or within that distance in the attribute's own unit (`__bound`). NaN in `__bound_pct`: the value
is within `__bound`; no relative bound holds, because the value is not larger than `__bound`. Infinity in `__bound_pct`:
the value is null because it was shed and is absent. Nothing else is infinite.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from functools import cached_property
from itertools import groupby
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spillway.contracts.column_names import BOUND_SUFFIX, OWN_BOUND_SUFFIX, bounded_attribute, is_bound
from spillway.levers.attributes.columns import Column
from spillway.levers.attributes.frames import (
    frame_of,
    needed_columns,
    recover_frame,
    shed_frame,
    with_regressors,
)
from spillway.levers.attributes.scheme import Runs
from spillway.levers.attributes.synopsis.bounds import ErrorBound, certify, changed_rows, own_unit_bounds
from spillway.levers.attributes.synopsis.entries import Recovered
from spillway.levers.attributes.synopsis.model import AttributeModel
from spillway.levers.attributes.synopsis.rounding import round_rows, rounded_bound_pct
from spillway.levers.certificate import Certificate
from spillway.levers.protocol import Decision, FrameSlice, Rows, SliceCertificate, StoredFiles


def bounds_of_shed(back: Recovered, gone: np.ndarray) -> tuple[pa.Array, pa.Array]:
    """Return the bounds of shed values, in per cent and in their own unit; `gone` masks their rows."""
    absent = gone & np.isnan(back.bound_pct)
    # a recovered null is exact, in every unit
    null = gone & ~absent & ~back.values.valid & np.isinf(back.bound_pct)
    pct = np.where(null, 0.0, back.bound_pct)
    told = np.where(absent, np.inf, np.where(np.isinf(pct), np.nan, pct))
    error = np.where(gone & back.values.valid, back.error, np.nan)
    return pa.array(told, mask=np.isnan(pct) & ~absent), _nan_as_null(error)


def add_rounded_bounds(
    bounds: Any,
    errors: Any,
    sent: Any,
    name: str,
    runs: Runs,
    seq: np.ndarray,
    spans: Iterable[tuple[Mapping[str, AttributeModel], int, int]],
) -> tuple[pa.Array, pa.Array]:
    """Return `bounds` (in per cent) and `errors` (in the attribute's own unit) with those of the rounded values added.

    `sent` has the values as they were sent. `spans` has the models of each range, as (models, first seq, last seq).
    """
    told, error = (np.array(one.to_numpy(zero_copy_only=False), np.float64) for one in (bounds, errors))
    as_it_was = np.array(bounds.is_null())
    for models, low, high in spans:
        here = slice(*np.searchsorted(seq, [low, high + 1]))
        is_rounded = runs.mask(name, "round", seq[here])
        if name in models and is_rounded.any():
            places = runs.precision(name, "round", seq[here])
            pct = rounded_bound_pct(models[name], Column.from_arrow(sent[here]), is_rounded, places)
            roundings = [one.bound for one in models[name].roundings]
            own = own_unit_bounds(roundings, places, pct) if roundings else np.full(len(pct), np.nan)
            as_it_was[here] = np.where(is_rounded, np.isnan(pct), as_it_was[here])
            told[here] = np.where(is_rounded, np.where(np.isinf(pct), np.nan, pct), told[here])
            error[here] = np.where(is_rounded, own, error[here])
    return pa.array(told, mask=as_it_was), _nan_as_null(error)


def _nan_as_null(errors: np.ndarray) -> pa.Array:
    return pa.array(errors, mask=np.isnan(errors))


FRAMES_READ_AHEAD = 64
"""Number of frames whose synopses are read at once; they are stored next to each other and read in order."""
SYNOPSIS, SENT_SYNOPSIS = "synopsis", "sent_synopsis"
"""The tables of packed synopses: at the source, and at the destination."""

Models = Mapping[str, AttributeModel]
Columns = dict[str, Any]


@dataclass(frozen=True)
class AttributeDecision(Decision):
    """The treatments of a stream's attributes in some batches, and in the batches that share a frame with them."""

    keys: Mapping[int, tuple[str, ...]]
    """By version of the facts, the attributes that identify a tuple's sender; each training may find others."""
    attributes: tuple[str, ...]
    runs: Runs
    models: Mapping[int, Models]
    """The models by version of the facts and attribute."""
    versions: Mapping[int, int]
    """By batch, the version of the facts that it uses."""
    parts: tuple[FrameSlice, ...]
    """The slices of all frames, in `seq` order."""
    synopses: tuple[StoredFiles, ...] = ()
    """The synopses to recover from: those that stay at the source, then those that were sent."""
    held_here: bool = True
    """Whether the held synopses can be read here; if not, their values stay absent."""
    endless: bool = False
    """Whether frames have no end; such a frame is processed once to its end and cached, not up to the requested row."""
    bounds: Mapping[int, Mapping[str, ErrorBound]] = field(default_factory=dict)
    """By version of the facts, the bounds that certificates check: the tighter of trained and currently stated."""

    @cached_property
    def _starts(self) -> list[int]:
        return [part.from_seq for part in self.parts]

    def parts_of(self, from_seq: int, to_seq: int) -> Iterator[FrameSlice]:
        """Yield the frame slices that overlap a range."""
        at = max(0, bisect_right(self._starts, from_seq) - 1)
        while at < len(self.parts) and self.parts[at].from_seq <= to_seq:
            if self.parts[at].to_seq >= from_seq:
                yield self.parts[at]
            at += 1

    def models_within(self, from_seq: int, to_seq: int) -> Iterator[tuple[Models, int, int]]:
        """Yield the models used in a range, each with the first and last `seq` of its rows."""
        for version, parts in groupby(
            self.parts_of(from_seq, to_seq), key=lambda part: self.versions[part.batch]
        ):
            here = list(parts)
            yield self.models[version], here[0].from_seq, here[-1].to_seq

    def models_of(self, part: FrameSlice) -> Models:
        """Return the models with which a frame slice was shed."""
        return self.models[self.versions[part.batch]]

    def key_of(self, part: FrameSlice) -> tuple[str, ...]:
        """Return the attributes that identified a tuple's sender when a frame slice was shed."""
        return self.keys[self.versions[part.batch]]

    @property
    def bounded_attributes(self) -> frozenset[str]:
        return frozenset((*self.runs.attributes("shed"), *self.runs.attributes("round")))

    def apply(self, before: Rows, day: date) -> Rows:
        return SentRows(self, before)

    def recover(self, after: Rows, day: date) -> Rows:
        assert self.synopses, "a decision read back knows where its synopses are"
        return RecoveredRows(self, after, [one.reader_for(day) for one in self.synopses])

    def rows_at_destination(self, after: Rows, day: date) -> Rows:
        return replace(self, held_here=False).recover(after, day)

    def rows_kept_at_source(
        self, table: str, parts: Sequence[FrameSlice], before: Rows, counts: dict[str, int]
    ) -> Iterator[pa.Table]:
        """Yield the synopsis blocks of a slice, frame by frame; `table` says whether those sent or those held."""
        sent = table == SENT_SYNOPSIS
        runs = self.runs.within(parts[0].frame, parts[-1].to_seq)
        models = self.models_of(parts[0])
        key = self.key_of(parts[0])
        # an attribute of the cycle is never shed, but may predict others
        columns = list(dict.fromkeys([*key, *needed_columns(models, runs.shed_attributes(sent))]))
        blocks: list[dict[str, Any]] = []
        for part in parts:
            here = runs.within(part.frame, part.to_seq)
            if not here.shed_attributes(sent):
                continue
            rows = before(columns, part.frame, part.to_seq)
            if not rows.num_rows:
                continue
            for block in shed_frame(rows, key, here, models, part.from_seq, sent):
                blocks.append({"batch": part.batch, "frame": part.frame, **block.__dict__})
                size = len(block.payload) + 1
                where = "sent" if sent else "held"
                for what, count in (("shed", block.shed_values), ("payload", size), (where, size)):
                    name = f"{what}.{block.attribute}"
                    counts[name] = counts.get(name, 0) + count
        if blocks:
            yield pa.Table.from_pylist(blocks)

    def certify(self, part: FrameSlice, truth: Rows, given: Rows) -> list[SliceCertificate]:
        """Measure the errors of recovered and rounded values, and count violations.

        A kept value that differs, and a row that only one side has, are violations. Attributes that no run of the batch
        rounded or shed are not read here: the pipeline compares their checksums.
        """
        version = self.versions[part.batch]
        bounds = self.bounds.get(version) or {name: one.bound for name, one in self.models[version].items()}
        mine = [one for one in self.parts if one.batch == part.batch]
        runs = self.runs.within(mine[0].from_seq, mine[-1].to_seq)
        touched = {*runs.attributes("shed"), *runs.attributes("round")}
        columns = [name for name in bounds if name in touched]
        was = truth(columns, part.from_seq, part.to_seq)
        back = given(columns, part.from_seq, part.to_seq)
        left, right = np.asarray(was["seq"]), np.asarray(back["seq"])
        strays = 0
        if not np.array_equal(left, right):
            both = np.intersect1d(left, right)
            strays = len(left) + len(right) - 2 * len(both)
            was, back = was.take(np.searchsorted(left, both)), back.take(np.searchsorted(right, both))
            left = both
        found = []
        for name, bound in bounds.items():
            one, ways = Certificate(bound.error_pct, error=bound.error), list[str]()
            if name in touched:
                shed, rounded = (self.runs.mask(name, way, left) for way in ("shed", "round"))
                left_column, right_column = Column.from_arrow(was[name]), Column.from_arrow(back[name])
                one = certify(left_column, right_column, bound.error_pct, shed, 0, rounded, error=bound.error)
                ways = [way for way, rows in (("shed", shed), ("round", rounded)) if rows.any()]
                others = changed_rows(left_column, right_column) & ~(shed | rounded)
                one = one.with_violations(one.violations + int(others.sum()))
            # a row that only one side has is a violation of every attribute's bound
            certificate = one.with_violations(one.violations + strays)
            found.append(SliceCertificate(part.batch, name, frozenset(ways), certificate))
        return found


class _ByFrame:
    """Compute columns frame by frame, and cache the last frame, in which the next range usually continues."""

    def __init__(self, plan: AttributeDecision) -> None:
        self.plan = plan
        self._held: tuple[int, int, tuple[str, ...], np.ndarray, Columns] | None = None

    def columns(
        self,
        names: Sequence[str],
        seq: np.ndarray,
        from_seq: int,
        to_seq: int,
        make: Callable[[FrameSlice, int, tuple[str, ...]], tuple[np.ndarray, Columns]],
    ) -> Columns:
        """Return the columns at the rows of a range; `make` processes a frame up to a `seq`."""
        found: dict[str, list[Any]] = {name: [] for name in names}
        for part in self.plan.parts_of(from_seq, to_seq):
            low, high = max(from_seq, part.from_seq), min(to_seq, part.to_seq)
            rows, made = self._frame(part, high, tuple(names), make)
            start, stop = np.searchsorted(rows, [low, high + 1])
            for name in names:
                if name in made:
                    found[name].append(made[name].slice(start, stop - start))
                elif stop > start:
                    found[name].append(pa.nulls(stop - start))
        columns: Columns = {}
        for name, parts in found.items():
            kinds = {part.type for part in parts} - {pa.null()}
            kind = kinds.pop() if kinds else pa.null()
            columns[name] = pa.chunked_array([_chunk(part).cast(kind) for part in parts], kind)
        return columns

    def _frame(
        self,
        part: FrameSlice,
        high: int,
        names: tuple[str, ...],
        make: Callable[[FrameSlice, int, tuple[str, ...]], tuple[np.ndarray, Columns]],
    ) -> tuple[np.ndarray, Columns]:
        held = self._held
        if held is None or held[0] != part.frame or held[1] < high or held[2] != names:
            end = part.to_seq if self.plan.endless else high
            rows, columns = make(part, end, names)
            self._held = held = (part.frame, end, names, rows, columns)
        return held[3], held[4]


def _chunk(values: Any) -> Any:
    return values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values


class SentRows:
    """The rows as the destination sees them: shed values null, rounded values rounded, and the number of the scheme."""

    def __init__(self, plan: AttributeDecision, before: Rows) -> None:
        self.plan, self.before = plan, before
        self._rounded = _ByFrame(plan)

    @property
    def bytes_read_at_source(self) -> int:
        return self.before.bytes_read_at_source

    def values(self, seq: np.ndarray) -> np.ndarray:
        return self.before.values(seq) - _shed_values(self.plan.runs, seq)

    def __call__(self, columns: Sequence[str], from_seq: int, to_seq: int) -> pa.Table:
        runs = self.plan.runs.within(from_seq, to_seq)
        mine = [name for name in columns if name in self.plan.attributes]
        shed = {name: stretches for name in mine if (stretches := runs.treated_ranges(name, "shed"))}
        gone = {n for n, found in shed.items() if any(a <= from_seq and to_seq <= b for a, b in found)}
        rounded = [name for name in mine if name not in gone and runs.treated_ranges(name, "round")]
        past = [name for name in columns if name not in gone and name not in rounded and name != "scheme"]
        rows = self.before(past, from_seq, to_seq)
        seq = np.asarray(rows["seq"])
        made: Columns = {name: pa.nulls(len(seq)) for name in gone}
        if rounded and len(seq):
            made |= self._rounded.columns(rounded, seq, from_seq, to_seq, self._round)
        for name in shed.keys() - gone:
            column = made[name] if name in made else rows[name]
            hidden = pa.chunked_array([pa.array(runs.mask(name, "shed", seq))])
            made[name] = pc.if_else(hidden, pa.scalar(None, column.type), column)
        if "scheme" in columns:
            schemes = np.array([run.scheme for run in runs], np.int64)
            made["scheme"] = pa.array(schemes[runs.index(seq)] if len(seq) else schemes[:0])
        return _replace_columns(rows, columns, made)

    def _round(self, part: FrameSlice, to_seq: int, names: tuple[str, ...]) -> tuple[np.ndarray, Columns]:
        key = self.plan.key_of(part)
        rows = self.before(list(dict.fromkeys([*key, *names])), part.frame, to_seq)
        if not rows.num_rows:
            return np.zeros(0, np.int64), {}
        truth = frame_of(rows, key, names)
        runs = self.plan.runs.within(part.frame, to_seq)
        models = self.plan.models_of(part)
        columns = {
            name: round_rows(
                models[name],
                truth,
                runs.mask(name, "round", truth.seq),
                runs.precision(name, "round", truth.seq),
            ).to_arrow(_kind(rows, name))
            for name in names
        }
        return truth.seq, columns


class RecoveredRows:
    """The rows with shed values recovered.

    The columns `<attribute>__bound_pct` and `<attribute>__bound` have the bounds of inexact values (see the docstring
    of the module).
    """

    def __init__(
        self,
        plan: AttributeDecision,
        after: Rows,
        synopses: Sequence[Callable[[Sequence[str], int, int], pa.Table]],
    ) -> None:
        self.plan, self.after, self._synopses = plan, after, synopses
        self._send = _ByFrame(plan)
        self._blocks: dict[int, list[tuple[str, bool, int, bytes]]] = {}
        self._blocks_of: range = range(0)
        self._used = 0

    @property
    def bytes_read_at_source(self) -> int:
        return self.after.bytes_read_at_source + self._used

    def values(self, seq: np.ndarray) -> np.ndarray:
        return self.after.values(seq) + _shed_values(self.plan.runs, seq)

    def __call__(self, columns: Sequence[str], from_seq: int, to_seq: int) -> pa.Table:
        runs = self.plan.runs.within(from_seq, to_seq)
        asked = dict.fromkeys(map(bounded_attribute, columns))
        back = [name for name in runs.attributes("shed") if name in asked]
        bounds = [name for name in columns if is_bound(name)]
        bounded = {bounded_attribute(name) for name in bounds}
        rounded = [one for one in runs.attributes("round") if one in bounded]
        past = [name for name in (*columns, *rounded) if name not in back and name not in bounds]
        rows = self.after(list(dict.fromkeys(past)), from_seq, to_seq)
        seq = np.asarray(rows["seq"])
        found: Columns = {}
        if len(seq):
            runs.index(seq)  # raises if a row has no run: it may have lost values without a trace
        made: Columns = {name: pa.nulls(len(seq), pa.float64()) for name in bounds}
        if back and len(seq):
            names = [name for one in back for name in (one, one + BOUND_SUFFIX, one + OWN_BOUND_SUFFIX)]
            found = self._send.columns(names, seq, from_seq, to_seq, self._give_back)
            made |= {name: column for name, column in found.items() if name in columns}
        elif back:
            made |= {name: pa.nulls(0) for name in back}
        for name in rounded if len(seq) else ():
            sent = found.get(name, rows[name] if name in rows.column_names else None)
            if sent is not None:
                spans = self.plan.models_within(from_seq, to_seq)
                both = (name + BOUND_SUFFIX, name + OWN_BOUND_SUFFIX)
                pct, own = (made.get(one, found.get(one, pa.nulls(len(seq), pa.float64()))) for one in both)
                told = add_rounded_bounds(pct, own, sent, name, runs, seq, spans)
                made |= {one: told_of for one, told_of in zip(both, told, strict=True) if one in columns}
        return _replace_columns(rows, columns, made)

    def _give_back(self, part: FrameSlice, to_seq: int, names: tuple[str, ...]) -> tuple[np.ndarray, Columns]:
        wanted = [name for name in names if not is_bound(name)]
        models = self.plan.models_of(part)
        key = self.plan.key_of(part)
        columns = dict.fromkeys([*key, *needed_columns(models, wanted), *wanted])
        rows = self.after(list(columns), part.frame, to_seq)
        if not rows.num_rows:
            return np.zeros(0, np.int64), {}
        runs = self.plan.runs.within(part.frame, to_seq)
        shed = [name for name in runs.attributes("shed") if name in wanted]
        payloads: dict[tuple[str, bool], list[bytes]] = {}
        for attribute, sent, first_seq, payload in self._blocks_at(part):
            if first_seq <= to_seq and attribute in with_regressors(models, shed):
                payloads.setdefault((attribute, sent), []).append(payload)
        self._used += sum(
            len(payload) for (_, sent), found in payloads.items() for payload in found if not sent
        )
        made: Columns = {name: rows[name] for name in wanted}
        for name, one in recover_frame(rows, key, runs, models, payloads, shed, self.plan.held_here).items():
            made[name] = one.values.to_arrow(_kind(rows, name))
            gone = runs.mask(name, "shed", np.asarray(rows["seq"]))
            made[name + BOUND_SUFFIX], made[name + OWN_BOUND_SUFFIX] = bounds_of_shed(one, gone)
        return np.asarray(rows["seq"]), made

    def _blocks_at(self, part: FrameSlice) -> list[tuple[str, bool, int, bytes]]:
        """Return the blocks of the frame: attribute, whether it was sent, first `seq`, payload."""
        if part.frame not in self._blocks_of:
            ahead = 0 if self.plan.endless else FRAMES_READ_AHEAD * max(1, part.to_seq - part.frame + 1)
            self._blocks_of = range(part.frame, part.frame + ahead + 1)
            names = ["attribute", "first_seq", "payload"]
            self._blocks = {}
            for sent, read in zip((False, True), self._synopses, strict=True):
                for row in read(names, part.frame, part.frame + ahead).to_pylist():
                    block = (row["attribute"], sent, row["first_seq"], row["payload"])
                    self._blocks.setdefault(row["frame"], []).append(block)
        return self._blocks.get(part.frame, [])


def _replace_columns(rows: pa.Table, columns: Sequence[str], made: Mapping[str, Any]) -> pa.Table:
    """Return `seq` and the columns; a column in `made` replaces the one that was read."""
    names = ["seq", *(name for name in columns if name != "seq")]
    have = set(rows.column_names)
    arrays = [
        made[name] if name in made else rows[name] if name in have else pa.nulls(rows.num_rows)
        for name in names
    ]
    return pa.table(arrays, names=names)


def _kind(rows: pa.Table, name: str) -> pa.DataType | None:
    """Return the type of the column; None if the files do not have it."""
    kind = rows.schema.field(name).type
    return None if pa.types.is_null(kind) else kind


def _shed_values(runs: Runs, seq: np.ndarray) -> np.ndarray:
    """Return the number of shed values of each row."""
    if not len(seq):
        return np.zeros(0, np.int64)
    counts = np.array([len(run.attributes_with("shed")) for run in runs], np.int64)
    return np.asarray(counts[runs.index(seq)])

"""Shed and recover one attribute over one frame: its synopsis (Ahuja 2006, section 3.2.4, Algorithm 3 corrected).

The source processes a frame in `seq` order. It predicts each shed value sv from the values that the destination will
have, and stores a correction only if the prediction mv misses by more than the threshold:

    |mv - sv| / |sv| x 100 > E        (Algorithm 3, with |sv| instead of sv: A17, A18)

Recovery runs the same kernel over the frame as transmitted, with the entries in place of the true values. With the
predictor `last`, mv is the last value *stored* for the key in this frame (A20). Rows at which the attribute was
transmitted do not change it. The first value of a key is always stored (A21). Zero is accepted only for zero. Null,
NaN, infinities and text are stored on every change.

An attribute may have a bound in its own unit instead of a relative one, or both (`bounds`). Every row is shed at a
*precision* of the model (an index); E above is then the aim of that row. The value that a row is compared with does
not depend on the precisions of earlier rows.

Guarantee: every recovered value rv keeps |rv - sv| / |sv| x 100 <= aim of its row <= E in the float64 arithmetic of
`bounds`. Values without such an error (null, NaN, infinities, text, 0) are recovered unchanged. The entries depend only
on the rows of the frame, not on batches (`first_new_row` replays the rows before it and returns new entries only), and
not on partitions.

>>> frame = Frame(np.arange(4), np.array([0, 1, 0, 1]), {"pressure": Column.real([29.91, 27.96, 30.08, 31.64])})
>>> model, everything = AttributeModel("pressure", "real", error_pct=10), np.ones(4, bool)
>>> result = shed(model, frame, everything)
>>> result.positions.tolist()
[0, 1, 3]
>>> received = frame.as_transmitted({"pressure": everything})
>>> recover(model, received, everything, result.entries).values.to_list()
[29.91, 27.96, 29.91, 31.64]
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numba import njit

from spillway.errors import Refused
from spillway.levers.attributes.columns import Column, Frame, shared_dictionary
from spillway.levers.attributes.synopsis.bounds import own_unit_bounds, told_pct, within_integer, within_real
from spillway.levers.attributes.synopsis.model import AttributeModel
from spillway.levers.attributes.synopsis.predictors import column_as_floats, predictor_arrays, scale_of
from spillway.levers.attributes.synopsis.walking import (
    Corrections,
    Precisions,
    Rows,
    TargetColumn,
    step_tables,
    walk,
)


@dataclass(frozen=True, eq=False)
class Entries:
    """Stored corrections in `seq` order: whole `values`, or `steps` away from the prediction.

    If `is_step`, the value is the prediction moved by `steps`, and `values` is null. Otherwise `values` has the value
    itself (null for a stored null), and the step is 0.
    """

    seq: np.ndarray
    is_step: np.ndarray
    steps: np.ndarray
    values: Column

    def __len__(self) -> int:
        return len(self.seq)

    @staticmethod
    def of_values(seq: np.ndarray, values: Column) -> Entries:
        """Return entries that are all whole values, as in the paper's form."""
        n = len(seq)
        return Entries(np.asarray(seq, np.int64), np.zeros(n, np.bool_), np.zeros(n, np.int64), values)

    @staticmethod
    def none(kind: str) -> Entries:
        """Return no entries."""
        return Entries.of_values(np.zeros(0, np.int64), Column.nulls(kind, 0))

    def take(self, rows: np.ndarray) -> Entries:
        """Return some of the entries."""
        return Entries(self.seq[rows], self.is_step[rows], self.steps[rows], self.values.take(rows))

    def __add__(self, later: Entries) -> Entries:
        """Return these entries followed by `later` ones; this joins the slices of a frame that spans batches."""
        values = concatenate(self.values, later.values)
        return Entries(
            np.concatenate([self.seq, later.seq]),
            np.concatenate([self.is_step, later.is_step]),
            np.concatenate([self.steps, later.steps]),
            values,
        )


def concatenate(first: Column, second: Column) -> Column:
    """Return two columns of one kind, one after the other."""
    words: tuple[str, ...] = ()
    if first.kind == "text":
        words = shared_dictionary(first, second)
        first, second = first.with_dictionary(words), second.with_dictionary(words)
    values = np.concatenate([first.values, second.values])
    return Column(first.kind, values, np.concatenate([first.valid, second.valid]), words)


@dataclass(frozen=True, eq=False)
class Shed:
    """The `entries` that the source stores, their rows in the frame (`positions`), and the recovered column."""

    positions: np.ndarray
    entries: Entries
    reconstructed: Column


@dataclass(frozen=True, eq=False)
class Recovered:
    """The recovered attribute over the frame, and the bound of each shed value in % (NaN if it was not shed).

    A bound in the attribute's own unit is given in per cent of the smallest possible true value; infinity if there is
    no such value above 0.
    """

    values: Column
    bound_pct: np.ndarray
    error: np.ndarray
    """The bound of each shed value in the attribute's own unit; NaN if there is none."""


@njit(cache=True, error_model="numpy")
def _source_rows(key, is_shed, values, valid, is_real, precision, aims_pct, aims):  # type: ignore[no-untyped-def]
    n = len(values)
    keys = (key.max() + 1) if n else 0
    at = np.full(keys, -1, np.int64)
    source = np.empty(n, np.int64)
    several, aim_pct, aim = len(aims_pct) > 1, aims_pct[0], aims[0]
    for i in range(n):
        source[i] = i
        if not is_shed[i]:
            continue
        if several:
            aim_pct, aim = aims_pct[precision[i]], aims[precision[i]]
        j = at[key[i]]
        keep = False
        if j >= 0:
            if not valid[i] or not valid[j]:
                keep = valid[i] == valid[j]
            elif is_real:
                keep = within_real(values[j], values[i], aim_pct, aim)
            else:
                keep = within_integer(values[j], values[i], aim_pct, aim)
        if keep:
            source[i] = j
        else:
            at[key[i]] = i
    return source


@njit(cache=True, error_model="numpy")
def _last_entry(key, is_shed, is_entry):  # type: ignore[no-untyped-def]
    n = len(key)
    keys = (key.max() + 1) if n else 0
    at = np.full(keys, -1, np.int64)
    source = np.empty(n, np.int64)
    for i in range(n):
        source[i] = i
        if is_shed[i]:
            if is_entry[i]:
                at[key[i]] = i
            source[i] = at[key[i]]
    return source


def shed(
    model: AttributeModel,
    frame: Frame,
    is_shed: np.ndarray,
    first_new_row: int = 0,
    precision: np.ndarray | None = None,
) -> Shed:
    """Decide for each shed row what the synopsis stores.

    `frame` is as transmitted, except that the attribute's own column has the true values where `is_shed`. `precision`
    has the index of each row's precision in the model (default: the first). The entries are those of the rows from
    `first_new_row` on; `reconstructed` covers the whole frame.
    """
    is_shed, precision = _checked(model, frame, is_shed, precision)
    column = _one_form(frame.columns[model.attribute], is_shed)
    if not model.paper_form:
        return _shed_by_prediction(model, frame, is_shed, precision, column, first_new_row)
    source = _source_rows(
        frame.key,
        is_shed,
        column.values,
        column.valid,
        column.kind == "real",
        precision,
        *_aims(model),
    )
    stored = is_shed & (source == np.arange(len(source)))
    stored[:first_new_row] = False
    positions = np.flatnonzero(stored)
    entries = Entries.of_values(frame.seq[positions], column.take(positions))
    return Shed(positions, entries, column.take(source))


def recover(
    model: AttributeModel,
    frame: Frame,
    is_shed: np.ndarray,
    entries: Entries,
    precision: np.ndarray | None = None,
) -> Recovered:
    """Recover the shed values of a whole frame from the frame as transmitted and its entries.

    `precision` has the index of each row's precision in the model, as it was shed (default: the first).
    """
    is_shed, precision = _checked(model, frame, is_shed, precision)
    rows = _rows_of(frame, is_shed, entries)
    column = frame.columns.get(model.attribute, Column.nulls(model.kind, len(frame)))
    if not model.paper_form:
        return _recover_by_prediction(model, frame, is_shed, precision, column, rows, entries)
    known, bound = _placed(column.hide(is_shed), rows, entries.values), np.full(len(frame), np.nan)
    is_entry = np.zeros(len(frame), np.bool_)
    is_entry[rows] = True
    source = _last_entry(frame.key, is_shed, is_entry)
    if bool((source < 0).any()):
        row = int(np.argmax(source < 0))
        raise Refused(
            "entries",
            f"hold the first shed value of every key, as of that at seq {frame.seq[row]}",
            None,
            "read all batches of the frame",
        )
    given_back = known.take(source)
    error = _tell_bounds(bound, model, is_shed, precision, given_back)
    bound[rows], error[rows] = 0.0, np.nan
    return Recovered(given_back, bound, error)


def _one_form(column: Column, rows: np.ndarray) -> Column:
    """Return the column with one zero (0.0) and one NaN in the shed rows, so that equal values have equal bits at both
    ends."""
    if column.kind != "real":
        return column
    values = np.where(np.isnan(column.values), np.nan, column.values + 0.0)
    return Column(column.kind, np.where(rows, values, column.values), column.valid)


def _shed_by_prediction(
    model: AttributeModel,
    frame: Frame,
    is_shed: np.ndarray,
    precision: np.ndarray,
    column: Column,
    first_new_row: int,
) -> Shed:
    corrections = _no_corrections(len(frame))
    known = _walked(False, model, frame, Rows(frame.key, is_shed, precision), column, corrections)
    positions = np.flatnonzero(corrections.is_entry[first_new_row:]) + first_new_row
    stepped, steps = corrections.is_step[positions], corrections.steps[positions]
    entries = Entries(frame.seq[positions], stepped, steps, known.take(positions).hide(stepped))
    return Shed(positions, entries, known)


def _recover_by_prediction(
    model: AttributeModel,
    frame: Frame,
    is_shed: np.ndarray,
    precision: np.ndarray,
    column: Column,
    rows: np.ndarray,
    entries: Entries,
) -> Recovered:
    corrections = _no_corrections(len(frame))
    corrections.is_entry[rows], corrections.steps[rows] = True, entries.steps
    corrections.is_step[rows] = entries.is_step
    whole = rows[~entries.is_step]
    given = _placed(column.hide(is_shed), whole, entries.values.take(~entries.is_step))
    known = _walked(True, model, frame, Rows(frame.key, is_shed, precision), given, corrections)
    bound = np.full(len(frame), np.nan)
    error = _tell_bounds(bound, model, is_shed, precision, known)
    ladder = np.array([one.ladder for one in model.precisions])  # on a ladder, whole values are levels too
    exact = whole[~ladder[precision[whole]]]
    bound[exact], error[exact] = 0.0, np.nan
    return Recovered(known, bound, error)


def _no_corrections(rows: int) -> Corrections:
    return Corrections(np.zeros(rows, np.bool_), np.zeros(rows, np.bool_), np.zeros(rows, np.int64))


def _walked(
    decode: bool, model: AttributeModel, frame: Frame, rows: Rows, column: Column, corrections: Corrections
) -> Column:
    """Return the column of the destination; encoding fills `corrections`."""
    known = TargetColumn(
        *column_as_floats(column), column.valid.copy(), column.kind == "integer", scale_of(model)
    )
    predictors = predictor_arrays(model.predictors, frame)
    lost = walk(decode, rows, known, corrections, predictors, model.blend, _precisions(model))
    if lost >= 0:
        raise Refused(
            "entries",
            f"give the rows as transmitted a start, as that at seq {frame.seq[lost]}",
            None,
            "read all batches of the frame",
        )
    return Column(column.kind, known.wholes if column.kind == "integer" else known.values, known.valid)


def _precisions(model: AttributeModel) -> Precisions:
    tables, starts = step_tables(tuple((one.step_pct, one.unit) for one in model.precisions))
    units = np.array([one.unit for one in model.precisions])
    return Precisions(
        *_aims(model), units, np.array([one.ladder for one in model.precisions]), tables, starts
    )


def _tell_bounds(
    bound: np.ndarray, model: AttributeModel, is_shed: np.ndarray, precision: np.ndarray, values: Column
) -> np.ndarray:
    """Set `bound` to the bounds of shed values in per cent; return their bounds in the attribute's own unit."""
    error = np.full(len(bound), np.nan)
    if model.kind == "text":  # exact at every precision
        bound[is_shed] = 0.0
        return error
    places = [model.bound_at(place) for place in range(len(model.precisions))]
    told = told_pct(places, precision, values.values)
    bound[is_shed] = told[is_shed]
    error[is_shed] = own_unit_bounds(places, precision, told)[is_shed]
    return error


def _aims(model: AttributeModel) -> tuple[np.ndarray, np.ndarray]:
    """Return the bound at each precision, in per cent and in the own unit; text is exact at every precision."""
    if model.kind == "text":
        return np.zeros(len(model.precisions)), np.zeros(len(model.precisions))
    bounds = [model.bound_at(place) for place in range(len(model.precisions))]
    return np.array([one.error_pct for one in bounds]), np.array([one.error for one in bounds])


def _placed(column: Column, rows: np.ndarray, values: Column) -> Column:
    words: tuple[str, ...] = ()
    if column.kind == "text":
        words = shared_dictionary(column, values)
        column, values = column.with_dictionary(words), values.with_dictionary(words)
    data, valid = column.values.copy(), column.valid.copy()
    data[rows], valid[rows] = values.values, values.valid
    return Column(column.kind, data, valid, words)


def _checked(
    model: AttributeModel, frame: Frame, is_shed: np.ndarray, precision: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray]:
    is_shed = np.ascontiguousarray(is_shed, dtype=np.bool_)
    if len(is_shed) != len(frame):
        raise Refused("is_shed", f"have {len(frame)} flags", len(is_shed), "one per row of the frame")
    column = frame.columns.get(model.attribute)
    if column is not None and column.kind != model.kind:
        raise Refused(model.attribute, f"be {model.kind} as trained", column.kind, "retrain the stream")
    return is_shed, checked_precision(precision, len(frame), len(model.precisions))


def checked_precision(precision: np.ndarray | None, rows: int, count: int) -> np.ndarray:
    """Return the index of each row's precision (default: the first); raise unless all are below `count`.

    The kernels do not check bounds.

    >>> checked_precision(None, 2, 1).tolist()
    [0, 0]
    """
    if precision is None:
        return np.zeros(rows, np.int16)
    precision = np.asarray(precision)
    if len(precision) != rows:
        raise Refused("precision", f"have {rows} places", len(precision), "give one per row of the frame")
    if rows and not 0 <= int(precision.min()) <= int(precision.max()) < count:
        odd = int(precision.min()) if precision.min() < 0 else int(precision.max())
        raise Refused(
            "precision", f"be a place among {count}", odd, "use the models that the batch was shed with"
        )
    return precision.astype(np.int16)


def _rows_of(frame: Frame, is_shed: np.ndarray, entries: Entries) -> np.ndarray:
    rows = np.searchsorted(frame.seq, entries.seq)
    inside = rows < len(frame)
    good = inside & (frame.seq[np.where(inside, rows, 0)] == entries.seq) if len(frame) else inside
    good &= is_shed[np.where(inside, rows, 0)] if len(frame) else good
    if not bool(good.all()):
        seq = int(entries.seq[int(np.argmin(good))])
        raise Refused("entries", "have the seq of shed rows of the frame", seq, "read the same frame")
    return rows

"""Check the pairs of a window one by one, against the two rows of each.

Pairs were found with windows, shares, ranks and an index. Here they are tested by the definition alone: both rows are
in the inputs at the times of the pair, `matching.makes_pair` holds for their items, the later row arrived in the
window, and the earlier one had not expired:

    begin <= max(T(l), T(r)) < end,    T(r) - T(l) <= w_left  where the left row is the earlier (or neither is),
                                       T(l) - T(r) <= w_right where the right row is

Missing pairs are not checked; `join_windows` has an interval for their number.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import numpy as np
import pyarrow as pa
from numba import njit

from spillway.levers.joins.matching import PREDICATES, makes_pair, shared
from spillway.levers.joins.operands import Array, ItemSets, Operand
from spillway.levers.joins.settings import JoinSettings

EXAMINED_PAIRS = pa.schema(
    [
        ("pairs", pa.int64()),
        ("null_columns", pa.int64()),
        ("doubles", pa.int64()),
        ("not_in_inputs", pa.int64()),
        ("no_match", pa.int64()),
        ("out_of_window", pa.int64()),
        ("light", pa.int64()),
        ("odd_shares", pa.int64()),
        ("sic", pa.float64()),
        ("utility", pa.float64()),
    ]
)
"""Results of the check of a window; `not_in_inputs` and `no_match` are null if its inputs or the rule have changed."""
_REQUIRED = ("left_seq", "right_seq", "left_time", "right_time", "utility", "weight", "sic")


def examined_pairs(
    settings: JoinSettings,
    rows: pa.Table,
    span: tuple[datetime, datetime],
    lasts: tuple[float, float],
    sides: tuple[Operand, Operand] | None,
    with_itself: bool,
) -> Mapping[str, Any]:
    """Return how many of the pairs violate each rule, and the sums of sic and utility.

    `lasts`: how long rows of each side stayed in the window when the pairs were made, in microseconds; `sides`: the
    rows that the join received in this window.
    """
    left, right = (np.asarray(rows[f"{side}_seq"].fill_null(-1)) for side in ("left", "right"))
    times = [_micros(rows[f"{side}_time"]) for side in ("left", "right")]
    weight, sic, utility = (_numbers(rows[name]) for name in ("weight", "sic", "utility"))
    order = np.lexsort((right, left))
    same = (np.diff(left[order]) == 0) & (np.diff(right[order]) == 0)
    begin, end = (round(edge.timestamp() * 1_000_000) for edge in span)
    later, gap = np.maximum(*times), times[1] - times[0]
    too_far = np.where(gap >= 0, gap > lasts[0], -gap > lasts[1])
    found: dict[str, Any] = {
        "pairs": rows.num_rows,
        "null_columns": sum(rows[name].null_count for name in _REQUIRED),
        "doubles": int(same.sum()),
        "not_in_inputs": None,
        "no_match": None,
        "out_of_window": int((too_far | (later < begin) | (later >= end)).sum()),
        "light": int((~(weight >= 1.0)).sum()),
        "odd_shares": int((~((sic > 0.0) & (sic <= 1.0))).sum()),
        "sic": float(sic.sum()),
        "utility": float(utility.sum()),
    }
    if sides is None:
        return found
    places = [_places(side, seq, at) for side, seq, at in zip(sides, (left, right), times, strict=True)]
    known = (places[0] >= 0) & (places[1] >= 0)
    matching = _matching(
        sides[0].sets,
        sides[1].sets,
        places[0][known],
        places[1][known],
        PREDICATES[settings.predicate],
        float(settings.threshold or 0.0),
    )
    if with_itself:
        matching &= left[known] != right[known]
    return found | {"not_in_inputs": int((~known).sum()), "no_match": int((~matching).sum())}


def _places(side: Operand, seq: Array, at: Array) -> Array:
    """Return the index of each row in its side; -1: it is missing, or has another time."""
    if not side.rows:
        return np.full(len(seq), -1, np.int64)
    order = np.argsort(side.seq, kind="stable")
    found = order[np.minimum(np.searchsorted(side.seq[order], seq), side.rows - 1)]
    return np.where((side.seq[found] == seq) & (side.at[found] == at), found, -1)


@njit(cache=True)
def _matching(
    lefts: ItemSets, rights: ItemSets, left: Array, right: Array, predicate: int, threshold: float
) -> Array:
    found = np.zeros(len(left), np.bool_)
    for k in range(len(left)):
        i, j = lefts.first[left[k]], lefts.first[left[k] + 1]
        m, n = rights.first[right[k]], rights.first[right[k] + 1]
        common, product = shared(lefts, i, j, rights, m, n)
        found[k] = makes_pair(predicate, threshold, common, product, j - i, n - m)
    return found


def _micros(column: pa.ChunkedArray) -> Array:
    return np.asarray(column.cast(pa.timestamp("us", tz="UTC")).cast(pa.int64()).fill_null(0))


def _numbers(column: pa.ChunkedArray) -> Array:
    """Return the values; null becomes NaN."""
    return np.asarray(column.cast(pa.float64()).fill_null(float("nan")))

"""Which rows repeat others, by their values and nothing else.

>>> rows = pa.table({"seq": [4, 5, 6, 7], "k": pa.array([None, 1.0, None, 2.0])})
>>> repeated_seqs([rows], ("k",), ("double",)).tolist()
[6]
>>> repeated_seqs([rows], ("k",), ("double",), within=1).tolist()
[]
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numba import njit

from spillway.sketches.types import Booleans, Integers


def repeated_seqs(
    parts: Sequence[pa.Table],
    names: Sequence[str],
    types: Sequence[str],
    mine: tuple[int, int] | None = None,
    within: int | None = None,
) -> Integers:
    """The `seq` of every row that repeats one which stays, at most `within` before it, by values alone.

    Rows outside `mine` (from, to) stand where they are, and those after it count as those before do.
    """
    rows = pa.concat_tables([part.select(["seq", *names]) for part in parts], promote_options="permissive")
    if not rows.num_rows:
        return np.empty(0, np.int64)
    seqs, alike = np.asarray(rows["seq"]), alike_by_values(rows, names, types)
    order = np.lexsort((seqs, alike))
    first, last = mine or (int(seqs.min()), int(seqs.max()))
    reach = np.iinfo(np.int64).max if within is None else within
    return np.sort(seqs[order[_repeats(seqs[order], alike[order], first, last, reach)]])


def alike_by_values(rows: pa.Table, names: Sequence[str], types: Sequence[str]) -> Integers:
    """A number for each row, equal for equal values and no others."""
    alike = np.zeros(rows.num_rows, np.int64)
    for name, kind in zip(names, types, strict=True):
        codes = _codes(rows[name], kind)
        # two numbers become one, and that small again before the next attribute
        _, alike = np.unique(alike * (int(codes.max()) + 1) + codes, return_inverse=True)
    return alike


@njit(cache=True)
def _repeats(seqs: Integers, alike: Integers, first: int, last: int, within: int) -> Booleans:
    """Of rows ordered by what they are alike in and then by `seq`: those from `first` to `last` that repeat another.

    Each is compared with the last like it that stays, and with the first like it after `last`.
    """
    found = np.zeros(seqs.size, np.bool_)
    after = np.full(seqs.size, -1)
    for place in range(seqs.size - 1, -1, -1):
        if seqs[place] > last:
            after[place] = place
        elif place + 1 < seqs.size and alike[place + 1] == alike[place]:
            after[place] = after[place + 1]
    stayed = 0
    for place in range(seqs.size):
        if first <= seqs[place] <= last:
            known = place > 0 and alike[place] == alike[stayed]
            found[place] = known and seqs[place] - seqs[stayed] <= within
            if not found[place] and after[place] >= 0:
                found[place] = seqs[after[place]] - seqs[place] <= within
        if not found[place]:
            stayed = place
    return found


def _codes(column: pa.ChunkedArray, kind: str) -> Integers:
    """A number for each value, equal for equal values and no others; null is a value."""
    whole = column.combine_chunks()
    if pa.types.is_null(whole.type):
        return np.zeros(len(whole), np.int64)
    if kind == "double":
        numbers = np.asarray(pc.fill_null(whole.cast(pa.float64()), 0.0)) + 0.0
        bits = np.where(np.isnan(numbers), np.nan, numbers).view(np.int64)
        whole = pa.array(bits, mask=np.asarray(whole.is_null()))
    return np.asarray(whole.dictionary_encode("encode").indices).astype(np.int64)

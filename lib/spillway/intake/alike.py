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
    first_seq: int = 0,
    within: int | None = None,
) -> Integers:
    """The `seq` of every row that repeats one which stayed and came at most `within` before: by values alone.

    Rows before `first_seq` stand where they are.
    """
    rows = pa.concat_tables([part.select(["seq", *names]) for part in parts], promote_options="permissive")
    if not rows.num_rows:
        return np.empty(0, np.int64)
    seqs, alike = np.asarray(rows["seq"]), alike_by_values(rows, names, types)
    order = np.lexsort((seqs, alike))
    reach = np.iinfo(np.int64).max if within is None else within
    return np.sort(seqs[order[_repeats(seqs[order], alike[order], first_seq, reach)]])


def alike_by_values(rows: pa.Table, names: Sequence[str], types: Sequence[str]) -> Integers:
    """A number for each row, equal for equal values and no others."""
    alike = np.zeros(rows.num_rows, np.int64)
    for name, kind in zip(names, types, strict=True):
        codes = _codes(rows[name], kind)
        # two numbers become one, and that small again before the next attribute
        _, alike = np.unique(alike * (int(codes.max()) + 1) + codes, return_inverse=True)
    return alike


@njit(cache=True)
def _repeats(seqs: Integers, alike: Integers, first_seq: int, within: int) -> Booleans:
    """Which rows, ordered by what they are alike in and then by `seq`, repeat the last like them that stayed."""
    found = np.zeros(seqs.size, np.bool_)
    stayed = 0
    for place in range(seqs.size):
        known = place > 0 and alike[place] == alike[stayed]
        found[place] = known and seqs[place] >= first_seq and seqs[place] - seqs[stayed] <= within
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

"""Values as small integers, so that equality, order of appearance and joint keys are array arithmetic.

>>> import numpy as np
>>> codes, values = value_codes(np.array(["LGA", None, "JFK", "LGA"], dtype=object))
>>> codes.tolist(), values
([0, -1, 1, 0], ['LGA', 'JFK'])
>>> joint_codes([codes, np.array([0, 0, 1, 1])]).tolist()
[0, -1, 1, 2]
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

Codes = npt.NDArray[np.int64]


def plain_value(value: Any) -> Any:
    """A value as JSON holds it: Python scalars; times as ISO text, so that they compare after a reload."""
    if isinstance(value, np.datetime64 | np.timedelta64):
        return str(value)
    if isinstance(value, np.generic):
        return value.item()
    if hasattr(value, "isoformat"):
        return value.isoformat()
    return value


def value_codes(values: npt.NDArray[Any]) -> tuple[Codes, list[Any]]:
    """Codes in order of first appearance, and the value of each; null and NaN are -1."""
    codes, uniques = pd.factorize(np.asarray(values), use_na_sentinel=True)
    listed = uniques if uniques.dtype.kind in "mM" else uniques.tolist()
    return codes.astype(np.int64), [plain_value(value) for value in listed]


def first_appearance(codes: Codes) -> tuple[Codes, Codes]:
    """Codes made dense in order of first appearance, and the row where each first appears; -1 stays."""
    dense, uniques = pd.factorize(np.where(codes < 0, np.int64(-1), codes), use_na_sentinel=False)
    missing = np.flatnonzero(uniques == -1)
    if missing.size:
        hole = int(missing[0])
        dense = np.where(dense == hole, -1, dense - (dense > hole))
        uniques = np.delete(uniques, hole)
    dense = dense.astype(np.int64)
    first_rows = np.full(len(uniques), -1, dtype=np.int64)
    present = np.flatnonzero(dense >= 0)
    first_rows[dense[present][::-1]] = present[::-1]
    return dense, first_rows


def rows_by_value(codes: Codes) -> Codes:
    """Rows ordered by code, equal codes in row order; numpy sorts 16 bits by radix, in linear time."""
    narrow = codes.astype(np.uint16) if len(codes) and codes.min() >= 0 and codes.max() < 65536 else codes
    return np.argsort(narrow, kind="stable")


def joint_codes(parts: Sequence[Codes]) -> Codes:
    """One code per combination, in order of first appearance; -1 where any part is missing."""
    joint = parts[0]
    for part in parts[1:]:
        width = int(part.max(initial=0)) + 1
        missing = (joint < 0) | (part < 0)
        joint = first_appearance(np.where(missing, np.int64(-1), joint * width + part))[0]
    return joint


def coded_keys(
    columns: Mapping[str, npt.NDArray[Any]], attributes: Sequence[str]
) -> tuple[Codes, list[tuple[Any, ...]]]:
    """Joint codes of the key and the tuple of values behind each code."""
    parts = [value_codes(np.asarray(columns[name])) for name in attributes]
    filled = [
        (np.where(codes < 0, len(values), codes), [*values, None]) if len(parts) > 1 else (codes, values)
        for codes, values in parts
    ]
    codes, first_rows = first_appearance(joint_codes([codes for codes, _ in filled]))
    listed = [tuple(values[part[row]] for part, values in filled) for row in first_rows]
    return codes, listed

"""What the column `<attribute>__bound_pct` says of each value: null where it is as it was.

A number: it was rounded, or shed and given back, within so many per cent of the truth. Infinity under a null: it was
shed and is not here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from spillway.levers.attributes.columns import Column
from spillway.levers.attributes.scheme import Runs
from spillway.levers.attributes.synopsis.entries import Recovered
from spillway.levers.attributes.synopsis.model import AttributeModel
from spillway.levers.attributes.synopsis.rounding import rounded_bound_pct


def bounds_of_shed(back: Recovered, gone: np.ndarray) -> pa.Array:
    """Those of the values that were shed: `gone`, row by row."""
    absent = gone & np.isnan(back.bound_pct)
    # a null that is given back is exact, in whatever unit its bound is stated
    null = gone & ~absent & ~back.values.valid & np.isinf(back.bound_pct)
    return _told(np.where(absent, np.inf, np.where(null, 0.0, back.bound_pct)))


def with_rounded(
    bounds: Any,
    sent: Any,
    name: str,
    runs: Runs,
    seq: np.ndarray,
    spans: Iterable[tuple[Mapping[str, AttributeModel], int, int]],
) -> pa.Array:
    """`bounds` with those of rounded values, which are there as they were `sent`; `spans`: whose models hold where."""
    told = np.array(bounds.to_numpy(zero_copy_only=False), np.float64)
    for models, low, high in spans:
        here = slice(*np.searchsorted(seq, [low, high + 1]))
        is_rounded = runs.mask(name, "round", seq[here])
        if name in models and is_rounded.any():
            places = runs.precision(name, "round", seq[here])
            own = rounded_bound_pct(models[name], Column.from_arrow(sent[here]), is_rounded, places)
            told[here] = np.where(is_rounded, own, told[here])
    return _told(told)


def _told(bounds: np.ndarray) -> pa.Array:
    return pa.array(bounds, mask=np.isnan(bounds))

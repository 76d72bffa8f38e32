"""The columns `<attribute>__bound_pct` and `<attribute>__bound`: the bound of each value.

Null: the value is exact. It equals the one at the source; of a value that was shed, -0.0 comes back as 0.0, and every
NaN as one NaN. A number: the value was rounded, or shed and recovered. It is within that many per cent of the truth
(`__bound_pct`), or within that distance in the attribute's own unit (`__bound`). NaN in `__bound_pct`: the value
is within `__bound`; no relative bound holds, because the value is not larger than `__bound`. Infinity in `__bound_pct`:
the value is null because it was shed and is absent. Nothing else is infinite.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from spillway.levers.attributes.columns import Column
from spillway.levers.attributes.scheme import Runs
from spillway.levers.attributes.synopsis.bounds import own_unit_bounds
from spillway.levers.attributes.synopsis.entries import Recovered
from spillway.levers.attributes.synopsis.model import AttributeModel
from spillway.levers.attributes.synopsis.rounding import rounded_bound_pct


def bounds_of_shed(back: Recovered, gone: np.ndarray) -> tuple[pa.Array, pa.Array]:
    """Return the bounds of shed values, in per cent and in their own unit; `gone`: which rows they are."""
    absent = gone & np.isnan(back.bound_pct)
    # a null that is given back is exact, in whatever unit its bound is stated
    null = gone & ~absent & ~back.values.valid & np.isinf(back.bound_pct)
    pct = np.where(null, 0.0, back.bound_pct)
    told = np.where(absent, np.inf, np.where(np.isinf(pct), np.nan, pct))
    error = np.where(gone & back.values.valid, back.error, np.nan)
    return pa.array(told, mask=np.isnan(pct) & ~absent), _stated(error)


def with_rounded(
    bounds: Any,
    errors: Any,
    sent: Any,
    name: str,
    runs: Runs,
    seq: np.ndarray,
    spans: Iterable[tuple[Mapping[str, AttributeModel], int, int]],
) -> tuple[pa.Array, pa.Array]:
    """`bounds` (in per cent) and `errors` (in the own unit) with those of rounded values, which are there as they were
    `sent`; `spans`: whose models hold where."""
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
    return pa.array(told, mask=as_it_was), _stated(error)


def _stated(errors: np.ndarray) -> pa.Array:
    return pa.array(errors, mask=np.isnan(errors))

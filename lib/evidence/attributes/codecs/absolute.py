"""Compare SZ3 and pcodec with our synopses under the same bound in the attribute's own unit.

The bound of a quantity is `SHARE` of the distance between the 5th and the 95th percentile of the training tuples; codes
are exact. SZ3 runs in its absolute mode, pcodec on even steps of twice the bound. If a column has few decimals, both
also try whole numbers with the widest step within the bound. The better of both row orders counts. Nulls and values
that are no numbers take one code per row. Rivals need not keep zeros exactly, as we must; that favours the rivals.

>>> column = Column.real(np.round(np.linspace(0.0, 50.0, 400), 1))
>>> coarse, fine = (smallest_within("pcodec", column, np.zeros(400, int), error) for error in (0.5, 0.05))
>>> coarse < fine
True
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from evidence.attributes.codecs.compressors import ALGORITHMS, pcodec_bytes, sz3_packed, zstd_bytes
from spillway.levers.attributes.columns import Column, Frame
from spillway.levers.attributes.packing.whole_numbers import decimals_of

SHARE = 0.01
TIGHTER = (1.0, 0.5, 0.1)
"""Rivals may also use a tighter bound, because a finer step sometimes takes fewer bytes."""


def bound_in_unit(column: Column) -> float:
    """Return the bound of a quantity; 0 if it hardly varies."""
    values = column.values[column.valid].astype(np.float64)
    values = values[np.isfinite(values)]
    low, high = np.percentile(values, [5.0, 95.0]) if len(values) else (0.0, 0.0)
    return SHARE * float(high - low)


def smallest_within(name: str, column: Column, key: np.ndarray, error: float) -> int:
    """Return the bytes in the better of both orders."""
    orders = (np.arange(len(column)), np.argsort(key, kind="stable"))
    return min(_within(name, column.take(order), error * share) for order in orders for share in TIGHTER)


def _within(name: str, column: Column, error: float) -> int:
    values = column.values.astype(np.float64)
    known = column.valid & np.isfinite(values)
    codes = np.where(known, 0, np.where(column.valid, 1, 2)).astype(np.uint8)
    size = len(zstd_bytes(codes.tobytes())) if len(np.unique(codes)) > 1 else 1
    values = values[known]
    if not len(values):
        return size
    decimals = decimals_of(values, 6) if column.kind == "real" else 0
    found = []
    if decimals is not None:
        whole = np.rint(values * 10.0**decimals)
        most = math.floor(error * 10.0**decimals * (1 + 1e-12))
        if name == "pcodec":
            found.append(pcodec_bytes(np.rint(whole / (2 * most + 1)).astype(np.int64)))
        else:
            found += [len(sz3_packed(whole, most + 0.499, one)[0]) for one in ALGORITHMS]
    if error > 0:
        if name == "pcodec":
            found.append(pcodec_bytes(np.rint(values / (2 * error)).astype(np.int64)))
        else:
            found += [len(sz3_packed(values, error, one)[0]) for one in ALGORITHMS]
    elif decimals is None:
        found.append(pcodec_bytes(values))
    return size + min(found)


def bounds_in_unit(frame: Frame, relative: Mapping[str, float]) -> dict[str, float]:
    """Return the bound of every measure that may be inexact."""
    return {name: bound_in_unit(frame.columns[name]) if bound else 0.0 for name, bound in relative.items()}

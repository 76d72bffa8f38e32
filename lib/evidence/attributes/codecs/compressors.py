"""Compress whole columns with SZ3 and pcodec, error-bounded rivals of a synopsis, on equal terms.

* `sz3` (Liang et al. 2023): the logarithms of the magnitudes with an absolute bound of ln(1 + E), by its default
  (interpolation or Lorenzo), by Lorenzo with regression, and without predicting;
* `pcodec`: logarithms on even steps of 2 ln(1 + E), as whole numbers, at its highest level.

Both also compress the values themselves, with their signs and zeros. Values with decimals are scaled to whole numbers,
and SZ3 keeps these within half a unit. This is smaller if a column has fewer values than the bound allows. It is the
only choice if nothing may be lost.

Both get the column in the order of arrival or by key (the key is sent, so the order needs no bytes); the smaller
result counts. Null, NaN, zero, sign and infinity have no magnitude; they are one code per row, compressed with zstd.
All bytes that decoding needs are counted. A reader may round the decoded values to the column's decimals; the smaller
mean error of the two counts, which favours the rivals.

>>> column = Column.real(np.array([10.0, 10.2, 0.0, 11.0] * 50))
>>> found = smallest("pcodec", column, np.zeros(200, int), error_pct=5.0)
>>> found.packed_bytes < 200, found.mean_error_pct <= 5.0
(True, True)
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pcodec
import pyarrow as pa
from pcodec import standalone
from pysz import sz, szAlgorithm, szConfig, szErrorBoundMode

from spillway.levers.attributes.columns import Column
from spillway.levers.attributes.packing.whole_numbers import decimals_of

COMPRESSORS = ("sz3", "pcodec")
_SLACK = 1.0 - 1e-9
ALGORITHMS = (szAlgorithm.INTERP_LORENZO, szAlgorithm.LORENZO_REG, szAlgorithm.NOPRED)
_SEARCHES = 12
_LARGEST_WHOLE = 2.0**50
_NEARLY_EXACT = 1e-9  # %: what SZ3 is let off with where it has no exact form


@dataclass(frozen=True)
class Compressed:
    """A compressed column: all of its bytes, and the errors after decompression."""

    packed_bytes: int
    mean_error_pct: float
    max_error_pct: float


@dataclass(frozen=True, eq=False)
class _Magnitudes:
    """A column in some order: codes for values without a magnitude, and the magnitudes."""

    code_bytes: int
    values: np.ndarray
    decimals: int | None
    known: int


def smallest(
    name: str, column: Column, key: np.ndarray, error_pct: float, *, mean_error_pct: float | None = None
) -> Compressed:
    """Return the smaller of both orders at a bound, or at the loosest bound within it that keeps a mean error."""
    orders = [np.arange(len(column)), np.argsort(key, kind="stable")]
    parts = [_magnitudes(column.take(order)) for order in orders]
    forms = [(form, part) for part in parts for form in _FORMS[name]]
    exact = [
        found for found in (_exact_size(name, column.take(order)) for order in orders) if found is not None
    ]
    if not error_pct and exact:
        return min(exact, key=lambda one: one.packed_bytes)
    best, form, part = min(
        ((form(part, error_pct or _NEARLY_EXACT), form, part) for form, part in forms),
        key=lambda one: one[0].packed_bytes,
    )
    if mean_error_pct is not None and best.mean_error_pct > mean_error_pct:
        low, high = max(mean_error_pct, _NEARLY_EXACT), error_pct
        for _ in range(_SEARCHES):
            middle = math.sqrt(low * high)
            if form(part, middle).mean_error_pct > mean_error_pct:
                high = middle
            else:
                low = middle
        within = [form(part, low)]
        within += [one for one in (f(p, low) for f, p in forms) if one.mean_error_pct <= mean_error_pct]
        best = min(within, key=lambda one: one.packed_bytes)
    return min([best, *exact], key=lambda one: one.packed_bytes)


def _magnitudes(column: Column) -> _Magnitudes:
    real = column.kind == "real"
    values = column.values.astype(np.float64)
    finite = column.valid & np.isfinite(values)
    codes = np.where(values < 0, 2, 1) * (finite & (values != 0))
    codes = np.where(column.valid, codes, 3)
    if real:
        codes[column.valid & np.isnan(values)] = 4
        codes[column.valid & np.isposinf(values)] = 5
        codes[column.valid & np.isneginf(values)] = 6
    kept = (codes == 1) | (codes == 2)
    decimals = decimals_of(values[kept], 6) if real else 0
    size = len(zstd_bytes(codes.astype(np.uint8).tobytes())) if len(np.unique(codes)) > 1 else 1
    return _Magnitudes(size, np.abs(values[kept]), decimals, int(column.valid.sum()))


def zstd_bytes(plain: bytes) -> bytes:
    return bytes(pa.Codec("zstd", compression_level=19).compress(plain, asbytes=True))


def _measure_errors(part: _Magnitudes, size: int, given: np.ndarray) -> Compressed:
    offered = [given]
    if part.decimals is not None:
        scale = 10.0**part.decimals
        offered.append(np.rint(given * scale) / scale)
    errors = [np.abs(one - part.values) / part.values * 100.0 for one in offered]
    mean = min(float(error.sum()) for error in errors) / max(1, part.known)
    return Compressed(size + part.code_bytes, mean, float(errors[0].max(initial=0.0)))


def _sz3(algorithm: szAlgorithm) -> Callable[[_Magnitudes, float], Compressed]:
    def compress(part: _Magnitudes, error_pct: float) -> Compressed:
        if not len(part.values):
            return _measure_errors(part, 0, part.values)
        bound = math.log1p(error_pct / 100.0) * _SLACK
        packed, given = sz3_packed(np.log(part.values), bound, algorithm)
        return _measure_errors(part, len(packed), np.exp(given))

    return compress


def sz3_packed(values: np.ndarray, bound: float, algorithm: szAlgorithm) -> tuple[np.ndarray, np.ndarray]:
    config = szConfig(len(values))
    config.errorBoundMode = szErrorBoundMode.ABS
    config.absErrorBound = bound
    config.cmprAlgo = algorithm
    packed, _ = sz.compress(np.ascontiguousarray(values), config)
    return packed, sz.decompress(packed, np.float64, values.shape)[0]


def _pcodec(part: _Magnitudes, error_pct: float) -> Compressed:
    step = 2.0 * math.log1p(error_pct / 100.0) * _SLACK
    steps = np.rint(np.log(part.values) / step).astype(np.int64)
    return _measure_errors(part, pcodec_bytes(steps), np.exp(steps * step))


def pcodec_bytes(values: np.ndarray) -> int:
    if not len(values):
        return 0
    config = pcodec.ChunkConfig(compression_level=12)
    return len(standalone.simple_compress(np.ascontiguousarray(values), config))


def _exact_size(name: str, column: Column) -> Compressed | None:
    """Return the column compressed exactly: whole numbers or signed floats, and one code per row if there are nulls."""
    values, floats = column.values[column.valid], column.values[column.valid].astype(np.float64)
    decimals = None
    if bool((np.isfinite(floats) & (np.abs(floats) < _LARGEST_WHOLE)).all()):
        decimals = decimals_of(floats, 6) if column.kind == "real" else 0
    forms = []
    if name == "pcodec":
        forms.append(pcodec_bytes(values))
    if decimals is not None and len(values):
        scaled = np.rint(floats * 10.0**decimals)
        if name == "pcodec":
            forms.append(pcodec_bytes(scaled.astype(np.int64)))
        else:
            forms += [len(sz3_packed(scaled, 0.499, algorithm)[0]) for algorithm in ALGORITHMS]
    if not forms:
        return None
    nulls = 1 if bool(column.valid.all()) else len(zstd_bytes(column.valid.astype(np.uint8).tobytes()))
    return Compressed(nulls + min(forms), 0.0, 0.0)


_FORMS: dict[str, tuple[Callable[[_Magnitudes, float], Compressed], ...]] = {
    "sz3": tuple(_sz3(algorithm) for algorithm in ALGORITHMS),
    "pcodec": (_pcodec,),
}

"""Ranges and quantiles: order codes, exact counts while it can, intervals that cover."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spillway.errors import Refused
from spillway.sketches.dyadic import Dyadic, DyadicParameters, cell_edges, order_code

REALS = st.floats(allow_nan=False, width=64)


@settings(max_examples=60, deadline=None)
@given(st.lists(REALS, min_size=2, max_size=30), st.integers(12, 62))
def test_codes_keep_the_order_and_cells_hold_their_values(values: list[float], bits: int) -> None:
    ordered = sorted(values)
    codes = order_code(np.array(ordered), bits)
    assert (np.diff(codes.astype(object)) >= 0).all()
    for value, code in zip(ordered, codes.tolist(), strict=True):
        low, high = cell_edges(code, bits)
        # the outermost cells reach past the infinities
        assert np.isnan(low) or low <= value
        assert np.isnan(high) or value <= high


def test_cells_are_as_narrow_as_stated() -> None:
    for value in (1.0, 1234.5, -0.001):
        low, high = cell_edges(int(order_code(np.array([value]), 32)[0]), 32)
        assert (high - low) / abs(value) < 2.0**-20


@settings(max_examples=15, deadline=None)
@given(st.lists(st.integers(-50, 50), min_size=1, max_size=40), st.integers(-60, 60), st.integers(0, 60))
def test_a_roomy_sketch_counts_ranges_and_quantiles_exactly(values: list[int], low: int, span: int) -> None:
    sketch = Dyadic(DyadicParameters(4096, 5, 24)).update(values)
    truth = sum(low <= value <= low + span for value in values)
    assert sketch.between(low, low + span).estimate == pytest.approx(truth, abs=1e-6)
    ordered = sorted(values)
    for share in (0.0, 0.25, 0.5, 1.0):
        wanted = ordered[max(int(np.ceil(share * len(values))), 1) - 1]
        found = sketch.quantile(share)
        assert found.estimate == wanted
        assert found.low <= wanted <= found.high


def test_merging_is_sketching_both_streams() -> None:
    rng = np.random.default_rng(1)
    left, right = rng.normal(size=500), rng.normal(size=300)
    parameters = DyadicParameters(64, 3, 20, seed=4)
    merged = Dyadic(parameters).update(left).merge(Dyadic(parameters).update(right))
    whole = Dyadic(parameters).update(np.concatenate([left, right]))
    assert merged.to_bytes() == whole.to_bytes() == Dyadic.from_bytes(whole.to_bytes()).to_bytes()
    with pytest.raises(Refused, match="same parameters and seed"):
        merged.merge(Dyadic(DyadicParameters(64, 3, 20, seed=5)))


def test_nulls_and_nan_have_no_order_and_are_counted_apart() -> None:
    sketch = Dyadic(DyadicParameters(64, 3)).update([1.0, float("nan"), 2.0], [True, True, False])
    assert (sketch.total, sketch.unordered) == (1, 2)
    assert sketch.quantile(1.0).estimate == 1.0
    nothing = Dyadic(DyadicParameters(64, 3)).update([1.0, 2.0], [False, False])
    with pytest.raises(Refused, match="2 nulls or NaN"):
        nothing.quantile(0.5)
    assert nothing.between(0, 9).estimate == 0.0


def test_infinities_and_extremes_are_values() -> None:
    values = [-np.inf, -1.8e308 / 10, -1e-300, 0.0, 1e-300, 2.0**63, np.inf]
    sketch = Dyadic(DyadicParameters(1024, 5, 62)).update(values)
    assert sketch.between(-np.inf, np.inf).estimate == len(values)
    assert sketch.quantile(1.0).estimate == np.inf
    assert sketch.between(0.0, 0.0).estimate == 1.0


def test_intervals_cover_ranges_and_quantiles() -> None:
    rng = np.random.default_rng(2)
    values = rng.lognormal(3.0, 1.0, 20_000)
    ordered = np.sort(values)
    hits = []
    for seed in range(40):
        sketch = Dyadic(DyadicParameters(256, 3, 28, seed)).update(values)
        low, high = np.sort(rng.choice(values, 2, replace=False))
        found = sketch.between(low, high, 0.9)
        # the ends are as sharp as a cell
        truth = np.mean([((values >= low) & (values <= high)).sum()])
        hits.append(found.low <= truth + 3 and truth - 3 <= found.high)
        share = rng.uniform(0.05, 0.95)
        quantile = sketch.quantile(share, 0.9)
        hits.append(quantile.low <= ordered[int(np.ceil(share * 20_000)) - 1] <= quantile.high)
    # binomial(80, 0.9): sd 0.034
    assert np.mean(hits) > 0.9 - 3 * 0.034


def test_wrong_questions_are_refused() -> None:
    sketch = Dyadic(DyadicParameters(64, 3)).update([1.0])
    with pytest.raises(Refused, match="from 0 to 1"):
        sketch.quantile(1.1)
    with pytest.raises(Refused, match="low end first"):
        sketch.between(2.0, 1.0)
    for shape in ((8, 3, 32), (64, 0, 32), (64, 3, 11), (64, 3, 63)):
        with pytest.raises(Refused, match="lie from"):
            DyadicParameters(*shape)

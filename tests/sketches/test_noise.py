"""Order statistics of the pooled noise, against drawing them."""

from __future__ import annotations

import numpy as np
import pytest

from spillway.sketches.intervals import Noise


@pytest.mark.parametrize("depth", [1, 4, 5])
def test_every_order_has_the_distribution_of_drawn_rows(depth: int) -> None:
    rng = np.random.default_rng(1)
    values = rng.exponential(10.0, 500)
    noise = Noise(values, depth)
    drawn = np.sort(rng.choice(values, (100_000, depth)), axis=1)
    for order in range(1, depth + 1):
        column = drawn[:, order - 1]
        for share in (0.05, 0.5, 0.95):
            # binomial(100,000, share): sd of the share below 0.0016, a step of the 500 values weighs up to 0.01
            assert np.mean(column <= noise.quantile(order, share)) == pytest.approx(
                share, abs=4 * 0.0016 + 0.01
            )
        spread = np.abs(column - np.median(column))
        assert noise.deviation(order) == pytest.approx(spread.mean(), rel=0.03)


def test_one_sided_noise_prefers_low_orders_and_symmetric_noise_the_middle() -> None:
    rng = np.random.default_rng(2)
    assert Noise(rng.pareto(1.0, 2000), 5).sharpest() == 1
    assert Noise(rng.normal(size=2000), 5).sharpest() == 3
    assert Noise(np.zeros(10), 5).sharpest() == 1


def test_a_large_table_is_read_in_part_and_tells_the_same() -> None:
    values = np.random.default_rng(3).normal(size=300_000)
    # 75,000 values: the median of 5 deviates by about 0.54 / sqrt(75,000 / 5)
    assert Noise(values, 5).quantile(3, 0.9) == pytest.approx(0.69, abs=0.03)

"""Min-hash signatures agree as often as similarity says."""

from __future__ import annotations

import numpy as np
import pytest

from evidence.sketches.min_hash import min_hash
from spillway.errors import Refused


def two_sets(shared: int, own: int) -> tuple[np.ndarray, np.ndarray]:
    both = np.arange(shared)
    tokens = [both, 100 + np.arange(own), both, 200 + np.arange(own)]
    return np.concatenate(tokens).astype(np.uint64), np.array([shared + own, 2 * (shared + own)])


@pytest.mark.parametrize(("shared", "own"), [(10, 0), (10, 5), (5, 15), (0, 10)])
def test_coordinates_agree_with_the_probability_of_jaccard(shared: int, own: int) -> None:
    tokens, ends = two_sets(shared, own)
    one, two = min_hash(tokens, ends, 4000)
    jaccard = shared / (shared + 2 * own)
    # binomial(4000, J): sd at most 0.008
    assert (one == two).mean() == pytest.approx(jaccard, abs=4 * 0.008)


def test_all_empty_sets_are_alike() -> None:
    first, second, third = min_hash(np.array([5], dtype=np.uint64), np.array([0, 1, 1]), 2)
    assert first.tolist() == third.tolist() != second.tolist()


def test_wrong_shapes_are_refused() -> None:
    tokens = np.array([1, 2], dtype=np.uint64)
    with pytest.raises(Refused, match="rise to 2"):
        min_hash(tokens, np.array([1]), 2)
    with pytest.raises(Refused, match="at least 1"):
        min_hash(tokens, np.array([2]), 0)

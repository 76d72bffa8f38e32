"""Min-hash and random projection agree as often as similarity says."""

from __future__ import annotations

import numpy as np
import pytest

from spillway.sketches.min_hash import min_hash, random_projection, super_shingles, text_tokens
from spillway.sketches.types import SketchError

WORDS = [f"word{i}" for i in range(60)]


def two_sets(shared: int, own: int) -> tuple[np.ndarray, np.ndarray]:
    left = " ".join(WORDS[: shared + own])
    right = " ".join(WORDS[:shared] + WORDS[shared + own : shared + 2 * own])
    return text_tokens([left, right])


@pytest.mark.parametrize(("shared", "own"), [(10, 0), (10, 5), (5, 15), (0, 10)])
def test_coordinates_agree_with_the_probability_of_jaccard(shared: int, own: int) -> None:
    tokens, ends = two_sets(shared, own)
    one, two = min_hash(tokens, ends, 4000)
    jaccard = shared / (shared + 2 * own)
    # binomial(4000, J): sd at most 0.008
    assert (one == two).mean() == pytest.approx(jaccard, abs=4 * 0.008)


@pytest.mark.parametrize(("shared", "own"), [(10, 0), (10, 10), (0, 10)])
def test_signs_agree_with_the_probability_of_the_angle(shared: int, own: int) -> None:
    tokens, ends = two_sets(shared, own)
    one, two = random_projection(tokens, ends, 4000, bits=1)
    angle = np.arccos(shared / (shared + own))
    # ties (a sum of 0, one in four for 20 signs) count as negative for both: a bias below 0.05 towards agreement
    assert (one == two).mean() == pytest.approx(1 - angle / np.pi, abs=4 * 0.008 + 0.05)
    wide = random_projection(tokens, ends, 3, bits=16)
    assert (wide[0] == wide[1]).all() == (own == 0)


def test_weights_turn_the_projection() -> None:
    tokens, ends = two_sets(5, 5)
    heavy_shared = np.where(np.isin(tokens, tokens[:5]), 10.0, 1.0)
    plain, weighted = (random_projection(tokens, ends, 3000, 1, w) for w in (None, heavy_shared))
    assert (weighted[0] == weighted[1]).mean() > (plain[0] == plain[1]).mean()


def test_super_shingles_agree_only_when_all_their_coordinates_do() -> None:
    signature = np.arange(24, dtype=np.uint64).reshape(2, 12) % np.uint64(12)
    signature[1, 0] += np.uint64(1)
    one, two = super_shingles(signature, 6)
    assert (one == two).tolist() == [False] + [True] * 5
    with pytest.raises(SketchError, match="divide the 12"):
        super_shingles(signature, 5)


def test_texts_become_sets_of_runs_of_words() -> None:
    tokens, ends = text_tokens(["A b a B", None, "", "a b"], words=2)
    assert ends.tolist() == [2, 2, 2, 3]
    assert tokens[0] == tokens[2]
    empty = min_hash(tokens, ends, 2)
    assert empty[1].tolist() == empty[2].tolist()


def test_wrong_shapes_are_refused() -> None:
    tokens, ends = text_tokens(["a b"])
    with pytest.raises(SketchError, match="rise to 2"):
        min_hash(tokens, np.array([1]), 2)
    with pytest.raises(SketchError, match="at least 1"):
        min_hash(tokens, ends, 0)
    with pytest.raises(SketchError, match="from 1 to 64"):
        random_projection(tokens, ends, 1, bits=65)
    with pytest.raises(SketchError, match="one per token"):
        random_projection(tokens, ends, 1, weights=np.ones(3))
    with pytest.raises(SketchError, match="at least 1"):
        text_tokens(["a"], words=0)

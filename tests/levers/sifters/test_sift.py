"""Sifting: fractions within one row, the same rows every time, unbiased weights and marks."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spillway.errors import InvalidValue
from spillway.levers.sifters.filter import PIECE_SEQS, piece_of, piece_seed, sift_rows


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**63), st.integers(1, 3000), st.integers(1, 12), st.sampled_from([0.0, 0.01, 0.2]))
def test_every_region_and_all_together_are_within_one_row(
    seed: int, rows: int, count: int, share: float
) -> None:
    rng = np.random.default_rng(seed % 2**32)
    thresholds = np.minimum(rng.choice([0.0, 0.1, 0.5, 0.999, 1.0, rng.random()], count), 1.0 - share)
    regions = rng.integers(-1, count, rows)
    seq = np.sort(rng.choice(10 * rows, rows, replace=False))
    kept, marked = sift_rows(seq, regions, thresholds, share, seed)
    keep = np.append(1 - thresholds, 1.0)[regions]
    assert abs(kept.sum() - keep.sum()) <= 1 + 1e-6
    for region in range(-1, count):
        mine = regions == region
        assert abs(kept[mine].sum() - keep[mine].sum()) < 1 + 1e-6
        # of those kept one in so many is marked: one row for each of the two roundings
        assert abs(marked[mine].sum() - share * mine.sum()) < 2 + 1e-6
    assert kept[marked].all()
    assert kept[regions == -1].all()


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**63), st.lists(st.integers(1, 400), min_size=1, max_size=6), st.integers(1, 6))
def test_all_pieces_together_keep_less_than_a_row_a_piece_too_many(
    seed: int, sizes: list[int], count: int
) -> None:
    """What a plan reserves: of a whole number of rows, one for every piece but the first."""
    rng = np.random.default_rng(seed % 2**32)
    thresholds = rng.random(count)
    wanted, kept = 0.0, 0
    for number, rows in enumerate(sizes):
        regions = rng.integers(-1, count, rows)
        wanted += float(np.append(1 - thresholds, 1.0)[regions].sum())
        kept += int(
            sift_rows(np.arange(rows), regions, thresholds, 0.0, piece_seed(seed, 0, number))[0].sum()
        )
    assert kept < wanted + len(sizes) + 1e-6


def test_the_same_piece_gives_the_same_rows_and_another_seed_others() -> None:
    seq, regions = np.arange(5000), np.arange(5000) % 7
    thresholds = np.linspace(0.1, 0.9, 7)
    once, again = (sift_rows(seq, regions, thresholds, 0.05, 3) for _ in range(2))
    assert np.array_equal(once[0], again[0])
    assert np.array_equal(once[1], again[1])
    assert not np.array_equal(once[0], sift_rows(seq, regions, thresholds, 0.05, 4)[0])


def test_two_keys_that_take_turns_lose_alike() -> None:
    """By arrival, half of two alternating keys would be all of one. 4 sigma of a binomial of 2000 at a half: 90."""
    kept, _ = sift_rows(np.arange(4000), np.zeros(4000, int), np.array([0.5]), 0.0, 11)
    assert abs(int(kept[::2].sum()) - int(kept[1::2].sum())) < 180


def test_weights_are_unbiased_and_marks_do_not_know_the_thresholds() -> None:
    """Over seeds, every row is kept with its chance: 400 seeds, 4.5 sigma of a binomial's share is 0.1125 at most."""
    rng = np.random.default_rng(1)
    regions, seq = np.sort(rng.integers(0, 3, 300)), np.arange(300)
    thresholds = np.array([0.15, 0.5, 0.9])
    kept, marked = np.zeros(300), np.zeros(300)
    for seed in range(400):
        one = sift_rows(seq, regions, thresholds, 0.1, piece_seed(seed, 0, 0))
        kept += one[0]
        marked += one[1]
    assert np.abs(kept / 400 - (1 - thresholds)[regions]).max() < 0.1125
    assert np.abs(marked / 400 - 0.1).max() < 4.5 * np.sqrt(0.1 * 0.9 / 400)


def test_a_piece_is_known_by_any_seq_of_it() -> None:
    assert {piece_of(seq, 1000) for seq in (1000, 1000 + PIECE_SEQS - 1)} == {(1000, 999 + PIECE_SEQS)}
    assert piece_of(1000 + PIECE_SEQS, 1000)[0] == 1000 + PIECE_SEQS


def test_no_threshold_may_eat_into_the_sample() -> None:
    with pytest.raises(InvalidValue, match=r"`thresholds` must be at most 0.9, for a share of 0.1"):
        sift_rows(np.arange(3), np.zeros(3, int), np.array([0.95]), 0.1, 1)

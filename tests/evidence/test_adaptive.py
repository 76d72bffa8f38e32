"""What adapting gains: the arithmetic of gains and intervals, and contests that nobody wins by doing nothing."""

from __future__ import annotations

import numpy as np
import pytest

from evidence.adaptive.figures import verdicts
from evidence.adaptive.gains import Contest, below_least_gain, bootstrap_gain, gain_figures, tell_contests
from evidence.adaptive.partitions import BLOCKS_A_FOLD, FOLDS, THROTTLES, lost_by_block, stocks
from evidence.adaptive.reevaluation import losses
from evidence.adaptive.streams import row_slices
from evidence.adaptive.values import (
    Residuals,
    bytes_by_slice,
    category_contest,
    coder_contests,
    cycle_contests,
    lossless_contests,
    packed_by,
    predictor_contest,
    residuals_by_slice,
)
from evidence.attributes.codecs.samples import Sample, real_sample
from evidence.book import Book
from spillway.levers.attributes.columns import Column, Frame
from spillway.levers.attributes.option import Option
from spillway.levers.attributes.synopsis.entries import Entries
from spillway.levers.attributes.window_planner import WindowRanking
from spillway.parquet import compressed_widths

pytestmark = pytest.mark.long  # the figures of `make evidence`, not the product


def contest(mine: list[float], stream: str = "weather", **rivals: list[float]) -> Contest:
    return Contest("coder", stream, "bytes", "ours", {"ours": mine, **rivals})


def test_gain_is_over_the_rival_with_the_smallest_total() -> None:
    found = contest([80.0, 80.0], zstd=[100.0, 100.0], pcodec=[60.0, 100.0])
    assert found.best_rival == "pcodec"
    assert found.gain.pct == 0.0
    assert found.gain_over("zstd").pct == pytest.approx(20.0)


def test_contestant_that_does_the_same_as_the_mechanism_leaves_it_no_gain() -> None:
    same = list(np.random.default_rng(0).gamma(2.0, 5.0, 30))
    gain = contest(same, never=same).gain
    assert (gain.pct, gain.low, gain.high) == (0.0, 0.0, 0.0)


def test_mechanism_that_costs_more_has_a_gain_below_zero() -> None:
    assert contest([150.0, 150.0], never=[100.0, 100.0]).gain.pct == pytest.approx(-50.0)
    # nothing is lost without the mechanism: that it loses something must not read as no difference
    assert contest([1.0, 1.0], never=[0.0, 0.0]).gain.pct < 0


def test_contestants_measured_on_other_blocks_are_refused() -> None:
    with pytest.raises(ValueError, match="same blocks"):
        bootstrap_gain([1.0, 2.0], [1.0])


def test_interval_holds_the_true_gain_in_about_95_of_100_streams() -> None:
    """The ratio of expectations is 0.9. Of 300 intervals 15 +- 4 should miss; those of few blocks miss more."""
    rng, held = np.random.default_rng(5), 0
    for seed in range(300):
        size = rng.gamma(4.0, 25.0, 25)
        mine, theirs = size * rng.uniform(0.7, 1.1, 25), size * rng.uniform(0.9, 1.1, 25)
        gain = bootstrap_gain(mine.tolist(), theirs.tolist(), seed)
        held += gain.low <= 10.0 <= gain.high
    assert 300 * 0.95 - 30 <= held <= 300 * 0.95 + 13


def test_figures_are_named_by_mechanism_and_stream_with_both_ends_of_the_interval() -> None:
    found = gain_figures([contest([90.0] * 4, zstd=[100.0] * 4)])
    for name in ("adaptive.coder.gain_pct.weather", "adaptive.coder.gain_over_zstd_pct.weather"):
        assert [found[name], found[f"{name}_low"], found[f"{name}_high"]] == [pytest.approx(10.0)] * 3


def test_mechanism_stays_only_where_it_gains_enough_on_some_stream() -> None:
    little = contest([99.0] * 3, "weather", zstd=[100.0] * 3)
    much = contest([50.0] * 3, "stocks", zstd=[100.0] * 3)
    assert below_least_gain([little]) == {"coder": True}
    assert below_least_gain([little, much]) == {"coder": False}
    book = Book(lambda _: None)
    assert verdicts(book, [little]) == {"adaptive.coder.below_2_pct_everywhere": 1.0}
    tell_contests(book, "Coder", [little, much])


def test_rivals_are_given_all_that_the_coder_stores() -> None:
    """Random steps of six bits, random rows: no form can be below the entropy, and none wastes half of it."""
    rng = np.random.default_rng(3)
    rows = np.flatnonzero(rng.random(4000) < 0.5)
    steps = rng.integers(1, 65, len(rows))
    entries = Entries(rows, np.ones(len(rows), np.bool_), steps, Column.nulls("real", len(rows)))
    frame = Frame(np.arange(4000), np.zeros(4000, np.int64), {"a": Column.real(np.ones(4000))})
    entropy_bytes = (4000 * 1.0 + len(rows) * 6.0) / 8.0
    for rival in ("zstd", "pcodec"):
        size, _ = packed_by(rival, Residuals(entries, frame))
        assert 0.99 * entropy_bytes < size < 1.5 * entropy_bytes
    whole = Entries.of_values(rows, Column.real(rng.random(len(rows))))
    for rival in ("zstd", "pcodec"):
        assert packed_by(rival, Residuals(whole, frame))[0] > len(rows) * 6.5


@pytest.fixture(scope="module")
def sample() -> Sample:
    return real_sample("seattle_days")


def test_value_contests_measure_every_contestant_on_the_same_slices(sample: Sample) -> None:
    predictors, trained = predictor_contest(sample)
    of_class, class_extras = category_contest(sample)
    of_cycle, cycle_extras = cycle_contests(sample)
    every = [predictors, *coder_contests(sample, trained), of_class, *of_cycle]
    blocks = len(row_slices(len(sample.parts["later"])))
    for one in every:
        assert {len(found) for found in one.blocks.values()} == {blocks}
        assert len(one.rivals) >= 1
    assert set(predictors.blocks) == {"lattice", "last_value", "small_set"}
    assert class_extras == {"adaptive.category.looser_than_stated.seattle_days": 0.0}
    assert cycle_extras["adaptive.cycle_search.strict_finds_a_period.seattle_days"] in (0.0, 1.0)
    assert bytes_by_slice(trained, sample.parts["later"]) == predictors.blocks["lattice"]


def test_synopsis_is_compared_with_all_bytes_of_the_later_columns(sample: Sample) -> None:
    _, trained = predictor_contest(sample)
    within, exact = lossless_contests(sample, trained)
    later = sample.rows.slice(len(sample.parts["training"])).select(sample.measures)
    assert later.num_rows == len(sample.parts["later"])
    for one in (within, exact):
        assert sum(one.blocks["columns"]) == pytest.approx(sum(compressed_widths(later).values()))
        assert len(one.blocks["synopsis"]) == len(one.blocks["columns"])
    assert sum(within.blocks["synopsis"]) <= sum(exact.blocks["synopsis"])


def test_slices_hold_every_entry_once(sample: Sample) -> None:
    _, trained = predictor_contest(sample)
    later = sample.parts["later"]
    blocks = residuals_by_slice(trained, later)
    for place, name in enumerate(trained.order):
        seqs = np.concatenate([block[place].entries.seq for block in blocks])
        assert np.array_equal(seqs, np.unique(seqs)), name
        assert len(seqs) > 0
    assert sum(len(block[0].frame) for block in blocks) == len(later)


def test_windows_lose_what_the_scheme_in_force_sheds() -> None:
    options = {name: [Option(name, "keep", 4), Option(name, "shed", 0)] for name in "ab"}
    scores = {"a": 1.0, "b": 2.0}

    def looks(shed: str) -> list[WindowRanking]:
        return [
            WindowRanking(n, 0, scores, {shed: "shed"}, {"a": "shed"}, evaluated=False) for n in range(40)
        ]

    found = losses({"right": looks("a"), "wrong": looks("b")}, options, placed=True)
    # the first of two places weighs a half, the second one; an absent attribute of two lacks 100 / 2 points of it
    assert (sum(found["right"]), sum(found["wrong"])) == (40 * 25.0, 40 * 50.0)
    assert sum(losses({"x": looks("a")}, options, placed=False)["x"]) == 40 * 50.0


def test_partitions_are_compared_at_the_same_rows_kept_and_random_drops_lose_their_share() -> None:
    lost, seconds = lost_by_block(stocks(), "first")
    assert {len(found) for found in lost.values()} == {len(THROTTLES) * FOLDS * BLOCKS_A_FOLD}
    assert {len(found) for found in seconds.values()} == {len(THROTTLES) * FOLDS}
    # of everything that queries ask for, a random drop loses 1 - z; quotes are asked for unevenly, so with some spread
    expected = sum((1 - z) * FOLDS for z in THROTTLES)
    assert sum(lost["random"]) == pytest.approx(expected, rel=0.1)
    assert sum(lost["demand"]) < 0.5 * sum(lost["random"])

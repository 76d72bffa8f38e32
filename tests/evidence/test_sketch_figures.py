"""The sketches' evidence asks what it says it asks, at a scale that takes seconds."""

from __future__ import annotations

import pytest

from evidence.sketches import coverage, membership, pairs, repeats
from evidence.sketches.figures import fuzz_payloads

pytestmark = pytest.mark.long  # the figures of `make evidence`, not the product


def silent(_: str) -> None:
    return


def test_every_question_type_and_skew_is_a_cell_of_its_own() -> None:
    found = coverage.cells(silent, questions=100)
    cells = len(coverage.SKEWS_ASKED) * (3 * len(coverage.TYPES_ASKED) + 4) + 5 + 12 + 3
    assert found["sketches.coverage_cells"] == cells
    assert found["sketches.coverage_questions_per_cell"] == 100
    # 100 questions tell little: what is false would lie far below
    assert found["sketches.coverage_pct_lowest"] > 80
    assert found["sketches.interval_width_over_theory_largest"] < 1.5


def test_nothing_new_leaves_and_nothing_within_the_window_stays() -> None:
    found = repeats.confirm_repeats(silent, size=20_000)
    assert (found["sketches.new_rows_dropped"], found["sketches.repeats_within_missed"]) == (0, 0)
    assert found["sketches.repeats_found"] > 5_000


def test_filters_that_take_turns_miss_fewer_than_the_stable_one() -> None:
    found = membership.alternating_filters(silent, 1 << 14, spaces=[1 << 14])
    assert found["sketches.repeats_settings"] == 10
    assert found["sketches.repeats_missed_points_under_stable_bloom"] > 0


def test_sampling_gets_the_bytes_that_counters_take() -> None:
    said: list[str] = []
    found = pairs.online_errors(said.append, size=4_000, seeds=1)
    assert "random samples of 750 records" in said[0], (
        "36,000 bytes: 3 streams of 1000 x 3 counters of 4 bytes"
    )
    assert found["sketches.paircount_over_sampling_error_equal_bytes"] > 0


def test_payloads_with_something_changed_are_read_or_refused() -> None:
    found = fuzz_payloads(silent, 600)
    assert found["sketches.fuzz_inputs"] >= 600
    assert found["sketches.fuzz_unhandled"] == 0

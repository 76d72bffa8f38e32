"""Even intervals against counting every one."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evidence.attributes.even_intervals import evenly, fixed_interval_evaluations
from spillway.errors import Refused


@settings(max_examples=80, deadline=None)
@given(st.lists(st.sampled_from("ab"), min_size=1, max_size=40), st.integers(0, 100))
def test_the_fewest_even_evaluations_are_found(letters: list[str], hits_pct: int) -> None:
    schemes = [frozenset(letter) for letter in letters]

    def hits(evaluations: int) -> int:
        looked = evenly(len(schemes), evaluations)
        return sum(schemes[max(w for w in looked if w <= i)] == schemes[i] for i in range(len(schemes)))

    counts = [hits(evaluations) for evaluations in range(1, len(schemes) + 1)]
    wanted = next(n for n, count in enumerate(counts, 1) if count * 100 >= hits_pct * len(schemes))
    assert fixed_interval_evaluations(schemes, hits_pct) == wanted


def test_no_windows_and_more_than_all_hits_are_refused_by_name() -> None:
    with pytest.raises(Refused, match="`fresh_schemes` must hold at least one window"):
        fixed_interval_evaluations([], 95)
    with pytest.raises(Refused, match="`hits_pct` must lie between 0 and 100, got 101"):
        fixed_interval_evaluations([frozenset("a")], 101)

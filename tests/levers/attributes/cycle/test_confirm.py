"""What the first part of the training set shows must hold in its last part, or it is no cycle."""

from __future__ import annotations

import numpy as np
import pytest

from evidence.streams import perturb
from spillway.levers.attributes.cycle.codes import first_appearance
from spillway.levers.attributes.cycle.identifier import CycleNotFound, find_cycle
from spillway.levers.attributes.cycle.trace import trace_cycle
from spillway.levers.attributes.cycle.validation import confirm_on_held_back_rows, first_rows, share_in_order

N = 4000


def in_order_until(share: float, members: int = 12, seed: int = 1) -> np.ndarray:
    """Members in turn up to a share of the rows, at random after it."""
    rng = np.random.default_rng(seed)
    return np.where(np.arange(N) < share * N, np.arange(N) % members, rng.integers(0, members, N))


@pytest.mark.parametrize("seed", range(5))
def test_an_order_that_ends_before_the_last_quarter_is_not_taken(seed: int) -> None:
    codes = in_order_until(0.83, seed=seed)
    whole = trace_cycle(codes)
    assert whole.accepted, "over all rows it would pass"
    assert not confirm_on_held_back_rows(codes, whole, 0.8).confirmed
    with pytest.raises(CycleNotFound) as raised:
        find_cycle({"k": codes}, np.arange(N), {})
    assert raised.value.attributes == ("k",)
    assert raised.value.reason == "is not confirmed by the last quarter of the tuples"


@pytest.mark.parametrize("seed", range(5))
def test_another_order_in_the_last_quarter_is_not_the_cycle(seed: int) -> None:
    rng = np.random.default_rng(seed)
    later = rng.permutation(12)
    codes = np.where(np.arange(N) < 0.82 * N, np.arange(N) % 12, later[np.arange(N) % 12])
    whole = trace_cycle(codes)
    assert whole.accepted, "over all rows it would pass"
    assert not confirm_on_held_back_rows(codes, whole, 0.8).confirmed


@pytest.mark.parametrize("seed", range(5))
def test_the_stated_noise_is_confirmed(seed: int) -> None:
    rng = np.random.default_rng(seed)
    codes = first_appearance((np.arange(N) % 48)[perturb(N, rng)])[0]
    found = confirm_on_held_back_rows(codes, trace_cycle(codes), 0.8)
    assert found.confirmed
    # 1 - .05 - .01 - 3 x .02 = .88; sd sqrt(.12 x .88 / 1000) = .010
    assert found.share == pytest.approx(0.88, abs=0.035)


def test_members_that_join_and_leave_in_the_last_quarter_do_not_refute_the_others() -> None:
    rows = []
    for turn in range(100):
        live = [k for k in range(20) if k != 7 or turn < 85] + ([20] if turn >= 80 else [])
        rows += live
    codes = np.array(rows)
    found = confirm_on_held_back_rows(codes, trace_cycle(codes), 0.8)
    assert found.confirmed
    assert found.share > 0.98


def test_values_that_are_all_new_in_the_last_quarter_confirm_nothing() -> None:
    """Sorted by city: the hours of each go round in the city's own history alone."""
    city = np.searchsorted([1600, 3040], np.arange(N), side="right")
    codes = np.arange(N) % 24 + 24 * city
    assert trace_cycle(codes).accepted
    assert not confirm_on_held_back_rows(codes, trace_cycle(codes), 0.8).confirmed


@pytest.mark.parametrize(("rows", "length"), [(1000, 3.0), (1000, 400.0), (1000, 480.0), (100, 99.0)])
def test_the_first_part_is_three_quarters_or_holds_two_cycles(rows: int, length: float) -> None:
    first = first_rows(rows, length)
    assert 0.75 * rows <= first <= rows
    assert first == rows or first >= 2 * length


def test_bursts_of_senders_at_random_do_not_move_in_order() -> None:
    rng = np.random.default_rng(4)
    sender = np.repeat(rng.integers(0, 25, 500), 8)
    columns = {"sender": sender, "reading": np.arange(N) % 8}
    both = 8 * sender + np.arange(N) % 8
    trace = trace_cycle(both)
    assert trace.accepted, "seven steps of eight conform"
    assert share_in_order(both, trace, sender) < 0.25
    cycle = find_cycle(columns, np.arange(N), {}, keys=["sender"])
    assert (cycle.attributes, cycle.form) == (("sender",), "by keys")


def test_sites_that_move_in_order_do() -> None:
    rows = perturb(N, np.random.default_rng(1))
    both = first_appearance((np.arange(N) % 60)[rows])[0]
    assert share_in_order(both, trace_cycle(both), (np.arange(N) % 60 // 5)[rows]) > 0.9

"""Rankings at equal bytes against filling the room by hand, and what key frames cost against the product's tables."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import permutations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evidence.attributes.equal_bytes import (
    CAPACITIES_PCT,
    best_ranking_error,
    equal_bytes,
    error_over_best,
    plan_error,
    ranking_error,
    stream_options,
)
from evidence.attributes.generated import Source
from evidence.attributes.key_frames import key_frame_price
from evidence.attributes.lab import Lab
from evidence.attributes.nine import trained_and_shed
from evidence.attributes.rankings import RANKINGS, orders
from evidence.book import Book
from spillway.errors import Refused
from spillway.levers.attributes.option import Option

NAMES = ("Router", "Current Index", "Response Time", "Packet Loss", "Minimum Delay")
Measure = tuple[int, int, int]
"""Width, synopsis, mean error."""


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    made = trained_and_shed(Source("e.net", "internet", NAMES, 24), cycles=100, seed=3)
    yield made
    made.lake.forget()


def offered(measures: dict[str, Measure]) -> dict[str, list[Option]]:
    return {
        name: [
            Option(name, "keep", width),
            Option(name, "round", width / 2, 0, 0.5),
            Option(name, "shed", 0, synopsis, error),
        ]
        for name, (width, synopsis, error) in measures.items()
    }


def crumb_by_crumb(measures: dict[str, Measure], order: tuple[str, ...], room: int, synopsis: str) -> float:
    """A thousand tuples: each attribute is taken from one tuple after the other until all fits."""
    tuples = 1000
    sent = sum(width for width, _, _ in measures.values()) * tuples
    lost = 0.0
    gone: list[str] = []
    for name in order:
        width, packed, error = measures[name]
        if synopsis == "send" and packed >= width:
            continue
        for _ in range(tuples):
            if sent <= room * tuples:
                break
            sent -= width - (packed if synopsis == "send" else 0)
            lost += error if synopsis == "send" else 100
        gone.append(name)
    if synopsis == "send":
        for name in order:
            width, packed, error = measures[name]
            for _ in range(tuples):
                if sent <= room * tuples:
                    break
                sent -= packed if name in gone else width
                lost += 100 - (error if name in gone else 0)
    return lost / tuples / len(measures)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9), st.integers(0, 20)), min_size=1, max_size=4),
    st.integers(0, 30),
    st.sampled_from(["hold", "send"]),
)
def test_a_ranking_fills_the_room_to_the_last_byte(rows: list[Measure], room: int, synopsis: str) -> None:
    measures = dict(zip("abcd", rows, strict=False))
    options = offered(measures)
    for order in permutations(measures):
        got = ranking_error(options, order, room, synopsis)
        # whole tuples: a crumb more may go than is needed, once in each pass
        assert got == pytest.approx(crumb_by_crumb(measures, order, room, synopsis), abs=0.25)
    every = {"all": [list(order) for order in permutations(measures)]}
    best = best_ranking_error(options, every, room, synopsis)
    assert best == min(ranking_error(options, order, room, synopsis) for order in every["all"])


def test_room_for_everything_costs_nothing_and_no_room_leaves_nothing() -> None:
    options = offered({"a": (6, 2, 1), "b": (4, 9, 1)})
    for synopsis in ("hold", "send"):
        assert ranking_error(options, ["a", "b"], 10, synopsis) == 0
        assert ranking_error(options, ["a", "b"], 0, synopsis) == 100
    with pytest.raises(Refused, match="`synopsis` must be one of hold, send"):
        ranking_error(options, ["a", "b"], 0, "auto")


def test_a_plan_is_held_against_the_best_ranking_of_every_stream(lab: Lab) -> None:
    found = equal_bytes(Book(lambda _: None), {"e": lab})
    options, load = stream_options(lab)
    ranked = orders(lab)
    assert set(ranked) == set(RANKINGS)
    measures = sum(load.widths_bits[name] for name in options) / 8
    for capacity in CAPACITIES_PCT:
        held = found[f"attributes.best_ranking_error_pct.e_net.hold.{capacity}"]
        sent = found[f"attributes.best_ranking_error_pct.e_net.send.{capacity}"]
        # a synopsis is smaller than its column: to send it is never the worse choice for the best of the rankings
        assert 0 <= sent <= held == best_ranking_error(options, ranked, measures * capacity / 100, "hold")
        ratio = found[f"attributes.error_over_best_ranking.e_net.hold.{capacity}"]
        assert ratio == error_over_best(plan_error(lab, options, load, capacity), held)


def test_frames_take_what_the_product_wrote_and_one_endless_frame_no_more(lab: Lab) -> None:
    price = key_frame_price(lab)
    written = lab.given(dict.fromkeys(lab.measures, "shed"))
    assert price.packed_bytes == sum(written.synopsis_bytes.values())
    assert price.stored == sum(one.stored_values for one in written.certificates.values())
    assert (price.frames, price.keys, price.attributes) == (2, 24, len(lab.measures))
    assert price.stored_endless < price.stored <= price.stored_endless + 3 * price.most_stored
    assert price.packed_bytes_endless < price.packed_bytes

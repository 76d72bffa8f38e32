"""Rankings at equal bytes against filling the room by hand, and what key frames cost against the product's tables."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import permutations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from evidence.attributes.at_capacity import CAPACITIES_PCT, Trial, at_capacities_of
from evidence.attributes.equal_bytes import best_ranking_error, ranking_error
from evidence.attributes.generated import Source, generate_stream
from evidence.attributes.lab import Lab
from evidence.attributes.ledger_bytes import counted_over_file_bytes
from evidence.attributes.nine_streams import train_and_shed
from spillway.contracts import read_channel
from spillway.errors import InvalidValue
from spillway.levers.attributes.option import Option

pytestmark = pytest.mark.long  # the figures of `make evidence`, not the product

NAMES = ("Router", "Current Index", "Response Time", "Packet Loss", "Minimum Delay")
Measure = tuple[int, int, int]
"""Width, synopsis, mean error."""


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    made = train_and_shed(Source("e.net", "internet", NAMES, 24), cycles=100, seed=3)
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
@example([(2, 1, 0)], 1, "send")
def test_a_ranking_fills_the_room_to_the_last_byte(rows: list[Measure], room: int, synopsis: str) -> None:
    measures = dict(zip("abcd", rows, strict=False))
    options = offered(measures)
    for order in permutations(measures):
        got = ranking_error(options, order, room, synopsis)
        # whole tuples: a crumb more may go than is needed, once in each pass
        assert got == pytest.approx(crumb_by_crumb(measures, order, room, synopsis), abs=0.25)
    every = {"all": [list(order) for order in permutations(measures)]}
    best = best_ranking_error(options, every, room, synopsis)
    assert best <= min(ranking_error(options, order, room, synopsis) for order in every["all"])


def test_room_for_everything_costs_nothing_and_no_room_leaves_nothing() -> None:
    options = offered({"a": (6, 2, 1), "b": (4, 9, 1)})
    for synopsis in ("hold", "send"):
        assert ranking_error(options, ["a", "b"], 10, synopsis) == 0
        assert ranking_error(options, ["a", "b"], 0, synopsis) == 100
    with pytest.raises(InvalidValue, match="`synopsis` must be one of hold, send"):
        ranking_error(options, ["a", "b"], 0, "auto")


def test_by_all_treatments_no_order_loses_more_than_by_shedding_alone_and_sharing_tuples_no_more() -> None:
    options = offered({"a": (6, 2, 1), "b": (4, 3, 20), "c": (5, 1, 3)})
    for synopsis in ("hold", "send"):
        for room in range(0, 16):
            for order in permutations("abc"):
                found = {
                    (treatments, sharing): ranking_error(
                        options, order, room, synopsis, treatments, sharing=sharing
                    )
                    for treatments in ("shed", "all")
                    for sharing in (True, False)
                }
                assert found["shed", True] <= found["shed", False] + 1e-9
                assert found["all", False] >= 0 == (room >= 15) * found["all", False]


def test_whole_treatments_are_found_by_trying_how_far_the_last_one_goes() -> None:
    # a is kept, rounded to 3 (0.5) or absent; b is kept, rounded to 2 (0.5) or absent
    options = offered({"a": (6, 2, 1), "b": (4, 3, 20)})
    assert [ranking_error(options, "ab", room, "hold", "all", sharing=False) for room in (10, 9, 7, 6, 4, 3, 1)] == [
        0.0, 0.25, 0.25, 50.0, 50.0, 50.25, 100.0
    ]  # fmt: skip
    assert ranking_error(options, "ab", 8.5, "send", "all", around=2.0, sharing=False) == 0.25


def test_the_plan_is_measured_at_the_destination_and_held_against_the_best_ranking(lab: Lab) -> None:
    found, rows = at_capacities_of(lab, "e")
    trial = Trial(lab)
    for synopsis in ("hold", "send", "auto"):
        assert found[f"attributes.error_at_capacity_pct.e.{synopsis}.100"] == 0.0
        assert f"attributes.channel_used_pct.e.{synopsis}.100" not in found
    for capacity in CAPACITIES_PCT:
        held = found[f"attributes.error_at_capacity_pct.e.hold.{capacity}"]
        assert found[f"attributes.error_at_capacity_pct.e.auto.{capacity}"] <= held + 1e-9
        assert found[f"attributes.over_capacity_pct.e.hold.{capacity}"] == 0.0
        assert found[f"attributes.absent_pct.e.hold.{capacity}"] <= 100.0
    assert found["attributes.error_at_capacity_pct.e.hold.25"] > 0
    assert found["attributes.channel_used_pct.e.hold.25"] <= 100.0
    # everything gone is everything lost
    nothing = trial._send(dict.fromkeys(lab.measures, "shed"))
    assert all(nothing.error_of(batch, name) == 100.0 for batch in (1, 2) for name in lab.measures)
    assert any("best ranking" in str(row[2]) for row in rows)


def test_what_the_ledger_counts_is_what_lies_on_a_disk() -> None:
    made = generate_stream(Source("f.net", "internet", NAMES, 24), cycles=100, seed=3)
    name = made.contract.stream
    channel = read_channel("generated", {"capacity": "8 kbps"})
    (ratio,) = counted_over_file_bytes(
        {name: made.contract}, {name: made.files}, {"generated": channel}
    ).values()
    assert 0.99 <= ratio <= 1.01

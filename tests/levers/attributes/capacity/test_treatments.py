"""What crosses of every attribute: against trying everything, and what a person would want of it."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spillway.errors import InvalidValue
from spillway.levers.attributes.capacity.treatments import (
    Objective,
    TreatmentOption,
    allowed_treatments,
    choose_treatments,
    describe_treatment,
)
from spillway.levers.attributes.option import Option

sizes = st.integers(0, 40).map(float)
errors = st.integers(0, 40).map(lambda n: n / 8.0)


@st.composite
def measured(draw: st.DrawFn, name: str) -> list[Option]:
    """Keep, and a few precisions of round and shed, the finer ones larger."""
    found = [Option(name, "keep", draw(st.integers(1, 40).map(float)))]
    for way in ("round", "shed"):
        rough = sorted(draw(st.lists(errors, max_size=3)))
        large = sorted(draw(st.lists(sizes, min_size=len(rough), max_size=len(rough))), reverse=True)
        for place, (error, size) in enumerate(zip(rough, large, strict=True)):
            both = (size, 0.0) if way == "round" else (0.0, size)
            found.append(Option(name, way, *both, error, error, precision=place))
    return found


streams = st.lists(st.sampled_from("abcd"), min_size=1, max_size=4, unique=True).flatmap(
    lambda names: st.fixed_dictionaries({name: measured(name) for name in names})
)
terms = st.builds(
    Objective,
    minimize=st.sampled_from(["error", "bytes"]),
    synopsis=st.sampled_from(["auto", "send", "hold"]),
    ways=st.sampled_from([("keep",), ("keep", "round"), ("keep", "shed"), ("keep", "round", "shed")]),
    asked_back=st.sampled_from([0.0, 0.25, 1.0]),
    kept_price=st.sampled_from([0.0, 0.5]),
)


def slowly(
    options: dict[str, list[Option]], asked: Objective
) -> dict[str, list[tuple[str, float, float, float, float]]]:
    """By attribute, every way as (name, crosses, loss, touched, paid or stored), written down once more."""
    ways = {}
    for name, found in options.items():
        kept = next(one.wire_bytes_per_tuple for one in found if one.way == "keep")
        mine = [("keep", kept, 0.0, 0.0, kept)]
        stored = [
            o for o in found if o.way == "shed" and o.synopsis_bytes_per_tuple < kept and "shed" in asked.ways
        ]
        for one in found:
            if one.way == "round" and "round" in asked.ways and one.wire_bytes_per_tuple < kept:
                mine.append(
                    ("round", one.wire_bytes_per_tuple, one.mean_error_pct, 1.0, one.wire_bytes_per_tuple)
                )
        if asked.synopsis in ("auto", "send"):
            for one in stored:
                size = one.synopsis_bytes_per_tuple
                mine.append(("sent", size, one.mean_error_pct, 1.0, size))
        if asked.synopsis in ("auto", "hold") and stored:
            size = min(one.synopsis_bytes_per_tuple for one in stored)
            back = size * asked.asked_back
            paid = back + size * asked.kept_price if asked.minimize == "bytes" else size
            mine.append(("held", back, 100.0, 1.0, paid))
        ways[name] = mine
    return ways


def tried_all(
    options: dict[str, list[Option]], asked: Objective, room: float, around: float = 0.0
) -> list[tuple[float, tuple[float, float, float]]]:
    """What crosses and costs, over every combination; what is to be sent may stay where nothing else fits."""
    worths = [1.0 + place for place in range(len(options))]
    tried: list[tuple[float, tuple[float, float, float]]] = []
    for terms in (asked, replace(asked, synopsis="auto")):
        for picks in itertools.product(*slowly(options, terms).values()):
            extra = around if any(one[0] == "sent" for one in picks) else 0.0
            crosses = math.fsum(one[1] for one in picks) + extra
            lost = math.fsum(worth * one[2] for worth, one in zip(worths, picks, strict=True))
            touched, paid = (sum(one[k] for one in picks) for k in (3, 4))
            paid += extra
            tried.append(
                (crosses, (lost, touched, paid) if asked.minimize == "error" else (paid, lost, touched))
            )
        if asked.synopsis != "send" or any(crosses <= room for crosses, _ in tried):
            return tried
    return tried


@settings(max_examples=300, deadline=None)
@given(streams, terms, st.integers(0, 120).map(float))
def test_nothing_that_fits_costs_less(
    options: dict[str, list[Option]], asked: Objective, room: float
) -> None:
    worths = {name: 1.0 + place for place, name in enumerate(options)}
    found = choose_treatments(options, worths, room, asked)
    tried = tried_all(options, asked, room)
    fitting = [cost for crosses, cost in tried if crosses <= room]
    assert found.exact
    if fitting:
        first, second, _ = min(fitting)
        assert found.over == 0.0
        assert found.crosses <= room + 1e-9
        lost = found.loss if asked.minimize == "error" else None
        if lost is not None:
            assert lost == pytest.approx(first)
            assert sum(one.is_treated for one in found.ways.values()) == pytest.approx(second)
    else:
        assert found.crosses == pytest.approx(min(crosses for crosses, _ in tried))
        assert found.over == pytest.approx(found.crosses - room)


@settings(max_examples=300, deadline=None)
@given(
    streams, st.sampled_from(["auto", "send", "hold"]), st.integers(0, 120).map(float), st.floats(1.0, 1.5)
)
def test_a_part_of_the_tuples_has_what_all_cannot_have(
    options: dict[str, list[Option]], synopsis: str, room: float, dearer: float
) -> None:
    worths = {name: 1.0 + place for place, name in enumerate(options)}
    whole = choose_treatments(options, worths, room, Objective(synopsis=synopsis))
    found = choose_treatments(
        options, worths, room, Objective(synopsis=synopsis), dearer=dict.fromkeys(options, dearer)
    )
    assert (found.over, found.loss <= whole.loss) == (whole.over, True)
    if found.finer is None:
        assert found == whole
        return
    name, share = found.finer.attribute, found.finer.share
    rest, better = found.ways[name], found.finer.way
    assert 0.0 < share <= 1.0
    assert better.loss < rest.loss
    # written down once more: what crosses, what is lost, and that the room is filled
    others = [one for other, one in found.ways.items() if other != name]
    divided = dearer * (share * better.crossing_bytes + (1 - share) * rest.crossing_bytes)
    crosses = math.fsum(one.crossing_bytes for one in others) + divided
    assert crosses == pytest.approx(found.crosses)
    assert crosses <= room + 1e-9
    lost = math.fsum(worths[other] * one.loss for other, one in found.ways.items() if other != name)
    assert found.loss == pytest.approx(lost + worths[name] * (share * better.loss + (1 - share) * rest.loss))
    assert share == 1.0 or crosses == pytest.approx(room)


def test_where_one_attribute_is_all_there_is_most_of_it_crosses() -> None:
    value = [Option("v", "keep", 10.0), Option("v", "round", 4.0, 0.0, 1.0), Option("v", "shed", 0.0, 6.0)]
    found = choose_treatments({"v": value}, {"v": 1.0}, 3.0, Objective(synopsis="hold"), dearer={"v": 1.0})
    assert found.finer is not None
    assert (found.ways["v"].name, found.finer.way.name) == ("shed, its synopsis held", "round")
    assert (found.finer.share, found.loss, found.crosses) == (0.75, 25.75, 3.0)


def test_what_was_to_be_sent_stays_where_nothing_else_fits_and_no_more_than_that() -> None:
    def ways(name: str) -> list[Option]:
        return [Option(name, "keep", 10.0), Option(name, "shed", 0.0, 4.0, 1.0)]

    options = {name: ways(name) for name in "ab"}
    for room, names in ((8.0, set()), (7.0, {"a"}), (3.0, {"a", "b"})):
        found = choose_treatments(options, {"a": 1.0, "b": 2.0}, room, Objective(synopsis="send"))
        assert (found.over, {name for name, one in found.ways.items() if one.name.endswith("held")}) == (
            0.0,
            names,
        )


def test_with_room_for_everything_nothing_is_touched() -> None:
    options = {name: [Option(name, "keep", 2.0), Option(name, "round", 0.5, 0.0, 0.0)] for name in "abc"}
    assert [
        one.name
        for one in choose_treatments(options, dict.fromkeys("abc", 1.0), 6.0, Objective()).ways.values()
    ] == ["keep"] * 3


def test_one_per_mille_too_much_costs_next_to_no_error() -> None:
    def ways(name: str) -> list[Option]:
        rounded = [Option(name, "round", 1.0 - k / 10, 0.0, 0.01 * 4**k, precision=k) for k in range(1, 5)]
        return [Option(name, "keep", 1.0), *rounded, Option(name, "shed", 0.0, 0.2, 1.5)]

    options = {name: ways(name) for name in "abcdefg"}
    found = choose_treatments(options, dict.fromkeys(options, 1.0), 7.0 * 0.999, Objective())
    assert found.loss == pytest.approx(0.04)
    assert sum(one.is_treated for one in found.ways.values()) == 1


def test_the_loss_falls_over_the_whole_curve() -> None:
    options = {
        name: [
            Option(name, "keep", 3.0 + k),
            *(Option(name, "round", (3.0 + k) / (p + 2), 0.0, 0.1 * 2**p, precision=p) for p in range(4)),
            *(Option(name, "shed", 0.0, 1.5 / (p + 1), 0.05 * 3**p, precision=p) for p in range(3)),
        ]
        for k, name in enumerate("abcde")
    }
    worths = {name: 1.0 + k for k, name in enumerate(options)}
    for synopsis in ("auto", "send", "hold"):
        asked = Objective(synopsis=synopsis)
        losses = [round(choose_treatments(options, worths, room / 4, asked).loss, 9) for room in range(110)]
        assert losses == sorted(losses, reverse=True)
        assert losses[-1] == 0.0 < losses[0]


def test_which_are_absent_is_decided_by_worth_and_the_rest_is_as_exact_as_the_room_allows() -> None:
    options = {
        name: [
            Option(name, "keep", 60.0),
            Option(name, "round", 30.0, 0.0, 1.0),
            Option(name, "shed", 0.0, 8.0, 2.0),
        ]
        for name in "abc"
    }
    found = choose_treatments(options, {"a": 3.0, "b": 1.0, "c": 2.0}, 60.0, Objective(synopsis="hold"))
    assert {name: one.name for name, one in found.ways.items()} == {
        "a": "round",
        "b": "shed, its synopsis held",
        "c": "round",
    }


def test_bytes_are_paid_for_where_the_channel_is() -> None:
    temp = [
        Option("temp", "keep", 10.0),
        Option("temp", "round", 4.0, 0.0, 1.0),
        Option("temp", "shed", 0.0, 2.0, 1.0),
    ]

    def way(**more: float | str) -> str:
        return (
            choose_treatments({"temp": temp}, {"temp": 1.0}, 100.0, Objective(minimize="bytes", **more))
            .ways["temp"]
            .name
        )  # type: ignore[arg-type]

    assert way() == "shed, its synopsis held"
    assert way(synopsis="send") == "shed, its synopsis sent"
    assert way(kept_price=0.5, asked_back=0.5) == "shed, its synopsis sent"
    assert way(kept_price=3.0, synopsis="hold") == "round"


@settings(max_examples=200, deadline=None)
@given(streams, terms, st.integers(0, 120).map(float), st.integers(0, 12).map(float))
def test_what_lies_around_sent_synopses_is_paid_once_where_any_is_sent(
    options: dict[str, list[Option]], asked: Objective, room: float, around: float
) -> None:
    worths = {name: 1.0 + place for place, name in enumerate(options)}
    found = choose_treatments(options, worths, room, asked, around)
    tried = tried_all(options, asked, room, around)
    fitting = [cost[0] for crosses, cost in tried if crosses <= room]
    if fitting:
        assert found.over == 0.0
        assert found.cost[0] == pytest.approx(min(fitting))
    else:
        assert found.crosses == pytest.approx(min(crosses for crosses, _ in tried))


def test_what_is_held_takes_its_smallest_form() -> None:
    forms = [
        Option("a", "shed", 0.0, size, error, precision=place)
        for place, (size, error) in enumerate([(3, 0), (1, 2)])
    ]
    (held,) = [
        one
        for one in allowed_treatments([Option("a", "keep", 5.0), *forms], Objective())
        if one.name.endswith("held")
    ]
    assert (held.option.precision, held.loss) == (1, 100.0)


def test_a_rounding_that_takes_as_much_as_the_column_is_no_way() -> None:
    kept = Option("a", "keep", 1.0)
    options = [kept, Option("a", "round", 1.0, 0.0, 0.5), Option("a", "round", 0.9, 0.0, 0.7)]
    assert [one.option for one in allowed_treatments(options, Objective())] == [kept, options[2]]


def test_what_lies_around_a_sent_synopsis_counts_where_nothing_else_tells_two_ways_apart() -> None:
    options = [Option("a", "keep", 2.0), Option("a", "round", 1.0), Option("a", "shed", 0.0, 0.4)]
    for around, way in ((0.5, "shed, its synopsis sent"), (0.7, "round")):
        assert choose_treatments({"a": options}, {"a": 1.0}, 1.5, Objective(), around).ways["a"].name == way


def test_every_way_says_why() -> None:
    temp = [Option("temp", "keep", 2.0), Option("temp", "shed", 0.0, 0.4, 1.25)]
    assert describe_treatment(TreatmentOption(temp[0]), temp) == "kept: 2 bytes a tuple"
    assert describe_treatment(TreatmentOption(temp[1], sent=True), temp) == (
        "shed, 0.4 bytes of synopsis sent: 0.4 bytes a tuple instead of 2, mean error 1.25 %"
    )
    assert describe_treatment(TreatmentOption(temp[1]), temp) == (
        "shed, 0.4 bytes of synopsis held at the source: 0 bytes a tuple instead of 2; absent until it is asked for"
    )


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"minimize": "cost"}, "`minimize` must be one of error, bytes"),
        ({"synopsis": "never"}, "`synopsis` must be one of auto, send, hold"),
        ({"ways": ("round",)}, "`ways` must be keep"),
        ({"asked_back": 1.5}, "`requested_pct` must lie within"),
        ({"kept_price": -1.0}, "`prices` must be"),
    ],
)
def test_nonsense_is_refused_by_name(more: dict[str, object], says: str) -> None:
    with pytest.raises(InvalidValue, match=says):
        Objective(**more)  # type: ignore[arg-type]
    with pytest.raises(InvalidValue, match="offer to keep"):
        allowed_treatments([Option("a", "round", 1.0)], Objective())

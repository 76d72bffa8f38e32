"""Keep, round or shed against trying everything."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spillway.errors import Refused
from spillway.levers.attributes.capacity.optimise import choose_ways
from spillway.levers.attributes.option import Option


def way_of(way: str, wire: float, rest: float = 0.0, loss: float = 0.0) -> Option:
    return Option("a", way, wire, rest, loss)


byte_counts = st.integers(0, 60)


@st.composite
def attribute(draw: st.DrawFn) -> list[Option]:
    ways = [way_of("keep", draw(byte_counts))]
    if draw(st.booleans()):
        ways.append(way_of("round", draw(byte_counts), 0, draw(st.integers(0, 5))))
    if draw(st.booleans()):
        ways.append(way_of("shed", 0, draw(byte_counts), draw(st.integers(0, 5))))
    return ways


def pays(way: Option, kept: Option) -> bool:
    return way.way != "shed" or way.bytes_per_tuple < kept.wire_bytes_per_tuple


@settings(max_examples=200, deadline=None)
@given(st.lists(attribute(), min_size=1, max_size=5), st.integers(1, 200), st.sampled_from(["net", "loss"]))
def test_the_choice_is_the_best_of_all_combinations(
    attributes: list[list[Option]], capacity: int, objective: str
) -> None:
    options = {f"a{i}": ways for i, ways in enumerate(attributes)}
    chosen = choose_ways(options, list(options), capacity, objective=objective)
    combinations = [
        combination
        for combination in itertools.product(*attributes)
        if all(pays(way, ways[0]) for way, ways in zip(combination, attributes, strict=True))
    ]

    def wire(combination: tuple[Option, ...]) -> float:
        return sum(way.wire_bytes_per_tuple for way in combination)

    def cost(combination: tuple[Option, ...]) -> tuple[float, float]:
        net, loss = (
            sum(way.bytes_per_tuple for way in combination),
            sum(way.mean_error_pct for way in combination),
        )
        return (net, loss) if objective == "net" else (loss, net)

    kept = tuple(ways[0] for ways in attributes)
    fitting = [combination for combination in combinations if wire(combination) <= capacity]
    got = (chosen.net_bytes, chosen.loss) if objective == "net" else (chosen.loss, chosen.net_bytes)
    assert chosen.exact
    if wire(kept) <= capacity:
        assert set(chosen.ways.values()) == {"keep"}
    elif fitting:
        assert chosen.shortfall_bytes == 0
        assert got == min(map(cost, fitting))
    else:
        assert chosen.wire_bytes == min(map(wire, combinations))
        assert chosen.shortfall_bytes == chosen.wire_bytes - capacity > 0
        assert all(reason.endswith("the channel is still exceeded") for reason in chosen.reasons.values())


@settings(max_examples=80, deadline=None)
@given(st.lists(attribute(), min_size=13, max_size=16), st.integers(1, 600))
def test_beyond_twelve_attributes_the_choice_fits_whenever_anything_does(
    attributes: list[list[Option]], capacity: int
) -> None:
    padded = [
        [*ways, *(way_of("round", ways[0].wire_bytes_per_tuple, 0, 9) for _ in range(3 - len(ways)))]
        for ways in attributes
    ]
    options = {f"a{i}": ways for i, ways in enumerate(padded)}
    chosen = choose_ways(options, list(options), capacity)
    least = sum(min(way.wire_bytes_per_tuple for way in ways if pays(way, ways[0])) for ways in padded)
    assert chosen.shortfall_bytes == max(least - capacity, 0)
    # never dearer than the best single way that fits
    for name in ("round", "shed"):
        single = [next((w for w in ways if w.way == name and pays(w, ways[0])), ways[0]) for ways in padded]
        if (
            sum(way.wire_bytes_per_tuple for way in single)
            <= capacity
            < sum(ways[0].wire_bytes_per_tuple for ways in padded)
        ):
            assert chosen.net_bytes <= sum(way.bytes_per_tuple for way in single)


def test_a_synopsis_as_large_as_its_column_is_not_worth_shedding() -> None:
    options = {
        "a": [way_of("keep", 100), way_of("shed", 0, 100)],
        "b": [way_of("keep", 100), way_of("shed", 0, 99)],
    }
    chosen = choose_ways(options, ["a", "b"], 150)
    assert dict(chosen.ways) == {"a": "keep", "b": "shed"}
    assert "does not pay" in chosen.reasons["a"]
    assert choose_ways(options, ["a", "b"], 50).shortfall_bytes == 50
    assert choose_ways(options, ["a", "b"], 50, must_pay=False).shortfall_bytes == 0


def test_the_contract_may_leave_ways_out() -> None:
    options = {"a": [way_of("keep", 100), way_of("round", 10, 0, 1), way_of("shed", 0, 40)]}
    assert choose_ways(options, ["a"], 50).ways["a"] == "round"
    assert choose_ways(options, ["a"], 50, allowed=["keep", "shed"]).ways["a"] == "shed"
    only_rounding = choose_ways(options, ["a"], 5, allowed=["keep", "round"])
    assert only_rounding.ways["a"] == "round"
    assert only_rounding.shortfall_bytes == 5
    assert "does not allow shedding" in only_rounding.reasons["a"]


def test_of_equal_ways_the_less_informative_attribute_is_touched() -> None:
    same = [way_of("keep", 100), way_of("shed", 0, 50)]
    for ranking in (["a", "b"], ["b", "a"]):
        options = {"a": same, "b": same, "c": [way_of("keep", 10)]}
        chosen = choose_ways(options, ranking, 10 + 100, objective="loss")
        # both losses are 0, both nets are equal for one shed; less net is reached by shedding both
        assert chosen.net_bytes == 110
        chosen = choose_ways(
            {name: [*same[:1], way_of("shed", 0, 99.99, 1)] for name in "ab"}, ranking, 100, objective="loss"
        )
        assert chosen.ways[ranking[0]] == "shed"
        assert chosen.ways[ranking[1]] == "keep"


def test_what_always_goes_takes_its_room_first() -> None:
    options = {"a": [way_of("keep", 30), way_of("round", 10, 0, 1)]}
    assert choose_ways(options, ["a"], 40, fixed_bytes=10).ways["a"] == "keep"
    assert choose_ways(options, ["a"], 40, fixed_bytes=11).ways["a"] == "round"
    over = choose_ways(options, ["a"], 40, fixed_bytes=50)
    assert (over.wire_bytes, over.shortfall_bytes) == (60, 20)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"capacity_bytes": 0}, "capacity_bytes"),
        ({"capacity_bytes": float("inf")}, "capacity_bytes"),
        ({"fixed_bytes": -1}, "fixed_bytes"),
        ({"allowed": ["shed"]}, "ways"),
        ({"allowed": ["keep", "drop"]}, "ways"),
        ({"objective": "bytes"}, "objective"),
        ({"ranking": ["b"]}, "ranking"),
        ({"options": {"a": [way_of("round", 1)]}}, "options.a"),
    ],
)
def test_a_choice_with_nonsense_is_refused_by_name(change: dict[str, object], named: str) -> None:
    arguments = {"options": {"a": [way_of("keep", 1)]}, "ranking": ["a"], "capacity_bytes": 1.0, **change}
    with pytest.raises(Refused, match=f"`{named}` must"):
        choose_ways(**arguments)  # type: ignore[arg-type]

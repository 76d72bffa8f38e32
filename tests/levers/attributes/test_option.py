"""Options: measured once, stored, read back, scaled to a batch's width."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spillway.errors import InvalidValue
from spillway.levers.attributes.option import Option, of_way, options_of, scale_options

weights = st.floats(0.0, 1e6)


@given(st.sampled_from(["keep", "round", "shed"]), weights, weights, weights, weights)
def test_an_option_survives_being_stored(
    way: str, wire: float, rest: float, mean: float, worst: float
) -> None:
    option = Option("temp", way, wire, rest, mean, worst, "last", "last stores 3 % of the values")
    assert Option.from_dict(json.loads(json.dumps(option.to_dict()))) == option


@given(st.floats(0.01, 1e3), weights, weights, st.floats(0.0, 1e3))
def test_a_wider_column_makes_every_way_dearer_alike(
    kept: float, rounded: float, rest: float, width: float
) -> None:
    options = [
        Option("a", "round", rounded, 0.0, 0.5),
        Option("a", "keep", kept),
        Option("a", "shed", 0.0, rest, 0.4),
    ]
    found = scale_options(options, width)
    assert [option.way for option in found] == ["round", "keep", "shed"]
    assert found[1].wire_bytes_per_tuple == width
    assert found[0].wire_bytes_per_tuple == pytest.approx(rounded * width / kept)
    assert found[2].synopsis_bytes_per_tuple == pytest.approx(rest * width / kept)
    assert [option.mean_error_pct for option in found] == [0.5, 0.0, 0.4]


def test_what_weighed_nothing_in_training_is_kept_at_the_width_it_has_now() -> None:
    found = scale_options([Option("a", "keep", 0.0), Option("a", "shed", 0.0, 0.25)], 4.0)
    assert [option.bytes_per_tuple for option in found] == [4.0, 0.25]


def test_the_option_of_a_way_is_none_where_the_way_is_not_offered() -> None:
    options = [Option("a", "keep", 1.0)]
    assert of_way(options, "keep") is options[0]
    assert of_way(options, "shed") is None


def test_an_option_that_cannot_be_is_refused_by_name() -> None:
    with pytest.raises(InvalidValue, match="`way` must be one of keep, round, shed, got 'drop'"):
        Option("a", "drop", 1.0)
    with pytest.raises(
        InvalidValue, match="`synopsis_bytes_per_tuple` must be a finite number of 0 or more, got -1"
    ):
        Option("a", "shed", 0.0, -1)
    with pytest.raises(InvalidValue, match="`mean_error_pct` must be a finite number of 0 or more, got inf"):
        Option("a", "shed", 0.0, 1.0, float("inf"))


def test_options_without_the_one_to_keep_cannot_be_scaled() -> None:
    with pytest.raises(InvalidValue, match=r"`options` must offer to keep the attribute, got \['shed'\]"):
        scale_options([Option("a", "shed", 0.0, 1.0)], 8.0)


def test_of_several_precisions_the_coarsest_speaks_for_its_way() -> None:
    sizes = {2: 0.2, 0: 0.9, 1: 0.5}
    options = [Option("a", "keep", 2.0)] + [
        Option("a", "shed", 0.0, size, precision=place) for place, size in sizes.items()
    ]
    assert [one.precision for one in options_of(options, "shed")] == [0, 1, 2]
    coarsest = of_way(options, "shed")
    assert coarsest is not None
    assert coarsest.synopsis_bytes_per_tuple == 0.2
    assert options_of(options, "round") == ()
    assert all(Option.from_dict(one.to_dict()) == one for one in options)
    assert Option.from_dict({"attribute": "a", "way": "keep", "wire_bytes_per_tuple": 1.0}).precision == 0
    with pytest.raises(InvalidValue, match="`precision` must be a place of 0 or more, got -1"):
        Option("a", "shed", 0.0, precision=-1)

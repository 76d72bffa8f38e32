"""What comes round and identifies nobody is not taken, and the error proposes no property of the key."""

from __future__ import annotations

import numpy as np
import pytest

from evidence.cycle_streams import FAMILIES
from evidence.cycle_trials import KINDS
from spillway.levers.attributes.cycle.identifier import CycleNotFound, find_cycle

N = 4000
Columns = dict[str, np.ndarray]


def text(values: object) -> np.ndarray:
    return np.array(list(values), dtype=object)  # type: ignore[call-overload]


def refusal(columns: Columns, order: str | None = "at") -> CycleNotFound:
    with pytest.raises(CycleNotFound) as raised:
        find_cycle(columns, np.arange(N), dict.fromkeys(columns, 8), order=order)
    return raised.value


def taking_turns(key_of: dict[str, np.ndarray]) -> Columns:
    rng = np.random.default_rng(1)
    i = np.arange(N)
    key = np.where(i % 2 == 0, rng.integers(0, 7, N), 7 + rng.integers(0, 11, N))
    return {"feed": text("ew"[k] for k in i % 2), "key": key_of["names"][key], "at": i}


@pytest.mark.parametrize(
    "names", [text(f"k{k}" for k in range(18)), np.arange(18) * 37 % 101, np.arange(18) * 1.7], ids=str
)
def test_a_label_in_perfect_turns_is_a_property_of_the_keys_under_it(names: np.ndarray) -> None:
    columns = taking_turns({"names": names})
    bare = {name: columns[name] for name in ("feed", "at")}
    assert find_cycle(bare, np.arange(N), {}, order="at").attributes == ("feed",), "alone it is all there is"
    assert refusal(columns).attributes == ("key",)


def test_two_sides_and_what_is_measured_on_each_are_no_label_and_keys() -> None:
    """A whole number of which each side has values of its own is a quantity: its values do not come evenly."""
    rng = np.random.default_rng(1)
    side = np.arange(N) % 2
    price = np.round(100 * side + rng.normal(40, 6, N)).astype(np.int64)
    assert len(set(price[side == 0]) & set(price[side == 1])) == 0
    columns = {"side": text("ba"[k] for k in side), "price": price, "at": np.arange(N) // 2}
    assert find_cycle(columns, np.arange(N), {"side": 8}, order="at").attributes == ("side",)


def test_a_counter_beside_keys_that_the_measures_go_by_is_not_taken() -> None:
    rng = np.random.default_rng(1)
    key = rng.integers(0, 25, N)
    columns = {
        "key": text(f"k{k}" for k in key),
        "counter": np.arange(N) % 64,
        "at": np.arange(N) * 7,
        "temp": np.round(rng.normal(20, 5, 25)[key] + rng.normal(size=N), 1),
    }
    assert refusal(columns).attributes == ("key",)


def test_measures_that_drift_together_do_not_speak_for_a_flag() -> None:
    """Whoever came last is closest then, and a flag of two values comes sooner than a station."""
    rng = np.random.default_rng(1)
    columns = {
        "station": text(f"s{k}" for k in np.arange(N) % 40),
        "flag": text("yn"[k] for k in rng.integers(0, 2, N)),
        "at": np.arange(N) // 40,
        "pressure": np.round(1000 + rng.normal(0, 0.3, N).cumsum(), 2),
    }
    assert find_cycle(columns, np.arange(N), {}, order="at").attributes == ("station",)


def test_hours_above_a_city_that_stays_are_not_the_cycle() -> None:
    i = np.arange(N)
    columns = {
        "city": text(f"city {k}" for k in i // 100),
        "zone": i // 100 % 3,
        "hour": i % 100 % 24,
        "at": 1_700_000_000 // 86400 * 86400 + i % 100 * 3600,
    }
    problem = refusal(columns)
    assert problem.attributes == ("city",)
    assert problem.reason == "stays the same from one tuple to the next"


@pytest.mark.parametrize("family", ["arrivals at random", "40 % missing", "rounds shuffled, types in turn"])
@pytest.mark.parametrize("seed", range(3))
def test_the_error_names_the_key_and_never_a_property_of_it(family: str, seed: int) -> None:
    stream = FAMILIES[family](np.random.default_rng(seed), KINDS[seed])
    n = len(stream.columns["at"])
    with pytest.raises(CycleNotFound) as raised:
        find_cycle(stream.columns, np.arange(n), {}, order="at")
    assert raised.value.attributes == ("key",)
    assert raised.value.confidence < 0.8
    said = str(raised.value)
    assert f"`key` as best candidate with confidence {raised.value.confidence:.2f} of 0.80" in said
    assert "give the attributes that tell who sent a tuple `role: key`" in said
    assert "`cycle: {attributes: []}` where one sender sends all" in said
    assert "`cycle: {attributes: [key]}`" in said


def test_a_confidence_a_hair_below_is_not_shown_as_enough() -> None:
    assert "confidence 0.7990 of 0.80" in str(CycleNotFound(["key"], 0.799, 0.8, "does not follow one order"))


def test_a_status_that_the_measures_go_by_does_not_speak_against_a_router_that_has_properties() -> None:
    rng = np.random.default_rng(1)
    router, status = np.arange(N) % 20, rng.choice([200, 301, 404, 500], N)
    columns = {
        "router": text(f"r{k}" for k in router),
        "status": status,
        "latency": np.round(status / 10 + rng.normal(0, 1, N), 1),
        "at": np.arange(N) // 20,
    }
    with_sites = {**columns, "site": text("AB"[k % 2] for k in router)}
    assert find_cycle(with_sites, np.arange(N), {}, order="at").attributes == ("router",)
    # where nothing follows from it, it might as well be a counter beside the true sender
    assert refusal(columns).attributes == ("status",)

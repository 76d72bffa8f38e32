"""Declared keys come first: alone, then with others, then without any order; what they say is never overruled."""

from __future__ import annotations

import json
import time

import numpy as np
import pytest

from evidence.streams import perturb
from spillway.errors import InvalidValue
from spillway.levers.attributes.cycle.identifier import (
    Cycle,
    CycleNotFound,
    cycle_drift,
    declared_cycle,
    find_cycle,
)
from spillway.levers.attributes.ranking.windows import window_edges, window_tuples

N = 6000
Columns = dict[str, np.ndarray]


def text(values: object) -> np.ndarray:
    return np.array(list(values), dtype=object)  # type: ignore[call-overload]


def found(columns: Columns, *keys: str, order: str | None = "at") -> Cycle:
    n = len(next(iter(columns.values())))
    bits = {name: 96 if column.dtype == object else 64 for name, column in columns.items()}
    return find_cycle(columns, np.arange(n), bits, order=order, keys=keys)


def months_of_cities() -> Columns:
    """A monthly table by date, whose order attribute is the year: months differ among tuples of one instant."""
    month = np.repeat(np.arange(240), 25)
    rng = np.random.default_rng(1)
    return {
        "city": text(f"city {k}" for k in np.tile(np.arange(25), 240)),
        "at": 2000 + month // 12,
        "month": month % 12 + 1,
        "price": np.round(100 + np.tile(rng.normal(0, 20, 25), 240) + rng.normal(0, 1, N), 1),
    }


def test_a_measure_joins_no_cycle_where_the_key_alone_repeats() -> None:
    columns = months_of_cities()
    assert found(columns).attributes == ("city", "month"), "what the newcomer met: the trap is set"
    cycle = found(columns, "city")
    assert (cycle.attributes, cycle.length, cycle.form) == (("city",), 25, "strict")


def test_a_measure_joins_where_the_declared_key_alone_does_not_repeat() -> None:
    columns = {
        "site": text("abcde"[k % 20 // 4] for k in range(N)),
        "sensor": np.arange(N) % 4,
        "at": np.arange(N) // 20,
        "flag": np.random.default_rng(1).integers(0, 2, N),
    }
    noisy = {name: column[perturb(N, np.random.default_rng(2))] for name, column in columns.items()}
    for one in (columns, noisy):
        assert found(one, "site").attributes == ("site", "sensor")


def test_the_smallest_set_that_determines_all_keys_is_taken() -> None:
    company = np.tile(np.arange(47), 120)
    columns = {
        "company": text(f"Company {k} Incorporated, of a place" for k in company),
        "symbol": np.array([f"C{k}" for k in company]).astype(object),
        "market": text("NE"[k % 2] for k in company),
        "at": np.arange(len(company)) // 47,
    }
    bits = {"company": 300, "symbol": 24, "market": 8}
    cycle = find_cycle(
        columns, np.arange(len(company)), bits, order="at", keys=["company", "symbol", "market"]
    )
    assert cycle.attributes == ("symbol",)
    assert cycle.length == 47


def test_a_smaller_set_wins_over_a_larger_one_with_more_confidence() -> None:
    """The serial number is misread now and then; site and sensor, which say the same, never are."""
    rng = np.random.default_rng(1)
    k = np.arange(N) % 20
    misread = rng.random(N) < 0.008
    columns = {
        "site": text("abcde"[i // 4] for i in k),
        "sensor": k % 4,
        "serial": np.where(misread, rng.integers(0, 20, N), k) + 700,
        "at": np.arange(N) // 20,
    }
    pair = found(columns, "site", "sensor")
    assert pair.confidence == 1.0
    for keys in (("site", "sensor", "serial"), ()):
        cycle = found(columns, *keys)
        assert cycle.attributes == ("serial",)
        assert cycle.confidence < pair.confidence


@pytest.mark.parametrize("seed", range(3))
def test_a_representative_comes_once_in_a_cycle_also_under_noise(seed: int) -> None:
    """a, a, b, ... j against eleven serial numbers: ten of eleven steps conform, and two tuples are called a."""
    rows = perturb(N, np.random.default_rng(seed), removed=0.01, doubled=0.0, swapped=0.0)
    serial = np.arange(N) % 11
    columns = {
        "name": text("aabcdefghij"[k] for k in serial)[rows],
        "serial": serial[rows],
        "at": (np.arange(N) // 11)[rows],
    }
    assert found(columns, "name", "serial").attributes == ("serial",)
    assert found(columns).attributes == ("serial",)
    alone = {name: columns[name] for name in ("name", "at")}
    assert found(alone, "name").form == "by keys"
    with pytest.raises(CycleNotFound, match="more than once in a cycle"):
        found(alone)


def arrivals_at_random(rng: np.random.Generator) -> np.ndarray:
    return rng.integers(0, 30, N)


def shuffled_rounds(rng: np.random.Generator) -> np.ndarray:
    return np.concatenate([rng.permutation(20) for _ in range(N // 20)])


def many_missing(rng: np.random.Generator) -> np.ndarray:
    return (np.arange(2 * N) % 15)[np.sort(rng.choice(2 * N, N, replace=False))]


def sorted_by_key(rng: np.random.Generator) -> np.ndarray:
    return np.arange(N) // 500


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("senders", [arrivals_at_random, shuffled_rounds, many_missing, sorted_by_key])
def test_keys_without_an_order_are_the_identifier(senders: object, seed: int) -> None:
    rng = np.random.default_rng(seed)
    key = senders(rng)  # type: ignore[operator]
    columns = {
        "key": text(f"k{k}" for k in key),
        "model": key % 5,
        "site_type": text("AB"[k % 2] for k in key),
        "at": np.arange(N) % 500 * 3600,
        "hour": np.arange(N) % 500 % 24,
        "slot": np.arange(N) % 20,
        "temp": np.round(rng.normal(20, 5, 30)[key] + rng.normal(size=N), 1),
    }
    for keys in (("key",), ("key", "model")):
        cycle = found(columns, *keys)
        assert (cycle.attributes, cycle.form) == (keys, "by keys")
        assert cycle.length == len(set(key))
        assert cycle.confidence < cycle.needed_confidence
        assert Cycle.from_dict(json.loads(json.dumps(cycle.to_dict()))) == cycle


def test_by_keys_windows_hold_the_stated_number_of_tuples() -> None:
    key = np.random.default_rng(1).integers(0, 30, 1000)
    cycle = found({"key": key, "at": np.arange(1000)}, "key")
    window = window_tuples(cycle.length_at(0), 64)
    assert window == 64
    edges = window_edges(
        np.arange(1000),
        cycle.positions({"key": key}),
        cycle.ring,
        low=0,
        high=999,
        window=window,
        tuples_at_least=64,
    )
    assert np.diff(edges).tolist() == [64] * 14 + [104, 0], "the last but one takes what is over"


def test_a_label_that_takes_turns_is_not_the_identifier_of_the_keys_it_labels() -> None:
    i = np.arange(N)
    rng = np.random.default_rng(1)
    key = np.where(i % 2 == 0, rng.integers(0, 7, N), 7 + rng.integers(0, 11, N))
    columns = {"feed": text("ew"[k] for k in i % 2), "key": key, "at": i}
    assert found(columns, "key").attributes == ("key",)
    both = found(columns, "feed", "key")
    assert (both.attributes, both.form) == (("feed", "key"), "by keys")


def test_a_constant_key_identifies_nobody_but_trains_the_stream() -> None:
    columns = {"device": text(["only"] * N), "hour": np.arange(N) % 24, "at": np.arange(N) * 3600}
    cycle = found(columns, "device")
    assert (cycle.attributes, cycle.form, cycle.length) == (("device",), "by keys", 1)
    with_sensors = {**columns, "sensor": np.arange(N) % 5}
    assert found(with_sensors, "device", "sensor").attributes == ("sensor",)


def test_thousands_of_keys_cost_no_more_than_the_tuples() -> None:
    rng = np.random.default_rng(1)
    n = 200_000
    key = rng.integers(0, 50_000, n)
    columns = {"key": key, "at": np.arange(n), "temp": rng.normal(size=n)}
    found({name: column[:1000] for name, column in columns.items()}, "key")
    started = time.process_time()
    cycle = found(columns, "key")
    by_hand = declared_cycle(columns, np.arange(n), ["key"], order="at")
    for one in (cycle, by_hand):
        assert one.form == "by keys"
        assert one.members == ()
        assert len(json.dumps(one.to_dict())) < 300, "no member is listed"
        assert (one.positions(columns) == -1).all()
        assert not cycle_drift(one, {"key": key[:5000] + 10**6}, np.arange(5000)).needs_retraining
    # a second here; sorting 50,000 members into a ring takes minutes
    assert time.process_time() - started < 20


def test_a_strict_order_in_which_a_key_comes_twice_is_still_one() -> None:
    cycle = found({"k": text("abac" * 500), "at": np.arange(2000)}, "k")
    assert (cycle.attributes, cycle.form, cycle.unique, cycle.length) == (("k",), "strict", False, 4)


def test_a_key_that_is_no_attribute_is_refused() -> None:
    with pytest.raises(
        InvalidValue, match="`keys` must name attributes of the stream, got 'kee'; choose among key"
    ):
        found({"key": np.arange(10) % 2}, "kee", order=None)

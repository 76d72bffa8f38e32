"""The cycle identifier is found unaided: on the demo streams, on streams never seen, under noise."""

from __future__ import annotations

import json
from collections.abc import Callable

import numpy as np
import pytest
from tests.levers.attributes.demo_streams import DEMO, Stream, bits_of, rows_of, stocks, weather

from evidence.streams import perturb, polled_stream
from spillway.errors import InvalidValue
from spillway.levers.attributes.cycle.identifier import Cycle, CycleNotFound, declared_cycle, find_cycle
from spillway.levers.attributes.cycle.trace import trace_cycle


def text(values: object) -> np.ndarray:
    return np.array(list(values), dtype=object)  # type: ignore[call-overload]


def wander(rng: np.random.Generator, rounds: int, members: int) -> np.ndarray:
    """One slow walk per member, around a level of its own."""
    steps = rng.normal(0, 0.3, (rounds, members)).cumsum(axis=0)
    return np.round(rng.gamma(4, 20, members) + steps, 1).reshape(-1)


@pytest.mark.parametrize("name", DEMO)
def test_demo_streams_give_their_cycle(name: str) -> None:
    stream, order, attributes, members = DEMO[name]
    columns = stream()
    seq = np.arange(len(columns[order])) + 1000
    cycle = find_cycle(columns, seq, bits_of(columns), order=order)
    assert cycle.attributes == attributes
    if members is None:
        members = [(value,) for value in columns["router"][:48]]
    assert [member.values for member in cycle.members] == members
    assert cycle.confidence > 0.99
    assert Cycle.from_dict(json.loads(json.dumps(cycle.to_dict()))) == cycle


def test_stocks_know_when_each_ticker_was_listed() -> None:
    columns = stocks()
    seq = np.arange(len(columns["date"]))
    cycle = find_cycle(columns, seq, bits_of(columns), order="date")
    since = {member.values[0]: member.from_seq for member in cycle.members}
    assert [since[ticker] for ticker in ("AAPL", "IBM", "MSFT")] == [0, 0, 0]
    assert columns["date"][since["GOOG"]] == "2004-08-19"
    assert columns["date"][since["FB"]] == "2012-05-18"
    assert columns["ticker"][since["FB"]] == "FB"
    assert all(member.until_seq is None for member in cycle.members)


@pytest.mark.parametrize("name", DEMO)
@pytest.mark.parametrize("seed", range(3))
def test_noise_changes_neither_the_cycle_nor_its_members(name: str, seed: int) -> None:
    stream, order, attributes, _ = DEMO[name]
    columns = rows_of(stream(), np.arange(min(10_000, len(stream()[order]))))
    clean = find_cycle(columns, np.arange(len(columns[order])), bits_of(columns), order=order)
    noisy = rows_of(columns, perturb(len(columns[order]), np.random.default_rng(seed)))
    cycle = find_cycle(noisy, np.arange(len(noisy[order])), bits_of(columns), order=order)
    assert cycle.attributes == attributes
    assert [m.values for m in cycle.members] == [m.values for m in clean.members]
    # 1 - .05 - .01 - 3 x .02 = .88; sd below sqrt(.12 x .88 / 9600) = .0034
    assert cycle.confidence == pytest.approx(0.88, abs=0.015)


def hours_above_stations(rng: np.random.Generator) -> Stream:
    rounds = 2400
    hour = np.repeat(np.arange(rounds) % 24, 5)
    return {
        "when": np.repeat(np.arange(rounds), 5),
        "hour": hour,
        "day": np.repeat(np.arange(rounds) // 24 % 31, 5),
        "station": np.tile(text("vwxyz"), rounds),
        "radiation": np.round(100 * np.sin(hour / 24 * 2 * np.pi) + rng.normal(size=5 * rounds), 1),
        "wind": wander(rng, rounds, 5),
    }


def clock_of_single_instants(rng: np.random.Generator) -> Stream:
    n = 10_000
    seconds = np.arange(n) * 360
    return {
        "at": np.datetime64("2024-01-01", "s") + seconds,
        "hour": seconds // 3600 % 24,
        "device": np.tile(text(f"d{k}" for k in range(10)), n // 10),
        "value": rng.normal(size=n),
    }


def clock_of_epoch_microseconds(rng: np.random.Generator) -> Stream:
    stream = clock_of_single_instants(rng)
    return {**stream, "at": stream["at"].astype("datetime64[us]").astype(np.int64)}


def clock_of_iso_text(rng: np.random.Generator) -> Stream:
    stream = clock_of_single_instants(rng)
    return {**stream, "at": text(f"{instant}Z" for instant in stream["at"])}


def sensors_under_sites(rng: np.random.Generator) -> Stream:
    return {
        "round": np.repeat(np.arange(400), 20),
        "site": np.tile(np.repeat(text("abcde"), 4), 400),
        "sensor": np.tile(np.arange(4), 2000),
        "value": wander(rng, 400, 20),
    }


def sensors_without_order(rng: np.random.Generator) -> Stream:
    stream = sensors_under_sites(rng)
    del stream["round"]
    return stream


def uneven_sites(rng: np.random.Generator) -> Stream:
    keys = [(site, k) for site, count in zip("abcd", (3, 2, 4, 2), strict=True) for k in range(count)]
    return {
        "round": np.repeat(np.arange(400), len(keys)),
        "flag": rng.choice(text("yn"), 400 * len(keys)),
        "site": text([site for site, _ in keys] * 400),
        "sensor": np.array([k for _, k in keys] * 400),
        "value": wander(rng, 400, len(keys)),
    }


def three_part_key(rng: np.random.Generator) -> Stream:
    keys = [(a, b, c) for a in "xy" for b in range(3) for c in "th"]
    return {
        "round": np.repeat(np.arange(300), 12),
        **{name: text([key[k] for key in keys] * 300) for k, name in enumerate(("hall", "rack", "kind"))},
        "value": wander(rng, 300, 12),
    }


def periods_4_and_6(rng: np.random.Generator) -> Stream:
    n = 6000
    return {"p": np.arange(n) % 4, "q": np.arange(n) % 6, "x": rng.normal(size=n)}


def long_cycle(rng: np.random.Generator) -> Stream:
    return polled_stream(1235, 8 * 1235, 3, seed=int(rng.integers(100)))


def numeric_ids(rng: np.random.Generator) -> Stream:
    return {
        "id": np.tile(rng.choice(10**6, 12, replace=False), 700),
        "at": np.repeat(np.arange(700), 12),
        "policy": rng.choice(text(["hi", "lo", "mid"]), 12 * 700),
        "loss": rng.choice([0, 0, 0, 0, 1, 2, 5], 12 * 700),
        "delay": wander(rng, 700, 12),
    }


def nulls_in_the_key(rng: np.random.Generator) -> Stream:
    key = np.tile(text(f"r{k}" for k in range(20)), 500)
    key[rng.random(10_000) < 0.01] = None
    return {"at": np.repeat(np.arange(500), 20), "router": key, "value": wander(rng, 500, 20)}


def measures_that_stand_still(rng: np.random.Generator) -> Stream:
    """A price that rarely moves is as cyclic as the company; only the company outlives it."""
    moves = np.where(rng.random((400, 30)) < 0.01, rng.normal(size=(400, 30)), 0.0)
    price = np.round(100 * rng.normal(size=30) + moves.cumsum(axis=0), 2)
    return {
        "day": np.repeat(np.arange(400), 30),
        "company with a long name": np.tile(text(f"company number {k}" for k in range(30)), 400),
        "price": price.reshape(-1),
    }


def partner_and_parity(rng: np.random.Generator) -> Stream:
    return {
        "day": np.repeat(np.arange(200), 47),
        "company": np.tile(text(f"Company {k} Incorporated" for k in range(47)), 200),
        "symbol": np.tile(text(f"C{k}" for k in range(47)), 200),
        "market": np.tile(text("NE"[k % 2] for k in range(47)), 200),
        "price": wander(rng, 200, 47),
    }


def members_come_and_go(rng: np.random.Generator) -> Stream:
    joins, leaves = rng.integers(0, 900, 20), rng.integers(1000, 1500, 20)
    joins[:8], leaves[:14] = 0, 1500
    rows = [(t, k) for t in range(1500) for k in range(20) if joins[k] <= t < leaves[k]]
    return {
        "day": np.array([t for t, _ in rows]),
        "sector": text("ABC"[k % 3] for _, k in rows),
        "ticker": text(f"t{k:02d}" for _, k in rows),
        "price": np.round(rng.normal(100, 10, len(rows)), 2),
    }


def two_sides(rng: np.random.Generator) -> Stream:
    return {"side": np.tile(text(["bid", "ask"]), 2000), "size": rng.integers(1, 9, 4000)}


UNSEEN: list[tuple[Callable[[np.random.Generator], Stream], str | None, tuple[str, ...], int | None]] = [
    (hours_above_stations, "when", ("station",), 5),
    (clock_of_single_instants, "at", ("device",), 10),
    (clock_of_epoch_microseconds, "at", ("device",), 10),
    (clock_of_iso_text, "at", ("device",), 10),
    (sensors_under_sites, "round", ("site", "sensor"), 20),
    (sensors_without_order, None, ("site", "sensor"), 20),
    (uneven_sites, "round", ("site", "sensor"), 11),
    (three_part_key, "round", ("hall", "rack", "kind"), 12),
    (periods_4_and_6, None, ("p", "q"), 12),
    (long_cycle, "at", ("router",), 1235),
    (numeric_ids, "at", ("id",), 12),
    (nulls_in_the_key, "at", ("router",), 20),
    (measures_that_stand_still, "day", ("company with a long name",), 30),
    (partner_and_parity, "day", ("symbol",), 47),
    (members_come_and_go, "day", ("ticker",), None),
    (two_sides, None, ("side",), 2),
]


def bits(columns: Stream) -> dict[str, int]:
    return {
        name: 8 * max(len(str(value)) for value in column[:200]) if column.dtype == object else 64
        for name, column in columns.items()
    }


@pytest.mark.parametrize("noisy", [False, True], ids=["clean", "noisy"])
@pytest.mark.parametrize(
    ("stream", "order", "attributes", "length"), UNSEEN, ids=lambda p: getattr(p, "__name__", None)
)
def test_streams_never_seen_give_their_cycle(
    stream: Callable[[np.random.Generator], Stream],
    order: str | None,
    attributes: tuple[str, ...],
    length: int | None,
    noisy: bool,
) -> None:
    rng = np.random.default_rng(4)
    columns = stream(rng)
    if noisy:
        columns = rows_of(columns, perturb(len(columns[attributes[0]]), rng))
    seq = np.arange(len(columns[attributes[0]]))
    cycle = find_cycle(columns, seq, bits(columns), order=order)
    assert cycle.attributes == attributes
    assert length is None or cycle.length == length


def test_the_order_of_the_columns_and_their_names_do_not_matter() -> None:
    columns = sensors_under_sites(np.random.default_rng(4))
    renamed = {f"c{k}": columns[name] for k, name in enumerate(reversed(columns))}
    cycle = find_cycle(renamed, np.arange(8000), dict.fromkeys(renamed, 8), order="c3")
    assert set(cycle.attributes) == {"c1", "c2"}


def test_members_that_come_and_go_are_dated_and_in_order() -> None:
    columns = members_come_and_go(np.random.default_rng(4))
    cycle = find_cycle(columns, np.arange(len(columns["day"])), bits(columns), order="day")
    names = [member.values[0] for member in cycle.members]
    assert names == sorted(names)
    for member in cycle.members:
        rows = np.flatnonzero(columns["ticker"] == member.values[0])
        assert member.from_seq in (0, rows[0])
        assert member.until_seq is None or member.until_seq == rows[-1]
    left = [member for member in cycle.members if member.until_seq is not None]
    assert 1 <= len(left) <= 6


def random_categories(rng: np.random.Generator) -> Stream:
    return {"k": rng.integers(0, 20, 5000), "s": rng.choice(text("abc"), 5000), "m": rng.normal(size=5000)}


def sticky_states(rng: np.random.Generator) -> Stream:
    return {
        "state": (rng.random(5000) < 0.3).cumsum() % 2,
        "slow": rng.choice([-1, 0, 1], 5000, p=[0.1, 0.8, 0.1]).cumsum(),
        "tide": np.round(5 * np.sin(np.arange(5000) / 50)),
        "day": np.arange(5000) // 100 % 7,
    }


def busy_users(rng: np.random.Generator) -> Stream:
    return {"user": rng.zipf(1.5, 20_000) % 500, "kind": rng.choice(text(["click", "view"]), 20_000)}


@pytest.mark.parametrize("stream", [random_categories, sticky_states, busy_users])
@pytest.mark.parametrize("seed", range(3))
def test_a_stream_without_a_cycle_gets_none(
    stream: Callable[[np.random.Generator], Stream], seed: int
) -> None:
    columns = stream(np.random.default_rng(seed))
    n = len(next(iter(columns.values())))
    with pytest.raises(CycleNotFound, match=r"cycle: \{attributes: \["):
        find_cycle(columns, np.arange(n), {})


def test_the_error_names_the_best_candidate_and_its_confidence() -> None:
    rng = np.random.default_rng(2)
    key = np.where(rng.random(3000) < 0.3, rng.integers(0, 6, 3000), np.arange(3000) % 6)
    columns = {"noise": rng.normal(size=3000), "city": key}
    with pytest.raises(CycleNotFound) as raised:
        find_cycle(columns, np.arange(3000), {})
    assert raised.value.attributes == ("city",)
    assert 0.4 < raised.value.confidence < 0.8
    assert f"`city` as best candidate with confidence {raised.value.confidence:.2f} of 0.80" in str(
        raised.value
    )
    assert "`cycle: {attributes: [city]}`" in str(raised.value)
    by_hand = declared_cycle(columns, np.arange(3000), ["city"])
    assert (by_hand.attributes, by_hand.length, by_hand.form) == (("city",), 6, "declared")
    assert [member.values[0] for member in by_hand.members] in [
        [(k + start) % 6 for k in range(6)] for start in range(6)
    ]


@pytest.mark.parametrize(
    "columns",
    [
        {"a": text("x")},
        {"a": text("abcdefgh")},
        {"a": text(["k"] * 50), "b": np.full(50, 3.0)},
        {"a": text([None] * 50), "b": np.full(50, np.nan)},
        {"a": np.zeros(0)},
    ],
    ids=["one tuple", "one cycle", "constant", "all null", "empty"],
)
def test_streams_that_prove_nothing_give_an_error_and_no_cycle(columns: Stream) -> None:
    with pytest.raises(CycleNotFound):
        find_cycle(columns, np.arange(len(columns["a"])), {"a": 8})


def test_a_stream_of_nothing_but_its_order_attribute_is_an_error() -> None:
    with pytest.raises(CycleNotFound, match="no attribute to try"):
        find_cycle({"at": np.arange(100)}, np.arange(100), {}, order="at")


def test_an_order_attribute_that_repeats_or_goes_back_does_not_matter() -> None:
    columns = dict(rows_of(weather(), np.arange(6000)))
    rng = np.random.default_rng(0)
    columns["time_hour"] = columns["time_hour"][rng.integers(0, 6000, 6000)]
    cycle = find_cycle(columns, np.arange(6000), bits_of(columns), order="time_hour")
    assert cycle.attributes == ("origin",)


def test_arguments_that_make_no_sense_are_refused() -> None:
    columns = {"a": np.arange(10) % 2}
    with pytest.raises(InvalidValue, match="`a` must have 9 values, got 10"):
        find_cycle(columns, np.arange(9), {})
    with pytest.raises(InvalidValue, match="`confidence` must lie in"):
        find_cycle(columns, np.arange(10), {}, confidence=0.2)
    with pytest.raises(InvalidValue, match="must name attributes of the stream, got 'b'; choose among a"):
        declared_cycle(columns, np.arange(10), ["b"])
    with pytest.raises(InvalidValue, match="must have values, got \['a'\]"):
        declared_cycle({"a": text([None, None])}, np.arange(2), ["a"])
    cycle = find_cycle(columns, np.arange(10), {}).to_dict()
    for field, value in (("attributes", []), ("length", 0), ("form", "guessed")):
        with pytest.raises(InvalidValue, match=f"`{field}` must"):
            Cycle.from_dict({**cycle, field: value})


def test_a_handful_of_lucky_steps_is_called_chance() -> None:
    lucky = trace_cycle(np.array([0, 1, 0, 1]))
    assert not lucky.accepted
    assert lucky.reason == "was seen too few times to rule out chance"
    assert trace_cycle(np.array([0, 1] * 20)).accepted


def test_strangers_have_no_place_in_the_cycle() -> None:
    columns = sensors_under_sites(np.random.default_rng(4))
    cycle = find_cycle(columns, np.arange(8000), bits(columns), order="round")
    asked = {"site": text(["a", "zz", None, "b"]), "sensor": np.array([1, 1, 1, 2])}
    assert cycle.positions(asked).tolist() == [1, -1, -1, 6]

"""Generate streams with a known sender, in the orders of real feeds, with attributes that mislead a search.

In addition to the key and its measures, every stream has a two-valued and a three-valued property of the key, a flag, a
count, a constant and a clock. `truth` are the identifying attributes. The family determines the order of arrival.

>>> made = FAMILIES["two feeds that take turns"](np.random.default_rng(0), "text")
>>> made.truth, list(made.columns)[:4], len(made.columns["at"])
(('key',), ['at', 'key', 'feed', 'site_type'], 4000)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from evidence.streams import Rows, perturb

ABOUT_TUPLES = 4000
FIRST_SECOND = 1_700_000_000
Columns = dict[str, npt.NDArray[Any]]


@dataclass(frozen=True)
class KnownStream:
    """A stream, and the attributes that identify the sender of its tuples."""

    columns: Columns
    truth: tuple[str, ...]


Family = Callable[[np.random.Generator, str], KnownStream]


def distinct_names(rng: np.random.Generator, members: int, kind: str) -> npt.NDArray[Any]:
    """Return different names: text, whole numbers far apart, or fractions."""
    if kind == "text":
        return np.array([f"k{k:05d}" for k in rng.permutation(members)], dtype=object)
    if kind == "integer":
        return rng.permutation(7 * members)[:members]
    return rng.permutation(members) * 1.7 - 40.5


def _stream(
    rng: np.random.Generator, sender: Rows, at: Rows, kind: str, rows: Rows | None = None, **more: Any
) -> KnownStream:
    """Return tuples of these senders at these times, with misleading attributes; `rows`: those that arrive."""
    n, members = len(sender), int(sender.max()) + 1
    level = rng.normal(50, 15, members)
    columns: Columns = {
        "at": at + FIRST_SECOND,
        "key": distinct_names(rng, members, kind)[sender],
        **more,
        "site_type": np.array(["A", "B"], dtype=object)[sender % 2],
        "zone": sender % 3,
        "flag": np.array(["ok", "warn", "bad"], dtype=object)[rng.choice(3, n, p=[0.8, 0.15, 0.05])],
        "count": rng.poisson(5, n),
        "constant": np.full(n, "x", dtype=object),
        "minute": (at + FIRST_SECOND) // 60 % 60,
        "temp": np.round(level[sender] + rng.normal(0, 0.02, n).cumsum() + rng.normal(0, 1, n), 1),
    }
    kept = np.arange(n) if rows is None else rows
    return KnownStream({name: column[kept] for name, column in columns.items()}, ("key",))


def _polled(rng: np.random.Generator, tuples: int = ABOUT_TUPLES) -> tuple[Rows, Rows]:
    members = int(rng.choice([3, 7, 20, 60, 150]))
    rounds = tuples // members
    return np.tile(np.arange(members), rounds), np.repeat(np.arange(rounds), members) * 60


def _clean(rng: np.random.Generator, kind: str) -> KnownStream:
    return _stream(rng, *_polled(rng), kind)


def _noisy(rng: np.random.Generator, kind: str) -> KnownStream:
    sender, at = _polled(rng)
    return _stream(rng, sender, at, kind, perturb(len(sender), rng))


def _gaps(rng: np.random.Generator, kind: str) -> KnownStream:
    sender, at = _polled(rng)
    return _stream(rng, sender, at, kind, perturb(len(sender), rng, doubled=0, swapped=0))


def _missing(share: float) -> Family:
    def made(rng: np.random.Generator, kind: str) -> KnownStream:
        sender, at = _polled(rng)
        return _stream(rng, sender, at, kind, perturb(len(sender), rng, removed=share, doubled=0, swapped=0))

    return made


def _bursts(rng: np.random.Generator, kind: str) -> KnownStream:
    sender, at = _polled(rng)
    kept = np.ones(len(sender), dtype=np.bool_)
    for start in rng.integers(0, len(sender), 5):
        kept[start : start + int(rng.integers(1, 4)) * (int(sender.max()) + 1)] = False
    return _stream(rng, sender, at, kind, np.flatnonzero(kept))


def _shuffled(rng: np.random.Generator, kind: str) -> KnownStream:
    members = int(rng.choice([5, 20, 100]))
    rounds = ABOUT_TUPLES // members
    sender = np.concatenate([rng.permutation(members) for _ in range(rounds)])
    slot = np.tile(np.arange(members), rounds)
    return _stream(rng, sender, np.repeat(np.arange(rounds), members) * 60, kind, slot=slot)


def _shuffled_by_type(rng: np.random.Generator, kind: str) -> KnownStream:
    """Shuffle the members in every round, but keep the order of their two types."""
    half = int(rng.choice([4, 15, 40]))
    rounds = ABOUT_TUPLES // (2 * half)
    sender = np.concatenate(
        [
            np.stack([2 * rng.permutation(half), 2 * rng.permutation(half) + 1], 1).reshape(-1)
            for _ in range(rounds)
        ]
    )
    return _stream(rng, sender, np.repeat(np.arange(rounds), 2 * half) * 60, kind)


def _random(rng: np.random.Generator, kind: str) -> KnownStream:
    return _stream(
        rng, rng.integers(0, int(rng.choice([5, 30, 200])), ABOUT_TUPLES), np.arange(ABOUT_TUPLES), kind
    )


def _busy(rng: np.random.Generator, kind: str) -> KnownStream:
    """Arrivals at random, some senders far more often than others."""
    share = rng.dirichlet(np.full(30, 0.7))
    return _stream(rng, rng.choice(30, ABOUT_TUPLES, p=share), np.arange(ABOUT_TUPLES), kind)


def _turns(rng: np.random.Generator, kind: str) -> KnownStream:
    i = np.arange(ABOUT_TUPLES)
    sender = np.where(i % 2 == 0, i // 2 % 7, 7 + i // 2 % 11)
    return _stream(rng, sender, i, kind, feed=np.array(["east", "west"], dtype=object)[i % 2])


def _noisy_turns(rng: np.random.Generator, kind: str) -> KnownStream:
    i = np.arange(ABOUT_TUPLES)
    sender = np.where(i % 2 == 0, i // 2 % 7, 7 + i // 2 % 11)
    feed = np.array(["east", "west"], dtype=object)[i % 2]
    return _stream(rng, sender, i, kind, perturb(ABOUT_TUPLES, rng), feed=feed)


def _random_turns(rng: np.random.Generator, kind: str) -> KnownStream:
    """Two feeds in turn; the members of each report at random."""
    i = np.arange(ABOUT_TUPLES)
    sender = np.where(i % 2 == 0, rng.integers(0, 8, ABOUT_TUPLES), 8 + rng.integers(0, 14, ABOUT_TUPLES))
    return _stream(rng, sender, i, kind, feed=np.array(["east", "west"], dtype=object)[i % 2])


def _merged(rng: np.random.Generator, kind: str) -> KnownStream:
    """Two feeds with different round lengths, merged by time."""
    fast, slow = (
        (np.arange(k) * 0.1 + every * np.arange(turns)[:, None]).reshape(-1)
        for k, every, turns in ((7, 10, 330), (11, 15, 220))
    )
    at = np.concatenate([fast, slow])
    sender = np.concatenate([np.tile(np.arange(7), 330), 7 + np.tile(np.arange(11), 220)])
    by_time = np.argsort(at, kind="stable")
    feed = np.array(["east", "west"], dtype=object)[(sender[by_time] >= 7).astype(int)]
    return _stream(rng, sender[by_time], at[by_time].astype(np.int64), kind, feed=feed)


def _blocks(rng: np.random.Generator, kind: str) -> KnownStream:
    """Rows sorted by key: the whole history of each member, one after the other."""
    members = int(rng.choice([4, 12, 40]))
    each = ABOUT_TUPLES // members
    stream = _stream(rng, np.repeat(np.arange(members), each), np.tile(np.arange(each), members) * 3600, kind)
    return KnownStream({**stream.columns, "hour": stream.columns["at"] // 3600 % 24}, stream.truth)


def _growing(rng: np.random.Generator, kind: str) -> KnownStream:
    """Members are added and replaced over time."""
    live, made = list(range(20)), 20
    sender, at = [], []
    for turn in range(150):
        if turn % 10 == 9:
            live.insert(int(rng.integers(0, len(live) + 1)), made)
            made += 1
        if turn % 12 == 5:
            live[int(rng.integers(0, len(live)))] = made
            made += 1
        sender += live
        at += [60 * turn] * len(live)
    return _stream(rng, np.array(sender), np.array(at), kind)


def _composite(noisy: bool) -> Family:
    def made(rng: np.random.Generator, kind: str) -> KnownStream:
        sites, sensors = ((12, 5), (3, 40), (40, 3))[int(rng.integers(3))]
        members = sites * sensors
        rounds = ABOUT_TUPLES // members
        sender, at = np.tile(np.arange(members), rounds), np.repeat(np.arange(rounds), members) * 60
        rows = perturb(len(sender), rng) if noisy else None
        site = distinct_names(rng, sites, "text")[sender // sensors]
        sensor = distinct_names(rng, sensors, kind)[sender % sensors]
        stream = _stream(rng, sender, at, kind, rows, site=site, sensor=sensor)
        left = {
            name: column
            for name, column in stream.columns.items()
            if name not in ("key", "site_type", "zone")
        }
        return KnownStream(left, ("site", "sensor"))

    return made


FAMILIES: Mapping[str, Family] = {
    "clean": _clean,
    "5 % missing, 1 % doubled, 2 % swapped": _noisy,
    "5 % missing": _gaps,
    "10 % missing": _missing(0.1),
    "20 % missing": _missing(0.2),
    "40 % missing": _missing(0.4),
    "whole cycles lost": _bursts,
    "rounds shuffled": _shuffled,
    "rounds shuffled, types in turn": _shuffled_by_type,
    "arrivals at random": _random,
    "arrivals at random, some busier": _busy,
    "two feeds that take turns": _turns,
    "two feeds that take turns, noisy": _noisy_turns,
    "two feeds that take turns, at random": _random_turns,
    "two feeds merged by time": _merged,
    "sorted by key": _blocks,
    "members come and go": _growing,
    "site and sensor": _composite(noisy=False),
    "site and sensor, noisy": _composite(noisy=True),
}

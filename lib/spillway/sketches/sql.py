"""What the SQL functions compute, from the bytes of a sketch; `plan.register_functions` makes Spark call them.

They work on payloads, so that SQL chooses what to cover and is never behind the table:

    SELECT spillway_frequency(spillway_merge(payload), 'JFK')
    FROM sketches WHERE stream = 'weather' AND name = 'origin' AND batch_date BETWEEN '2013-01-01' AND '2013-01-31'
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from decimal import Decimal
from functools import lru_cache
from typing import Any

from spillway.sketches.query import Loaded, merged
from spillway.sketches.specification import read_sketch
from spillway.sketches.types import Answer

ANSWER = "struct<estimate:double,low:double,high:double,confidence:double,method:string>"
HEAVY = f"array<struct<key:string,answer:{ANSWER}>>"
Row = tuple[float, float, float, float, str]


@lru_cache(maxsize=8)
def _loaded(payload: bytes) -> Loaded:
    # a function is called once a row; the same payload is usually asked many things
    return Loaded(read_sketch(payload))


def _row(answer: Answer) -> Row:
    return answer.estimate, answer.low, answer.high, answer.confidence, answer.method


def _plain(value: object) -> object:
    return (int(value) if value == int(value) else float(value)) if isinstance(value, Decimal) else value


def frequency(payload: bytes | None, *key: object) -> Row | None:
    """spillway_frequency(payload, value, ...)"""
    if payload is None:
        return None
    return _row(_loaded(bytes(payload)).frequency(*(_plain(value) for value in key)))


def top(payload: bytes | None, count: int) -> list[tuple[str | None, Row]] | None:
    """spillway_top(payload, count): keys as JSON arrays of their values"""
    if payload is None:
        return None
    return [
        (None if heavy.key is None else json.dumps(list(heavy.key)), _row(heavy.answer))
        for heavy in _loaded(bytes(payload)).top(int(count))
    ]


def quantile(payload: bytes | None, share: float) -> Row | None:
    """spillway_quantile(payload, share)"""
    return None if payload is None else _row(_loaded(bytes(payload)).quantile(float(share)))


def between(payload: bytes | None, low: object, high: object) -> Row | None:
    """spillway_between(payload, low, high)"""
    return None if payload is None else _row(_loaded(bytes(payload)).between(_plain(low), _plain(high)))


def self_join_size(payload: bytes | None) -> Row | None:
    """spillway_self_join_size(payload)"""
    return None if payload is None else _row(_loaded(bytes(payload)).self_join_size())


def join_size(left: bytes | None, right: bytes | None) -> Row | None:
    """spillway_join_size(payload, payload)"""
    if left is None or right is None:
        return None
    return _row(_loaded(bytes(left)).join_size(_loaded(bytes(right))))


def distinct(payload: bytes | None) -> Row | None:
    """spillway_distinct(payload)"""
    return None if payload is None else _row(_loaded(bytes(payload)).distinct())


def skew(payload: bytes | None) -> Row | None:
    """spillway_skew(payload): effective keys"""
    return None if payload is None else _row(_loaded(bytes(payload)).skew())


def near_duplicate_pairs(payload: bytes | None, at_least: int | None = None) -> Row | None:
    """spillway_near_duplicate_pairs(payload[, attributes that must agree])"""
    least = None if at_least is None else int(at_least)
    return None if payload is None else _row(_loaded(bytes(payload)).near_duplicate_pairs(least))


def merge_payloads(payloads: Iterable[bytes | None]) -> bytes | None:
    """spillway_merge(payload), an aggregate"""
    kept = [bytes(payload) for payload in payloads if payload is not None]
    return merged([read_sketch(payload) for payload in kept]).to_bytes() if kept else None


FUNCTIONS: dict[str, tuple[Callable[..., Any], str]] = {
    "spillway_frequency": (frequency, ANSWER),
    "spillway_top": (top, HEAVY),
    "spillway_quantile": (quantile, ANSWER),
    "spillway_between": (between, ANSWER),
    "spillway_self_join_size": (self_join_size, ANSWER),
    "spillway_join_size": (join_size, ANSWER),
    "spillway_distinct": (distinct, ANSWER),
    "spillway_skew": (skew, ANSWER),
    "spillway_near_duplicate_pairs": (near_duplicate_pairs, ANSWER),
}

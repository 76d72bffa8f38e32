"""What the SQL functions compute, from the bytes of a sketch: one `spillway_` function for every answer of every kind.

They work on payloads, so that SQL chooses what to cover and is never behind the table:

    SELECT spillway_frequency(spillway_merge(payload), 'JFK')
    FROM sketches WHERE stream = 'weather' AND name = 'origin' AND batch_date BETWEEN '2013-01-01' AND '2013-01-31'

Null payloads give null. Whatever speaks SQL may register `sql_functions()` and `merge_payloads`, an aggregate.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from decimal import Decimal
from functools import lru_cache, partial
from typing import Any

from spillway.sketches.answers import Answer
from spillway.sketches.kinds import every_kind
from spillway.sketches.kinds.base import Loaded
from spillway.sketches.query import loaded, merged, read_sketch

SqlAnswer = tuple[float, float, float, float, str]


@lru_cache(maxsize=8)
def _loaded(payload: bytes) -> Loaded:
    # a function is called once a row; the same payload is usually asked many things
    return loaded(read_sketch(payload))


def _answer(answer: Answer) -> SqlAnswer:
    return answer.estimate, answer.low, answer.high, answer.confidence, answer.method


def _plain(value: object) -> object:
    return (int(value) if value == int(value) else float(value)) if isinstance(value, Decimal) else value


def asked(method: str, of_two: bool, payload: bytes | None, *values: object) -> Any:
    """The answer (or answers) of `method` to the sketch in `payload`; null where a payload is."""
    if payload is None or (of_two and values[0] is None):
        return None
    known = [_plain(value) for value in values]
    if of_two:
        known[0] = _loaded(bytes(known[0]))  # type: ignore[call-overload]
    found = getattr(_loaded(bytes(payload)), method)(*known)
    if isinstance(found, Answer):
        return _answer(found)
    return [(None if one.key is None else json.dumps(list(one.key)), _answer(one.answer)) for one in found]


def sql_functions() -> dict[str, tuple[Callable[..., Any], str]]:
    """Every function by its name in SQL, with the type of what it returns.

    >>> sorted(name.removeprefix("spillway_") for name in sql_functions())[:4]
    ['between', 'distinct', 'frequency', 'join_size']
    """
    return {
        f"spillway_{method}": (partial(asked, method, method in kind.of_two), returns)
        for kind in every_kind()
        for method, returns in kind.answers.items()
    }


def merge_payloads(payloads: Iterable[bytes | None]) -> bytes | None:
    """spillway_merge(payload), an aggregate."""
    kept = [bytes(payload) for payload in payloads if payload is not None]
    return merged([read_sketch(payload) for payload in kept]).to_bytes() if kept else None

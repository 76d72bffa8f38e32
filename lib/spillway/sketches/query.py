"""Asking stored sketches: load the rows of a stream's sketch over a range of dates, merge them, ask.

Rows come from the `sketches` table by whatever reads it (Spark, delta-rs, a dictionary in a test); days merge into any
range here, at query time, so that a backfilled day needs no other. Every answer says what it covers.

>>> from spillway.sketches.specification import SketchSpec
>>> spec = SketchSpec("count_min", ("origin",), ("string",))
>>> found = Loaded(spec.empty(), Covers("weather", "origin"))
>>> found.frequency("JFK").estimate
0.0
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

import numpy as np

from spillway.sketches.choosing import effective_keys
from spillway.sketches.count_min import CountMin
from spillway.sketches.dyadic import Dyadic
from spillway.sketches.hashing import fingerprint
from spillway.sketches.heavy_hitters import HeavyHitters
from spillway.sketches.pair_count import PairCount
from spillway.sketches.specification import Sketch, read_sketch
from spillway.sketches.types import Answer, Covers, SketchError, refuse

_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


@dataclass(frozen=True)
class HeavyKey:
    """A key above the sketch's share of the rows, by its values where they are kept."""

    key: tuple[Any, ...] | None
    answer: Answer


def merged(sketches: Sequence[Sketch]) -> Sketch:
    """One sketch of all; refused for kinds or parameters that do not merge."""
    if not sketches:
        raise refuse("sketches", "be at least one", 0, "sketch the batches of this range first")
    for sketch in sketches[1:]:
        if type(sketch) is not type(sketches[0]):
            raise refuse("kind", "be one for all that is merged", type(sketch).__name__, "ask for one kind")
    return reduce(lambda one, other: one.merge(other), sketches)  # type: ignore[arg-type]


def load(
    rows: Iterable[Mapping[str, Any]],
    stream: str,
    name: str,
    kind: str = "count_min",
    from_date: datetime.date | None = None,
    to_date: datetime.date | None = None,
    batches: Sequence[int] | None = None,
) -> Loaded:
    """The sketch `name` of `stream` over the dates from `from_date` to `to_date`, both included."""
    rows = [row for row in rows if row["stream"] == stream]
    of_name = [row for row in rows if row["name"] == name and row["kind"] == kind]
    if not of_name:
        have = sorted({f"{row['kind']} {row['name']}" for row in rows})
        raise refuse(
            "name", f"be one of {have}", f"{kind} {name}", "name a sketch of the contract, or build it"
        )
    chosen = [
        row
        for row in of_name
        if (from_date is None or row["batch_date"] >= from_date)
        and (to_date is None or row["batch_date"] <= to_date)
        and (batches is None or row["batch"] in batches)
    ]
    if not chosen:
        first, last = (end(row["batch_date"] for row in of_name) for end in (min, max))
        raise refuse("dates", f"touch {first} to {last}", (from_date, to_date), "ask for dates with sketches")
    chosen.sort(key=lambda row: row["batch"])
    if kind == "stable_bloom":
        # a filter's state after a batch holds what came before
        sketch = read_sketch(bytes(chosen[-1]["payload"]))
    else:
        sketch = merged([read_sketch(bytes(row["payload"])) for row in chosen])
    covers = Covers(
        stream,
        name,
        str(min(row["batch_date"] for row in chosen)),
        str(max(row["batch_date"] for row in chosen)),
        len(chosen),
        sum(int(row["rows"]) for row in chosen),
    )
    return Loaded(sketch, covers)


class Loaded:
    """A sketch in memory and what it covers; questions it cannot answer are refused with what can."""

    def __init__(self, sketch: Sketch, covers: Covers | None = None) -> None:
        self.sketch = sketch
        self.covers = covers or Covers(name="+".join(sketch.context.get("attributes", ())))

    def _counts(self) -> CountMin:
        if isinstance(self.sketch, HeavyHitters):
            return self.sketch.counts
        if isinstance(self.sketch, CountMin):
            return self.sketch
        raise self._wrong_kind("count_min")

    def _wrong_kind(self, wanted: str) -> SketchError:
        held = type(self.sketch).__name__
        return refuse(
            "kind", f"be {wanted} for this question", held, f"add a {wanted} sketch to the contract"
        )

    def _covered(self, answer: Answer) -> Answer:
        return replace(answer, covers=self.covers)

    def frequency(self, *key: object, estimator: str = "auto", confidence: float = 0.95) -> Answer:
        """How many rows have these values (one per attribute, None for null)."""
        counts = self._counts()
        context = self.sketch.context
        types = context["types"]
        values = [coerced(value, kind) for value, kind in zip(key, types, strict=False)]
        if len(key) != len(types):
            values = list(key)
        hashed = np.array([fingerprint(values, types, context["seed"])], dtype=np.uint64)
        found = counts.point(hashed, estimator, confidence)
        low, high = float(found.low[0]), float(found.high[0])
        return self._covered(Answer(float(found.estimate[0]), low, high, confidence, found.method))

    def top(self, count: int, confidence: float = 0.95) -> list[HeavyKey]:
        """The `count` most frequent keys, each with its frequency."""
        if not isinstance(self.sketch, HeavyHitters):
            raise self._wrong_kind("count_min with heavy_pct")
        found = self.sketch.top(count, confidence=confidence)
        note = f"complete above {100 * self.sketch.share:g} % of the rows"
        edges = zip(found.sizes.estimate, found.sizes.low, found.sizes.high, strict=True)
        answers = [
            Answer(float(middle), float(low), float(high), confidence, found.sizes.method, self.covers, note)
            for middle, low, high in edges
        ]
        return [
            HeavyKey(None if label is None else tuple(label), answer)
            for label, answer in zip(found.labels, answers, strict=True)
        ]

    def quantile(self, share: float, confidence: float = 0.95) -> Answer:
        """The value below which `share` of the values lie."""
        return self._covered(self._ordered().quantile(share, confidence))

    def between(self, low: object, high: object, confidence: float = 0.95) -> Answer:
        """How many values lie from `low` to `high`, both included."""
        return self._covered(self._ordered().between(ordinal(low), ordinal(high), confidence))

    def _ordered(self) -> Dyadic:
        if not isinstance(self.sketch, Dyadic):
            raise self._wrong_kind("quantiles")
        return self.sketch

    def self_join_size(self, confidence: float = 0.95) -> Answer:
        """F2: how many (ordered) pairs of rows have equal keys, each row with itself included."""
        return self._covered(self._counts().self_join_size("cmm", confidence))

    def join_size(self, other: Loaded, confidence: float = 0.95) -> Answer:
        """How many pairs of rows, one of each, have equal keys: the size of the join, before it is run."""
        mine, theirs = ({**x.sketch.context, "attributes": None} for x in (self, other))
        if mine != theirs:
            raise refuse(
                "keys", f"be hashed alike: {mine}", theirs, "sketch both with one seed and equal types"
            )
        found = self._counts().join_size(other._counts(), "cmm", confidence)
        names = f"{self.covers.stream}/{self.covers.name} x {other.covers.stream}/{other.covers.name}"
        return replace(self._covered(found), note=f"join of {names}")

    def distinct(self, confidence: float = 0.95) -> Answer:
        """How many different keys there are."""
        return self._covered(self._counts().distinct(confidence))

    def skew(self, confidence: float = 0.95) -> Answer:
        """N^2/F2: how many equally frequent keys would be as skewed; few is skewed."""
        counts = self._counts()
        moment = counts.self_join_size("cmm", confidence)
        square = float(counts.total) ** 2
        low, high = (square / edge if edge > 0 else 0.0 for edge in (moment.high, moment.low))
        return self._covered(Answer(effective_keys(counts), low, high, confidence, "effective_keys"))

    def near_duplicate_pairs(self, at_least: int | None = None, confidence: float = 0.95) -> Answer:
        """How many pairs of rows agree in at least `at_least` attributes."""
        return self._covered(self._pairs().pairs(at_least, "unordered", confidence))

    def near_duplicate_share(self, at_least: int | None = None, confidence: float = 0.95) -> Answer:
        """The same as a share of all pairs: the cleanliness of a table."""
        return self._covered(self._pairs().share(at_least, confidence))

    def near_duplicate_join(
        self, other: Loaded, at_least: int | None = None, confidence: float = 0.95
    ) -> Answer:
        """How many pairs of rows, one of each, agree in `at_least` attributes: ask before a similarity join is run."""
        found = self._pairs().join(other._pairs(), at_least, confidence)
        names = f"{self.covers.stream}/{self.covers.name} x {other.covers.stream}/{other.covers.name}"
        return replace(self._covered(found), note=f"similarity join of {names}")

    def _pairs(self) -> PairCount:
        if not isinstance(self.sketch, PairCount):
            raise self._wrong_kind("pair_count")
        return self.sketch


def coerced(value: object, kind: str) -> object:
    """A value as SQL or a command line gives it, in the attribute's type where that loses nothing."""
    if value is None or isinstance(value, str) == (kind == "string"):
        if kind == "double" and value is not None and not isinstance(value, float | bool):
            return float(value)  # type: ignore[arg-type]
        if kind == "integer" and not isinstance(value, bool | float) and value is not None:
            return int(value) if int(value) == value else value  # type: ignore[call-overload]
        return value
    if not isinstance(value, str):
        return value
    try:
        return _parsed(value, kind)
    except ValueError:
        return value


def _parsed(text: str, kind: str) -> object:
    if kind == "integer":
        return int(text)
    if kind == "double":
        return float(text)
    if kind == "date":
        return datetime.date.fromisoformat(text)
    if kind == "timestamp":
        return datetime.datetime.fromisoformat(text)
    return {"true": True, "false": False}.get(text.lower(), text)


def ordinal(value: object) -> float:
    """A value on the axis of a quantile sketch: dates in days, timestamps in microseconds, both since 1970."""
    if isinstance(value, datetime.datetime):
        moment = value if value.tzinfo else value.replace(tzinfo=datetime.UTC)
        return float((moment - _EPOCH) // datetime.timedelta(microseconds=1))
    if isinstance(value, datetime.date):
        return float((value - _EPOCH.date()).days)
    return float(value)  # type: ignore[arg-type]

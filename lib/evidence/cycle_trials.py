"""Test the search for the cycle identifier on streams with a known sender: right, by keys, refused, wrong.

A result is *right* if it is the true identifier, or attributes that are one to one with it. It is *by keys* if no order
was accepted and the declared keys are used. It is *refused* if an error names the true identifier, a part of it, or
nothing. Any other result is *wrong*: another attribute was used, or proposed.

>>> from evidence.cycle_streams import FAMILIES
>>> stream = FAMILIES["arrivals at random"](np.random.default_rng(1), "text")
>>> verdict(stream, keys=("key",)), verdict(stream, keys=())
('by keys', 'refused')
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from evidence.cycle_streams import FAMILIES, Family, KnownStream
from spillway.levers.attributes.cycle.identifier import CycleNotFound, find_cycle

KINDS = ("text", "integer", "float")
RIGHT, BY_KEYS, REFUSED, WRONG = "right", "by keys", "refused", "wrong"


@dataclass(frozen=True)
class Trials:
    """The verdicts on one family: with its keys declared, with one of several declared, or with none."""

    family: str
    declared: str
    verdicts: Counter[str]
    longest_seconds: float

    @property
    def streams(self) -> int:
        return self.verdicts.total()


def verdict(stream: KnownStream, keys: tuple[str, ...]) -> str:
    """Return the verdict on one stream."""
    bits = {name: 96 if column.dtype == object else 64 for name, column in stream.columns.items()}
    n = len(stream.columns["at"])
    try:
        cycle = find_cycle(stream.columns, np.arange(n), bits, order="at", keys=keys)
    except CycleNotFound as refusal:
        return REFUSED if not keys and set(refusal.attributes) <= set(stream.truth) else WRONG
    if cycle.form == "by keys":
        return BY_KEYS if cycle.attributes == keys else WRONG
    return RIGHT if one_to_one(stream, cycle.attributes) else WRONG


def one_to_one(stream: KnownStream, attributes: tuple[str, ...]) -> bool:
    """Return whether these attributes distinguish the same senders as the truth."""
    said, true = (
        list(zip(*(stream.columns[name].tolist() for name in names), strict=True))
        for names in (attributes, stream.truth)
    )
    return len(set(said)) == len(set(true)) == len(set(zip(said, true, strict=True)))


def run_trials(seeds: Iterable[int], families: Mapping[str, Family] = FAMILIES) -> Iterator[Trials]:
    """Run every family over the seeds, with and without declared keys; the kind of the key's values alternates."""
    seeds = list(seeds)
    for place, (family, made) in enumerate(families.items()):
        ways: dict[str, Counter[str]] = {}
        longest: dict[str, float] = {}
        for seed in seeds:
            stream = made(np.random.default_rng([seed, place]), KINDS[seed % len(KINDS)])
            declared = {"keys": stream.truth, "none": ()}
            if len(stream.truth) > 1:
                declared["one key"] = stream.truth[:1]
            for name, keys in declared.items():
                started = time.perf_counter()
                found = verdict(stream, keys)
                longest[name] = max(longest.get(name, 0.0), time.perf_counter() - started)
                ways.setdefault(name, Counter())[found] += 1
        for name, verdicts in ways.items():
            yield Trials(family, name, verdicts, longest[name])

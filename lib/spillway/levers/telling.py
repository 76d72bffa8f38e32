"""What a lever tells people: what no longer holds, why an attribute travels as it does, and pictures, all as data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Noticed:
    """Something that no longer holds, told as an expectation is: reported, never a failure."""

    rule: str
    observed: str
    expected: str
    sentence: str


@dataclass(frozen=True)
class OpenQuestion:
    """A doubt about a contract, and what to write to remove it."""

    sentence: str
    remedy: str


@dataclass(frozen=True)
class Told:
    """A lever's part of `explain`: what it does to an attribute, why, in numbers, and what to do about it."""

    way: str
    because: str
    numbers: Mapping[str, Any] = field(default_factory=dict)
    remedies: tuple[str, ...] = ()


@dataclass(frozen=True)
class Picture:
    """A picture or a table for the report, as data: the report draws it."""

    title: str
    kind: str
    """lines, timeline, bars, regions or table."""
    data: Mapping[str, Any]
    note: str = ""
    wide: bool = False


@dataclass(frozen=True)
class MinedEntry:
    """What a lever's entry of a contract could be by the queries that people ran, and what is to be said of it."""

    entry: Mapping[str, Any]
    notes: tuple[str, ...] = ()

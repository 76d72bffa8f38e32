"""Classes of criticality, the error rate of each, and the category a stream was assigned to (3.2.4.3, chapter 4).

What nothing is known of gets the strictest class: the thesis's class without a rate, "others", is not there.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from typing import Any

import yaml

from spillway.errors import Refused

STRICTEST = "extremely"
"""The class that is assumed where the names tell none."""


@dataclass(frozen=True)
class Category:
    """The category a stream was assigned to and its rate in per cent; `assumed` where its names tell none."""

    domain: str
    criticality: str
    rate_pct: float
    words: tuple[str, ...] = ()
    assumed: bool = False
    explained: Mapping[str, float] = field(default_factory=dict)
    """The share of the words that each of the best few domains explains, best first."""


@dataclass(frozen=True)
class Classes:
    """The classes of criticality and their rates in per cent."""

    rates_pct: Mapping[str, float]

    def rate_pct(self, criticality: str) -> float:
        """The category recovery error rate of a class, for a contract that names the class itself.

        >>> Classes(class_rates()).rate_pct("extremely")
        1.67
        """
        if criticality not in self.rates_pct:
            raise Refused(
                "criticality", f"be one of {', '.join(self.rates_pct)}", criticality, "correct the contract"
            )
        return self.rates_pct[criticality]

    def assumed(self, why: str, words: tuple[str, ...], explained: Mapping[str, float] = {}) -> Category:
        """The strictest class, for want of a better one."""
        return Category(f"assumed: {why}", STRICTEST, self.rate_pct(STRICTEST), words, True, explained)


def _read(file: str) -> str:
    return resources.files("spillway.levers.attributes.threshold").joinpath(file).read_text(encoding="utf-8")


@cache
def domain_data() -> dict[str, Any]:
    """`categories.yaml`."""
    loaded: dict[str, Any] = yaml.safe_load(_read("categories.yaml"))
    return loaded


def class_rates() -> dict[str, float]:
    """The category recovery error rate of every class, in per cent."""
    return {name: float(rate) for name, rate in domain_data()["classes"].items()}


def data_rows(file: str) -> Iterator[dict[str, str]]:
    """The rows of a data file beside this module."""
    return iter(csv.DictReader(_read(file).splitlines()))

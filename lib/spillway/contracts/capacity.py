"""The grammar of a channel's capacity, and the shape that contracts read it with.

A rate as people write it, or one of two sets of figures:

- Shannon and Hartley (equation 3.3): C = BW log2(1 + S/N), S/N as a ratio = 10^(dB/10).
  4 kHz at 20 dB carry 26.63 kbps (Example 2);
- a budget: what a day may cost over what a gigabyte costs.

>>> from spillway.contracts.shapes import Report
>>> CapacityShape().read("2 GB/day", "capacity", Report("channels.yaml"))
Capacity(kbps=185.1851851851852, stated='2 GB/day')
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from numbers import Real
from typing import Any

from spillway.contracts.shapes import Report, join_path
from spillway.errors import Refused

REMEDY = "write 120 kbps, 5 Mbps, 2 GB/day or {bandwidth_khz: 4, signal_to_noise_db: 20}"
_PREFIXES = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
_BINARY_PREFIXES = {"ki": 2**10, "mi": 2**20, "gi": 2**30, "ti": 2**40}
_SECONDS = {"s": 1, "sec": 1, "second": 1, "min": 60, "minute": 60, "h": 3600, "hour": 3600, "day": 86400}
_SHANNON = ("bandwidth_khz", "signal_to_noise_db")
_BUDGET = ("budget_per_day", "price_per_gb")

_UNIT = r"([kKMGT]i?)?(bit|byte|b|B)s?"
_EXPRESSION = re.compile(
    r"\s*(?P<number>[-+]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?)\s*"
    r"(?P<prefix>[kKMGT]i?|)(?P<unit>bit|byte|b|B)s?\s*(?:/\s*|p(?=s\b)|\s+per\s+)(?P<period>[a-z]+)\s*"
)
_POSITIVE = r"(?=[0-9.]*[1-9])([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][-+]?[0-9]+)?"
_PERIOD = rf"({'|'.join(_SECONDS)})s?"
_PATTERN = rf"^\s*\+?{_POSITIVE}\s*{_UNIT}\s*(/\s*{_PERIOD}|ps|\s+per\s+{_PERIOD})\s*$"
"""What `_EXPRESSION` and the rules after it let pass, in the words of JSON Schema."""


@dataclass(frozen=True)
class Capacity:
    """A capacity in kbps, and the words it was stated in."""

    kbps: float
    stated: str


@dataclass(frozen=True)
class CapacityShape:
    """A capacity as people write it."""

    def read(self, value: object, path: str, report: Report) -> Any:
        try:
            kbps = parse_capacity(value)
        except Refused as refused:
            problem = refused.problem
            at = path if problem.field == "capacity" else join_path(path, problem.field)
            return report.add(at, problem.rule, problem.value, problem.remedy)
        stated = ", ".join(f"{k} {v}" for k, v in value.items()) if isinstance(value, Mapping) else str(value)
        return Capacity(kbps, stated.strip())

    def json_schema(self) -> dict[str, Any]:
        forms: list[dict[str, Any]] = [{"type": "string", "pattern": _PATTERN}]
        for names in (_SHANNON, _BUDGET):
            properties = {
                name: {"type": "number"}
                if name == "signal_to_noise_db"
                else {"type": "number", "exclusiveMinimum": 0}
                for name in names
            }
            forms.append(
                {
                    "type": "object",
                    "additionalProperties": False,
                    "properties": properties,
                    "required": list(names),
                }
            )
        return {"anyOf": forms}


def parse_capacity(expression: object) -> float:
    """A channel's capacity in kbps from what a contract says.

    b is a bit and B a byte; k, M, G, T are powers of 1000 and Ki, Mi, Gi, Ti of 1024.

    >>> parse_capacity("120 kbps"), parse_capacity("5 Mbps"), round(parse_capacity("2 GB/day"), 3)
    (120.0, 5000.0, 185.185)
    >>> parse_capacity({"budget_per_day": 1.8, "price_per_gb": 0.9}) == parse_capacity("2 GB/day")
    True
    """
    if expression is None or expression == "":
        raise Refused("capacity", "be stated", expression, REMEDY)
    try:
        kbps = _from_figures(expression) if isinstance(expression, Mapping) else _from_words(expression)
    except OverflowError:
        kbps = math.inf
    if not (kbps > 0 and math.isfinite(kbps)):
        raise Refused("capacity", "be above 0 and of a size that a channel may have", expression, REMEDY)
    return kbps


def shannon_kbps(bandwidth_khz: float, signal_to_noise_db: float) -> float:
    """C = BW log2(1 + S/N) (equation 3.3).

    >>> round(shannon_kbps(4, 20), 2)
    26.63
    """
    _positive("bandwidth_khz", bandwidth_khz, "state the channel's bandwidth")
    if not math.isfinite(signal_to_noise_db):
        raise Refused("signal_to_noise_db", "be a number", signal_to_noise_db, "state it in dB, as 20")
    return bandwidth_khz * math.log2(1.0 + 10.0 ** (signal_to_noise_db / 10.0))


def _from_words(expression: object) -> float:
    found = _EXPRESSION.fullmatch(expression) if isinstance(expression, str) else None
    seconds = found and (_SECONDS.get(found["period"]) or _SECONDS.get(found["period"].removesuffix("s")))
    if not found or not seconds:
        raise Refused("capacity", "be a number with a unit of rate", expression, REMEDY)
    # as a float first: an exact 1e999999999 would take all memory there is
    if not 0 < float(found["number"]) < math.inf:
        raise Refused("capacity", "be above 0", expression, REMEDY)
    prefix = found["prefix"].lower()
    factor = _PREFIXES.get(prefix) or _BINARY_PREFIXES[prefix]
    bits = 8 if found["unit"] in ("B", "byte") else 1
    return float(Fraction(found["number"]) * factor * bits / seconds / 1000)


def _from_figures(figures: Mapping[Any, Any]) -> float:
    if set(figures) == set(_SHANNON):
        return shannon_kbps(*(_number(name, figures[name]) for name in _SHANNON))
    if set(figures) == set(_BUDGET):
        budget, price = (_number(name, figures[name]) for name in _BUDGET)
        _positive("budget_per_day", budget, "state what a day may cost")
        _positive("price_per_gb", price, "state what a gigabyte costs")
        # as the decimals they are written as
        return float(Fraction(str(budget)) / Fraction(str(price)) * 8 * 10**6 / 86400)
    raise Refused(
        "capacity",
        "have bandwidth_khz and signal_to_noise_db, or budget_per_day and price_per_gb",
        dict(figures),
        REMEDY,
    )


def _number(name: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, Real):
        raise Refused(name, "be a number", value, "write it as a plain number")
    return float(value)


def _positive(name: str, value: float, remedy: str) -> None:
    if not (math.isfinite(value) and value > 0):
        raise Refused(name, "be above 0", value, remedy)

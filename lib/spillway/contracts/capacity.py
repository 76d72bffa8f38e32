"""The grammar of a channel's capacity, and the shape that contracts read it with.

A rate as people write it, a quota (so many bytes a day or a month, see `contracts.quota`), or a set of figures:

- Shannon and Hartley (equation 3.3): C = BW log2(1 + S/N), S/N as a ratio = 10^(dB/10).
  4 kHz at 20 dB carry 26.63 kbps (Example 2);
- a budget: what a day may cost over what a gigabyte costs, a quota a day;
- a quota with what its period leaves unspent, and the fastest it may be spent.

Per second, minute and hour it is a rate, per day and month a quota.

>>> from spillway.contracts.shapes import Report
>>> CapacityShape().read("5 Mbps", "capacity", Report("channels.yaml"))
Capacity(kbps=5000.0, stated='5 Mbps', quota=None)
>>> monthly = {"quota": "60 GB", "per": "month", "carry_over_pct": 20, "burst": "5 Mbps"}
>>> CapacityShape().read(monthly, "capacity", Report("channels.yaml")).quota
Quota(size_bytes=60000000000.0, per='month', carry_over_pct=20.0, burst_kbps=5000.0)
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from numbers import Real
from typing import Any

from spillway.contracts.quota import MEAN_SECONDS, Quota
from spillway.contracts.shapes import Report, join_path
from spillway.errors import Refused

REMEDY = (
    "write 120 kbps, 5 Mbps, 2 GB/day, {quota: 2 GB, per: day} or {bandwidth_khz: 4, signal_to_noise_db: 20}"
)
_PREFIXES = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
_BINARY_PREFIXES = {"ki": 2**10, "mi": 2**20, "gi": 2**30, "ti": 2**40}
_SECONDS = {"s": 1, "sec": 1, "second": 1, "min": 60, "minute": 60, "h": 3600, "hour": 3600, **MEAN_SECONDS}
_SHANNON = ("bandwidth_khz", "signal_to_noise_db")
_BUDGET = ("budget_per_day", "price_per_gb")
_QUOTA = ("quota", "per")
_SPENDING = ("carry_over_pct", "burst")
_PERS = (*MEAN_SECONDS, "hour")

_UNIT = r"([kKMGT]i?)?(bit|byte|b|B)s?"
_AMOUNT = (
    r"\s*(?P<number>[-+]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?)\s*"
    r"(?P<prefix>[kKMGT]i?|)(?P<unit>bit|byte|b|B)s?\s*"
)
_SIZE = re.compile(_AMOUNT)
_EXPRESSION = re.compile(_AMOUNT + r"(?:/\s*|p(?=s\b)|(?<=\s)per\s+)(?P<period>[a-z]+)\s*")
_POSITIVE = r"(?=[0-9.]*[1-9])([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][-+]?[0-9]+)?"
_SIZE_PATTERN = rf"^\s*\+?{_POSITIVE}\s*{_UNIT}\s*$"


def _pattern(periods: Iterable[str]) -> str:
    """What `_EXPRESSION` and the rules after it let pass, in the words of JSON Schema."""
    period = rf"({'|'.join(periods)})s?"
    return rf"^\s*\+?{_POSITIVE}\s*{_UNIT}\s*(/\s*{period}|ps|\s+per\s+{period})\s*$"


@dataclass(frozen=True)
class Capacity:
    """A capacity in kbps, and the words it was stated in; of a quota, its mean rate."""

    kbps: float
    stated: str
    quota: Quota | None = None


@dataclass(frozen=True)
class CapacityShape:
    """A capacity as people write it."""

    def read(self, value: object, path: str, report: Report) -> Any:
        try:
            kbps, quota = _parsed(value)
        except Refused as refused:
            problem = refused.problem
            at = path if problem.field == "capacity" else join_path(path, problem.field)
            return report.add(at, problem.rule, problem.value, problem.remedy)
        stated = ", ".join(f"{k} {v}" for k, v in value.items()) if isinstance(value, Mapping) else str(value)
        return Capacity(kbps, stated.strip(), quota)

    def json_schema(self) -> dict[str, Any]:
        forms: list[dict[str, Any]] = [{"type": "string", "pattern": _pattern(_SECONDS)}]
        for names in (_SHANNON, _BUDGET):
            properties = {
                name: {"type": "number"}
                if name == "signal_to_noise_db"
                else {"type": "number", "exclusiveMinimum": 0}
                for name in names
            }
            forms.append(_form(properties, names))
        size = {"type": "string", "pattern": _SIZE_PATTERN}
        burst = {"type": "string", "pattern": _pattern(p for p in _SECONDS if p not in MEAN_SECONDS)}
        spending = {"carry_over_pct": {"type": "number", "minimum": 0, "maximum": 100}, "burst": burst}
        forms.append(_form({"quota": size, "per": {"const": "hour"}}, _QUOTA))
        forms.append(_form({"quota": size, "per": {"enum": list(MEAN_SECONDS)}, **spending}, _QUOTA))
        return {"anyOf": forms}


@dataclass(frozen=True)
class SizeShape:
    """A size with a unit (`1 MB`), or a whole number of bytes; read as whole bytes.

    >>> SizeShape().read("1.5 MB", "until_bytes", Report("river.yaml"))
    1500000
    """

    remedy: str = "write 1 MB"

    def read(self, value: object, path: str, report: Report) -> Any:
        words = f"{value} B" if isinstance(value, int) and not isinstance(value, bool) else value
        found = _SIZE.fullmatch(words) if isinstance(words, str) else None
        if not found:
            return report.add(path, "be a number with a unit of size", value, self.remedy)
        try:
            size = _bits(found, path, self.remedy) / 8
        except Refused as refused:
            problem = refused.problem
            return report.add(path, problem.rule, problem.value, problem.remedy)
        if not 1 <= size < 1 << 63:
            return report.add(path, "be at least one byte and a size that files may have", value, self.remedy)
        return math.ceil(size)

    def json_schema(self) -> dict[str, Any]:
        return {"anyOf": [{"type": "string", "pattern": _SIZE_PATTERN}, {"type": "integer", "minimum": 1}]}


def parse_capacity(expression: object) -> float:
    """A channel's capacity in kbps from what a contract says; of a quota, its mean rate.

    b is a bit and B a byte; k, M, G, T are powers of 1000 and Ki, Mi, Gi, Ti of 1024.

    >>> parse_capacity("120 kbps"), parse_capacity("5 Mbps"), round(parse_capacity("2 GB/day"), 3)
    (120.0, 5000.0, 185.185)
    >>> parse_capacity({"budget_per_day": 1.8, "price_per_gb": 0.9}) == parse_capacity("2 GB/day")
    True
    """
    return _parsed(expression)[0]


def shannon_kbps(bandwidth_khz: float, signal_to_noise_db: float) -> float:
    """C = BW log2(1 + S/N) (equation 3.3).

    >>> round(shannon_kbps(4, 20), 2)
    26.63
    """
    _positive("bandwidth_khz", bandwidth_khz, "state the channel's bandwidth")
    if not math.isfinite(signal_to_noise_db):
        raise Refused("signal_to_noise_db", "be a number", signal_to_noise_db, "state it in dB, as 20")
    return bandwidth_khz * math.log2(1.0 + 10.0 ** (signal_to_noise_db / 10.0))


def _parsed(expression: object) -> tuple[float, Quota | None]:
    if expression is None or expression == "":
        raise Refused("capacity", "be stated", expression, REMEDY)
    try:
        kbps, quota = (
            _from_figures(expression) if isinstance(expression, Mapping) else _from_words(expression)
        )
    except OverflowError:
        kbps, quota = math.inf, None
    if not (kbps > 0 and math.isfinite(kbps)):
        raise Refused("capacity", "be above 0 and of a size that a channel may have", expression, REMEDY)
    return kbps, quota


def _from_words(expression: object) -> tuple[float, Quota | None]:
    found = _EXPRESSION.fullmatch(expression) if isinstance(expression, str) else None
    period = found and next(
        (p for p in (found["period"], found["period"].removesuffix("s")) if p in _SECONDS), None
    )
    if not found or not period:
        raise Refused("capacity", "be a number with a unit of rate", expression, REMEDY)
    bits = _bits(found, "capacity", REMEDY)
    quota = Quota(float(bits / 8), period) if period in MEAN_SECONDS else None
    return float(bits / _SECONDS[period] / 1000), quota


def _bits(found: re.Match[str], field: str, remedy: str) -> Fraction:
    # as a float first: an exact 1e999999999 would take all memory there is
    if not 0 < float(found["number"]) < math.inf:
        raise Refused(field, "be above 0", found[0], remedy)
    prefix = found["prefix"].lower()
    factor = _PREFIXES.get(prefix) or _BINARY_PREFIXES[prefix]
    return Fraction(found["number"]) * factor * (8 if found["unit"] in ("B", "byte") else 1)


def _from_quota(figures: Mapping[Any, Any]) -> tuple[float, Quota | None]:
    found = _SIZE.fullmatch(figures["quota"]) if isinstance(figures["quota"], str) else None
    if not found:
        raise Refused("quota", "be a number with a unit of size", figures["quota"], "write 2 GB")
    bits, per = _bits(found, "quota", "write 2 GB"), figures["per"]
    if not isinstance(per, str) or per not in _PERS:
        raise Refused("per", "be one of " + ", ".join(_PERS), per, "write per: day")
    kbps = float(bits / _SECONDS[per] / 1000)
    stated = [name for name in _SPENDING if name in figures]
    if per not in MEAN_SECONDS:
        for name in stated:
            raise Refused(
                name,
                "be absent when the quota is per hour",
                figures[name],
                "an hour is spent as a plain rate: write per: day, or remove it",
            )
        return kbps, None
    carry_over_pct = _number("carry_over_pct", figures.get("carry_over_pct", 0))
    if not 0 <= carry_over_pct <= 100:
        raise Refused("carry_over_pct", "be at least 0 and at most 100", carry_over_pct, "write 0 to 100")
    burst_kbps = _burst(figures["burst"], kbps) if "burst" in figures else None
    return kbps, Quota(float(bits / 8), per, carry_over_pct, burst_kbps)


def _burst(expression: object, mean_kbps: float) -> float:
    try:
        kbps, quota = _parsed(expression)
    except Refused:
        kbps, quota = 0.0, None
    if quota is not None or not isinstance(expression, str) or not kbps:
        raise Refused("burst", "be a rate", expression, "write 5 Mbps")
    if kbps < mean_kbps:
        raise Refused(
            "burst",
            f"be at least the quota's own mean rate of {mean_kbps:.4g} kbps",
            expression,
            f"the quota could never be spent: raise it, or write capacity: {expression}",
        )
    return kbps


def _from_figures(figures: Mapping[Any, Any]) -> tuple[float, Quota | None]:
    if set(_QUOTA) <= set(figures) <= {*_QUOTA, *_SPENDING}:
        return _from_quota(figures)
    if set(figures) == set(_SHANNON):
        return shannon_kbps(*(_number(name, figures[name]) for name in _SHANNON)), None
    if set(figures) == set(_BUDGET):
        budget, price = (_number(name, figures[name]) for name in _BUDGET)
        _positive("budget_per_day", budget, "state what a day may cost")
        _positive("price_per_gb", price, "state what a gigabyte costs")
        # as the decimals they are written as
        size = Fraction(str(budget)) / Fraction(str(price)) * 10**9
        return float(size * 8 / 1000 / MEAN_SECONDS["day"]), Quota(float(size), "day")
    raise Refused(
        "capacity",
        "have quota and per, bandwidth_khz and signal_to_noise_db, or budget_per_day and price_per_gb",
        dict(figures),
        REMEDY,
    )


def _form(properties: Mapping[str, Any], required: Iterable[str]) -> dict[str, Any]:
    return {
        "type": "object",
        "additionalProperties": False,
        "properties": dict(properties),
        "required": list(required),
    }


def _number(name: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, Real):
        raise Refused(name, "be a number", value, "write it as a plain number")
    return float(value)


def _positive(name: str, value: float, remedy: str) -> None:
    if not (math.isfinite(value) and value > 0):
        raise Refused(name, "be above 0", value, remedy)

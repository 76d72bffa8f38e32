"""The capacity of a channel: a constant rate, or a quota of bytes per day or month.

A contract states a capacity as text (`5 Mbps`, `2 GB/day`) or as a mapping:

- Shannon-Hartley (Ahuja 2006, equation 3.3): C = BW log2(1 + S/N), with the ratio S/N = 10^(dB/10).
  For example, 4 kHz at 20 dB carry 26.63 kbps (Example 2);
- a budget: the cost allowed per day divided by the price of a gigabyte is a quota per day;
- a quota, with the part of its unspent bytes that carries over, and the maximum rate (`burst`).

An amount per second, minute or hour is a rate. An amount per day or month is a quota.

>>> from spillway.contracts.fields import Report
>>> CapacityShape().read("5 Mbps", "capacity", Report("channels.yaml"))
Capacity(kbps=5000.0, stated='5 Mbps', quota=None)
>>> monthly = {"quota": "60 GB", "per": "month", "carry_over_pct": 20, "burst": "5 Mbps"}
>>> CapacityShape().read(monthly, "capacity", Report("channels.yaml")).quota
Quota(size_bytes=60000000000.0, per='month', carry_over_pct=20.0, burst_kbps=5000.0)

A quota is spent over its period; it is not converted to a constant rate. Its unspent bytes are used before anything is
shed. A batch may send the larger of `even` and `needed`:

    even    = left x T / max(P - elapsed, T)                the unspent bytes, spread evenly over the rest of the period
    needed  = o                                             if o + E <= left
              min(o, max(left x o / (o + E), accrued))      if not
    accrued = (left + spent) x (elapsed + T) / P - spent    the even share of the period up to now minus spent bytes

    left = Q + carried - spent

Q is the quota in bytes, and P the length of the period in seconds. T is the duration of the batch in seconds, and
`elapsed` the seconds that earlier batches of the period covered. o is the number of bytes that the batch offers, and E
the number that the rest of the period is expected to offer (`streams.capacity`). `burst` limits the rate.
`carry_over_pct` per cent of the unspent part of a period's own quota carries over to the next period, but no further.

Guarantees: allowance x T never exceeds the unspent bytes. So no period spends more than its quota and the bytes carried
over, in whole bytes, in any order of periods. If the batch and the expected rest of the period fit, the batch is sent
whole. With constant traffic that offers no more than the even share, the allowance is the constant rate Q / P.

An hour is not a period of a quota: `GB/hour` is a plain rate.

>>> quota = Quota(2e9, "day")
>>> day = quota.period_of(date(2026, 1, 5)).seconds
>>> round(quota.allowance(day, spent_bytes=0, elapsed_seconds=0, batch_seconds=900), 3), round(quota.kbps, 3)
(185.185, 185.185)
>>> round(quota.allowance(day, spent_bytes=100_000_000, elapsed_seconds=43_200, batch_seconds=900), 3)
351.852
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import date, timedelta
from fractions import Fraction
from numbers import Real
from typing import Any

from spillway.contracts.fields import Report, join_path
from spillway.errors import InvalidValue

DAY_SECONDS = 86_400
MEAN_SECONDS = {"day": DAY_SECONDS, "month": 2_629_746}
"""Mean length of each period in seconds (a month: one twelfth of 365.2425 days)."""


@dataclass(frozen=True, order=True)
class Period:
    """The days over which a quota is spent.

    >>> Period(date(2026, 1, 1), 31).seconds, date(2026, 1, 31) in Period(date(2026, 1, 1), 31)
    (2678400, True)
    """

    first: date
    days: int

    @property
    def seconds(self) -> int:
        return self.days * DAY_SECONDS

    @property
    def last(self) -> date:
        return self.first + timedelta(days=self.days - 1)

    def __contains__(self, day: date) -> bool:
        return self.first <= day <= self.last


@dataclass(frozen=True)
class Quota:
    """A number of bytes per period, with partial carry-over of unspent bytes and a maximum rate `burst_kbps`."""

    size_bytes: float
    per: str
    carry_over_pct: float = 0.0
    burst_kbps: float | None = None

    @property
    def kbps(self) -> float:
        """The mean rate: the whole quota, divided by the mean length of its period."""
        return self.size_bytes * 8.0 / 1000.0 / MEAN_SECONDS[self.per]

    def period_of(self, day: date) -> Period:
        """Return the period that contains a batch date.

        >>> Quota(1e9, "month").period_of(date(2026, 2, 17))
        Period(first=datetime.date(2026, 2, 1), days=28)
        """
        if self.per == "day":
            return Period(day, 1)
        first = day.replace(day=1)
        following = (first + timedelta(days=31)).replace(day=1)
        return Period(first, (following - first).days)

    def before(self, period: Period) -> Period:
        return self.period_of(period.first - timedelta(days=1))

    def after(self, period: Period) -> Period:
        return self.period_of(period.last + timedelta(days=1))

    def carried(self, spent_before: int) -> int:
        """Return the bytes that carry over from a period that spent `spent_before` bytes of its own quota.

        >>> Quota(100.0, "day", carry_over_pct=50.0).carried(60), Quota(100.0, "day", carry_over_pct=50.0).carried(130)
        (20, 0)
        """
        unspent = max(0, math.floor(self.size_bytes) - spent_before)
        return math.floor(Fraction(self.carry_over_pct) / 100 * unspent)

    def left(self, spent_bytes: int, carried_bytes: int = 0, spent_after: int = 0) -> int:
        """Return the bytes that the period may still send.

        `spent_after`: bytes that the next period has spent. If a batch is late, the next period may already have spent
        bytes that carried over from this one. These bytes are not available again.

        >>> quota = Quota(100.0, "day", carry_over_pct=50.0)
        >>> quota.left(60, carried_bytes=30), quota.left(60, spent_after=110), quota.left(120)
        (70, 20, 0)
        """
        own = math.floor(self.size_bytes)
        left = own + carried_bytes - spent_bytes
        moved_on = max(0, spent_after - own)
        if moved_on and self.carry_over_pct:
            left = min(left, own - spent_bytes - math.ceil(moved_on * 100 / Fraction(self.carry_over_pct)))
        return max(0, left)

    def allowance(
        self,
        period_seconds: float,
        spent_bytes: int,
        elapsed_seconds: float,
        batch_seconds: float,
        carried_bytes: int = 0,
        spent_after: int = 0,
        offered_bytes: float = 0.0,
        expected_bytes: float = 0.0,
    ) -> float:
        """Return the kbps that a batch may send: as much as it needs if the quota has it, and at least its even share.

        `offered_bytes`: what the batch would send if nothing were shed. `expected_bytes`: what the rest of the period
        is expected to offer after it.

        >>> day = Quota(96_000.0, "day")
        >>> found = [day.allowance(86_400, 0, 0, 900, offered_bytes=4_700, expected_bytes=e) for e in (0, 9e5)]
        >>> [round(kbps * 900 * 125) for kbps in found]
        [4700, 1000]
        """
        left = self.left(spent_bytes, carried_bytes, spent_after)
        seconds = Fraction(batch_seconds)
        over = max(Fraction(period_seconds) - Fraction(elapsed_seconds), seconds)
        if not left or over <= 0:
            # nothing is left, or the batch has no duration and thus no rate
            return 0.0
        exact = Fraction(left) * 8 / (1000 * over)
        if seconds > 0 and offered_bytes > 0:
            offered, rest = Fraction(offered_bytes), Fraction(expected_bytes)
            needed = offered
            if offered + rest > left:
                passed = min(Fraction(1), (Fraction(elapsed_seconds) + seconds) / Fraction(period_seconds))
                accrued = (left + spent_bytes) * passed - spent_bytes
                needed = min(offered, max(left * offered / (offered + rest), accrued))
            exact = max(exact, min(needed, Fraction(left)) * 8 / (1000 * seconds))
        if self.burst_kbps is not None:
            exact = min(exact, Fraction(self.burst_kbps))
        kbps = float(exact)
        # a float above the exact fraction would allow one byte too many
        return kbps if Fraction(kbps) <= exact else math.nextafter(kbps, 0.0)


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
    """Return the texts that `_EXPRESSION` and the later rules accept, as a pattern of JSON Schema."""
    period = rf"({'|'.join(periods)})s?"
    return rf"^\s*\+?{_POSITIVE}\s*{_UNIT}\s*(/\s*{period}|ps|\s+per\s+{period})\s*$"


@dataclass(frozen=True)
class Capacity:
    """A capacity in kbps (for a quota, its mean rate), and the text that stated it.

    >>> [Capacity(1.0, stated).per for stated in ("5 Mbps", "2 GB/hour", "120 kbit/s")]
    ['', 'hour', '']
    """

    kbps: float
    stated: str
    quota: Quota | None = None

    @property
    def per(self) -> str:
        """The unit of time of a capacity in bytes (`hour`, `day`, ...); empty for a capacity in bits per second."""
        if self.quota is not None:
            return self.quota.per
        found = re.search(r"\d\s*[kKMGT]?i?B\s*(?:/|\s+per)\s*(minute|hour)s?\s*$", self.stated)
        return found.group(1) if found else ""


_DESCRIPTIONS = {
    "bandwidth_khz": "bandwidth of the channel in kHz",
    "signal_to_noise_db": "signal-to-noise ratio in dB",
    "budget_per_day": "cost limit per day, in the currency of price_per_gb",
    "price_per_gb": "price of sending a gigabyte",
    "quota": "size of the quota, for example 2 GB",
    "per": "period of the quota; hour: the quota is converted to a constant rate",
    "carry_over_pct": "share of the unspent bytes of a period that carries over to the next period, in %",
    "burst": "maximum rate, for example 5 Mbps",
}
"""Descriptions of the fields of a capacity, for the JSON Schema."""


@dataclass(frozen=True)
class CapacityShape:
    """The shape of a capacity in a contract."""

    def read(self, value: object, path: str, report: Report) -> Any:
        try:
            kbps, quota = parse_capacity(value)
        except InvalidValue as refused:
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
        for form in forms:
            for name, field in form.get("properties", {}).items():
                form["properties"][name] = {"description": _DESCRIPTIONS[name], **field}
        return {"anyOf": forms}


@dataclass(frozen=True)
class SizeShape:
    """The shape of a size with a unit (`1 MB`) or a whole number of bytes; read as whole bytes, rounded up.

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
        except InvalidValue as refused:
            problem = refused.problem
            return report.add(path, problem.rule, problem.value, problem.remedy)
        if not 1 <= size < 1 << 63:
            return report.add(path, "be at least one byte and a size that files may have", value, self.remedy)
        return math.ceil(size)

    def json_schema(self) -> dict[str, Any]:
        return {"anyOf": [{"type": "string", "pattern": _SIZE_PATTERN}, {"type": "integer", "minimum": 1}]}


def shannon_kbps(bandwidth_khz: float, signal_to_noise_db: float) -> float:
    """Return the capacity of a noisy channel by Shannon-Hartley: C = BW log2(1 + S/N) (Ahuja 2006, equation 3.3).

    >>> round(shannon_kbps(4, 20), 2)
    26.63
    """
    _positive("bandwidth_khz", bandwidth_khz, "state the channel's bandwidth")
    if not math.isfinite(signal_to_noise_db):
        raise InvalidValue("signal_to_noise_db", "be a number", signal_to_noise_db, "state it in dB, as 20")
    return bandwidth_khz * math.log2(1.0 + 10.0 ** (signal_to_noise_db / 10.0))


def parse_capacity(expression: object) -> tuple[float, Quota | None]:
    """Return the capacity in kbps that a contract states, and its quota; for a quota, kbps is its mean rate.

    b is a bit and B a byte; k, M, G, T are powers of 1000 and Ki, Mi, Gi, Ti of 1024.

    >>> parse_capacity("120 kbps"), parse_capacity("5 Mbps"), round(parse_capacity("2 GB/day")[0], 3)
    ((120.0, None), (5000.0, None), 185.185)
    >>> parse_capacity({"budget_per_day": 1.8, "price_per_gb": 0.9}) == parse_capacity("2 GB/day")
    True
    """
    if expression is None or expression == "":
        raise InvalidValue("capacity", "be stated", expression, REMEDY)
    try:
        kbps, quota = (
            _from_figures(expression) if isinstance(expression, Mapping) else _from_words(expression)
        )
    except OverflowError:
        kbps, quota = math.inf, None
    if not (kbps > 0 and math.isfinite(kbps)):
        raise InvalidValue("capacity", "be above 0 and of a size that a channel may have", expression, REMEDY)
    return kbps, quota


def _from_words(expression: object) -> tuple[float, Quota | None]:
    found = _EXPRESSION.fullmatch(expression) if isinstance(expression, str) else None
    period = found and next(
        (p for p in (found["period"], found["period"].removesuffix("s")) if p in _SECONDS), None
    )
    if not found or not period:
        text = str(expression).strip()
        remedy = (
            f"add the period: {text}/hour, /day or /month" if re.fullmatch(_SIZE_PATTERN, text) else REMEDY
        )
        raise InvalidValue("capacity", "be a number with a unit of rate", expression, remedy)
    bits = _bits(found, "capacity", REMEDY)
    quota = Quota(float(bits / 8), period) if period in MEAN_SECONDS else None
    return float(bits / _SECONDS[period] / 1000), quota


def _bits(found: re.Match[str], field: str, remedy: str) -> Fraction:
    # as a float first: an exact 1e999999999 would use up the memory
    if not 0 < float(found["number"]) < math.inf:
        raise InvalidValue(field, "be above 0", found[0], remedy)
    prefix = found["prefix"].lower()
    factor = _PREFIXES.get(prefix) or _BINARY_PREFIXES[prefix]
    return Fraction(found["number"]) * factor * (8 if found["unit"] in ("B", "byte") else 1)


def _from_quota(figures: Mapping[Any, Any]) -> tuple[float, Quota | None]:
    found = _SIZE.fullmatch(figures["quota"]) if isinstance(figures["quota"], str) else None
    if not found:
        raise InvalidValue("quota", "be a number with a unit of size", figures["quota"], "write 2 GB")
    bits, per = _bits(found, "quota", "write 2 GB"), figures["per"]
    if not isinstance(per, str) or per not in _PERS:
        raise InvalidValue("per", "be one of " + ", ".join(_PERS), per, "write per: day")
    kbps = float(bits / _SECONDS[per] / 1000)
    stated = [name for name in _SPENDING if name in figures]
    if per not in MEAN_SECONDS:
        for name in stated:
            raise InvalidValue(
                name,
                "be absent when the quota is per hour",
                figures[name],
                "an hour is spent as a plain rate: write per: day, or remove it",
            )
        return kbps, None
    carry_over_pct = _number("carry_over_pct", figures.get("carry_over_pct", 0))
    if not 0 <= carry_over_pct <= 100:
        raise InvalidValue(
            "carry_over_pct", "be at least 0 and at most 100", carry_over_pct, "write 0 to 100"
        )
    burst_kbps = _burst(figures["burst"], kbps) if "burst" in figures else None
    return kbps, Quota(float(bits / 8), per, carry_over_pct, burst_kbps)


def _burst(expression: object, mean_kbps: float) -> float:
    try:
        kbps, quota = parse_capacity(expression)
    except InvalidValue:
        kbps, quota = 0.0, None
    if quota is not None or not isinstance(expression, str) or not kbps:
        raise InvalidValue("burst", "be a rate", expression, "write 5 Mbps")
    if kbps < mean_kbps:
        raise InvalidValue(
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
        # exact, as the decimal numbers that the contract states
        size = Fraction(str(budget)) / Fraction(str(price)) * 10**9
        return float(size * 8 / 1000 / MEAN_SECONDS["day"]), Quota(float(size), "day")
    raise InvalidValue(
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
        raise InvalidValue(name, "be a number", value, "write it as a plain number")
    return float(value)


def _positive(name: str, value: float, remedy: str) -> None:
    if not (math.isfinite(value) and value > 0):
        raise InvalidValue(name, "be above 0", value, remedy)

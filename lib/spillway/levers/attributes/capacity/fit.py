"""How much a channel carries, and how many attributes must go (3.2.3.1).

- Shannon and Hartley (equation 3.3): C = BW log2(1 + S/N), S/N as a ratio = 10^(dB/10).
  4 kHz at 20 dB carry 26.63 kbps (Example 2).
- The count of the thesis (equation 3.4): n' = ceil((R - C) / R n), 0 when R <= C. n counts the key too, with
  which all 81 cells of Table 4.6 agree; the quotient is an exact rational of the decimals as written, so a
  whole number is never lifted by a float's last bit.
- `fit="bits"` (ours): the count takes all attributes to be equally wide. Here the shortest prefix of the
  ranking goes whose *measured* width brings R' <= C; then, from the most informative of them to the least,
  every attribute that turns out not to be needed is given back (a wide one late in the prefix often makes
  narrow ones before it needless).

Guarantee: `planned_kbps` <= capacity, or `shortfall_kbps` says by how much it is not. Nothing is silent.

>>> fitted = fit(["a", "b", "c"], {"key": 8, "a": 8, "b": 64, "c": 16}, tuples_per_second=1000, capacity_kbps=40)
>>> fitted.shed, fitted.planned_kbps, fitted.shortfall_kbps
(('b',), 32.0, 0.0)
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from numbers import Real
from typing import Any

from spillway.errors import SpillwayError
from spillway.levers.attributes.ranking.rank import Ranked

FITS = ("bits", "count")

_PREFIXES = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
_BINARY_PREFIXES = {"ki": 2**10, "mi": 2**20, "gi": 2**30, "ti": 2**40}
_SECONDS = {"s": 1, "sec": 1, "second": 1, "min": 60, "minute": 60, "h": 3600, "hour": 3600, "day": 86400}
_EXPRESSION = re.compile(
    r"\s*(?P<number>[-+]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?)\s*"
    r"(?P<prefix>[kKMGT]i?|)(?P<unit>bit|byte|b|B)s?\s*(?:/\s*|p(?=s\b)|\s+per\s+)(?P<period>[a-z]+)\s*"
)
_REMEDY = "write '120 kbps', '5 Mbps', '2 GB/day' or {bandwidth_khz: 4, signal_to_noise_db: 20}"


class CapacityError(SpillwayError, ValueError):
    """A capacity, rate or width that cannot be planned with."""


def shannon_kbps(bandwidth_khz: float, signal_to_noise_db: float) -> float:
    """C = BW log2(1 + S/N) (equation 3.3).

    >>> round(shannon_kbps(4, 20), 2)
    26.63
    """
    _positive("bandwidth_khz", bandwidth_khz, "state the channel's bandwidth")
    if not math.isfinite(signal_to_noise_db):
        raise CapacityError(
            f"`signal_to_noise_db` must be a number, got {signal_to_noise_db!r}; state it in dB, as 20"
        )
    return bandwidth_khz * math.log2(1.0 + 10.0 ** (signal_to_noise_db / 10.0))


def parse_capacity(expression: object) -> float:
    """A channel's capacity in kbps from what a contract says.

    b is a bit and B a byte; k, M, G, T are powers of 1000 and Ki, Mi, Gi, Ti of 1024.

    >>> parse_capacity("120 kbps"), parse_capacity("5 Mbps"), round(parse_capacity("2 GB/day"), 3)
    (120.0, 5000.0, 185.185)
    >>> parse_capacity({"budget_per_day": 1.8, "price_per_gb": 0.9})  == parse_capacity("2 GB/day")
    True
    """
    if expression is None or expression == "":
        raise CapacityError(f"`capacity` must be stated, got {expression!r}; {_REMEDY}")
    if isinstance(expression, Mapping):
        return _parse_mapping(expression)
    if isinstance(expression, str) and (found := _EXPRESSION.fullmatch(expression)):
        prefix, unit, period = found["prefix"].lower(), found["unit"], found["period"]
        seconds = _SECONDS.get(period) or _SECONDS.get(period.removesuffix("s"))
        if seconds is not None:
            number = Fraction(found["number"])
            _positive("capacity", number, _REMEDY, shown=expression)
            bits = 8 if unit in ("B", "byte") else 1
            factor = _PREFIXES.get(prefix) or _BINARY_PREFIXES[prefix]
            return float(number * factor * bits / seconds / 1000)
    raise CapacityError(f"`capacity` must be a number with a unit of rate, got {expression!r}; {_REMEDY}")


def count_to_shed(rate_kbps: float, capacity_kbps: float, attributes: int) -> int:
    """n' = ceil((R - C) / R n), 0 when R <= C, in exact rationals (equation 3.4).

    >>> count_to_shed(160, 120, 7)
    2
    """
    _not_negative("rate_kbps", rate_kbps)
    _positive("capacity_kbps", capacity_kbps, _REMEDY)
    _not_negative("attributes", attributes)
    rate, capacity = exact(rate_kbps), exact(capacity_kbps)
    if rate <= capacity:
        return 0
    return math.ceil((rate - capacity) / rate * attributes)


def exact(number: float | Fraction) -> Fraction:
    """`number` as the decimal it is written as: 0.1 is 1/10, not its nearest binary fraction."""
    return number if isinstance(number, Fraction) else Fraction(str(float(number)))


@dataclass(frozen=True)
class Fit:
    """What goes so that the rest fits: `shed` in ranking order, and the rate before and after."""

    shed: tuple[str, ...]
    offered_kbps: float
    planned_kbps: float
    capacity_kbps: float
    shortfall_kbps: float
    reasons: Mapping[str, str]


def fit(
    ranking: Sequence[Ranked | str],
    width_bits: Mapping[str, float],
    tuples_per_second: float,
    capacity_kbps: float,
    fit: str = "bits",
) -> Fit:
    """Shed from the front of `ranking` until the rest fits into the channel.

    `width_bits` has the width per tuple of every attribute that is sent: also of the key and of what is
    protected, which are not in `ranking` and always stay.
    """
    names = [one if isinstance(one, str) else one.attribute for one in ranking]
    _check(names, width_bits, tuples_per_second, capacity_kbps, fit)
    per_bit = exact(tuples_per_second) / 1000
    widths = {name: exact(width) * per_bit for name, width in width_bits.items()}
    capacity = exact(capacity_kbps)
    offered = sum(widths.values(), Fraction(0))

    if fit == "count":
        wanted = count_to_shed(float(offered), capacity_kbps, len(widths))
        shed = names[:wanted]
    else:
        shed = _shortest_prefix(names, widths, offered - capacity)
    planned = offered - sum((widths[name] for name in shed), Fraction(0))
    shortfall = max(planned - capacity, Fraction(0))
    return Fit(
        shed=tuple(shed),
        offered_kbps=float(offered),
        planned_kbps=float(planned),
        capacity_kbps=float(capacity),
        shortfall_kbps=float(shortfall),
        reasons=_reasons(names, shed, widths, planned, capacity),
    )


def _shortest_prefix(names: Sequence[str], widths: Mapping[str, Fraction], excess: Fraction) -> list[str]:
    shed: list[str] = []
    for name in names:
        if excess <= 0:
            break
        shed.append(name)
        excess -= widths[name]
    for name in reversed(list(shed)):
        if excess + widths[name] <= 0:
            shed.remove(name)
            excess += widths[name]
    return shed


def _reasons(
    names: Sequence[str],
    shed: Sequence[str],
    widths: Mapping[str, Fraction],
    planned: Fraction,
    capacity: Fraction,
) -> dict[str, str]:
    reasons = {}
    last = max((names.index(name) for name in shed), default=-1)
    for name in widths:
        kbps = f"{float(widths[name]):.4g} kbps"
        if name in shed:
            reasons[name] = (
                f"shed: place {names.index(name) + 1} of the ranking, takes {kbps} off the channel"
            )
        elif name not in names:
            reasons[name] = f"kept: never shed, {kbps}"
        elif names.index(name) < last:
            reasons[name] = f"given back: the channel holds its {kbps} without shedding it"
        else:
            reasons[name] = f"kept: place {names.index(name) + 1} of the ranking was not needed"
    if planned > capacity:
        over = f"; {float(planned - capacity):.4g} kbps over capacity remain"
        reasons = {name: reason + over if name in shed else reason for name, reason in reasons.items()}
    return reasons


def _check(
    names: Sequence[str],
    width_bits: Mapping[str, float],
    tuples_per_second: float,
    capacity_kbps: float,
    fit: str,
) -> None:
    if fit not in FITS:
        raise CapacityError(f"`fit` must be one of {', '.join(FITS)}, got {fit!r}; write fit: bits")
    _not_negative("tuples_per_second", tuples_per_second)
    _positive("capacity_kbps", capacity_kbps, _REMEDY)
    for name, width in width_bits.items():
        _not_negative(f"width_bits.{name}", width)
    unknown = [name for name in names if name not in width_bits]
    if unknown:
        raise CapacityError(
            f"`width_bits` must give the width of every ranked attribute, got none for {', '.join(unknown)}; "
            "measure those columns"
        )
    if len(set(names)) != len(names):
        raise CapacityError(f"`ranking` must name an attribute once, got {', '.join(names)}; rank it again")


def _parse_mapping(expression: Mapping[Any, Any]) -> float:
    fields = set(expression)
    if fields == {"bandwidth_khz", "signal_to_noise_db"}:
        return shannon_kbps(
            _number("bandwidth_khz", expression["bandwidth_khz"]),
            _number("signal_to_noise_db", expression["signal_to_noise_db"]),
        )
    if fields == {"budget_per_day", "price_per_gb"}:
        budget = _number("budget_per_day", expression["budget_per_day"])
        price = _number("price_per_gb", expression["price_per_gb"])
        _positive("budget_per_day", budget, "state what a day may cost")
        _positive("price_per_gb", price, "state what a gigabyte costs")
        return float(exact(budget) / exact(price) * 8 * 10**6 / 86400)
    raise CapacityError(
        "`capacity` must have bandwidth_khz and signal_to_noise_db, or budget_per_day and price_per_gb, "
        f"got {', '.join(map(str, sorted(fields, key=str))) or 'nothing'}; {_REMEDY}"
    )


def _number(name: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, Real):
        raise CapacityError(f"`{name}` must be a number, got {value!r}; {_REMEDY}")
    return float(value)


def _positive(name: str, value: float | Fraction, remedy: str, shown: object = None) -> None:
    if not (math.isfinite(value) and value > 0):
        raise CapacityError(f"`{name}` must be above 0, got {shown or value!r}; {remedy}")


def _not_negative(name: str, value: float) -> None:
    if not (math.isfinite(value) and value >= 0):
        raise CapacityError(f"`{name}` must be 0 or more, got {value!r}; measure it again")

"""Fit a stream into a channel by shedding a prefix of the ranking (Ahuja 2006, section 3.2.3.1).

- `fit="count"`: the count of the thesis (equation 3.4; 3.9 on a multiplexed channel), n' = ceil((R - C) / R n), 0 if
  R <= C. n counts the stream's attributes including the key; all 81 cells of Table 4.6 agree with this. `seq`, which
  Spillway adds, does not count. The quotient is an exact rational (`levers.exact`). So the last bit of a float never
  raises the result of ceil, neither for a decimal nor for a share of a channel, which is stored as a double.
- `fit="bits"` (ours): the count assumes that all attributes have the same width. This rule sheds the shortest prefix
  of the ranking whose *measured* width brings R' <= C. Then it keeps every attribute of the prefix that need not be
  shed, from the most informative to the least. (A wide attribute late in the prefix often makes narrow ones before it
  unnecessary.)

Guarantee: `planned_kbps` <= capacity, or `shortfall_kbps` has the difference.

>>> fitted = fit_prefix(["a", "b", "c"], {"key": 8, "a": 8, "b": 64, "c": 16}, tuples_per_second=1000, capacity_kbps=40)
>>> fitted.shed, fitted.planned_kbps, fitted.shortfall_kbps
(('b',), 32.0, 0.0)
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from spillway.errors import InvalidValue
from spillway.levers.attributes.option import FITS
from spillway.levers.attributes.ranking.rank import RankedAttribute
from spillway.levers.exact import exact_fraction

_REMEDY = "state what the channel carries"


def count_to_shed(rate_kbps: float | Fraction, capacity_kbps: float | Fraction, attributes: int) -> int:
    """Return n' = ceil((R - C) / R n), 0 if R <= C, in exact rationals (Ahuja 2006, equation 3.4).

    >>> count_to_shed(160, 120, 7)
    2
    >>> count_to_shed(64.0, 128 / 3, 6)
    2
    """
    _not_negative("rate_kbps", rate_kbps)
    _positive("capacity_kbps", capacity_kbps, _REMEDY)
    _not_negative("attributes", attributes)
    rate, capacity = exact_fraction(rate_kbps), exact_fraction(capacity_kbps)
    if rate <= capacity:
        return 0
    return math.ceil((rate - capacity) / rate * attributes)


@dataclass(frozen=True)
class PrefixFit:
    """The attributes to shed so that the rest fits, in ranking order, and the rate before and after."""

    shed: tuple[str, ...]
    offered_kbps: float
    planned_kbps: float
    capacity_kbps: float
    shortfall_kbps: float
    reasons: Mapping[str, str]


def fit_prefix(
    ranking: Sequence[RankedAttribute | str],
    width_bits: Mapping[str, float],
    tuples_per_second: float,
    capacity_kbps: float | Fraction,
    fit: str = "bits",
    attributes: int | None = None,
) -> PrefixFit:
    """Shed from the front of `ranking` until the rest fits into the channel.

    `width_bits` has the width per tuple of every attribute that is sent, including the key and protected attributes,
    which are not in `ranking` and are never shed. `attributes` is n of equation 3.4, if `width_bits` has columns that
    are not attributes of the stream.
    """
    names = [one if isinstance(one, str) else one.attribute for one in ranking]
    _check(names, width_bits, tuples_per_second, capacity_kbps, fit)
    per_bit = exact_fraction(tuples_per_second) / 1000
    widths = {name: exact_fraction(width) * per_bit for name, width in width_bits.items()}
    capacity = exact_fraction(capacity_kbps)
    offered = sum(widths.values(), Fraction(0))

    if fit == "count":
        wanted = count_to_shed(offered, capacity, len(widths) if attributes is None else attributes)
        shed = names[:wanted]
    else:
        shed = _shortest_prefix(names, widths, offered - capacity)
    planned = offered - sum((widths[name] for name in shed), Fraction(0))
    shortfall = max(planned - capacity, Fraction(0))
    return PrefixFit(
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
    capacity_kbps: float | Fraction,
    fit: str,
) -> None:
    if fit not in FITS:
        raise InvalidValue("fit", f"be one of {', '.join(FITS)}", fit, "write fit: bits")
    _not_negative("tuples_per_second", tuples_per_second)
    _positive("capacity_kbps", capacity_kbps, _REMEDY)
    for name, width in width_bits.items():
        _not_negative(f"width_bits.{name}", width)
    unknown = [name for name in names if name not in width_bits]
    if unknown:
        raise InvalidValue(
            "width_bits",
            "give the width of every ranked attribute",
            f"none for {', '.join(unknown)}",
            "measure those columns",
        )
    if len(set(names)) != len(names):
        raise InvalidValue("ranking", "name an attribute once", ", ".join(names), "rank it again")


def _positive(name: str, value: float | Fraction, remedy: str) -> None:
    if not (math.isfinite(value) and value > 0):
        raise InvalidValue(name, "be above 0", value, remedy)


def _not_negative(name: str, value: float | Fraction) -> None:
    if not (math.isfinite(value) and value >= 0):
        raise InvalidValue(name, "be 0 or more", value, "measure it again")

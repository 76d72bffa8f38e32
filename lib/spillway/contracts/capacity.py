"""The capacity of a channel, as people write it, in kbps.

`120 kbps`, `5 Mbps`, `2 GB/day`, or the bandwidth and signal-to-noise ratio of a line by Shannon:
C = BW log2(1 + S/N) (3.2.3.1). Kilo is 1000, as on the wire; a byte is 8 bits.

>>> parse_capacity("120 kbps").kbps, round(parse_capacity("2 GB/day").kbps, 3)
(120.0, 185.185)
>>> round(parse_capacity({"bandwidth_khz": 4, "signal_to_noise_db": 20}).kbps, 2)
26.63
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass

_BITS = {"bps": 1, "kbps": 10**3, "mbps": 10**6, "gbps": 10**9}
_BYTES = {"B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
_SECONDS = {"s": 1, "min": 60, "hour": 3600, "h": 3600, "day": 86400}
PATTERN = r"^\s*(?=[0-9.]*[1-9])([0-9]+(?:\.[0-9]+)?)\s*([kKMG]?bps|[kKMGT]?B/(?:s|min|h|hour|day))\s*$"
REMEDY = "write e.g. 120 kbps, 5 Mbps, 2 GB/day, or {bandwidth_khz: 4, signal_to_noise_db: 20}"


@dataclass(frozen=True)
class Capacity:
    """A capacity in kbps, and the words it was stated in."""

    kbps: float
    stated: str


def parse_capacity(value: object) -> Capacity:
    """Reads a capacity; `ValueError` says what is wrong with it, in the words of a rule."""
    if isinstance(value, Mapping):
        return _shannon(value)
    found = re.match(PATTERN, value) if isinstance(value, str) else None
    if found is None:
        raise ValueError("be a positive number with a unit")
    number, unit = float(found[1]), found[2]
    if "/" in unit:
        size, period = unit.split("/")
        bits_per_second = number * 8 * _BYTES[size.upper()] / _SECONDS[period]
    else:
        bits_per_second = number * _BITS[unit.lower()]
    return Capacity(bits_per_second / 1000, str(value).strip())


def _shannon(value: Mapping[object, object]) -> Capacity:
    if set(value) != {"bandwidth_khz", "signal_to_noise_db"}:
        raise ValueError("hold bandwidth_khz and signal_to_noise_db, and nothing else")
    numbers = [value["bandwidth_khz"], value["signal_to_noise_db"]]
    if any(isinstance(n, bool) or not isinstance(n, int | float) or not math.isfinite(n) for n in numbers):
        raise ValueError("hold two plain numbers")
    khz, decibel = (float(n) for n in numbers)  # type: ignore[arg-type]
    if khz <= 0:
        raise ValueError("hold a bandwidth_khz above zero")
    kbps = khz * math.log2(1 + 10 ** (decibel / 10))
    if not 0 < kbps < math.inf:
        raise ValueError("come to a positive number of kbps")
    return Capacity(kbps, f"{khz:g} kHz at {decibel:g} dB")

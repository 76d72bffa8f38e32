"""The capacity field of a channel: read by `attributes.capacity`, described for editors here.

>>> from spillway.contracts.shapes import Report
>>> CapacityShape().read("2 GB/day", "capacity", Report("channels.yaml"))
Capacity(kbps=185.1851851851852, stated='2 GB/day')
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from spillway.contracts.shapes import Report
from spillway.levers.attributes.capacity.fit import CapacityError, parse_capacity

REMEDY = "write 120 kbps, 5 Mbps, 2 GB/day or {bandwidth_khz: 4, signal_to_noise_db: 20}"
_MESSAGE = re.compile(r"^`(?P<name>.*?)` must (?P<rule>.*), got .*?; .*$", re.DOTALL)
_POSITIVE = r"(?=[0-9.]*[1-9])([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][-+]?[0-9]+)?"
_PERIOD = r"(s|sec|second|min|minute|h|hour|day)s?"
_PATTERN = rf"^\s*\+?{_POSITIVE}\s*([kKMGT]i?)?(bit|byte|b|B)s?\s*(/\s*{_PERIOD}|ps|\s+per\s+{_PERIOD})\s*$"
_SETTINGS = (("bandwidth_khz", "signal_to_noise_db"), ("budget_per_day", "price_per_gb"))


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
        except CapacityError as error:
            said = _MESSAGE.match(str(error))
            rule = said["rule"] if said else "be a capacity"
            if said and said["name"] != "capacity":
                path = f"{path}.{said['name']}"
                value = value.get(said["name"]) if isinstance(value, Mapping) else value
            return report.add(path, rule, value, REMEDY)
        stated = ", ".join(f"{k} {v}" for k, v in value.items()) if isinstance(value, Mapping) else str(value)
        return Capacity(kbps, stated.strip())

    def json_schema(self) -> dict[str, Any]:
        forms: list[dict[str, Any]] = [{"type": "string", "pattern": _PATTERN}]
        for names in _SETTINGS:
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

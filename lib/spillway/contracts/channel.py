# ruff: noqa: RUF009 - `rule` is dataclasses.field with a shape; it makes no shared value
"""The contract of a channel: its capacity, how the capacity is divided, and what its plan minimizes.

>>> from spillway.contracts import read_channel
>>> uplink = read_channel("uplink", {"capacity": "2 GB/day", "minimize": "bytes"})
>>> round(uplink.capacity_kbps, 1), uplink.capacity.quota.per, uplink.divide_by, uplink.prices.sent_per_gb
(185.2, 'day', 'utility', 1.0)
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from spillway.contracts.capacity import Capacity, CapacityShape
from spillway.contracts.fields import (
    Broken,
    Choice,
    Listing,
    Number,
    OptionalValue,
    Record,
    Text,
    rule,
    to_plain,
)
from spillway.contracts.sections import AlertHook

DIVIDE_BY = ("utility", "proportional")
MINIMIZE = ("error", "bytes")


@dataclass(frozen=True, kw_only=True)
class Prices:
    """The prices of a channel that minimizes bytes. Only the ratio of the two prices matters.

    >>> Prices(sent_per_gb=5.0, kept_per_gb=0.1).cost(sent_bytes=2e9, held_bytes=1e9, requested_pct=2.0)
    10.2
    """

    sent_per_gb: float = rule(Number(least=0), "price of sending a gigabyte", 1.0)
    kept_per_gb: float = rule(
        Number(least=0),
        "price of storing a gigabyte of synopsis at the source for its whole retention",
        0.0,
    )

    def cost(self, sent_bytes: float, held_bytes: float, requested_pct: float) -> float:
        """Return the cost that `minimize: bytes` minimizes:

            (sent_bytes x sent_per_gb + held_bytes x (requested_pct / 100 x sent_per_gb + kept_per_gb)) / 1e9

        `held_bytes`: bytes that are kept at the source. `requested_pct`: the percentage of them that is requested and
        sent later.
        """
        held = requested_pct / 100.0 * self.sent_per_gb + self.kept_per_gb
        return (sent_bytes * self.sent_per_gb + held_bytes * held) / 1e9

    def rules(self) -> Iterator[Broken]:
        if self.sent_per_gb == 0 and self.kept_per_gb == 0:
            yield (
                "sent_per_gb",
                "be above 0 when keeping costs nothing",
                self.sent_per_gb,
                "state what a gigabyte costs, or write minimize: error",
            )

    @staticmethod
    def schema_extra() -> dict[str, Any]:
        free = {"sent_per_gb": {"const": 0}, "kept_per_gb": {"const": 0}}
        return {"not": {"properties": free, "required": ["sent_per_gb"]}}


@dataclass(frozen=True, kw_only=True)
class Channel:
    """A capacity that one or more streams share."""

    capacity: Capacity = rule(
        CapacityShape(),
        "a rate: 120 kbps, 5 Mbps, 2 GB/hour, {bandwidth_khz, signal_to_noise_db} (Shannon); or a "
        "quota for a period: 2 GB/day, 60 GB/month, {quota: 2 GB, per: day, carry_over_pct: 20, "
        "burst: 5 Mbps}, {budget_per_day, price_per_gb}",
    )
    divide_by: str = rule(
        Choice(DIVIDE_BY),
        "division of the capacity among streams. utility: one plan for all streams, which sheds the "
        "data with the smallest utility first; proportional: the same drop rate for every stream, "
        "before each stream is planned (Ahuja 2006)",
        "utility",
    )
    minimize: str = rule(
        Choice(MINIMIZE),
        "objective of the plan. error: use the whole capacity and minimize the loss; bytes: send the "
        "fewest bytes that keep the error bounds, for a channel that is paid by volume",
        "error",
    )
    prices: Prices = rule(Record(Prices), "prices of sending and storing, for minimize: bytes", Prices())
    into: str | None = rule(
        OptionalValue(Text()),
        "the channel that this channel is multiplexed into; its streams are then shed a second time to fit that "
        "channel",
        None,
    )
    alerts: tuple[AlertHook, ...] = rule(
        Listing(Record(AlertHook)), "hooks that receive alerts about any stream of the channel", ()
    )
    description: str = rule(Text(blank=True), "description in one sentence", "")
    name: str = ""

    def rules(self) -> Iterator[Broken]:
        if self.minimize == "error" and self.prices != Prices():
            yield (
                "prices",
                "be absent unless the channel minimizes bytes",
                to_plain(self.prices),
                "write minimize: bytes, or remove it: it would be ignored",
            )

    @staticmethod
    def former_field(name: str) -> tuple[str, str] | None:
        if name == "share":
            return (
                "be written as divide_by",
                "write divide_by: utility, or divide_by: proportional (the text)",
            )
        return None

    @staticmethod
    def schema_extra() -> dict[str, Any]:
        free = {name: {"const": value} for name, value in to_plain(Prices()).items()}
        return {
            "if": {"properties": {"minimize": {"const": "bytes"}}, "required": ["minimize"]},
            "else": {"properties": {"prices": {"properties": free}}},
        }

    @property
    def capacity_kbps(self) -> float:
        """The rate; for a quota, its mean rate. The rate of a batch then depends on the unspent bytes of the quota."""
        return self.capacity.kbps

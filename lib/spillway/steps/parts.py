"""Each stream's part of a shared channel (3.3): all streams of the channel are planned together.

`share: proportional` is the text's: one drop rate for all. Streams with nothing waiting count with their last known
rate, so that a quiet quarter of an hour of one stream does not give its place away for good.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from spillway.attributes.shares import proportional_capacities
from spillway.contracts import Contracts, StreamContract
from spillway.lake.batches import Batch
from spillway.settings import Settings
from spillway.steps.policy import measure_load
from spillway.steps.schemes import scheme_rows


def channel_parts(
    settings: Settings, contracts: Contracts, channel: str, waiting: Mapping[str, Sequence[Batch]]
) -> dict[str, float]:
    """Kbps of the channel for each of its streams; where all fits, what is free is shared out too."""
    capacity = contracts.channels[channel].capacity_kbps
    rates = {
        contract.stream: _rate_kbps(settings, contract, waiting.get(contract.stream, ()))
        for contract in contracts.streams_of(channel)
    }
    parts = proportional_capacities(list(rates.values()), capacity)
    total = sum(rates.values())
    spare = max(1.0, capacity / total) if total else 1.0
    return {stream: part * spare for stream, part in zip(rates, parts, strict=True)}


def _rate_kbps(settings: Settings, contract: StreamContract, batches: Sequence[Batch]) -> float:
    """The stream's offered rate over the batches, by time; the last planned one where there are none."""
    loads = [(measure_load(settings, contract, b), b.seconds_covered or 0.0) for b in batches if b.rows]
    seconds = sum(span for _, span in loads)
    if seconds:
        return sum(load.rate_kbps * span for load, span in loads) / seconds
    rows = scheme_rows(settings, contract.stream)
    return float(rows[-1]["rate_kbps"]) if rows else 0.0

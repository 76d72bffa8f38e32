"""Put the demo's streams on links that carry about half of them.

The links of the demo are real products, and some of its streams fit them. Figures of a lever need a link that is too
narrow, so the evidence has its own narrow links, and rates that fill them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from demo.data import STREAMS
from spillway.contracts import Contracts, read_channel
from spillway.contracts.sections import Rate

CHANNELS: Mapping[str, Mapping[str, object]] = {
    "uplink": {"capacity": "55 bps"},
    "market": {"capacity": {"bandwidth_khz": 4, "signal_to_noise_db": 20}},
    "desk": {"capacity": "300 bps"},
}
LINKS: Mapping[str, tuple[str, Mapping[str, object]]] = {
    "flights": ("desk", {"from": "declared", "tuples_per_second": 10}),
    "network": ("uplink", {"from": "event_time"}),
    "stocks": ("market", {"from": "declared", "tuples_per_second": 200}),
    "weather": ("uplink", {"from": "declared", "tuples_per_second": 0.6}),
}
"""By stream of the demo, the channel and the rate as a contract states them."""
WEATHER_DATES = {4: "2013-04-30", 8: "2013-08-31", 12: "2013-12-31"}
"""By last month, the batch date of four months of weather; a batch of one month is too short for figures of a lever."""


def narrow_contracts(contracts: Contracts) -> Contracts:
    """Return the demo's contracts with the evidence's channels and rates."""
    streams = dict(contracts.streams)
    for name, (channel, rate) in LINKS.items():
        stated = {"from_" if field == "from" else field: value for field, value in rate.items()}
        streams[name] = replace(streams[name], channel=channel, rate=Rate(**stated))  # type: ignore[arg-type]
    channels = {name: read_channel(name, stated) for name, stated in CHANNELS.items()}
    return replace(contracts, streams=streams, channels=channels)


def narrow_files() -> dict[str, dict[str, bytes]]:
    """Return the demo's landing files by stream and name, four months of weather in a batch.

    >>> sorted({name.split("/")[0] for name in narrow_files()["weather"]})
    ['2013-04-30', '2013-08-31', '2013-12-31']
    """
    found = {name: make() for name, make in STREAMS.items()}
    found["weather"] = {_in_four_months(name): content for name, content in found["weather"].items()}
    return found


def _in_four_months(name: str) -> str:
    """Return the file's name with the batch date of its four months.

    >>> _in_four_months("2013-05-31/weather-2013-05.jsonl")
    '2013-08-31/weather-2013-05.jsonl'
    """
    day, file = name.split("/")
    month = int(day.split("-")[1])
    return f"{next(date for last, date in WEATHER_DATES.items() if month <= last)}/{file}"

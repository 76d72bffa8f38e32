"""Each stream's part of the channels it goes through (3.3): all streams of a channel are planned together.

First every channel is divided among its own streams; then, where channels go into another one (`into`), what they
would send is divided again. `share: proportional` is the text's: one drop rate for all. `share: utility` takes from
the streams whose next attribute costs least, weighed by `share.weight` and the stream's criticality. Streams with
nothing waiting count with their last known rate, so that a quiet quarter of an hour gives no place away for good.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from spillway.contracts import Channel, Contracts, StreamContract
from spillway.levers.attributes.capacity.shares import (
    Step,
    criticality_weight,
    proportional_capacities,
    utility,
)
from spillway.levers.attributes.facts import Trained, load_trained
from spillway.levers.attributes.policy import Load, Part, decide, measure_load
from spillway.levers.attributes.schemes import scheme_rows
from spillway.settings import Settings
from spillway.store.batches import Batch


@dataclass(frozen=True)
class Offer:
    """What a stream would put on a channel, and what it could give up in which order."""

    rate_kbps: float
    steps: tuple[Step, ...] = ()
    weight: float = 1.0


def divided(channel: Channel, offers: Mapping[str, Offer]) -> dict[str, float]:
    """Kbps of the channel for each stream; where all fits, what is free is shared out too.

    >>> from spillway.contracts import read_channel
    >>> divided(read_channel("up", {"capacity": "40 kbps"}), {"a": Offer(60.0), "b": Offer(20.0)})
    {'a': 30.0, 'b': 10.0}
    >>> divided(read_channel("up", {"capacity": "160 kbps"}), {"a": Offer(60.0), "b": Offer(20.0)})
    {'a': 120.0, 'b': 40.0}
    """
    rates = {stream: offer.rate_kbps for stream, offer in offers.items()}
    capacity, total = channel.capacity_kbps, sum(rates.values())
    if total <= capacity:
        return {stream: rate * capacity / total if total else capacity for stream, rate in rates.items()}
    if channel.share == "utility":
        weights = {stream: offer.weight for stream, offer in offers.items()}
        plan = utility(rates, {stream: offer.steps for stream, offer in offers.items()}, capacity, weights)
        # a stream that gives up whole attributes leaves room; what is over is nobody's
        return dict(plan.capacities_kbps)
    return dict(zip(rates, proportional_capacities(list(rates.values()), capacity), strict=True))


def channel_parts(
    settings: Settings, contracts: Contracts, root: str, waiting: Mapping[str, Sequence[Batch]]
) -> dict[str, Part]:
    """The parts of every stream that is planned with the channel `root`."""
    contracts_of = {contract.stream: contract for contract in contracts.streams_of(root)}
    loads = {s: _load(settings, contract, waiting.get(s, ())) for s, contract in contracts_of.items()}
    trained = {stream: load_trained(settings, stream) for stream in contracts_of}
    own: dict[str, float] = {}
    for name in sorted({contract.channel for contract in contracts_of.values()}):
        offers = {
            stream: _offer(contract, trained[stream], loads[stream])
            for stream, contract in contracts_of.items()
            if contract.channel == name
        }
        own |= divided(contracts.channels[name], offers)
    if all(contract.channel == root for contract in contracts_of.values()):
        return {stream: Part(kbps) for stream, kbps in own.items()}
    sent = {
        stream: _offer(contract, trained[stream], loads[stream], own[stream])
        for stream, contract in contracts_of.items()
    }
    trunk = divided(contracts.channels[root], sent)
    return {stream: Part(own[stream], trunk[stream]) for stream in contracts_of}


def _load(settings: Settings, contract: StreamContract, batches: Sequence[Batch]) -> Load | float:
    """What the stream offers over its waiting batches, by time; its last planned rate where there are none."""
    loads = [(measure_load(settings, contract, b), b.seconds_covered or 0.0) for b in batches if b.rows]
    seconds = sum(span for _, span in loads)
    if not seconds:
        rows = scheme_rows(settings, contract.stream)
        return float(rows[-1]["rate_kbps"]) if rows else 0.0
    tuples = sum(load.tuples_per_second * span for load, span in loads)
    widths = {
        name: sum(load.widths_bits[name] * load.tuples_per_second * span for load, span in loads) / tuples
        for name in loads[-1][0].widths_bits
    }
    return Load(widths, tuples / seconds)


def _offer(
    contract: StreamContract, trained: Trained | None, load: Load | float, own_kbps: float | None = None
) -> Offer:
    """The stream's rate (after its own shedding, when `own_kbps` is given) and the attributes it could give up."""
    if not isinstance(load, Load):
        return Offer(load if own_kbps is None else min(load, own_kbps))
    if trained is None:
        return Offer(load.rate_kbps)
    # the contract may have lost attributes, or protected them, since training
    known = [name for name in contract.sheddable if name in trained.options]
    options = {name: trained.options[name]["options"] for name in known}
    ranking = sorted(options, key=lambda name: trained.ranking.get(name, 0.0))
    gone: set[str] = set()
    rate = load.rate_kbps
    if own_kbps is not None:
        decision = decide(contract, options, load, own_kbps, ranking)
        gone, rate = set(decision.scheme), decision.planned_kbps
    steps = []
    for name in ranking:
        shed = next((option for option in options[name] if option["way"] == "shed"), None)
        kbps = load.widths_bits[name] * load.tuples_per_second / 1000.0
        if shed is not None and name not in gone and kbps > 0:
            steps.append(Step(name, kbps, float(shed["mean_error_pct"])))
    weight = contract.share.weight * criticality_weight(trained.category.get("criticality"))
    return Offer(rate, tuple(steps), weight)

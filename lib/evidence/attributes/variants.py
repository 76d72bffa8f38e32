"""Change contracts, facts and models for what-if runs."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from spillway.contracts import StreamContract
from spillway.contracts.levers import LeverEntry
from spillway.levers.attributes.facts import MODEL, OPTIONS
from spillway.levers.attributes.settings import AttributeSettings
from spillway.levers.attributes.synopsis.model import AttributeModel, Precision
from spillway.levers.protocol import Fact


def with_models(fact: Fact, models: Mapping[str, AttributeModel]) -> Fact:
    """Return the fact with these models; its options are those in precisions that the models have."""
    if fact.fact == MODEL:
        return replace(fact, value=models[fact.subject].to_dict())
    if fact.fact != OPTIONS:
        return fact
    model = models[fact.subject]
    places = {"keep": 1, "round": max(1, len(model.roundings)), "shed": len(model.precisions)}
    return replace(fact, value=[one for one in fact.value if one["precision"] < places[one["way"]]])


def with_settings(contract: StreamContract, settings: AttributeSettings) -> StreamContract:
    """Return the contract with these settings of the lever."""
    levers = tuple(
        LeverEntry(one.lever, settings) if one.lever == "attributes" else one for one in contract.levers
    )
    return replace(contract, levers=levers)


def with_thesis_ranking(contract: StreamContract) -> StreamContract:
    """Return the contract with the lever's defaults, except that it ranks by deviation, and with relative bounds alone.

    Deviation is the thesis's ranking. The lever's own default, recoverability, gives every window the same ranking.
    """
    attributes = tuple(replace(one, error=None) for one in contract.attributes)
    return with_settings(replace(contract, attributes=attributes), AttributeSettings(rank_by="stddev"))


def with_equal_priorities(contract: StreamContract, exact: Collection[str] = ()) -> StreamContract:
    """Return the contract with every priority 1; attributes that must be exact are always sent."""
    attributes = tuple(
        replace(one, priority=1.0, role="protected" if one.name in exact else one.role)
        for one in contract.attributes
    )
    return replace(contract, priority=1.0, attributes=attributes)


def with_error(model: AttributeModel, error_pct: float) -> AttributeModel:
    """Return the model with another E, its precisions scaled accordingly (even steps stay: they fit the values)."""
    scale = error_pct / model.error_pct if model.error_pct else 0.0
    precisions = tuple(
        Precision(
            None if one.aim_pct is None else min(error_pct, one.aim_pct * scale),
            one.step_pct * scale,
            one.unit,
        )
        for one in model.precisions
    )
    return replace(model, error_pct=error_pct, precisions=precisions, roundings=())

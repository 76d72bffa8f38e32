"""What the contract says of how far an attribute may be off, today.

A model was trained under a contract that may have changed since: the tighter of the two counts, in the next plan, for
what is given back, and in every certificate made from now on.

>>> from spillway.contracts import Attribute
>>> own_bound(Attribute(name="delay", type="double", error_pct=1.0)), own_bound(Attribute(name="delay", type="double"))
(ErrorBound(error_pct=1.0, error=inf), None)
>>> may_be_inexact(Attribute(name="seen", type="timestamp"))
False
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from spillway.contracts import Attribute, StreamContract
from spillway.levers.attributes.option import Option
from spillway.levers.attributes.settings import AttributeSettings
from spillway.levers.attributes.synopsis.bounds import ErrorBound
from spillway.levers.attributes.synopsis.model import AttributeModel
from spillway.levers.attributes.threshold.curve import LOOSEST_PCT
from spillway.levers.attributes.threshold.quantities import QUANTITIES


def own_bound(attribute: Attribute) -> ErrorBound | None:
    """What the contract says of the attribute itself; None: nothing."""
    if attribute.error_pct is None and attribute.error is None:
        return None
    relative, absolute = (math.inf if one is None else one for one in (attribute.error_pct, attribute.error))
    return ErrorBound(relative, absolute)


def may_be_inexact(attribute: Attribute) -> bool:
    """Whether it may be a quantity, by what the contract says of it."""
    return attribute.type in QUANTITIES and not attribute.codes


def inexact_names(contract: StreamContract) -> frozenset[str]:
    """Return the attributes whose values may be rounded, or recovered within a bound above 0.

    >>> from spillway.contracts import read_stream
    >>> net = read_stream({"stream": "net", "channel": "up", "source": {"format": "csv"}, "attributes": [
    ...     {"name": "at", "type": "timestamp", "role": "order"}, {"name": "router", "type": "string"},
    ...     {"name": "delay", "type": "double"}, {"name": "port", "type": "integer", "error": 0}]})
    >>> sorted(inexact_names(net))
    ['delay']
    """
    if contract.mode == "observe" or "attributes" not in contract.lever_names:
        return frozenset()
    settings: AttributeSettings = contract.lever_settings("attributes")
    if set(settings.ways) == {"keep"}:
        return frozenset()
    found = set()
    for attribute in (one for one in contract.attributes if one.name in contract.sheddable):
        own = own_bound(attribute)
        if own is not None:
            exact = 0.0 in (own.error_pct, own.error)
        elif settings.error_pct is not None:
            exact = settings.error_pct == 0 or not may_be_inexact(attribute)
        else:
            exact = settings.bounds == "stated" or not may_be_inexact(attribute)
        if not exact:
            found.add(attribute.name)
    return frozenset(found)


def bound_now(contract: StreamContract, model: AttributeModel) -> ErrorBound:
    """The tighter of what the model was trained for and what the contract says now."""
    if model.attribute not in contract.names:
        return model.bound
    attribute = contract.attribute(model.attribute)
    own = own_bound(attribute)
    if own is not None:
        return model.bound.tightest(own)
    # a batch may come back after its contract has given the lever up
    found = [entry.settings for entry in contract.levers if entry.lever == "attributes"]
    settings: AttributeSettings = found[0] if found else AttributeSettings()
    limit_pct = LOOSEST_PCT
    if settings.error_pct is not None:
        limit_pct = min(limit_pct, settings.error_pct)
    elif settings.bounds == "stated":
        limit_pct = 0.0
    if not may_be_inexact(attribute):
        limit_pct = 0.0
    return model.bound.tightest(ErrorBound(limit_pct))


def admitted(
    options: Sequence[Option], model: AttributeModel, bound: ErrorBound, ways: Sequence[str]
) -> tuple[Option, ...]:
    """The options of the ways allowed whose precision keeps to a bound; to keep the attribute always does."""
    return tuple(
        one
        for one in options
        if one.way == "keep" or (one.way in ways and bound.admits(*_limits(one, model)))
    )


def _limits(option: Option, model: AttributeModel) -> tuple[float, float]:
    if option.way == "round" and not model.roundings:
        return 0.0, 0.0  # sent as it is
    at = option.precision
    found = model.bound_at(at) if option.way == "shed" else model.roundings[at].bound
    return found.error_pct, found.error

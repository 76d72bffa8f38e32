"""What bytes came to over what was planned, and what is hoped of ways that were never tried."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from spillway.levers.attributes.capacity.crossings import Crossings
from spillway.levers.attributes.option import Option

Paid = Mapping[str, Mapping[str, float]]
"""By attribute and way, and by way and precision, what its bytes came to over what was planned, as last seen."""
DIVIDED = "divided"
"""As a way in `Paid`: of an attribute whose tuples were not all treated alike."""
UNTRIED_DIVIDED = 1.05
"""The same of an attribute whose tuples were all treated alike so far."""
UNTRIED = 1.02
"""How much more than planned is expected of what was not tried yet, of an attribute of which something was."""
HOPED = 1.1
"""A mixture that took so much more than the mean of its parts packs badly, and what was never tried may take less than
was estimated: the finer way is tried for all tuples where it is estimated to take up to so much of the room."""


def corrected(options: Sequence[Option], paid: Mapping[str, float]) -> list[Option]:
    """The options with what their bytes really came to; what is kept is measured, not planned."""
    found, tried = [], bool(paid.keys() - {DIVIDED})
    for one in options:
        known = paid.get(f"{one.way}/{one.precision}")
        factor = known if known is not None else paid.get(one.way, 1.0) * (UNTRIED if tried else 1.0)
        found.append(one if one.way == "keep" else one.scaled(factor))
    return found


def hoped(found: Crossings, room_bytes: float, worths: Mapping[str, float], paid: Paid) -> Crossings | None:
    """The same with the finer way for all tuples, where that was never tried and may come out small enough.

    >>> from spillway.levers.attributes.capacity.crossings import Terms, cross
    >>> coarse, fine = Option("a", "round", 1.0, 0.0, 2.0, precision=1), Option("a", "round", 2.0, 0.0, 1.0)
    >>> options = {"a": [Option("a", "keep", 4.0), fine, coarse]}
    >>> divided = cross(options, {"a": 1.0}, 1.9, Terms(), dearer={"a": 1.2})
    >>> whole = hoped(divided, 1.9, {"a": 1.0}, {"a": {DIVIDED: 1.2}})
    >>> whole.crosses, whole.loss, hoped(divided, 1.9, {"a": 1.0}, {"a": {DIVIDED: 1.0}})
    (2.0, 1.0, None)
    """
    if found.finer is None:
        return None
    name, better = found.finer.attribute, found.finer.way
    known, coarser = paid.get(name, {}), found.ways[name]
    ways = {**found.ways, name: better}
    takes = math.fsum(one.crosses for one in ways.values())
    tried = f"{better.option.way}/{better.option.precision}" in known
    if known.get(DIVIDED, 1.0) < HOPED or tried or better.option.way == "keep" or takes > HOPED * room_bytes:
        return None
    gains = (1.0 - found.finer.share) * worths[name] * (coarser.loss - better.loss)
    return replace(found, ways=ways, crosses=takes, loss=found.loss - gains, finer=None)

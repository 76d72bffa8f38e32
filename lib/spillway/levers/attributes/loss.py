"""The loss of a scheme in percentage points, used by the plan and the evidence.

The loss l(a) of an attribute is the mean relative error, in per cent, of the values that the destination has without a
request:

- kept: 0;
- rounded: the mean error of rounding;
- shed, synopsis at the source: 100, because the values are absent;
- shed, synopsis sent: the mean error of the recovered values.

The loss of a stream with n measures is

    loss = (1 / n) sum w(a) l(a),

with w(a) = 1, or weights such as the place in a ranking (`place_weights`).
"""

from __future__ import annotations

from collections.abc import Sequence

from spillway.levers.attributes.option import Option

ABSENT = 100.0
"""Loss of an absent attribute, in per cent."""


def option_loss(option: Option, sent: bool = False) -> float:
    """Return l(a) of one option; `sent` says whether its synopsis crosses with the batch.

    >>> option_loss(Option("temp", "shed", 0, 1, mean_error_pct=0.5))
    100.0
    """
    return ABSENT if option.way == "shed" and not sent else option.mean_error_pct


def place_weights(ranking: Sequence[str]) -> dict[str, float]:
    """Return the weights place / number of measures: the first to be shed weighs least, and the unit of a score has no
    effect.

    >>> place_weights(["wind", "temp"])
    {'wind': 0.5, 'temp': 1.0}
    """
    return {name: place / len(ranking) for place, name in enumerate(ranking, start=1)}

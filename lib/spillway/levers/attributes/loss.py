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

>>> from spillway.levers.attributes.option import Option
>>> options = {
...     "temp": [Option("temp", "keep", 4), Option("temp", "shed", 0, 1, mean_error_pct=0.5)],
...     "wind": [Option("wind", "keep", 4), Option("wind", "round", 2, 0, mean_error_pct=2.0)],
... }
>>> loss({"temp": "shed", "wind": "round"}, options), loss({"temp": "shed"}, options, sent={"temp"})
(51.0, 0.25)
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from spillway.errors import InvalidValue
from spillway.levers.attributes.option import Option, of_way, options_of

ABSENT = 100.0
"""Loss of an absent attribute, in per cent."""


def option_loss(option: Option, sent: bool = False) -> float:
    """Return l(a) of one option; `sent` says whether its synopsis crosses with the batch.

    >>> option_loss(Option("temp", "shed", 0, 1, mean_error_pct=0.5))
    100.0
    """
    return ABSENT if option.way == "shed" and not sent else option.mean_error_pct


def loss(
    ways: Mapping[str, str],
    options: Mapping[str, Sequence[Option]],
    weights: Mapping[str, float] | None = None,
    sent: Collection[str] = (),
) -> float:
    """Return the loss of a scheme in percentage points.

    `ways` has the treatment of every attribute that is not kept, and `options` the trained options of every measure. A
    treatment is `round` or `shed`, or has the planner's form with precision (`shed+/2`, + if the synopsis is sent).
    Without a precision it is the coarsest. `sent` names further attributes whose synopses are sent.
    """
    total = 0.0
    for name, done in ways.items():
        kind, _, precision = done.partition("/")
        way = kind.removesuffix("+")
        if way == "keep":
            continue
        offered = options_of(options.get(name, ()), way)
        option = next((one for one in offered if precision and one.precision == int(precision)), None)
        option = option or of_way(offered, way)
        if option is None:
            raise InvalidValue(f"options.{name}", f"offer to {way} the attribute", None, "train it again")
        crosses = kind.endswith("+") or name in sent
        total += (1.0 if weights is None else weights[name]) * option_loss(option, crosses)
    return total / len(options) if options else 0.0


def place_weights(ranking: Sequence[str]) -> dict[str, float]:
    """Return the weights place / number of measures: the first to be shed weighs least, and the unit of a score has no
    effect.

    >>> place_weights(["wind", "temp"])
    {'wind': 0.5, 'temp': 1.0}
    """
    return {name: place / len(ranking) for place, name in enumerate(ranking, start=1)}

"""What the destination lacks under a scheme, in points: the one measure of it for plan, regret and evidence.

The loss l(a) of an attribute is the mean relative error in per cent of what the destination has of it by itself: 0 when
it is kept, what rounding does to it, 100 when it is absent, as what is shed is while its synopsis stays at the source.
Where the synopsis is sent, it is the mean error of what is given back. Of a stream with n measures,

    loss = (1 / n) sum w(a) l(a),

with w(a) = 1, or weights such as its place in a ranking (`place_weights`). Regret is the extra loss of the scheme in
force over the one that a window's own ranking leads to, never below 0: a scheme that happens to lose less than the rule
it stands for earns no credit.

>>> from spillway.levers.attributes.option import Option
>>> options = {
...     "temp": [Option("temp", "keep", 4), Option("temp", "shed", 0, 1, mean_error_pct=0.5)],
...     "wind": [Option("wind", "keep", 4), Option("wind", "round", 2, 0, mean_error_pct=2.0)],
... }
>>> loss({"temp": "shed", "wind": "round"}, options), loss({"temp": "shed"}, options, sent={"temp"})
(51.0, 0.25)
>>> regret({"temp": "shed"}, {"wind": "round"}, options, place_weights(["wind", "temp"]))
49.5
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from spillway.errors import Refused
from spillway.levers.attributes.option import Option, of_way, options_of

ABSENT = 100.0
"""Per cent: nothing of it is there."""


def option_loss(option: Option, sent: bool = False) -> float:
    """l(a) of one option; `sent`: its synopsis crosses with the batch.

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
    """The loss of a scheme in points: `ways` of what is not kept, `options` of every measure, as trained.

    A way is a word, or a treatment as planners have it (`shed+/2`); without a precision it is the coarsest.
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
            raise Refused(f"options.{name}", f"offer to {way} the attribute", None, "train it again")
        crosses = kind.endswith("+") or name in sent
        total += (1.0 if weights is None else weights[name]) * option_loss(option, crosses)
    return total / len(options) if options else 0.0


def regret(
    in_force: Mapping[str, str],
    fresh: Mapping[str, str],
    options: Mapping[str, Sequence[Option]],
    weights: Mapping[str, float] | None = None,
    sent: Collection[str] = (),
) -> float:
    """Points that the scheme in force loses beyond the fresh one."""
    return max(0.0, loss(in_force, options, weights, sent) - loss(fresh, options, weights, sent))


def place_weights(ranking: Sequence[str]) -> dict[str, float]:
    """Place in the ranking over the number of measures: what goes first weighs least, and no score's unit enters.

    >>> place_weights(["wind", "temp"])
    {'wind': 0.5, 'temp': 1.0}
    """
    return {name: place / len(ranking) for place, name in enumerate(ranking, start=1)}

"""What may be done to an attribute and what it costs, as measured in training: the one shape of it.

Training measures an option for each way; it is stored as a fact of the attribute, read back, scaled to the width that a
batch's column has (`scaled`), and chosen among (`capacity.crossings`). How an attribute travels in the end is a
`scheme.Way`.

>>> shed = Option("temp", "shed", 0.0, 0.5, mean_error_pct=0.4, max_error_pct=2.0, predictor="last")
>>> shed.bytes_per_tuple, Option.from_dict(shed.to_dict()) == shed
(0.5, True)
>>> [option.wire_bytes_per_tuple for option in scaled([Option("temp", "keep", 2.0), Option("temp", "round", 1.0)], 3.0)]
[3.0, 1.5]

The words among which a contract chooses, shared by the settings that read them and the kernels that obey them.

Nothing is imported here: who reads contracts compiles no kernel, and a kernel knows of no contract.

>>> set(WAYS) > {"keep"}
True
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from spillway.errors import Refused

WAYS = ("keep", "round", "shed")
"""What may be done to a measure."""

PREDICTORS = ("last", "trend", "season", "any", "regression")
"""What may give a shed value back; `last` alone is the text's method."""

RANK_BY = ("stddev", "relative", "recoverability")
"""What makes an attribute go first."""

PLANS = ("least_loss", "prefix")
"""Who is touched: by what is lost, or the shortest prefix of the ranking (the text)."""

FITS = ("bits", "count")
"""How many of a prefix go: by measured width, or by the text's formula."""

CROSSINGS = ("auto", "send", "hold")
"""Whether a synopsis crosses with its batch or stays at the source until it is asked for (the text)."""

AVERAGES = ("ema", "sma", "none")
"""How a window is smoothed before it is ranked."""

SEEDS = ("first", "zero", "sma")
"""What smoothing starts from."""

BOUNDS = ("trained", "stated")
"""Whether what states no bound of its own has one that is trained, or none at all."""


@dataclass(frozen=True)
class Option:
    """One way for one attribute: bytes per tuple on the wire and kept at the source, the error it brings, and why."""

    attribute: str
    way: str
    wire_bytes_per_tuple: float
    synopsis_bytes_per_tuple: float = 0.0
    mean_error_pct: float = 0.0
    max_error_pct: float = 0.0
    predictor: str = ""
    reason: str = ""
    precision: int = 0
    """Which of the model's precisions (or roundings) was measured, finest first."""

    def __post_init__(self) -> None:
        if self.way not in WAYS:
            raise Refused("way", f"be one of {', '.join(WAYS)}", self.way, "correct the option")
        if self.precision < 0:
            raise Refused("precision", "be a place of 0 or more", self.precision, "measure it again")
        for name in ("wire_bytes_per_tuple", "synopsis_bytes_per_tuple", "mean_error_pct", "max_error_pct"):
            value = getattr(self, name)
            if not (value >= 0 and math.isfinite(value)):
                raise Refused(name, "be a finite number of 0 or more", value, "measure it again")

    @property
    def bytes_per_tuple(self) -> float:
        """Wire and synopsis together."""
        return self.wire_bytes_per_tuple + self.synopsis_bytes_per_tuple

    def scaled(self, factor: float) -> Option:
        """The same for a column that weighs `factor` times as much."""
        return replace(
            self,
            wire_bytes_per_tuple=self.wire_bytes_per_tuple * factor,
            synopsis_bytes_per_tuple=self.synopsis_bytes_per_tuple * factor,
        )

    def to_dict(self) -> dict[str, Any]:
        """JSON for the `models` table."""
        return asdict(self)

    @staticmethod
    def from_dict(facts: Mapping[str, Any]) -> Option:
        """The inverse of `to_dict`."""
        return Option(**facts)


def of_way(options: Sequence[Option], way: str) -> Option | None:
    """The attribute's option of a way, the coarsest of several, None where that way is not offered.

    >>> of_way([Option("temp", "keep", 2.0)], "shed") is None
    True
    """
    return max(options_of(options, way), key=lambda option: option.precision, default=None)


def options_of(options: Sequence[Option], way: str) -> tuple[Option, ...]:
    """The attribute's options of a way, finest first.

    >>> found = options_of([Option("temp", "shed", 0.0, 0.5, precision=1), Option("temp", "shed", 0.0, 0.9)], "shed")
    >>> [option.synopsis_bytes_per_tuple for option in found]
    [0.9, 0.5]
    """
    return tuple(
        sorted((option for option in options if option.way == way), key=lambda option: option.precision)
    )


def saves_bytes(option: Option, width_bytes: float) -> bool:
    """Return whether an option took fewer bytes, when it was measured, than the exact column takes now.

    `scaled` assumes that all options shrink with the column. A synopsis does not shrink if the column is small because
    Parquet encodes this batch well (a constant, a counter).

    >>> trained = Option("temp", "shed", 0.0, 0.5)
    >>> [saves_bytes(trained, width) for width in (2.0, 0.5, 0.01)]
    [True, False, False]
    """
    return option.way == "keep" or option.bytes_per_tuple < width_bytes


def scaled(options: Sequence[Option], width_bytes: float) -> list[Option]:
    """An attribute's options as trained, for a batch in which its column weighs `width_bytes` a tuple as it is.

    What weighed nothing in training has no ratio to scale by: it is kept at the batch's width, the rest stays.
    """
    kept = of_way(options, "keep")
    if kept is None:
        raise Refused(
            "options", "offer to keep the attribute", [one.way for one in options], "train it again"
        )
    factor = width_bytes / kept.wire_bytes_per_tuple if kept.wire_bytes_per_tuple else 1.0
    return [
        replace(one, wire_bytes_per_tuple=width_bytes) if one.way == "keep" else one.scaled(factor)
        for one in options
    ]

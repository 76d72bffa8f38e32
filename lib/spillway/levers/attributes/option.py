"""Options: the possible treatments of an attribute, with the bytes and errors measured in training.

Training measures an option for each treatment and stores it as a fact of the attribute. The plan reads the options,
scales them to the column width of the batch (`scale_options`), and chooses one (`capacity.treatments`). The result is a
`scheme.AttributeTreatment`.

The module also has the words that a contract may use. The settings that read them and the kernels that use them share
these constants.

>>> shed = Option("temp", "shed", 0.0, 0.5, mean_error_pct=0.4, max_error_pct=2.0, predictor="last")
>>> shed.bytes_per_tuple, Option.from_dict(shed.to_dict()) == shed
(0.5, True)
>>> scaled = scale_options([Option("temp", "keep", 2.0), Option("temp", "round", 1.0)], 3.0)
>>> [option.wire_bytes_per_tuple for option in scaled]
[3.0, 1.5]

The module imports no kernel and no contract. So reading a contract compiles no kernel, and a kernel does not depend on
contracts.

>>> set(WAYS) > {"keep"}
True
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from spillway.errors import InvalidValue

WAYS = ("keep", "round", "shed")
"""The treatments of a measure."""

PREDICTORS = ("last", "trend", "season", "any", "regression")
"""The predictors that may recover a shed value; Ahuja (2006) uses `last` only."""

RANK_BY = ("stddev", "relative", "recoverability")
"""The scores by which attributes are ranked for shedding."""

PLANS = ("least_loss", "prefix")
"""How attributes are chosen: by least loss, or the shortest prefix of the ranking (Ahuja 2006)."""

FITS = ("bits", "count")
"""How the length of the prefix is found: by measured width, or by the formula of Ahuja (2006, equation 3.4)."""

CROSSINGS = ("auto", "send", "hold")
"""Whether a synopsis crosses with its batch, or stays at the source until it is requested (hold, Ahuja 2006)."""

AVERAGES = ("ema", "sma", "none")
"""How a window is smoothed before it is ranked."""

SEEDS = ("first", "zero", "sma")
"""The first value of the moving average."""

BOUNDS = ("trained", "stated")
"""The bound of an attribute that states none: the trained bound, or no error at all (exact)."""


@dataclass(frozen=True)
class Option:
    """One treatment of one attribute: its bytes per tuple on the wire and as a synopsis, its errors, and the reason."""

    attribute: str
    way: str
    wire_bytes_per_tuple: float
    synopsis_bytes_per_tuple: float = 0.0
    mean_error_pct: float = 0.0
    max_error_pct: float = 0.0
    predictor: str = ""
    reason: str = ""
    precision: int = 0
    """Index of the measured precision (or rounding) in the model, the finest first."""

    def __post_init__(self) -> None:
        if self.way not in WAYS:
            raise InvalidValue("way", f"be one of {', '.join(WAYS)}", self.way, "correct the option")
        if self.precision < 0:
            raise InvalidValue("precision", "be a place of 0 or more", self.precision, "measure it again")
        for name in ("wire_bytes_per_tuple", "synopsis_bytes_per_tuple", "mean_error_pct", "max_error_pct"):
            value = getattr(self, name)
            if not (value >= 0 and math.isfinite(value)):
                raise InvalidValue(name, "be a finite number of 0 or more", value, "measure it again")

    @property
    def bytes_per_tuple(self) -> float:
        """Return the bytes on the wire plus those of the synopsis."""
        return self.wire_bytes_per_tuple + self.synopsis_bytes_per_tuple

    def scale_bytes(self, factor: float) -> Option:
        """Return the option for a column that takes `factor` times as many bytes."""
        return replace(
            self,
            wire_bytes_per_tuple=self.wire_bytes_per_tuple * factor,
            synopsis_bytes_per_tuple=self.synopsis_bytes_per_tuple * factor,
        )

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON object for the table `models`."""
        return asdict(self)

    @staticmethod
    def from_dict(facts: Mapping[str, Any]) -> Option:
        """Return the option that `to_dict` wrote."""
        return Option(**facts)


def of_way(options: Sequence[Option], way: str) -> Option | None:
    """Return the attribute's coarsest option of a treatment; None if it has none.

    >>> of_way([Option("temp", "keep", 2.0)], "shed") is None
    True
    """
    return max(options_of(options, way), key=lambda option: option.precision, default=None)


def options_of(options: Sequence[Option], way: str) -> tuple[Option, ...]:
    """Return the attribute's options of a treatment, finest first.

    >>> found = options_of([Option("temp", "shed", 0.0, 0.5, precision=1), Option("temp", "shed", 0.0, 0.9)], "shed")
    >>> [option.synopsis_bytes_per_tuple for option in found]
    [0.9, 0.5]
    """
    return tuple(
        sorted((option for option in options if option.way == way), key=lambda option: option.precision)
    )


def saves_bytes(option: Option, width_bytes: float) -> bool:
    """Return whether an option took fewer bytes, when it was measured, than the exact column takes now.

    `scale_options` assumes that all options shrink with the column. A synopsis does not shrink if the column is small
    because Parquet encodes this batch well (a constant, a counter).

    >>> trained = Option("temp", "shed", 0.0, 0.5)
    >>> [saves_bytes(trained, width) for width in (2.0, 0.5, 0.01)]
    [True, False, False]
    """
    return option.way == "keep" or option.bytes_per_tuple < width_bytes


def scale_options(options: Sequence[Option], width_bytes: float) -> list[Option]:
    """Return the trained options of an attribute, scaled to a batch whose column takes `width_bytes` per tuple.

    If the column took no bytes in training, there is no ratio: only `keep` gets the new width.
    """
    kept = of_way(options, "keep")
    if kept is None:
        raise InvalidValue(
            "options", "offer to keep the attribute", [one.way for one in options], "train it again"
        )
    factor = width_bytes / kept.wire_bytes_per_tuple if kept.wire_bytes_per_tuple else 1.0
    return [
        replace(one, wire_bytes_per_tuple=width_bytes) if one.way == "keep" else one.scale_bytes(factor)
        for one in options
    ]

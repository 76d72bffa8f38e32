"""The settings of the lever, plus those of a rival: a fixed scheme, or the evaluated windows and the capacity."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from spillway.levers.attributes.settings import COLUMNS, AttributeSettings

__all__ = ["COLUMNS", "SETTINGS", "RivalSettings"]


@dataclass(frozen=True, kw_only=True)
class RivalSettings(AttributeSettings):
    """The decisions of a rival."""

    scheme: Mapping[str, str] | None = None
    """The way of every attribute that is not kept, whatever the capacity; None: as the product decides."""
    watched: bool = False
    """Whether the plan looks at every window and remembers what it saw."""
    measures_pct: float | None = None
    """Watched: the channel takes what always travels and so much of the measures' bytes; None: what it takes."""
    evaluate_at: frozenset[int] | None = None
    """Watched: the windows that are evaluated; None: those that the settings lead to."""


SETTINGS = RivalSettings
"""What the registry reads."""

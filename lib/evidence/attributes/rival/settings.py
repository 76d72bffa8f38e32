"""The lever's settings, and what a rival adds: the scheme it would have, or that every window is to be looked at."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from spillway.levers.attributes.settings import COLUMNS, AttributeSettings

__all__ = ["COLUMNS", "SETTINGS", "RivalSettings"]


@dataclass(frozen=True, kw_only=True)
class RivalSettings(AttributeSettings):
    """How a rival decides."""

    scheme: Mapping[str, str] | None = None
    """The way of every attribute that is not kept, whatever the capacity; None: as the product decides."""
    watched: bool = False
    """Whether the plan looks at every window and remembers the scores it saw."""


SETTINGS = RivalSettings
"""What the registry reads."""

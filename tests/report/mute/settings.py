"""It has no settings."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class MuteSettings:
    """Nothing to say."""


SETTINGS = MuteSettings

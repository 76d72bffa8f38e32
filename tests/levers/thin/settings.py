"""What a contract may say of the toy."""

from __future__ import annotations

from dataclasses import dataclass

from spillway.contracts.fields import Number, rule


@dataclass(frozen=True, kw_only=True)
class ThinSettings:
    """Which rows go."""

    every: int = rule(Number(least=2, whole=True), "one row in so many goes", 10)


SETTINGS = ThinSettings

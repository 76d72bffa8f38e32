"""What a contract may say of the second toy."""

from __future__ import annotations

from dataclasses import dataclass

from spillway.contracts.fields import Number, Text, rule


@dataclass(frozen=True, kw_only=True)
class MeetSettings:
    """What meets, and how much is left undone."""

    on: str = rule(Text(), "the attribute that must be equal")
    every: int = rule(Number(least=2, whole=True), "one comparison in so many is left undone", 10)


SETTINGS = MeetSettings

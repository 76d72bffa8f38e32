"""The lever: only what must be there; what it did stands in the ledger of the test."""

from __future__ import annotations

from typing import Any, NoReturn

from spillway.levers.protocol import Lever


class Mute(Lever):
    """Is shown, and never runs."""

    name = "mute"
    needs_training = True

    def plan(self, *_: Any) -> NoReturn:
        raise AssertionError("who shows plans nothing")

    def load_decision(self, *_: Any) -> NoReturn:
        raise AssertionError("who shows decides nothing")


LEVER = Mute()

"""Preparing this process, so that what is forked of it costs its work alone: modules loaded, kernels compiled."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from evidence.torture.steps import bring_all
from evidence.torture.world import TortureWorld, create_world
from spillway.settings import Settings
from spillway.store.tables import Tables


class _InMemory(TortureWorld):
    """A world whose lake lives no longer than this process: no Delta library is started for it."""

    @property
    def settings(self) -> Settings:
        return replace(super().settings, lake="memory://prepared", destination="memory://prepared")


def prepare_process(say: Callable[[str], None]) -> None:
    """Do once, in memory, all that will be done in forked processes."""
    with tempfile.TemporaryDirectory(prefix="torture-") as place:
        world = _InMemory(create_world(Path(place, "prepared")).folder)
        bring_all(world, validated=True)
        Tables(world.settings).forget()
    say("prepared")

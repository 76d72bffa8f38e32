"""Prepare this process for forking: load modules and compile kernels."""

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
    """A world with a lake in memory, which needs no Delta library."""

    @property
    def settings(self) -> Settings:
        return replace(super().settings, lake="memory://prepared", destination="memory://prepared")


def prepare_process(say: Callable[[str], None]) -> None:
    """Run all steps once in memory before processes are forked."""
    with tempfile.TemporaryDirectory(prefix="torture-") as place:
        world = _InMemory(create_world(Path(place, "prepared")).folder)
        bring_all(world, validated=True)
        Tables(world.settings).forget()
    say("prepared")

"""What the lever tells people of a join."""

from __future__ import annotations

from collections.abc import Iterable

from spillway.contracts.workload import Workload
from spillway.levers.protocol import Picture, Told, Views


def told_of_join(contract: Workload, tables: Views) -> Told | None:
    return None


def pictures_of_join(contract: Workload, tables: Views) -> Iterable[Picture]:
    return ()

"""What a query tells of itself: what to do where its portions are larger than its room."""

from __future__ import annotations

from typing import Any

import pytest
from tests.levers.quality.worlds import MEAN, query

from spillway.contracts import read_workload
from spillway.levers.quality.told import larger_than_the_room


def window(tuples_shed: int, offered: int, kept: int) -> dict[str, Any]:
    return {"tuples_shed": tuples_shed, "portions_offered": offered, "portions_kept": kept}


@pytest.mark.parametrize(
    ("settings", "windows", "told"),
    [
        # the file that was left out holds 490 tuples: no slice of 300 ever reads it
        ({"capacity": {"tuples": 300}}, [window(490, 2, 1)], "hold 490 tuples and more"),
        ({"capacity": {"tuples": 300}}, [window(0, 2, 2), window(600, 4, 2)], None),
        ({"capacity": {"tuples": 300}, "portion_tuples": 30}, [window(490, 2, 1)], None),
        ({"capacity": {"seconds": 3}}, [window(490, 2, 1)], None),
        ({}, [window(0, 2, 2)], None),
    ],
)
def test_files_that_no_slice_of_a_room_can_read_are_to_be_read_in_parts(
    settings: dict[str, Any], windows: list[dict[str, Any]], told: str | None
) -> None:
    found = larger_than_the_room(read_workload(query("means", MEAN, **settings)), windows)
    assert (found is None) == (told is None)
    if found is not None:
        assert str(told) in found
        assert found.endswith("where the room can do 300: `portion_tuples: 30`")

"""Every golden cell of the attribute-shedding thesis, errata applied."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from evidence.golden.attributes import GROUPS, recompute
from evidence.golden.cells import Cell

GOLDEN = Path(__file__).parents[1] / "golden"


@pytest.mark.parametrize("group", GROUPS)
def test_every_cell_of_a_group_is_equal(group: str) -> None:
    cells = list(GROUPS[group](GOLDEN))
    assert cells
    assert [cell for cell in cells if not cell.equal] == []


def test_all_groups_together_are_all_cells() -> None:
    cells = recompute(GOLDEN)
    assert len(cells) == sum(len(list(group(GOLDEN))) for group in GROUPS.values())
    sizes = Counter(cell.group for cell in cells)
    assert (sizes["table 3.3"], sizes["table 3.6"], sizes["table 4.6"]) == (248, 90, 81)


def test_a_cell_that_differs_is_not_equal() -> None:
    assert not Cell("table 3.6", "AMGN, NASDAQ 100 Index", "0.04", "-0.04").equal

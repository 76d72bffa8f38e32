"""Every golden cell of the attribute-shedding thesis, errata applied."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from evidence.attributes.golden import golden
from evidence.book import Book
from evidence.golden.attributes import GROUPS, recompute
from evidence.golden.cells import AGAINST, PRINT, RECOMPUTED, Cell

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


def test_what_was_recomputed_or_only_added_up_does_not_count_as_printed() -> None:
    counted = Counter(cell.against for cell in recompute(GOLDEN))
    assert counted[PRINT] < 600 < counted[RECOMPUTED]
    similar = [cell for cell in recompute(GOLDEN) if "Sim(" in cell.name]
    assert len(similar) == 480
    assert {cell.against for cell in similar} == {RECOMPUTED}


def test_the_evidence_counts_print_and_recomputation_apart() -> None:
    found = golden(Book(lambda _: None), GOLDEN)
    cells = recompute(GOLDEN)
    for what in AGAINST:
        mine = [cell for cell in cells if cell.against == what]
        assert found[f"attributes.golden_cells_against_{what}"] == len(mine) > 0
        assert found[f"attributes.golden_cells_against_{what}_equal"] == len(mine)

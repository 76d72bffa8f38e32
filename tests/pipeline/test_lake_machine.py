"""Any order of deliveries, runs, kills, compactions, replays and migrations leaves each row in one place."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test
from tests.pipeline.lake_machine import LakeMachine, begin_lakes

from spillway.intake import raw
from spillway.store import maintenance
from spillway.store.files import DataFile
from spillway.store.tables import Table

pytestmark = pytest.mark.long

STEPS = 12


@pytest.fixture(scope="module", autouse=True)
def lakes(clock: None, tmp_path_factory: pytest.TempPathFactory) -> None:
    LakeMachine.lakes = begin_lakes(tmp_path_factory.mktemp("machine"))


def explore(examples: int, **more: Any) -> None:
    run_state_machine_as_test(  # type: ignore[no-untyped-call]
        LakeMachine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=STEPS,
            deadline=None,
            suppress_health_check=list(HealthCheck),
            print_blob=True,
            report_multiple_bugs=False,
            **more,
        ),
    )


def test_each_row_is_in_one_place_in_a_few_histories() -> None:
    explore(10, derandomize=True)


def test_each_row_is_in_one_place_in_any_history() -> None:
    explore(200)


def compaction_swaps_a_row(patch: pytest.MonkeyPatch) -> None:
    """The last row of the merged files is lost, and the one before it is there twice; the number is right."""
    reading = maintenance._read_in_order

    def swapped(table: Table, files: list[DataFile]) -> tuple[Iterator[pa.Table], bool]:
        parts, as_they_come = reading(table, files)
        rows = pa.concat_tables(list(parts))
        last = rows.num_rows - 1
        return iter([rows.take([*range(last), last - 1])]), as_they_come

    patch.setattr(maintenance, "_read_in_order", swapped)


def repeats_stay(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(raw, "remove_repeats", lambda *_: {})


@pytest.mark.parametrize("plant", [compaction_swaps_a_row, repeats_stay])
def test_a_planted_fault_is_found(
    plant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    with pytest.raises(AssertionError):
        explore(100, derandomize=True, phases=[Phase.generate])

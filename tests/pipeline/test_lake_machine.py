"""Any order of deliveries, runs, kills, compactions, replays and migrations leaves each row in one place."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test
from tests.pipeline.lake_machine import LakeMachine, begin_lakes

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


@pytest.mark.long
def test_each_row_is_in_one_place_in_any_history() -> None:
    explore(200)

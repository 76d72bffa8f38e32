"""Hostile inputs, a few hundred of them: each is taken or refused by name, and what is not is counted."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from evidence.torture import fuzz as fuzzing
from evidence.torture.fuzz import FuzzCounts, fuzz, kind_of_input, run_input
from evidence.torture.hostile import JUDGES, prepare_lake

INPUTS = 40 * len(JUDGES)


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> object:
    with pytest.MonkeyPatch.context() as patch:
        for name in ("LAKE", "LANDING", "SCHEMAS", "BUILD"):
            patch.setenv(f"SPILLWAY_{name}", "")  # put back when the module is done
        prepare_lake(tmp_path_factory.mktemp("lake"))
        yield


@pytest.mark.parametrize("kind", JUDGES)
@pytest.mark.usefixtures("lake")
def test_hostile_inputs_are_taken_or_refused_by_name(kind: str) -> None:
    taken = [run_input(3, number) for number in range(INPUTS) if kind_of_input(number) == kind]
    assert len(taken) == 40
    # of the lake nothing has crossed yet: there is nothing to give back
    assert any(taken) or kind == "recover", "some must be good, or nothing is tried"
    assert not all(taken)


def test_shares_work_through_all_inputs_and_through_none_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    worked: list[int] = []

    def noting(inputs: int, seed: int, start: int, say: object) -> FuzzCounts:
        worked.extend(range(start, start + inputs))
        return FuzzCounts()

    monkeypatch.setattr(fuzzing, "fuzz", noting)
    for share in range(fuzzing.FUZZ_SHARES):
        fuzzing.torture_by_fuzzing(lambda _: None, 11, share)
    assert worked == list(range(fuzzing.TORTURE_INPUTS))


def test_children_work_through_all_inputs_and_say_what_became_of_them() -> None:
    found = fuzz(2 * len(JUDGES), seed=3)
    assert found.faults == []
    assert found.inputs == sum(found.kinds.values()) == 2 * len(JUDGES)
    assert found.figures()["torture.fuzz_unhandled"] == 0


def test_whatever_is_neither_taken_nor_refused_is_a_fault_with_the_number_that_makes_it_again() -> None:
    counts = FuzzCounts()
    assert fuzzing._record_line(counts, "fault 5 channels 1/5: KeyError: 'x' (loader.py:3)", 5) == 6
    assert counts.faults == ["channels 1/5: KeyError: 'x' (loader.py:3)"]
    assert (counts.inputs, counts.taken) == (1, 0)


def test_what_an_input_needs_is_measured_whatever_the_process_that_asks_held_before(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    sizes = {len(JUDGES): 100, len(JUDGES) + 1: 300, len(JUDGES) + 2: 50}

    def hungry(_: int, number: int) -> bool:
        return bool(b"x" * (sizes.get(number, 0) << 20))

    assert b"x" * (400 << 20), "held once, and let go"
    monkeypatch.setattr(fuzzing, "run_input", hungry)
    monkeypatch.setattr(fuzzing, "prepare_lake", lambda folder: None)
    monkeypatch.setattr(fuzzing.resource, "setrlimit", lambda *_: None)
    fuzzing.work(1, len(JUDGES), len(JUDGES) + 4)
    counts = FuzzCounts()
    for line in capsys.readouterr().out.splitlines():
        fuzzing._record_line(counts, line, 0)
    assert 290 < counts.peak_mb < 320
    assert counts.inputs == 4
    (fault,) = counts.faults
    assert re.match(
        rf"{kind_of_input(len(JUDGES) + 1)} 1/{len(JUDGES) + 1}: took 3\d\d MB, 256 are allowed", fault
    )


def test_a_child_that_dies_is_a_fault_and_another_goes_on_behind_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "child"
    program.write_text(
        '#!/bin/sh\nif [ "$4" = 0 ]; then echo "taken 0"; kill -9 $$; fi\n'
        'for i in $(seq $4 $(($5 - 1))); do echo "refused $i"; done; echo "peak 3 1.5"\n'
    )
    program.chmod(0o700)
    monkeypatch.setattr(fuzzing.sys, "executable", str(program))
    found = fuzz(4, seed=1)
    assert (found.inputs, found.taken, found.peak_mb) == (4, 1, 1.5)
    (fault,) = found.faults
    assert fault.startswith("csv 1/1: the process died (-9)")

"""Schemes and their rows: what makes two of them different, and what rows of before are read as."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from spillway.levers.attributes.scheme import (
    AttributeTreatment,
    Run,
    Runs,
    run_from_row,
    run_to_row,
    scheme_number,
)
from spillway.store.schemas import table_contracts
from spillway.store.tables import arrow_rows


def test_the_precision_is_part_of_a_schemes_number_where_it_says_something():
    shed = [scheme_number([AttributeTreatment("a", "shed", precision=place)]) for place in range(3)]
    assert len({*shed, scheme_number([AttributeTreatment("a", "round", precision=1)])}) == 4
    assert scheme_number([AttributeTreatment("a", "keep", precision=2)]) == 0


def test_a_run_comes_back_from_its_row_with_the_precision_of_every_way():
    run = Run(
        5,
        9,
        (
            AttributeTreatment("a", "shed", 2, "last", "because", 3),
            AttributeTreatment("b", "round", precision=1),
            AttributeTreatment("c"),
        ),
        hits=2,
    )
    assert run_from_row(as_stored(run_to_row(run))) == run


def test_rows_of_before_precisions_are_of_the_first():
    row = as_stored(
        run_to_row(
            Run(5, 9, (AttributeTreatment("a", "shed", predictor="last", reason="because", precision=3),))
        )
    )
    (old,) = row["attributes"]
    for kept in ({**old, "precision": None}, {name: old[name] for name in old if name != "precision"}):
        (way,) = run_from_row({**row, "attributes": [kept]}).ways
        assert way == AttributeTreatment("a", "shed", predictor="last", reason="because")


def test_rows_have_the_precision_of_their_own_run_and_way():
    runs = Runs(
        (
            Run(
                0,
                4,
                (AttributeTreatment("a", "shed", precision=2), AttributeTreatment("b", "round", precision=1)),
            ),
            Run(5, 9, (AttributeTreatment("a", "round", precision=1), AttributeTreatment("b", "shed"))),
        )
    )
    seq = np.array([0, 4, 5, 9])
    assert runs.precision("a", "shed", seq).tolist() == [2, 2, 0, 0]
    assert runs.precision("a", "round", seq).tolist() == [0, 0, 1, 1]
    assert runs.precision("b", "round", seq).tolist() == [1, 1, 0, 0]
    assert runs.precision("c", "shed", seq).tolist() == [0, 0, 0, 0]
    assert runs.precision("a", "shed", seq[:0]).tolist() == []


def as_stored(row: dict[str, Any]) -> dict[str, Any]:
    """The row as the table's contract has it, written and read."""
    contract = table_contracts()["schemes"]
    rest = {
        "stream": "s",
        "batch": 1,
        "batch_date": np.datetime64("2026-01-01").astype(object),
        "run": 0,
        "frame_origin": 0,
        "model_version": 1,
        "state": "{}",
    }
    found: pa.Table = arrow_rows(contract, [{**rest, **row}])
    return found.to_pylist()[0]

"""Figures that count faults must count them: the product makes none, and those made by hand are all found."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from evidence.attributes.bound_violations import INEXACT, ZERO_SWAPS, bound_violations, room_sensors
from evidence.attributes.every_treatment import bound_violations_every_treatment
from evidence.attributes.lab import Lab
from evidence.attributes.nine_streams import run_through_channel


class Spoiled:
    """A lake in which some recovered columns were changed by hand."""

    def __init__(self, lab: Lab, **columns: pa.ChunkedArray) -> None:
        self.contracts, self._lake, self._columns = lab.lake.contracts, lab.lake, columns

    def rows(self, table: str, stream: str) -> pa.Table:
        rows = self._lake.rows(table, stream)
        if table == "recovered":
            for name, column in self._columns.items():
                rows = rows.set_column(rows.column_names.index(name), name, column)
        return rows


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    made = run_through_channel(room_sensors(rounds=60))
    yield made
    made.lake.forget()


@pytest.mark.long
def test_rooms_come_back_with_their_zeros_and_all_that_is_no_quantity(lab: Lab) -> None:
    assert bound_violations(lab.lake, "rooms", "rooms") == {f"{ZERO_SWAPS}.rooms": 0, f"{INEXACT}.rooms": 0}
    certificates = lab.run(dict.fromkeys(lab.measures, "shed")).certificates
    assert bound_violations_every_treatment(lab, "rooms") == {f"{ZERO_SWAPS}.rooms": 0, f"{INEXACT}.rooms": 0}
    assert {"people", "power_w", "last_seen", "http_status", "thermostat_setpoint"} <= set(
        certificates
    )  # they were shed
    assert certificates["thermostat_setpoint"].max_error_pct > 0  # and quantities are not all exact


def test_every_fault_is_counted(lab: Lab) -> None:
    given = lab.lake.rows("recovered", "rooms")
    zeros = pc.sum(pc.equal(given["power_w"], 0.0)).as_py()
    values = pc.sum(pc.not_equal(given["people"], 0)).as_py()
    codes = pc.sum(pc.equal(given["http_status"], 502)).as_py()
    spoiled = Spoiled(
        lab,
        power_w=pc.if_else(pc.equal(given["power_w"], 0.0), 1e-9, given["power_w"]),
        people=pc.multiply(given["people"], 0),
        http_status=pc.if_else(pc.equal(given["http_status"], 502), 200, given["http_status"]),
        last_seen=pa.chunked_array([pa.nulls(given.num_rows, given["last_seen"].type)]),
    )
    found = bound_violations(spoiled, "rooms", "x")  # type: ignore[arg-type]
    assert min(zeros, values, codes) > 10
    assert found == {f"{ZERO_SWAPS}.x": zeros + values, f"{INEXACT}.x": values + codes + given.num_rows}

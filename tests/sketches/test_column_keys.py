"""Keys of columns are the keys of their rows, whatever the rows hold."""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spillway.sketches.column_keys import keys_of
from spillway.sketches.hashing import fingerprint

KINDS: dict[str, tuple[pa.DataType, Any]] = {
    "string": (pa.string(), st.text(max_size=80)),
    "boolean": (pa.bool_(), st.booleans()),
    "integer": (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    "double": (pa.float64(), st.floats() | st.just(-0.0)),
    "timestamp": (
        pa.timestamp("us", "UTC"),
        st.datetimes(datetime(1900, 1, 1), datetime(2200, 1, 1)).map(lambda at: at.replace(tzinfo=UTC)),
    ),
    "date": (pa.date32(), st.dates(date(1900, 1, 1), date(2200, 1, 1))),
}


@pytest.mark.parametrize("kind", KINDS)
@settings(deadline=None)
@given(data=st.data(), seed=st.integers(0, 2**64 - 1))
def test_a_column_has_the_keys_of_its_values(kind: str, data: Any, seed: int) -> None:
    type_, values = KINDS[kind]
    given_ = data.draw(st.lists(st.none() | values))
    rows = pa.table({"a": pa.array(given_, type_)})
    assert keys_of(rows, ["a"], [kind], seed).tolist() == [fingerprint([v], [kind], seed) for v in given_]


@settings(deadline=None)
@given(
    st.lists(st.tuples(*(st.none() | values for _, values in KINDS.values()))),
    st.integers(0, 4),
)
def test_rows_of_several_attributes_have_the_keys_of_their_values(rows: list[Any], skipped: int) -> None:
    columns = {kind: pa.array([row[i] for row in rows], KINDS[kind][0]) for i, kind in enumerate(KINDS)}
    table = pa.table(columns).slice(skipped)
    names = list(KINDS)
    assert keys_of(table, names, names, 9).tolist() == [fingerprint(row, names, 9) for row in rows[skipped:]]

"""Drafts whose files hold several batches: the shares of rows, bytes and log add up to what is written."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.pipeline.streams import own_settings

from spillway.engine import ProcessEngine
from spillway.store.delta_log import commit_bytes
from spillway.store.drafts import FileTask, split_by_weight
from spillway.store.tables import Tables

DAY = date(2026, 1, 5)


@given(st.integers(0, 10**12), st.dictionaries(st.integers(1, 500), st.integers(1, 10**6), min_size=1))
@settings(deadline=None)
def test_shares_add_up_and_are_within_a_byte(size: int, weights: dict[int, int]) -> None:
    shares = split_by_weight(size, weights)
    assert sum(shares.values()) == size
    whole = sum(weights.values())
    assert all(abs(share - size * weights[batch] / whole) <= 1 for batch, share in shares.items())


def test_batches_of_one_file_share_its_rows_bytes_and_log(tmp_path: Path) -> None:
    table = Tables(own_settings(tmp_path)).at("raw", "s").with_attributes([("v", "double")])

    def make(of: tuple[int, int], counts: dict[str, int]) -> Any:
        batch, rows = of
        counts["made"] = counts.get("made", 0) + rows
        yield pa.table(
            {"seq": range(100 * batch, 100 * batch + rows), "batch": [batch] * rows, "v": [batch / 7] * rows}
        )

    shared = FileTask({"batch_date": str(DAY)}, 1, (1, 30), ((2, (2, 10)), (3, (3, 0))))
    alone = FileTask({"batch_date": str(DAY)}, 4, (4, 5))
    draft = table.draft(ProcessEngine(), [shared, alone], make)
    first, second = draft.written
    assert [draft.rows(batch) for batch in (1, 2, 3, 4)] == [30, 10, 0, 5]
    assert [draft.counts[batch]["made"] for batch in (1, 2, 3, 4)] == [30, 10, 0, 5]
    assert draft.batches == {1, 2, 4}
    assert draft.file_bytes(1) + draft.file_bytes(2) == first.size
    assert (draft.file_bytes(3), draft.log_bytes(3)) == (0, 0)
    assert draft.file_bytes(4) == second.size
    columns = [draft.column_bytes(batch, ["v"])["v"] for batch in (1, 2)]
    assert sum(columns) == first.column_bytes["v"]
    assert sum(draft.log_bytes(batch) for batch in (1, 2, 3, 4)) == commit_bytes(draft.written)

    table.publish(draft.written, batch_date=[DAY], batch=[1, 2, 3, 4])
    again = table.draft(ProcessEngine(), [FileTask({"batch_date": str(DAY)}, 1, (1, 20))], make)
    version = table.version
    table.publish(again.written, batch_date=[DAY], batch=[1])
    assert table.version == version + 1, "one commit takes out the shared file and puts in what is left of it"
    assert sorted(table.rows(["batch"])["batch"].to_pylist()) == [1] * 20 + [2] * 10 + [4] * 5

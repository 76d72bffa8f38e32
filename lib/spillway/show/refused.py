"""How many tuples of a stream are refused: what was read again since counts where it was read last.

A batch counts what it refused, and so does the batch that a replay made of it, or that read the mended file: the same
record would count twice, or as refused although it was taken in. `rejected` notes what was read again; of the batches
with such notes alone it is read, column by column.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from spillway.intake.dedupe import DELIVERED_BEFORE
from spillway.records.rejects import WHOLE_FILE
from spillway.store.tables import Between, Tables


def read_again(tables: Tables, stream: str, held: pa.Table) -> int:
    """Of what the batches of `held` refused, how many tuples a later one read again.

    A file that was refused whole stands in `rejected` once: its tuples are what its batch counts beyond its records. Of
    several in one batch none is taken off before the last is read again.
    """
    table = tables.at("rejected")
    noted = table.rows(["batch"], stream=stream, replayed_by=Between(0))["batch"].unique().to_pylist()
    if not noted:
        return 0
    rows = table.rows(["batch", "line", "reason", "replayed_by"], stream=stream, batch=noted)
    rows = rows.filter(pc.not_equal(rows["reason"], DELIVERED_BEFORE))  # counted as a repeat
    whole = pc.equal(pc.fill_null(rows["line"], WHOLE_FILE), WHOLE_FILE)
    records, files = rows.filter(pc.invert(whole)), rows.filter(whole)
    again = len(records) - records["replayed_by"].null_count
    waiting = set(files.filter(pc.is_null(files["replayed_by"]))["batch"].to_pylist())
    for batch in set(files["batch"].to_pylist()) - waiting:
        counted = pc.sum(held.filter(pc.equal(held["batch"], batch))["rejected"]).as_py() or 0
        again += max(0, counted - int(pc.sum(pc.equal(records["batch"], batch)).as_py() or 0))
    return again

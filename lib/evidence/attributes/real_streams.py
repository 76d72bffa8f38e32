"""Send real streams of data packages by the product's own steps.

The samples of the comparison with compressors, as streams with contracts that state only names, types and the sender.
The streams of `codecs.samples.HELD_BACK` were not used while the plan was developed.

>>> made = real_stream("seattle_days")
>>> made.contract.keys, made.contract.order, made.contract.sheddable
(('sender',), 'date', ('precipitation', 'temp_max', 'temp_min', 'wind'))
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from evidence.attributes.codecs.samples import real_sample
from evidence.attributes.generated import TUPLES_PER_SECOND, Generated
from spillway.contracts import read_stream

ROWS_AT_MOST = 20_000
TRIED_REAL = (
    "flights",
    "cities",
    "seattle_days",
    "sea_surface",
    "cycling",
    "population",
    "glucose",
    "emissions",
)


def real_stream(name: str) -> Generated:
    """Return a real stream of two batch dates; at most the first half is used for training."""
    sample = real_sample(name)
    kept = [*sample.key, *([sample.order] if sample.order else []), *sample.measures]
    rows = sample.rows.select(kept).slice(0, ROWS_AT_MOST)
    if sample.order and pa.types.is_floating(rows[sample.order].type):
        whole = rows[sample.order].cast(pa.int64())
        rows = rows.set_column(kept.index(sample.order), sample.order, whole)
    attributes: list[dict[str, Any]] = []
    for at, column in enumerate(kept):
        values, kind = _plain(rows[column])
        rows = rows.set_column(at, column, values)
        role = "key" if column in sample.key else "order" if column == sample.order else "measure"
        attributes.append(
            {
                "name": "".join(c if c.isalnum() else "_" for c in column).lower(),
                "field": column,
                "type": kind,
                "role": role,
                "nullable": role == "measure",
            }
        )
    half = rows.num_rows // 2
    contract = read_stream(
        {
            "stream": name,
            "channel": "generated",
            "source": {"kind": "files", "format": "parquet"},
            "rate": {"from": "declared", "tuples_per_second": TUPLES_PER_SECOND},
            "levers": [{"lever": "attributes", "training": {"tuples": half}}],
            "attributes": attributes,
        }
    )
    return Generated(contract, rows, 1)


def _plain(values: pa.ChunkedArray) -> tuple[pa.ChunkedArray, str]:
    """Return a column in a type that contracts have."""
    kind = values.type
    if pa.types.is_integer(kind):
        return values.cast(pa.int64()), "integer"
    if pa.types.is_floating(kind):
        return values.cast(pa.float64()), "double"
    if pa.types.is_timestamp(kind):
        return values.cast(pa.timestamp("us")).cast(pa.timestamp("us", tz="UTC")), "timestamp"
    if pa.types.is_date32(kind):
        return values, "date"
    return values.cast(pa.string()), "string"

"""Sketches in Spark's SQL: built, merged and asked, in a session of PySpark or of Spark Connect."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from spillway.sketches.sql import in_parts, merged_payload, sketch_of, sql_functions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def register_functions(spark: SparkSession) -> None:
    """Make `spillway_*` known to SQL: the aggregates `spillway_sketch` and `spillway_merge`, and answers of all kinds.

    The workers need Spillway too. A group's rows are in one worker's memory while it is sketched: where groups are very
    large, sketch by group and some hash (`GROUP BY site, pmod(hash(key), 64)`) and merge by group.
    """
    import pyarrow as pa
    from pyspark.sql.functions import arrow_udf

    def sketch(*columns: Any) -> Any:
        return sketch_of(in_parts(columns))

    def merge(payloads: Any) -> Any:
        return merged_payload(payloads)

    # Spark tells an aggregate by these types, which postponed annotations would hide from it
    sketch.__annotations__ = {"columns": pa.Array, "return": bytes}
    merge.__annotations__ = {"payloads": pa.Array, "return": bytes}
    spark.udf.register("spillway_sketch", arrow_udf(sketch, "binary"))
    spark.udf.register("spillway_merge", arrow_udf(merge, "binary"))
    for name, (function, returns) in sql_functions().items():
        spark.udf.register(name, arrow_udf(_named(name, function), returns))


def _named(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """Spark asks a function for its name and types, which a partial has not."""
    import pyarrow as pa

    def called(*values: Any) -> Any:
        return function(*values)

    called.__name__ = name
    called.__annotations__ = {"values": pa.Array, "return": pa.Array}
    return called

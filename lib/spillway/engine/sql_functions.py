"""Spark SQL functions that build, merge and query sketches, for sessions of PySpark and of Spark Connect."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from spillway.sketches.sql import merge_payloads, sketch_of, split_group, sql_functions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def register_functions(spark: SparkSession) -> None:
    """Register the SQL functions `spillway_*`: `spillway_sketch`, `spillway_merge` and the queries of all sketch kinds.

    `spillway_sketch` and `spillway_merge` are aggregates. Spillway must be installed on the workers as well. All rows
    of a group are in the memory of one worker while they are sketched. If groups are very large, sketch by the group
    and a hash (`GROUP BY site, pmod(hash(key), 64)`), and then merge by group.
    """
    import pyarrow as pa
    from pyspark.sql.functions import arrow_udf

    def sketch(*columns: Any) -> Any:
        return sketch_of(split_group(columns))

    def merge(payloads: Any) -> Any:
        return merge_payloads(payloads)

    # Spark recognises an aggregate by these types. With postponed annotations it would see only strings.
    sketch.__annotations__ = {"columns": pa.Array, "return": bytes}
    merge.__annotations__ = {"payloads": pa.Array, "return": bytes}
    spark.udf.register("spillway_sketch", arrow_udf(sketch, "binary"))
    spark.udf.register("spillway_merge", arrow_udf(merge, "binary"))
    for name, (function, returns) in sql_functions().items():
        spark.udf.register(name, arrow_udf(_named(name, function), returns))


def _named(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """Return `function` with a name and type annotations, which Spark reads and a `partial` does not have."""
    import pyarrow as pa

    def called(*values: Any) -> Any:
        return function(*values)

    called.__name__ = name
    called.__annotations__ = {"values": pa.Array, "return": pa.Array}
    return called

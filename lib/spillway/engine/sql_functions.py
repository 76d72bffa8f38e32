"""The questions to sketches as functions of Spark's SQL."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from spillway.sketches.sql import merge_payloads, sql_functions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def register_functions(spark: SparkSession) -> None:
    """Make `spillway_*` known to SQL: `spillway_merge` over payloads, and every answer of every kind of sketch."""
    import pandas as pd
    from pyspark.sql.functions import pandas_udf, udf

    def merge(payload: Any) -> Any:
        return merge_payloads(payload)

    # Spark tells an aggregate by these types, which postponed annotations would hide from it
    merge.__annotations__ = {"payload": pd.Series, "return": bytes}
    spark.udf.register("spillway_merge", pandas_udf(merge, "binary"))
    for name, (function, returns) in sql_functions().items():
        spark.udf.register(name, udf(_named(name, function), returns))


def _named(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """Spark asks a function for its name, which a partial has not."""

    def called(*values: object) -> Any:
        return function(*values)

    called.__name__ = name
    return called

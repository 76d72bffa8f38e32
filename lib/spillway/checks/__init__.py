"""Running expectation suites: the rules are data in `expectations/`, Great Expectations judges them on Spark.

The order of work keeps it cheap. Each suite names a *view*: SQL that Spark runs once over the tables of the
batches that changed, and that comes down to a few rows (per batch, per attribute), violation columns included.
Great Expectations then validates that small DataFrame, all rules of a table folded into one aggregate, and the
rows at fault are named in sentences. Large tables are read once, their key columns only.
"""

from spillway.checks.digest import StoredRows
from spillway.checks.gx import load_in_background
from spillway.checks.outcomes import ExpectationsFailed, Outcome, failures
from spillway.checks.run import run_suites
from spillway.checks.suites import Expectation, Suite, load_suites

__all__ = [
    "Expectation",
    "ExpectationsFailed",
    "Outcome",
    "StoredRows",
    "Suite",
    "failures",
    "load_in_background",
    "load_suites",
    "run_suites",
]

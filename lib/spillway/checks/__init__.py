"""Running expectation suites: rules are data in `expectations/` and the levers' own, Great Expectations judges.

The order of work keeps it cheap. Each suite names a *view*: SQL that DuckDB runs in this process over the tables of the
batches that changed, and that comes down to a few rows (per batch, per attribute), violation columns included.
Great Expectations then validates those rows, and the ones at fault are named in sentences. Large tables are read once,
by the engine, their key columns only. There is one way for every engine.
"""

from spillway.checks.digest import ExaminedRows, StoredRows
from spillway.checks.gx import load_in_background
from spillway.checks.outcomes import ExpectationsFailed, Outcome, failures
from spillway.checks.run import run_suites
from spillway.checks.suites import Expectation, Suite, load_suites

__all__ = [
    "ExaminedRows",
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

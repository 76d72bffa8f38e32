"""Run expectation suites: rules as data in `expectations/` and in the levers' folders, checked by Great Expectations.

Each suite names a *view*: SQL over the tables of the batches that changed. DuckDB runs it in this process. Its
result is a few rows (per batch, per attribute), including columns that count violations. Great Expectations
validates these rows, and each row that fails is reported in a sentence. This keeps validation cheap. The engine
reads each large table once, and only its key columns. All engines use the same path.
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

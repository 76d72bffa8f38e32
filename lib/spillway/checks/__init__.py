"""Run expectation suites: rules as data in `expectations/` and in the levers' folders, checked by Great Expectations.

A suite has a *view*: SQL over the tables of the batches that changed. DuckDB runs it in this process. Its rows (per
batch, per attribute) are the batch that Great Expectations validates with expectations for a column, a pair of columns
or several columns. A rule over several tables has a view of its own that selects the rows that break it, and our own
expectation: the view has no row. Data Docs show keys and values of the rows that break a rule, and each failure is
reported in a sentence.

This keeps validation cheap. The engine reads each large table once, and only its key columns. All engines use the
same path.
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

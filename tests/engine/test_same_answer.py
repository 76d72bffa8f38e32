"""Both engines answer alike: every function, form and statement of the list that the process engine answers."""

from __future__ import annotations

from typing import Any

import pytest

from evidence.queries import FORM_CASES, MOST_ERRORS, compare_engines, uncovered_types
from spillway.engine.dialect import AGREED, STATEMENTS
from spillway.engine.duckdb_sql import FORMS


def test_every_type_and_form_has_values_to_compare() -> None:
    assert list(uncovered_types()) == []
    assert {form.__name__ for form in FORMS} == set(FORM_CASES)


@pytest.mark.long
@pytest.mark.parametrize(
    ("every", "most_errors"), [(30, 1), pytest.param(1, MOST_ERRORS, marks=pytest.mark.long)]
)
def test_engines_give_the_same_values_types_and_errors(spark: Any, every: int, most_errors: int) -> None:
    """Every thirtieth function by default; all functions, and more of their errors, in `make test-long`."""
    lines = AGREED[::every]
    found = compare_engines(spark, lines, most_errors)
    assert found.differences == []
    assert len(found.compared) == len(lines) + len(FORMS) + len(STATEMENTS)
    assert found.cells > 20_000

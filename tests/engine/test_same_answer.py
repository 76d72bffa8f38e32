"""Both engines answer alike: every function, form and statement of the list that the process engine answers."""

from __future__ import annotations

from typing import Any

from evidence.queries import FORM_CASES, compare_engines, uncovered_types
from spillway.engine.dialect import AGREED, STATEMENTS
from spillway.engine.duckdb_sql import FORMS


def test_every_type_and_form_has_values_to_compare() -> None:
    assert list(uncovered_types()) == []
    assert {form.__name__ for form in FORMS} == set(FORM_CASES)


def test_engines_give_the_same_values_types_and_errors(spark: Any) -> None:
    found = compare_engines(spark)
    assert found.differences == []
    assert len(found.compared) == len(AGREED) + len(FORMS) + len(STATEMENTS)
    assert found.cells > 50_000

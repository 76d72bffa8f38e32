"""Load expectation suites from YAML and check them: the product's `expectations/`, and each lever's folder.

A suite states its table, the view that is validated, the columns that identify a row (`keys`), and the expectations.
A view is SQL in DuckDB's dialect over tables written as `{table}`. An expectation has a type and kwargs of Great
Expectations, its meaning, and the sentence that reports a violation (`{column}` stands for the row's value). The file
is named after the table. A further suite of the same table, for example of a lever that adds columns, is named after
the table and `_something`.

A rule about one row of the view is an expectation of Great Expectations for a column, a pair of columns or several
columns. A rule over several rows or tables is of type `expect_no_row_of_view`: it has a view of its own that selects
the rows that break the rule. `worst_by` names the column of that view by which the worst row is found.

A view that several rules read is a file `views/NAME.sql` in the folder of the suites. Rules write it as `{NAME}`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from string import Formatter
from typing import Any

import yaml

from spillway.errors import ContractError, Problem

SEVERITIES = ("critical", "info")
"""critical: a violation fails the task. info: a violation is only reported, with its reason."""

NO_ROW_OF_VIEW = "expect_no_row_of_view"
"""The type of our own expectation, see `spillway.checks.no_row_of_view`."""

_PARAMETER = "$PARAMETER"
_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""The safe loader in C if available; it takes a tenth of the time."""


@dataclass(frozen=True)
class Expectation:
    """One rule: its name, the type and kwargs of Great Expectations, its meaning, and the sentence for a violation."""

    name: str
    type: str
    kwargs: Mapping[str, Any]
    meaning: str
    sentence: str
    severity: str = "critical"
    view: str = ""
    """For `expect_no_row_of_view`: SQL that selects the rows that break the rule."""
    worst_by: str = ""
    """The column of `view` that is largest for the worst row."""

    @property
    def columns(self) -> tuple[str, ...]:
        """Return the columns of the suite's view that are checked.

        >>> pair = {"column_A": "x", "column_B": "y"}
        >>> Expectation("a", "expect_column_pair_values_to_be_equal", pair, "", "").columns
        ('x', 'y')
        """
        kwargs = self.kwargs
        single = [kwargs[name] for name in ("column", "column_A", "column_B") if name in kwargs]
        return tuple(single or kwargs.get("column_list", ()))

    @property
    def expected(self) -> str:
        """Return the required values in a few words.

        >>> Expectation("a", "expect_column_values_to_be_between", {"column": "x", "max_value": 1}, "", "").expected
        'x at most 1'
        >>> pair = {"column_A": "x", "column_B": "y", "or_equal": True}
        >>> Expectation("a", "expect_column_pair_values_a_to_be_greater_than_b", pair, "", "").expected
        'x >= y'
        """
        named = ", ".join(self.columns)
        match self.type:
            case "expect_no_row_of_view":
                return "no row"
            case "expect_column_pair_values_to_be_equal":
                return " = ".join(self.columns)
            case "expect_column_pair_values_a_to_be_greater_than_b":
                return (" >= " if self.kwargs.get("or_equal") else " > ").join(self.columns)
            case "expect_compound_columns_to_be_unique":
                return f"{named} unique"
            case "expect_column_values_to_not_be_null":
                return f"{named} not null"
            case "expect_column_values_to_be_json_parseable":
                return f"{named} is JSON"
        column = named or self.type.removeprefix("expect_")
        low, high = self.kwargs.get("min_value"), self.kwargs.get("max_value")
        if "value_set" in self.kwargs:
            return f"{column} one of {', '.join(map(str, self.kwargs['value_set']))}"
        if low is not None and low == high:
            return f"{column} = {low}"
        terms = [f"at least {low}"] * (low is not None) + [f"at most {high}"] * (high is not None)
        return f"{column} {' and '.join(terms)}".rstrip()


@dataclass(frozen=True)
class Suite:
    """The expectations of one table, and the view on which they are checked; `name` is the name of the suite's file."""

    name: str
    table: str
    meaning: str
    view: str
    expectations: tuple[Expectation, ...]
    keys: tuple[str, ...] = ()
    """The columns of the view that identify a row."""


def load_views(folders: Iterable[str | Path]) -> dict[str, str]:
    """Return the SQL of the views that several rules read, by name."""
    files = (file for folder in folders for file in sorted(Path(folder, "views").glob("*.sql")))
    return {file.stem: file.read_text(encoding="utf-8") for file in files}


def load_suites(
    folders: Iterable[str | Path], parameters: Mapping[str, float] | None = None
) -> dict[str, Suite]:
    """Load all suites of these folders, by name; `parameters` override their defaults.

    Report all problems together.
    """
    problems: list[Problem] = []
    suites: dict[str, Suite] = {}
    given = dict(parameters or {})
    known: set[str] = set()
    rules: dict[str, set[str]] = {}
    searched = [Path(folder) for folder in folders]
    for path in (path for folder in searched for path in sorted(folder.glob("*.yaml"))):
        document = yaml.load(path.read_text(encoding="utf-8"), _Loader)
        found = list(_problems(path, document, given, rules))
        if path.stem in suites:
            found.append(Problem(path.name, "suite", "have a file name of its own", path.stem, "rename one"))
        problems += found
        if not found:
            suites[path.stem] = _suite(path.stem, document, given)
            known |= set(document.get("parameters") or {})
    where = ", ".join(map(str, searched))
    problems += [
        Problem(where, name, f"be one of {', '.join(sorted(known))}", given[name], "correct its name")
        for name in sorted(set(given) - known)
        if not problems
    ]
    if not suites and not problems:
        problems.append(Problem(where, "expectations", "hold a suite per table", [], "restore expectations/"))
    if problems:
        raise ContractError(problems)
    return dict(sorted(suites.items()))


def _suite(name: str, document: Mapping[str, Any], given: Mapping[str, float]) -> Suite:
    parameters = {**(document.get("parameters") or {}), **given}
    return Suite(
        name=name,
        table=document["table"],
        meaning=document["meaning"],
        view=document["view"],
        keys=tuple(document.get("keys", ())),
        expectations=tuple(
            Expectation(
                **{"kwargs": {}, **rule}
                | {"kwargs": {k: _resolve(v, parameters) for k, v in rule.get("kwargs", {}).items()}}
            )
            for rule in document["expectations"]
        ),
    )


def _resolve(value: Any, parameters: Mapping[str, float]) -> Any:
    return parameters[value[_PARAMETER]] if isinstance(value, Mapping) and _PARAMETER in value else value


def _problems(
    path: Path, document: Any, given: Mapping[str, float], rules: dict[str, set[str]]
) -> Iterator[Problem]:
    """Yield the problems of a suite.

    `rules` collects rule names by table, because table and name identify an outcome.
    """
    where = path.name
    if not isinstance(document, Mapping):
        yield Problem(where, "suite", "be a mapping", document, "compare with its neighbours")
        return
    fields = {"table", "meaning", "view", "keys", "parameters", "expectations"}
    for name in sorted(set(document) - fields):
        yield Problem(where, name, f"be one of {', '.join(sorted(fields))}", document[name], "remove it")
    for name in sorted(fields - {"parameters", "keys"} - set(document)):
        yield Problem(where, name, "be given", None, "compare with its neighbours")
    table = str(document.get("table"))
    if path.stem != table and not path.stem.startswith(f"{table}_"):
        remedy = "name the file after its table, a further suite of it as table_something"
        yield Problem(where, "table", "be what the file's name begins with", document.get("table"), remedy)
    parameters = {**(document.get("parameters") or {}), **given}
    names = rules.setdefault(table, set())
    for position, rule in enumerate(document.get("expectations") or []):
        yield from _rule_problems(f"{where}, expectation {position + 1}", rule, parameters, names)


def _rule_problems(
    where: str, rule: Any, parameters: Mapping[str, float], names: set[str]
) -> Iterator[Problem]:
    fields = {"name", "type", "kwargs", "meaning", "sentence", "severity", "view", "worst_by"}
    if not isinstance(rule, Mapping):
        yield Problem(where, "expectation", "be a mapping", rule, "compare with its neighbours")
        return
    for name in sorted(set(rule) - fields):
        yield Problem(where, name, f"be one of {', '.join(sorted(fields))}", rule[name], "remove it")
    own_view = rule.get("type") == NO_ROW_OF_VIEW
    needed = {"name", "type", "view" if own_view else "kwargs", "meaning", "sentence"}
    missing = sorted(needed - set(rule))
    for name in missing:
        yield Problem(where, name, "be given", None, "compare with its neighbours")
    if missing:
        return
    if rule["name"] in names:
        yield Problem(where, "name", "be unique among its table's", rule["name"], "rename one")
    names.add(rule["name"])
    for name in sorted({"kwargs"} if own_view else {"view", "worst_by"}):
        if name in rule:
            yield Problem(where, name, f"not be given for {rule['type']}", rule[name], "remove it")
    if own_view:
        kwargs: Mapping[str, Any] = {}
    elif isinstance(rule["kwargs"], Mapping):
        kwargs = rule["kwargs"]
    else:
        yield Problem(where, "kwargs", "be a mapping", rule["kwargs"], "write {column: ..., max_value: ...}")
        return
    if rule.get("severity", "critical") not in SEVERITIES:
        yield Problem(where, "severity", f"be one of {', '.join(SEVERITIES)}", rule["severity"], "correct it")
    for value in kwargs.values():
        if isinstance(value, Mapping) and value.get(_PARAMETER) not in parameters:
            yield Problem(
                where, _PARAMETER, "be stated in the suite's parameters", value, "add its default there"
            )
    try:
        list(Formatter().parse(rule["sentence"]))
    except ValueError as problem:
        yield Problem(where, "sentence", "be a format string", rule["sentence"], str(problem))

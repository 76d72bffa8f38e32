"""Load expectation suites from YAML and check them: the product's `expectations/`, and each lever's folder.

A suite states its table, the view that is validated, and the expectations. The view is SQL in DuckDB's dialect
over tables written as `{table}`. An expectation has a type and kwargs of Great Expectations, its meaning, and
the sentence that reports a violation (`{column}` stands for the row's value). The file is named after the
table. A further suite of the same table, for example of a lever that adds columns, is named after the table and
`_something`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from string import Formatter
from typing import Any

import yaml

from spillway.errors import ContractError, Problem

SEVERITIES = ("critical", "info")
"""critical: a violation fails the task. info: a violation is only reported, with its reason."""

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

    @property
    def expected(self) -> str:
        """Return the required values in a few words.

        >>> Expectation("a", "expect_column_max_to_be_between", {"column": "x", "max_value": 1}, "", "").expected
        'x at most 1'
        """
        column = self.kwargs.get("column", self.type.removeprefix("expect_"))
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

    def tables(self) -> tuple[str, ...]:
        """Return the tables that the view reads.

        >>> Suite("a", "a", "", "SELECT 1 FROM {batches} JOIN {ledger} USING (batch)", ()).tables()
        ('batches', 'ledger')
        """
        return tuple(sorted(set(re.findall(r"\{(\w+)\}", self.view))))


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
        expectations=tuple(
            Expectation(**{**rule, "kwargs": {k: _resolve(v, parameters) for k, v in rule["kwargs"].items()}})
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
    fields = {"table", "meaning", "view", "parameters", "expectations"}
    for name in sorted(set(document) - fields):
        yield Problem(where, name, f"be one of {', '.join(sorted(fields))}", document[name], "remove it")
    for name in sorted(fields - {"parameters"} - set(document)):
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
    fields = {"name", "type", "kwargs", "meaning", "sentence", "severity"}
    if not isinstance(rule, Mapping):
        yield Problem(where, "expectation", "be a mapping", rule, "compare with its neighbours")
        return
    for name in sorted(set(rule) - fields):
        yield Problem(where, name, f"be one of {', '.join(sorted(fields))}", rule[name], "remove it")
    missing = sorted(fields - {"severity"} - set(rule))
    for name in missing:
        yield Problem(where, name, "be given", None, "compare with its neighbours")
    if missing:
        return
    if rule["name"] in names:
        yield Problem(where, "name", "be unique among its table's", rule["name"], "rename one")
    names.add(rule["name"])
    if not isinstance(rule["kwargs"], Mapping):
        yield Problem(where, "kwargs", "be a mapping", rule["kwargs"], "write {column: ..., max_value: ...}")
        return
    if rule.get("severity", "critical") not in SEVERITIES:
        yield Problem(where, "severity", f"be one of {', '.join(SEVERITIES)}", rule["severity"], "correct it")
    for value in rule["kwargs"].values():
        if isinstance(value, Mapping) and value.get(_PARAMETER) not in parameters:
            yield Problem(
                where, _PARAMETER, "be stated in the suite's parameters", value, "add its default there"
            )
    try:
        list(Formatter().parse(rule["sentence"]))
    except ValueError as problem:
        yield Problem(where, "sentence", "be a format string", rule["sentence"], str(problem))

"""Expectation suites as data: `expectations/<table>.yaml`, read and checked once.

A suite says which table it is for, the view that is validated (SQL over the tables, each written `{table}`),
which columns name a row, and the expectations: a type and kwargs as Great Expectations writes them, what the
rule means, and the sentence a violation is reported with (`{column}` stands for the value at fault).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from string import Formatter
from typing import Any

import yaml

from spillway.errors import ContractError, Problem

SEVERITIES = ("critical", "info")
"""critical: a violation fails the task. info: what falls short with its reason on record is reported only."""

_PARAMETER = "$PARAMETER"


@dataclass(frozen=True)
class Expectation:
    """One rule: its name, the Great Expectations type and kwargs, what it means, and how a breach is told."""

    name: str
    type: str
    kwargs: Mapping[str, Any]
    meaning: str
    sentence: str
    severity: str = "critical"

    @property
    def expected(self) -> str:
        """What is asked, in a few words.

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
    """The expectations of one table, and the view they are judged on."""

    table: str
    meaning: str
    view: str
    expectations: tuple[Expectation, ...]

    def tables(self) -> tuple[str, ...]:
        """The tables the view reads.

        >>> Suite("a", "", "SELECT 1 FROM {batches} JOIN {ledger} USING (batch)", ()).tables()
        ('batches', 'ledger')
        """
        return tuple(sorted(set(re.findall(r"\{(\w+)\}", self.view))))


def load_suites(folder: str | Path, parameters: Mapping[str, float] | None = None) -> dict[str, Suite]:
    """All suites by table; `parameters` overrule the defaults a suite states. All problems are listed at once."""
    problems: list[Problem] = []
    suites = {}
    given = dict(parameters or {})
    known: set[str] = set()
    for path in sorted(Path(folder).glob("*.yaml")):
        document = yaml.safe_load(path.read_text(encoding="utf-8"))
        found = list(_problems(path, document, given))
        problems += found
        if not found:
            suites[document["table"]] = _suite(document, given)
            known |= set(document.get("parameters") or {})
    problems += [
        Problem(str(folder), name, f"be one of {', '.join(sorted(known))}", given[name], "correct its name")
        for name in sorted(set(given) - known)
        if not problems
    ]
    if not suites and not problems:
        problems.append(
            Problem(str(folder), "expectations", "hold a suite per table", [], "restore expectations/")
        )
    if problems:
        raise ContractError(problems)
    return suites


def _suite(document: Mapping[str, Any], given: Mapping[str, float]) -> Suite:
    parameters = {**(document.get("parameters") or {}), **given}
    return Suite(
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


def _problems(path: Path, document: Any, given: Mapping[str, float]) -> Iterator[Problem]:
    where = path.name
    if not isinstance(document, Mapping):
        yield Problem(where, "suite", "be a mapping", document, "compare with its neighbours")
        return
    fields = {"table", "meaning", "view", "parameters", "expectations"}
    for name in sorted(set(document) - fields):
        yield Problem(where, name, f"be one of {', '.join(sorted(fields))}", document[name], "remove it")
    for name in sorted(fields - {"parameters"} - set(document)):
        yield Problem(where, name, "be given", None, "compare with its neighbours")
    if document.get("table") != path.stem:
        yield Problem(
            where, "table", "be the file's name", document.get("table"), f"write table: {path.stem}"
        )
    parameters = {**(document.get("parameters") or {}), **given}
    names: set[str] = set()
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
        yield Problem(where, "name", "be unique in its suite", rule["name"], "rename one")
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

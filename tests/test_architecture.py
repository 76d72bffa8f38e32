"""The rules for imports are complete (`make check` applies them); rules for DAGs and jobs by their syntax trees."""

from __future__ import annotations

import ast
from configparser import ConfigParser
from pathlib import Path

import pytest

from spillway import registry

HOME = Path(__file__).resolve().parent.parent
DAG_FILES = sorted((HOME / "dags").glob("*.py"))
JOB_FILES = sorted((HOME / "jobs").glob("*.py"))


def imported(tree: ast.AST) -> set[str]:
    """Every module a file imports, wherever in it."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def starts_with(modules: set[str], *packages: str) -> set[str]:
    return {m for m in modules if any(m == p or m.startswith(f"{p}.") for p in packages)}


def test_no_rule_has_an_exception() -> None:
    rules = (HOME / ".importlinter").read_text(encoding="utf-8")
    assert "ignore_imports =" not in rules
    assert "exclude_type_checking_imports" not in rules
    assert rules.count("[importlinter:contract:") == rules.count("unmatched_ignore_imports_alerting = error")


def test_every_package_stands_in_every_rule_about_the_world() -> None:
    """What a new package may import is decided when it is made, not forgotten."""
    rules = ConfigParser()
    rules.read(HOME / ".importlinter", encoding="utf-8")
    children = {path for path in (HOME / "lib" / "spillway").iterdir() if path.suffix in ("", ".py")}
    code = {path.stem for path in children if path.is_file() or any(path.glob("*.py"))}
    packages = {f"spillway.{name}" for name in code - {"__init__", "__pycache__"}}
    for rule, free in (
        ("two-doors", {"spillway.store", "spillway.engine"}),
        ("judges", {"spillway.checks"}),
        ("duckdb", {"spillway.checks", "spillway.engine"}),
        ("airflow", {"demo", "spillway.airflow"}),
    ):
        named = set(rules[f"importlinter:contract:{rule}"]["source_modules"].split())
        assert named - {"demo", "evidence"} == packages - free, rule


def test_every_lever_is_protected() -> None:
    rules = ConfigParser()
    rules.read(HOME / ".importlinter", encoding="utf-8")
    protected = set(rules["importlinter:contract:levers"]["protected_modules"].split())
    assert protected == set(registry.LEVERS.values())


@pytest.mark.parametrize("file", DAG_FILES, ids=lambda file: file.stem)
def test_a_dag_imports_no_engine_but_its_scheduler(file: Path) -> None:
    modules = imported(ast.parse(file.read_text(encoding="utf-8")))
    ours = starts_with(modules, "spillway")
    assert not starts_with(
        modules, "pyspark", "delta", "deltalake", "great_expectations", "numpy", "pandas", "pyarrow"
    )
    assert ours == starts_with(
        ours, "spillway.airflow", "spillway.scheduling", "spillway.settings", "spillway.errors"
    )


@pytest.mark.parametrize("file", DAG_FILES, ids=lambda file: file.stem)
def test_a_dag_file_does_nothing_at_its_top_but_declare_one_dag(file: Path) -> None:
    tree = ast.parse(file.read_text(encoding="utf-8"))
    rest = [node for node in tree.body if not isinstance(node, ast.Import | ast.ImportFrom)]
    docstring, *others = rest
    assert isinstance(docstring, ast.Expr)
    assert [type(node) for node in others] == [ast.With]


@pytest.mark.parametrize("file", DAG_FILES, ids=lambda file: file.stem)
def test_a_dag_does_no_arithmetic(file: Path) -> None:
    tree = ast.parse(file.read_text(encoding="utf-8"))
    arithmetic = (ast.Mult, ast.Div, ast.FloorDiv, ast.Mod, ast.Pow, ast.Sub)
    assert not [n for n in ast.walk(tree) if isinstance(n, ast.BinOp) and isinstance(n.op, arithmetic)]


@pytest.mark.parametrize("file", JOB_FILES, ids=lambda file: file.stem)
def test_a_job_runs_without_a_scheduler(file: Path) -> None:
    assert not starts_with(imported(ast.parse(file.read_text(encoding="utf-8"))), "airflow")

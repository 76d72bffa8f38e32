"""The layers hold: import-linter for the package, the syntax tree for DAGs and jobs."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

HOME = Path(__file__).resolve().parent.parent
LINT = Path(sys.executable).parent / "lint-imports"
DAG_FILES = sorted((HOME / "dags").glob("*.py"))
JOB_FILES = sorted((HOME / "jobs").glob("*.py"))


def lint(folder: Path) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": str(folder / "lib"), "COLUMNS": "200"}
    command = [str(LINT), "--no-cache", "--no-logo", "--config", str(folder / ".importlinter")]
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, stdin=subprocess.DEVNULL
    )


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


def copy_of_the_package(folder: Path) -> Path:
    shutil.copy(HOME / ".importlinter", folder)
    shutil.copytree(HOME / "lib", folder / "lib", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    return folder / "lib" / "spillway"


def test_every_layer_knows_only_what_is_below_it() -> None:
    done = lint(HOME)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("module", "statement", "contract"),
    [
        ("attributes/ranking.py", "import pyspark", "Kernels import no engine"),
        ("attributes/ranking.py", "import time", "Kernels import no engine"),
        ("sketches/hashing.py", "import spillway.store.files", "Kernels import no engine"),
        ("contracts/model.py", "import spillway.store.batches", "Each layer knows only what is below it"),
        ("scheduling.py", "import pyspark", "starts no Spark"),
        ("lake/tables.py", "import airflow", "Only the demo's driver imports Airflow"),
    ],
)
def test_an_import_against_the_layers_is_caught(
    tmp_path: Path, module: str, statement: str, contract: str
) -> None:
    package = copy_of_the_package(tmp_path)
    with (package / module).open("a", encoding="utf-8") as file:
        file.write(f"\n{statement}\n")
    done = lint(tmp_path)
    broken = [line for line in done.stdout.splitlines() if contract in line and "BROKEN" in line]
    assert done.returncode != 0
    assert broken, done.stdout


@pytest.mark.parametrize("file", DAG_FILES, ids=lambda file: file.stem)
def test_a_dag_imports_no_engine_but_its_scheduler(file: Path) -> None:
    modules = imported(ast.parse(file.read_text(encoding="utf-8")))
    ours = starts_with(modules, "spillway")
    assert not starts_with(
        modules, "pyspark", "delta", "deltalake", "great_expectations", "numpy", "pandas", "pyarrow"
    )
    assert ours == starts_with(ours, "spillway.scheduling", "spillway.settings", "spillway.errors")


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

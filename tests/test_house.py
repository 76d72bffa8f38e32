"""Test the structure of the code: engine imports stay behind their doors, and packages import without circles."""

from __future__ import annotations

import ast
import json
import multiprocessing
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path

import pytest
from tests.house import note

LIB = Path(__file__).resolve().parents[1] / "lib"
ENGINES = ("pyspark", "delta", "deltalake", "pyarrow.fs")
DOORS = ("spillway.store", "spillway.engine")

Trees = Mapping[str, ast.Module]


@cache
def trees(root: Path = LIB) -> Trees:
    """Every module below a folder, parsed."""
    found = {}
    for path in sorted(root.rglob("*.py")):
        parts = path.relative_to(root).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        found[name] = ast.parse(path.read_text(encoding="utf-8"))
    return found


def within(name: str, packages: Iterable[str]) -> bool:
    return any(name == package or name.startswith(f"{package}.") for package in packages)


def imports(tree: ast.AST) -> Iterator[str]:
    """Whatever is imported, wherever in the module: for `from a import b` both `a` and `a.b`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def importers(of: Trees, packages: Iterable[str]) -> set[str]:
    return {name for name, tree in of.items() if any(within(one, packages) for one in imports(tree))}


def circles(edges: Mapping[str, set[str]]) -> list[set[str]]:
    """Groups of which everybody leads to everybody."""
    reach = {name: set(found) for name, found in edges.items()}
    changed = True
    while changed:
        changed = False
        for found in reach.values():
            more = set().union(*(reach.get(name, set()) for name in found)) - found
            found |= more
            changed = changed or bool(more)
    around = {name for name, found in reach.items() if name in found}
    groups = {
        frozenset(other for other in around if name in reach[other] and other in reach[name])
        for name in around
    }
    return [set(group) for group in groups]


def package_edges(of: Trees, parent: str) -> dict[str, set[str]]:
    """Among the packages and modules right below `parent`, who imports whom."""
    depth = parent.count(".") + 2
    edges: dict[str, set[str]] = defaultdict(set)
    for name, tree in of.items():
        if not name.startswith(f"{parent}."):
            continue
        own = ".".join(name.split(".")[:depth])
        for one in imports(tree):
            other = ".".join(one.split(".")[:depth])
            if one.startswith(f"{parent}.") and other != own and other in of:
                edges[own].add(other)
    return edges


def parsed(**modules: str) -> Trees:
    return {name.replace("__", "."): ast.parse(text) for name, text in modules.items()}


def test_nobody_but_store_and_engine_imports_an_engine() -> None:
    found = importers(trees(), ENGINES)
    outside = {name for name in found if not within(name, DOORS)}
    note("house.engine_importers", len(outside))
    note("house.engine_importers_inside", len(found - outside))
    assert not outside


@pytest.mark.parametrize(
    "statement",
    [
        "import pyspark",
        "from pyarrow import fs",
        "import pyarrow.fs as f",
        "def f():\n    from deltalake import DeltaTable",
    ],
)
def test_an_import_of_an_engine_is_seen_wherever_it_stands(statement: str) -> None:
    assert importers(
        parsed(a=statement, b="import pyarrow, deltalakes\nimport pyarrow.parquet"), ENGINES
    ) == {"a"}


def test_no_package_goes_round_in_a_circle() -> None:
    found = [
        circle for parent in ("spillway", "evidence") for circle in circles(package_edges(trees(), parent))
    ]
    note("house.package_cycles", len(found))
    assert not found


def test_a_circle_is_seen_even_through_a_third_and_inside_a_function() -> None:
    of = parsed(
        p__a="from p.b import x",
        p__b__x="def f():\n    import p.c",
        p__c="from p import a",
        p__d="import p.a",
        p__b="",
    )
    assert circles(package_edges(of, "p")) == [{"p.a", "p.b", "p.c"}]
    assert circles({"a": {"b"}, "b": {"a"}, "c": {"d", "a"}, "d": {"c"}}) in (
        [{"a", "b"}, {"c", "d"}],
        [{"c", "d"}, {"a", "b"}],
    )
    assert circles({"a": {"b", "c"}, "b": {"c"}}) == []


def _note(path: Path, number: int) -> None:
    note(f"house.figure_{number}", number, path)


def test_figures_are_noted_beside_one_another(tmp_path: Path) -> None:
    path = tmp_path / "build" / "house.json"
    note("house.figure_1", 7, path)
    spawn = multiprocessing.get_context("spawn")
    processes = [spawn.Process(target=_note, args=(path, number)) for number in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert json.loads(path.read_text(encoding="utf-8")) == {f"house.figure_{n}": n for n in range(3)}

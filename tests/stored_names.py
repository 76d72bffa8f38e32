"""The names that are interfaces, and their snapshot in `tests/golden/stored_names.json`. Not a test.

A contract, a lake, a dashboard or a script outside of this repository uses each of them, so a rename breaks somebody.
`python -m tests.stored_names` writes the snapshot again. Do so only in a commit that says which names changed and
that adds the step of `spillway migrate` for those that are stored.

Values that tables store (stages, units, reasons) are in `tests/golden/frozen_lake.json`, see `tests.frozen`.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import io
import json
import os
import re
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from unittest import mock

import yaml

ROOT = Path(__file__).resolve().parents[1]
SNAPSHOT = ROOT / "tests" / "golden" / "stored_names.json"
DESCRIBING = ("description", "markdownDescription", "title", "examples", "$comment", "$schema", "$id")
"""Keys of a JSON Schema that explain; their text may change at any time."""
ADVICE = "A stored name changed. If lakes or contracts hold it, add a step to `spillway migrate` and to CHANGELOG.md. "
ADVICE += "If the change is intended, run: python -m tests.stored_names"

Names = dict[str, dict[str, Any]]
"""By section, each name and what belongs to it (type, default, options)."""


def stored_names() -> Names:
    """Return all names that are interfaces, by section."""
    found: Names = {}
    for path in sorted((ROOT / "schemas").glob("*.schema.json")):
        schema = json.loads(path.read_text(encoding="utf-8"))
        found[f"fields of {path.name.removesuffix('.schema.json')}"] = dict(contract_fields(schema))
    found["tables"] = dict(tables())
    found["status values"] = dict.fromkeys(status_values(), "")
    found["commands"] = dict(commands())
    found["exit codes"] = exit_codes()
    found["options of jobs"] = {path.stem: _options_in(path) for path in sorted((ROOT / "jobs").glob("*.py"))}
    found["DAGs"] = {path.stem: "" for path in sorted((ROOT / "dags").glob("*.py"))}
    found["expectation suites"] = dict.fromkeys(_suites(), "")
    found["metrics"] = dict(metrics())
    found["environment variables"] = dict.fromkeys(environment_variables(), "")
    return found


def contract_fields(schema: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield each field of a JSON Schema by its path, with the values it accepts and its default.

    >>> schema = {"properties": {"mode": {"enum": ["observe", "shed"], "default": "shed", "title": "Mode"}}}
    >>> list(contract_fields(schema))
    [('mode', '{"default": "shed", "enum": ["observe", "shed"]}')]
    """
    found: dict[str, list[str]] = {}
    for path, accepted in _fields(schema, ""):
        texts = found.setdefault(path, [])
        if accepted not in texts:
            texts.append(accepted)
    for path, texts in sorted(found.items()):
        yield path, " or ".join(texts)


def _fields(node: Any, path: str) -> Iterator[tuple[str, str]]:
    if isinstance(node, list):
        for one in node:
            yield from _fields(one, path)
    if not isinstance(node, dict):
        return
    lever = node.get("properties", {}).get("lever", {})
    if isinstance(lever, dict) and lever.get("const"):
        path = f"{path}<{lever['const']}>"
    for name, one in node.get("properties", {}).items():
        below = f"{path}.{name}".lstrip(".")
        if isinstance(one, dict):
            yield below, json.dumps(_accepted(one), sort_keys=True, ensure_ascii=False)
            yield from _fields(one, below)
    for key, one in node.items():
        if key not in ("properties", "default", "enum"):
            yield from _fields(one, f"{path}.*" if key == "additionalProperties" else path)


def _accepted(node: Any) -> Any:
    """Return a field's schema without explanations and without the fields below it."""
    if isinstance(node, list):
        return [_accepted(one) for one in node]
    if not isinstance(node, dict):
        return node
    return {
        key: one if key in ("default", "enum", "const") else _accepted(one)
        for key, one in node.items()
        if key not in (*DESCRIBING, "properties")
    }


def tables() -> Iterator[tuple[str, Any]]:
    """Yield each table of the product and of the levers with its root, its scope, its partitions and its columns."""
    files = [*(ROOT / "schemas" / "tables").glob("*.yaml"), *(ROOT / "lib").rglob("levers/*/tables/*.yaml")]
    for path in sorted(files, key=lambda one: one.name):
        said = yaml.safe_load(path.read_text(encoding="utf-8"))
        about = {key: said.get(key) for key in ("version", "scope", "root", "partitioned_by")}
        columns = {
            one["name"]: one["type"] + ("" if one["nullable"] else ", not null") for one in said["columns"]
        }
        yield said["table"], {**about, "columns": columns}


def status_values() -> list[str]:
    """Return the status values of batches and of landing files."""
    from spillway import batch

    constants = [value for name, value in vars(batch).items() if name.isupper()]
    return sorted(value for value in constants if isinstance(value, str))


def commands() -> Iterator[tuple[str, list[str]]]:
    """Yield each command of `spillway` with its arguments and options."""
    from spillway.cli import parser

    yield from _commands(parser(), "spillway")


def _commands(made: argparse.ArgumentParser, name: str) -> Iterator[tuple[str, list[str]]]:
    options = []
    for action in made._actions:
        if isinstance(action, argparse._SubParsersAction):
            for verb, one in action.choices.items():
                yield from _commands(one, f"{name} {verb}")
        elif action.dest != "help":
            choices = f" {{{','.join(map(str, action.choices))}}}" if action.choices else ""
            needed = " required" if action.required and action.option_strings else ""
            options.append(f"{', '.join(action.option_strings) or action.dest.upper()}{choices}{needed}")
    yield name, sorted(options)


def exit_codes() -> dict[str, int]:
    """Return the exit code of a command that succeeds, of one that finds an error, and of one with wrong arguments."""
    with tempfile.TemporaryDirectory() as empty:
        return {
            "success": _run_command("contracts", "schema")[0],
            "something is wrong": _run_command("contracts", "check", "--schemas", empty)[0],
            "wrong arguments": _run_command("status", "--no-such-option")[0],
        }


def metrics() -> Iterator[tuple[str, str]]:
    """Yield the name and the type of each Prometheus metric."""
    with tempfile.TemporaryDirectory() as folder:
        roots = {
            name: f"{folder}/{name.lower()}"
            for name in ("SPILLWAY_LAKE", "SPILLWAY_LANDING", "SPILLWAY_BUILD")
        }
        file = Path(folder, "spillway.prom")
        with mock.patch.dict(os.environ, {"SPILLWAY_HOME": str(ROOT), **roots}):
            code, text = _run_command("status", "--metrics", str(file))
        assert code == 0, text
        yield from re.findall(r"(?m)^# TYPE (\S+) (\S+)$", file.read_text(encoding="utf-8"))


def environment_variables() -> list[str]:
    """Return the environment variables that the product's sources name."""
    files = [
        path
        for folder in ("lib/spillway", "jobs", "dags", "plugins")
        for path in (ROOT / folder).rglob("*.py")
    ]
    found = {
        name for path in files for name in re.findall(r"\bSPILLWAY_[A-Z][A-Z_]*", path.read_text("utf-8"))
    }
    return sorted(found)


def _suites() -> list[str]:
    files = [*(ROOT / "expectations").rglob("*.yaml"), *(ROOT / "lib").rglob("levers/*/expectations/*.yaml")]
    return sorted({path.stem for path in files})


def _options_in(path: Path) -> list[str]:
    calls = [one for one in ast.walk(ast.parse(path.read_text("utf-8"))) if isinstance(one, ast.Call)]
    added = [one for one in calls if isinstance(one.func, ast.Attribute) and one.func.attr == "add_argument"]
    return sorted(
        str(one.args[0].value) for one in added if one.args and isinstance(one.args[0], ast.Constant)
    )


def _run_command(*arguments: str) -> tuple[int, str]:
    from spillway.cli import main

    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        try:
            code = main(arguments)
        except SystemExit as stopped:
            code = int(stopped.code or 0)
    return code, said.getvalue()


def differences(expected: Any, found: Any, path: str = "") -> list[str]:
    """Return a line for each name that is gone, new or different.

    >>> differences({"tables": {"raw": {"seq": "bigint"}}}, {"tables": {"raw": {"ordinal": "bigint"}}})
    ['gone: tables / raw / seq (bigint)', 'new:  tables / raw / ordinal (bigint)']
    """
    if isinstance(expected, list) and isinstance(found, list):
        expected, found = dict.fromkeys(map(str, expected), ""), dict.fromkeys(map(str, found), "")
    if not (isinstance(expected, dict) and isinstance(found, dict)):
        return [] if expected == found else [f"changed: {path}: {expected!r} became {found!r}"]

    def below(name: str) -> str:
        return f"{path} / {name}" if path else name

    gone = [f"gone: {below(name)}{_shown(one)}" for name, one in expected.items() if name not in found]
    new = [f"new:  {below(name)}{_shown(one)}" for name, one in found.items() if name not in expected]
    both = [name for name in expected if name in found]
    return (
        gone + new + [line for name in both for line in differences(expected[name], found[name], below(name))]
    )


def _shown(value: Any) -> str:
    return f" ({value})" if isinstance(value, str) and value else ""


def main() -> None:
    """Write the snapshot, and print what changed."""
    found = json.loads(json.dumps(stored_names()))
    before = json.loads(SNAPSHOT.read_text(encoding="utf-8")) if SNAPSHOT.is_file() else {}
    for line in differences(before, found):
        print(line)
    SNAPSHOT.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

"""The package as it is installed elsewhere: everything of the product's own travels with it."""

from __future__ import annotations

import ast
import csv
import json
import math
import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Sequence
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from tests.small_lake import HOME, write_schemas

PROJECT = tomllib.loads((HOME / "pyproject.toml").read_text(encoding="utf-8"))["project"]
NOT_IMPORTED = {"delta-spark": "Spark loads it by the name of a class"}
OF_AN_EXTRA = {"airflow": ("airflow",)}
"""Packages inside the package that need an extra."""
IN_THE_CHECKOUT = {"tables": HOME / "schemas" / "tables", "expectations": HOME / "expectations"}
THROUGH = """
import sys
from spillway.checks.run import suite_folders
from spillway.checks.suites import load_suites
from spillway.contracts import load_contracts
from spillway.engine import ProcessEngine
from spillway.pipeline.run import run_channel
from spillway.settings import Settings
from spillway.store.tables import Tables

settings = Settings.from_environment()
contracts, tables = load_contracts(settings.schemas), Tables(settings)
run_channel(tables, ProcessEngine(), contracts, "uplink", "run")
assert tables.at("transmitted", "river").rows(["seq"]).num_rows == 40
assert "batches" in load_suites(suite_folders())
print(sys.modules["spillway"].__file__)
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel of this checkout, made without a network from a copy, as building leaves files behind."""
    source = tmp_path_factory.mktemp("source")
    for name in ("lib", "schemas", "expectations"):
        left_out = shutil.ignore_patterns("__pycache__", "*.egg-info")
        shutil.copytree(HOME / name, source / name, symlinks=True, ignore=left_out)
    shutil.copy(HOME / "pyproject.toml", source)
    wheels = tmp_path_factory.mktemp("wheels")
    command = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--quiet",
        "--no-deps",
        "--no-build-isolation",
        "--no-index",
    ]
    done = subprocess.run([*command, "-w", str(wheels), str(source)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (made,) = wheels.glob("*.whl")
    return made


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the wheel unpacks to."""
    place = tmp_path_factory.mktemp("installed")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(place)
    return place


@pytest.mark.parametrize("kind", sorted(IN_THE_CHECKOUT))
def test_what_the_product_brings_is_in_the_package_byte_for_byte(installed: Path, kind: str) -> None:
    there = installed / "spillway" / "product" / kind
    assert files_below(there) == files_below(IN_THE_CHECKOUT[kind])


def files_below(folder: Path) -> dict[str, bytes]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def test_a_lake_needs_nothing_but_the_users_own_streams_and_channels(installed: Path, tmp_path: Path) -> None:
    schemas = write_schemas(tmp_path, {"river": "uplink"})
    assert sorted(path.name for path in schemas.iterdir()) == ["channels.yaml", "streams"]
    with (schemas / "streams" / "river.yaml").open("a") as contract:
        contract.write("levers: []\n")  # what levers bring themselves other tests have
    landed = tmp_path / "landing" / "river" / "2026-01-01" / "part-1.json"
    landed.parent.mkdir(parents=True)
    landed.write_text(
        "".join(
            f'{{"site": "a", "at": "2026-01-01T00:00:{second:02d}Z", "level": 1.5}}\n' for second in range(40)
        )
    )
    environment = {name: value for name, value in os.environ.items() if not name.startswith("SPILLWAY_")}
    told = {"PYTHONPATH": str(installed), "SPILLWAY_HOME": str(tmp_path), "SPILLWAY_SCHEMAS": str(schemas)}
    done = subprocess.run(
        [sys.executable, "-c", THROUGH], env=environment | told, cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1].startswith(str(installed))


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def named(requirements: Sequence[str]) -> set[str]:
    """The packages that requirements name."""
    found = (re.match(r"[A-Za-z0-9._-]+", one) for one in requirements)
    return {normal(one.group()) for one in found if one is not None}


def imported_by(folder: Path) -> set[str]:
    """The top-level modules of others that modules import, wherever in them."""
    found: set[str] = set()
    for path in folder.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                found |= {one.name.partition(".")[0] for one in node.names}
            elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
                found.add(node.module.partition(".")[0])
    return found - sys.stdlib_module_names - {"spillway"}


def test_what_the_package_imports_is_what_it_demands() -> None:
    base = named(PROJECT["dependencies"])
    origin = {module: {normal(one) for one in names} for module, names in packages_distributions().items()}
    used: set[str] = set()
    for part in sorted(path for path in (HOME / "lib" / "spillway").iterdir() if path.is_dir()):
        extras = OF_AN_EXTRA.get(part.name, ())
        demanded = base.union(*(named(PROJECT["optional-dependencies"][extra]) for extra in extras))
        for module in imported_by(part):
            assert origin[module] & demanded, f"{part.name} imports {module}: declare it in pyproject.toml"
            used |= origin[module]
    assert base - used == set(NOT_IMPORTED), "nothing imports it: take it out of pyproject.toml"


CONTRACT = """
stream: river
channel: uplink
source: {kind: files, path: river, format: json, settle_seconds: 0}
rate: {from: declared, tuples_per_second: 10}
attributes:
  - {name: site, type: string, role: key, nullable: false}
  - {name: at, type: timestamp, role: order}
  - {name: level, type: double, role: measure}
  - {name: flow, type: double, role: measure}
sketches: [{kind: distinct, attributes: [site]}, {kind: quantiles, attributes: [level]}]
"""
ROWS = [
    {
        "site": "abc"[number % 3],
        "at": f"2026-01-01T00:{number // 60:02d}:{number % 60:02d}Z",
        "level": round(5 + 2 * math.sin(number / 9), 3),
        "flow": round(20 + 8 * math.sin(number / 9), 2),
    }
    for number in range(1200)
]


@pytest.mark.long
@pytest.mark.parametrize("versions", ["lowest", "pinned"])
def test_the_wheel_brings_a_stream_through_with_nothing_but_what_it_demands(
    wheel: Path, tmp_path: Path, versions: str
) -> None:
    """A fresh environment of exactly the declared requirements: contract, run, recover, and a foreign query log."""
    python = tmp_path / "venv" / "bin" / "python"
    uv = [str(Path(sys.executable).with_name("uv"))]
    ran(tmp_path, [*uv, "venv", "--quiet", "--python", sys.executable, str(python.parents[1])])
    how = ["--resolution", "lowest-direct"]
    if versions == "pinned":
        pins = re.findall(
            r"(?m)^[^ #\\]+==[^\\\n]+", (HOME / "infra" / "requirements.txt").read_text(encoding="utf-8")
        )
        (tmp_path / "pins.txt").write_text("\n".join(pins), encoding="utf-8")
        how = ["--constraint", str(tmp_path / "pins.txt")]
    ran(tmp_path, [*uv, "pip", "install", "--quiet", "--python", str(python), *how, str(wheel)])

    schemas, landed = tmp_path / "schemas", tmp_path / "landing" / "river" / "2026-01-01"
    (schemas / "streams").mkdir(parents=True)
    landed.mkdir(parents=True)
    (schemas / "channels.yaml").write_text("channels: {uplink: {capacity: 0.3 kbps}}\n")
    (schemas / "streams" / "river.yaml").write_text(CONTRACT)
    (landed / "part-1.json").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    spillway = str(python.with_name("spillway"))
    ran(tmp_path, [spillway, "contracts", "check"])
    ran(tmp_path, [spillway, "run"])
    status = json.loads(ran(tmp_path, [spillway, "status", "--json"]))
    (river,) = status["streams"]
    assert status["expectations_failed"] == 0
    assert river["values"]["shed"] > 0
    assert river["values"]["lost"] == 0
    assert river["figures"]["violations"] == 0
    ran(tmp_path, [spillway, "recover", "river", "--key", "site=a", "--output", str(tmp_path / "found.csv")])
    with (tmp_path / "found.csv").open(newline="") as file:
        found = list(csv.DictReader(file))
    expected = [row for row in ROWS if row["site"] == "a"]
    assert len(found) == len(expected)
    for one, row in zip(found, expected, strict=True):
        assert float(one["level"]) == pytest.approx(row["level"], rel=0.2)
    (tmp_path / "log.sql").write_text("SELECT level FROM river WHERE flow > 25;\n")
    assert "flow" in ran(
        tmp_path, [spillway, "contracts", "mine", str(tmp_path / "log.sql"), "--stream", "river"]
    )


def ran(home: Path, command: Sequence[str]) -> str:
    """What a command printed that must succeed, run below `home` without this process's environment."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("SPILLWAY_", "PYTHON"))}
    done = subprocess.run(
        command, env=kept | {"SPILLWAY_HOME": str(home)}, cwd=home, capture_output=True, text=True
    )
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    return done.stdout

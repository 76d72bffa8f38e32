"""The package as it is installed elsewhere: everything of the product's own travels with it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from tests.small_lake import HOME, write_schemas

IN_THE_CHECKOUT = {"tables": HOME / "schemas" / "tables", "expectations": HOME / "expectations"}
THROUGH = """
import sys
from spillway.checks.run import suite_folders
from spillway.checks.suites import load_suites
from spillway.contracts import load_contracts
from spillway.engine import InProcess
from spillway.pipeline.channel import bring_through
from spillway.settings import Settings
from spillway.store.tables import Tables

settings = Settings.from_environment()
contracts, tables = load_contracts(settings.schemas), Tables(settings)
bring_through(tables, InProcess(), contracts, "uplink", "run")
assert tables.at("transmitted", "river").rows(["seq"]).num_rows == 40
assert "batches" in load_suites(suite_folders())
print(sys.modules["spillway"].__file__)
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a wheel of this checkout unpacks to, made without a network from a copy, as building leaves files behind."""
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
    (wheel,) = wheels.glob("*.whl")
    place = tmp_path_factory.mktemp("installed")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(place)
    return place


@pytest.mark.parametrize("kind", sorted(IN_THE_CHECKOUT))
def test_what_the_product_brings_is_in_the_package_byte_for_byte(installed: Path, kind: str) -> None:
    there = installed / "spillway" / "product" / kind
    assert {path.name: path.read_bytes() for path in there.iterdir()} == {
        path.name: path.read_bytes() for path in IN_THE_CHECKOUT[kind].iterdir()
    }


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

"""Compiled kernels are never those of other sources."""

from __future__ import annotations

import os
import re
import shutil
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.small_lake import HOME

from spillway.kernel_cache import UNUSED_DAYS, VARIABLE, cache_folder, sources_key, use_keyed_folder

LEFT_OUT = shutil.ignore_patterns("__pycache__", "product")
CALLEE = "from numba import njit\n\n@njit(cache=True)\ndef factor():\n    return {factor}\n"
CALLER = """
from numba import njit
from spillway.callee_of_a_test import factor
from spillway.constants_of_a_test import SHIFT

@njit(cache=True)
def scaled(value):
    return value * factor() + SHIFT
"""
ASK = """
import os, sys
from spillway.caller_of_a_test import scaled
print(scaled(10), bool(scaled.stats.cache_hits), os.environ["NUMBA_CACHE_DIR"])
"""


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A copy of the package, without what was compiled of it."""
    shutil.copytree(
        HOME / "lib" / "spillway",
        tmp_path / "lib" / "spillway",
        ignore=LEFT_OUT,
    )
    return tmp_path / "lib" / "spillway"


def asked(package: Path, environment: dict[str, str], code: str = ASK) -> list[str]:
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith(("NUMBA", "XDG", "PYTHON"))
    }
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=kept | {"PYTHONPATH": str(package.parent)} | environment,
        cwd=package.parent,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_an_edit_of_a_callee_or_a_constant_in_another_file_changes_what_its_caller_returns(
    package: Path, tmp_path: Path
) -> None:
    """numba alone keeps the caller as it was compiled: its own file is the same."""
    caller, callee, constants = (
        package / f"{name}_of_a_test.py" for name in ("caller", "callee", "constants")
    )
    caller.write_text(CALLER)
    callee.write_text(CALLEE.format(factor=2))
    constants.write_text("SHIFT = 0\n")
    home = {"HOME": str(tmp_path / "home")}
    assert asked(package, home)[:2] == ["20", "False"]
    assert asked(package, home)[:2] == ["20", "True"], "nothing changed: the kernel is loaded"
    callee.write_text(CALLEE.format(factor=3))
    assert asked(package, home)[:2] == ["30", "False"]
    constants.write_text("SHIFT = 1\n")
    assert asked(package, home)[:2] == ["31", "False"]
    assert not list(package.rglob("*.nb[ci]")), "nothing lies next to the sources"


def test_the_key_follows_each_kernel_and_what_kernels_import_and_nothing_else(package: Path) -> None:
    before = sources_key(package)
    kernels = [
        path
        for path in package.rglob("*.py")
        if re.search(r"^(from|import) numba\b", path.read_text(), re.MULTILINE)
    ]
    assert len(kernels) > 30
    for path in [*kernels, package / "errors.py", package / "sketches" / "hashing.py"]:
        text = path.read_text()
        path.write_text(text + "\n# edited\n")
        assert sources_key(package) != before, path
        path.write_text(text)
    with (package / "cli" / "status.py").open("a") as page:
        page.write("\n# edited\n")
    assert sources_key(package) == before


def test_the_folder_lies_in_the_users_cache_or_below_the_one_that_is_set(tmp_path: Path) -> None:
    name = "spillway-kernels-0123456789abcdef"
    home = {"HOME": str(tmp_path / "home")}
    assert cache_folder(name[-16:], home) == str(tmp_path / "home" / ".cache" / "spillway" / name)
    xdg = home | {"XDG_CACHE_HOME": str(tmp_path / "xdg")}
    assert cache_folder(name[-16:], xdg) == str(tmp_path / "xdg" / "spillway" / name)
    assert cache_folder(name[-16:], xdg | {VARIABLE: str(tmp_path / "own")}) == str(tmp_path / "own" / name)
    inherited = xdg | {VARIABLE: str(tmp_path / "own" / "spillway-kernels-fedcba9876543210")}
    assert cache_folder(name[-16:], inherited) == str(tmp_path / "own" / name), "a child of another version"
    environment = {VARIABLE: str(tmp_path / "own")}
    use_keyed_folder(environment)
    once = dict(environment)
    use_keyed_folder(environment)
    assert environment == once


def test_where_nothing_can_be_written_kernels_are_kept_in_a_folder_of_this_user_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("no folder")
    nowhere = {"HOME": str(tmp_path / "file"), VARIABLE: str(tmp_path / "file" / "below")}
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    mine = Path(cache_folder("0123456789abcdef", nowhere))
    assert mine.parent == tmp_path / f"spillway-{os.getuid()}"
    assert stat.S_IMODE(mine.parent.stat().st_mode) == 0o700
    mine.parent.chmod(0o777)  # anybody could have put code there
    other = Path(cache_folder("0123456789abcdef", nowhere))
    assert other.parent == tmp_path
    assert stat.S_IMODE(other.stat().st_mode) == 0o700
    assert other != mine


def test_folders_of_other_sources_go_when_they_have_not_been_used_for_days(tmp_path: Path) -> None:
    base = tmp_path / "cache"
    long_ago = time.time() - (UNUSED_DAYS + 1) * 86_400
    old, recent, of_others = (
        base / name for name in (f"spillway-kernels-{'0' * 16}", f"spillway-kernels-{'1' * 16}", "x")
    )
    for folder in (old, recent, of_others):
        folder.mkdir(parents=True)
    for folder in (old, of_others):
        os.utime(folder, (long_ago, long_ago))
    made = cache_folder("2" * 16, {VARIABLE: str(base)})
    assert sorted(map(str, base.iterdir())) == sorted([str(recent), str(of_others), made])


def test_a_process_that_had_numba_before_spillway_uses_the_folder_too(package: Path, tmp_path: Path) -> None:
    code = "import numba, spillway, os; print(numba.config.CACHE_DIR == os.environ['NUMBA_CACHE_DIR'])"
    assert asked(package, {"HOME": str(tmp_path / "home")}, code) == ["True"]

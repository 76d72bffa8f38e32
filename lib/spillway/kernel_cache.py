"""The folder of compiled numba kernels: one for each state of the sources, so that no kernel is stale.

numba checks a cached function against the text of its own file. It does not notice a change of a callee or a constant
in another file. After an edit or an upgrade a decoder of the old format could remain. Therefore the name of the folder
is a hash of all modules that define kernels, of the modules that they import, and of the versions of numba and Python.

`spillway/__init__` sets the folder before any kernel is imported, in every process, Spark's workers included.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import stat
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, MutableMapping
from importlib.util import find_spec
from pathlib import Path

VARIABLE = "NUMBA_CACHE_DIR"
UNUSED_DAYS = 7
"""When a new folder is made, folders that were not used for this time are removed."""
_NAME = re.compile(r"spillway-kernels-[0-9a-f]{16}")
_DEFINES_KERNELS = re.compile(rb"^(?:from|import) numba\b", re.MULTILINE)
_IMPORTS = re.compile(rb"^from ([\w.]+) import (\([^)]*\)|[^\n]*)|^import ([\w.]+)", re.MULTILINE)


def use_keyed_folder(environment: MutableMapping[str, str] = os.environ) -> None:
    """Set the folder for numba, in this process and in every process that it starts."""
    key = sources_key(Path(__file__).parent)
    folder = cache_folder(key, environment)
    environment[VARIABLE] = folder
    numba = sys.modules.get("numba")
    if numba is not None:  # numba was imported before and has read its environment
        numba.config.CACHE_DIR = folder


def cache_folder(key: str, environment: Mapping[str, str]) -> str:
    """Return the folder for a key; create it if it does not exist.

    It lies below `NUMBA_CACHE_DIR` if that is set, else in the user's cache (`XDG_CACHE_HOME` or `~/.cache`). If
    neither is writable, it is a temporary folder that only this user can write to.
    """
    name = f"spillway-kernels-{key}"
    for base in _bases(environment):
        folder = base / name
        try:
            if not folder.is_dir():
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
                _remove_unused(base)
            os.utime(folder)
        except OSError:
            continue
        if os.access(folder, os.W_OK | os.X_OK):
            return str(folder)
    return tempfile.mkdtemp(prefix=f"{name}-")


def _bases(environment: Mapping[str, str]) -> Iterator[Path]:
    given = environment.get(VARIABLE)
    if given:
        # a child process finds the folder of its parent here
        yield Path(given).parent if _NAME.fullmatch(Path(given).name) else Path(given)
    caches = environment.get("XDG_CACHE_HOME") or (
        environment.get("HOME") and f"{environment['HOME']}/.cache"
    )
    if caches:
        yield Path(caches, "spillway")
    shared = Path(tempfile.gettempdir(), f"spillway-{os.getuid()}")
    shared.mkdir(mode=0o700, exist_ok=True)
    found = shared.lstat()
    # compiled code is loaded from here, so no other user may have written it
    if stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o022:
        yield shared


def _remove_unused(base: Path) -> None:
    for other in base.iterdir():
        if _NAME.fullmatch(other.name) and time.time() - other.stat().st_mtime > UNUSED_DAYS * 86_400:
            shutil.rmtree(other, ignore_errors=True)


def sources_key(package: Path) -> str:
    """Return the hash of the package's kernels, of the modules they import, and of the compiler versions."""
    sources = _sources(package)
    seen = {path for path, text in sources.items() if b"numba" in text and _DEFINES_KERNELS.search(text)}
    pending = list(seen)
    while pending:
        for path in _imported(sources[pending.pop()], package.name):
            if path in sources and path not in seen:
                seen.add(path)
                pending.append(path)
    digest = hashlib.sha256(f"{sys.version} {_versions()}".encode())
    for path in sorted(seen):
        digest.update(f"\0{path}\0".encode() + sources[path])
    return digest.hexdigest()[:16]


def _sources(package: Path) -> dict[str, bytes]:
    """Return the text of each module, by its path in the package."""
    found = {}
    for folder, folders, files in os.walk(package):
        folders[:] = [name for name in folders if name != "__pycache__"]
        inside = os.path.relpath(folder, package)
        for name in files:
            if name.endswith(".py"):
                with open(os.path.join(folder, name), "rb") as source:
                    found[os.path.normpath(os.path.join(inside, name))] = source.read()
    return found


def _imported(text: bytes, package: str) -> Iterator[str]:
    """Return the paths of the modules of the package that a module may import when it is loaded."""
    for origin, names, plain in _IMPORTS.findall(text):
        top, _, rest = (origin or plain).decode().partition(".")
        if top == package:
            for module in (rest, *(f"{rest}.{name}" for name in re.findall(r"\w+", names.decode()))):
                path = module.strip(".").replace(".", "/")
                yield f"{path}.py"
                yield f"{path}/__init__.py"


def _versions() -> str:
    """Return the installed versions of numba and llvmlite, without importing numba."""
    spec = find_spec("numba")
    if spec is None or spec.origin is None:
        return ""
    beside = os.listdir(Path(spec.origin).parents[1])
    return " ".join(
        sorted(name for name in beside if re.fullmatch(r"(numba|llvmlite)-.*\.(dist|egg)-info", name))
    )

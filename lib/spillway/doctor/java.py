"""Find a Java on which Spark runs.

Use only the standard library: the bootstrap script runs this before packages exist.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

JAVA_VERSIONS = (17, 21)
INSTALL_JAVA = (
    "install it with: sudo apt-get install openjdk-17-jre-headless (Debian, Ubuntu), "
    "brew install openjdk@17 (macOS), or set JAVA_HOME to one you have"
)
ROOTS = ("/usr/lib/jvm", "/Library/Java/JavaVirtualMachines", "/opt/homebrew/opt")


def parse_version(told: str) -> int | None:
    """Return the feature version from the output of `java -version`.

    >>> parse_version('openjdk version "17.0.15" 2025-04-15'), parse_version('openjdk version "21" 2023-09-19')
    (17, 21)
    """
    found = re.search(r'version "(\d+)', told)
    return int(found.group(1)) if found else None


def java_version(java: Path) -> int | None:
    """Return the feature version of an executable; None if it does not run."""
    try:
        told = subprocess.run([str(java), "-version"], capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return parse_version(told.stderr + told.stdout)


def java_candidates(environment: Mapping[str, str]) -> Iterator[Path]:
    """Yield paths where a Java may be; the one in `JAVA_HOME` comes first."""
    if environment.get("JAVA_HOME"):
        yield Path(environment["JAVA_HOME"]) / "bin" / "java"
    on_path = shutil.which("java", path=environment.get("PATH"))
    if on_path:
        yield Path(on_path)
    for root in ROOTS:
        for pattern in ("*/bin/java", "*/Contents/Home/bin/java"):
            yield from sorted(Path(root).glob(pattern))


def find_java(environment: Mapping[str, str] | None = None) -> Path | None:
    """Return the home of the first Java 17 or 21.

    Each candidate is run, because macOS has a `java` that only asks the user to install one.
    """
    for java in java_candidates(os.environ if environment is None else environment):
        if java_version(java) in JAVA_VERSIONS:
            return java.resolve().parent.parent
    return None


def java_versions_seen(environment: Mapping[str, str] | None = None) -> list[int]:
    """Return all versions found, for the error message."""
    candidates = java_candidates(os.environ if environment is None else environment)
    return sorted({version for version in map(java_version, candidates) if version is not None})

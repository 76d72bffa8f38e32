"""Finds a Java that Spark runs on. Only the standard library: the bootstrap script uses it before there is more."""

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
    """The feature version in what `java -version` prints.

    >>> parse_version('openjdk version "17.0.15" 2025-04-15'), parse_version('openjdk version "21" 2023-09-19')
    (17, 21)
    """
    found = re.search(r'version "(\d+)', told)
    return int(found.group(1)) if found else None


def java_version(java: Path) -> int | None:
    """The feature version of an executable; None when it does not run."""
    try:
        told = subprocess.run([str(java), "-version"], capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return parse_version(told.stderr + told.stdout)


def java_candidates(environment: Mapping[str, str]) -> Iterator[Path]:
    """Where a Java may be, the one people asked for first."""
    if environment.get("JAVA_HOME"):
        yield Path(environment["JAVA_HOME"]) / "bin" / "java"
    on_path = shutil.which("java", path=environment.get("PATH"))
    if on_path:
        yield Path(on_path)
    for root in ROOTS:
        for pattern in ("*/bin/java", "*/Contents/Home/bin/java"):
            yield from sorted(Path(root).glob(pattern))


def find_java(environment: Mapping[str, str] | None = None) -> Path | None:
    """The home of the first Java 17 or 21. It is run, because macOS has a `java` that only says to install one."""
    for java in java_candidates(os.environ if environment is None else environment):
        if java_version(java) in JAVA_VERSIONS:
            return java.resolve().parent.parent
    return None


def java_versions_seen(environment: Mapping[str, str] | None = None) -> list[int]:
    """Every version there is, to say what was found instead."""
    candidates = java_candidates(os.environ if environment is None else environment)
    return sorted({version for version in map(java_version, candidates) if version is not None})

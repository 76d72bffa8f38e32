"""Make this machine able to run Spillway: environment, Java, Delta jars. Needs only Python 3.11+.

Every step looks first and does nothing when its work is there, so that running it again is free and works
without a network. What cannot be done is said in one sentence with the command that mends it.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

HOME = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(HOME / "lib"))

from spillway.doctor.java import INSTALL_JAVA, find_java, java_versions_seen  # noqa: E402

DEBIAN_JAVA = "openjdk-17-jre-headless"
DEBIAN_VENV = "python3-venv"


class CannotGoOn(Exception):
    """What is missing, and the remedy."""


def say(text: str) -> None:
    print(f"spillway: {text}", flush=True)


def run(command: Sequence[str | Path], log: Path | None = None, **environment: str) -> None:
    """Run quietly; on failure show the end of what it printed."""
    done = subprocess.run(
        [str(part) for part in command],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        env=os.environ | environment,
    )
    if log is not None:
        log.parent.mkdir(parents=True, exist_ok=True)
        log.write_text(done.stdout, encoding="utf-8")
    if done.returncode:
        tail = "\n".join(done.stdout.strip().splitlines()[-15:])
        raise CannotGoOn(f"`{' '.join(str(part) for part in command)}` failed:\n{tail}")


def may_install() -> bool:
    return hasattr(os, "geteuid") and os.geteuid() == 0 and shutil.which("apt-get") is not None


def install_debian(package: str) -> None:
    say(f"installing the Debian package {package}")
    run(["apt-get", "update", "-q"], DEBIAN_FRONTEND="noninteractive")
    run(
        ["apt-get", "install", "-y", "-q", "--no-install-recommends", package],
        DEBIAN_FRONTEND="noninteractive",
    )


# --- environment ---------------------------------------------------------------------------------


def venv_python(venv: Path) -> Path:
    return venv / "bin" / "python"


def make_venv(venv: Path) -> None:
    if venv_python(venv).exists():
        return
    # Debian ships venv without ensurepip: making an environment then fails half way, so look before.
    if importlib.util.find_spec("ensurepip") is None or importlib.util.find_spec("venv") is None:
        if not may_install():
            raise CannotGoOn(
                "`python3` must be able to make virtual environments, got one without ensurepip; "
                f"install it with: sudo apt-get install {DEBIAN_VENV}"
            )
        install_debian(DEBIAN_VENV)
    say(f"making the environment {venv.name} with Python {sys.version.split()[0]}")
    run([sys.executable, "-m", "venv", venv])


def pinned(requirements: Path, package: str) -> str:
    """The block of one package, version and hashes, from the pinned requirements."""
    block = re.search(rf"(?ms)^{package}==.*?(?=^\S|\Z)", requirements.read_text(encoding="utf-8"))
    if block is None:
        raise CannotGoOn(f"`{requirements.name}` must pin {package}, got no such line; run: make pins")
    return block.group(0)


def install_requirements(venv: Path, requirements: Path) -> None:
    python = venv_python(venv)
    say("installing the pinned requirements (about 200 packages, once)")
    with tempfile.TemporaryDirectory() as folder:
        only_uv = Path(folder) / "uv.txt"
        only_uv.write_text(pinned(requirements, "uv"), encoding="utf-8")
        run([python, "-m", "pip", "install", "-q", "--require-hashes", "-r", only_uv])
    try:
        run(
            [
                venv / "bin" / "uv",
                "pip",
                "install",
                "--python",
                python,
                "--require-hashes",
                "-r",
                requirements,
            ],
            UV_NO_PROGRESS="1",
            UV_LINK_MODE=os.environ.get("UV_LINK_MODE", "copy"),
        )
    except CannotGoOn as trouble:
        # pip may know a mirror that uv was not told of
        say(f"uv could not do it, trying pip (some minutes): {str(trouble).splitlines()[-1].strip()}")
        run([python, "-m", "pip", "install", "-q", "--require-hashes", "-r", requirements])


def install_project(venv: Path, home: Path) -> None:
    alone = ("--no-deps", "--no-build-isolation", "--no-index")
    run([venv_python(venv), "-m", "pip", "install", "-q", *alone, "--editable", home])


# --- Java ----------------------------------------------------------------------------------------


def need_java() -> Path:
    found = find_java()
    if found is None and may_install():
        install_debian(DEBIAN_JAVA)
        found = find_java()
    if found is None:
        raise CannotGoOn(
            f"`java` must be version 17 or 21, got {java_versions_seen() or 'none'}; {INSTALL_JAVA}"
        )
    return found


# --- Delta jars ----------------------------------------------------------------------------------


def expected_jars(checksums: Path) -> dict[str, str]:
    lines = [line.split() for line in checksums.read_text(encoding="utf-8").splitlines() if line.strip()]
    return {name: digest for digest, name in lines}


def wrong_jars(folder: Path, expected: dict[str, str]) -> list[str]:
    """Names of jars that are missing or are not, byte for byte, the pinned ones."""
    return [
        name
        for name, digest in expected.items()
        if not (folder / name).is_file() or hashlib.sha256((folder / name).read_bytes()).hexdigest() != digest
    ]


def fetch_jars(folder: Path, java_home: Path, ivy_jar: Path) -> None:
    """Ivy, which pyspark carries, resolves the coordinates; nothing is used before its digest is checked."""
    expected = expected_jars(HOME / "infra" / "jars.sha256")
    if not wrong_jars(folder, expected):
        return
    say("fetching the Delta jars by Maven coordinates (9.6 MB, once)")
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        settings = os.environ.get("SPILLWAY_IVY_SETTINGS")
        command = [str(java_home / "bin" / "java"), "-jar", str(ivy_jar)]
        command += ["-settings", settings] if settings else []
        command += ["-ivy", str(HOME / "infra" / "ivy.xml"), "-cache", f"{scratch}/cache", "-types", "jar"]
        command += ["-confs", "default", "-retrieve", f"{scratch}/[artifact]-[revision].[ext]"]
        for attempt in (1, 2, 3):
            try:
                run(command)
                break
            except CannotGoOn as trouble:
                if attempt == 3:
                    raise CannotGoOn(
                        f"the Delta jars could not be fetched; check the network, or put {', '.join(expected)} "
                        f"into {folder} by hand, or name your mirror's Ivy settings in "
                        f"SPILLWAY_IVY_SETTINGS\n{trouble}"
                    ) from None
                time.sleep(2**attempt)
        wrong = wrong_jars(Path(scratch), expected)
        if wrong:
            raise CannotGoOn(
                f"`{wrong[0]}` must have the digest pinned in infra/jars.sha256, got another file; "
                "do not use it: someone between you and the repository changed it"
            )
        for name in expected:
            os.replace(Path(scratch) / name, folder / name)


# --- the JVM's class archive --------------------------------------------------------------------


def archive_classes(venv: Path, jars: Path, java_home: Path) -> None:
    say("keeping Spark's classes in an archive, so that jobs start in half the time (half a minute, once)")
    run(
        [venv_python(venv), "-m", "spillway.engine.class_archive", jars],
        PYTHONPATH=str(HOME / "lib"),
        JAVA_HOME=str(java_home),
        PYSPARK_PYTHON=str(venv_python(venv)),
        SPARK_LOCAL_IP="127.0.0.1",
    )


# --- all of it -----------------------------------------------------------------------------------


def once(stamp: Path, inputs: Sequence[Path], work: Callable[[], None]) -> None:
    """Do `work` unless its stamp says that it was done with exactly these inputs."""
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in inputs)).hexdigest()
    if stamp.is_file() and stamp.read_text(encoding="utf-8") == digest:
        return
    work()
    stamp.write_text(digest, encoding="utf-8")


def bootstrap(venv: Path, jars: Path) -> None:
    if sys.version_info < (3, 11):  # noqa: UP036 (this file is run by whatever Python the machine has)
        raise CannotGoOn(
            f"`python3` must be 3.11 or later, got {sys.version.split()[0]}; "
            "install one and say: make run PYTHON=python3.12"
        )
    requirements = HOME / "infra" / "requirements.txt"
    make_venv(venv)
    once(venv / ".requirements", [requirements], lambda: install_requirements(venv, requirements))
    once(venv / ".project", [HOME / "pyproject.toml"], lambda: install_project(venv, HOME))
    java_home = need_java()
    (venv / ".java_home").write_text(str(java_home), encoding="utf-8")
    ivy = sorted(venv.glob("lib/python3*/site-packages/pyspark/jars/ivy-*.jar"))
    if not ivy:
        raise CannotGoOn(
            "`pyspark` must carry Ivy, got an environment without it; remove .venv and try again"
        )
    fetch_jars(jars, java_home, ivy[0])
    # what the archive depends on: Spark, Delta, and Java
    parts = [requirements, HOME / "infra" / "jars.sha256", *filter(Path.is_file, [java_home / "release"])]
    try:
        once(jars / ".classes", parts, lambda: archive_classes(venv, jars, java_home))
    except CannotGoOn as trouble:
        # everything works without it, only later
        say(f"no archive could be made, jobs start slower: {str(trouble).splitlines()[-1].strip()}")


def main() -> int:
    parser = argparse.ArgumentParser(description="Make this machine able to run Spillway.")
    parser.add_argument("--venv", type=Path, default=HOME / ".venv", help="where the environment goes")
    parser.add_argument("--jars", type=Path, default=HOME / ".jars", help="where the Delta jars go")
    options = parser.parse_args()
    try:
        bootstrap(options.venv, options.jars)
    except CannotGoOn as trouble:
        print(f"spillway: {trouble}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

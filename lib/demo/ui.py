"""`make ui`: run Airflow's web page and scheduler on this machine only, and end all of it at the end."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import TextIO

from demo import airflow_home
from demo.guard import exit_on_signals, guarded_process
from spillway.errors import InvalidValue, SpillwayError
from spillway.settings import Settings

PATIENCE_SECONDS = 180.0


def passwords(home: Path) -> dict[str, str]:
    """Return the log-ins that Airflow created at its first start; empty until then."""
    file = home / "simple_auth_manager_passwords.json.generated"
    try:
        found: dict[str, str] = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, json.JSONDecodeError):
        return {}
    return found


def is_healthy(address: str) -> bool:
    """Return whether the server answers and its scheduler runs."""
    try:
        with urllib.request.urlopen(f"{address}/api/v2/monitor/health", timeout=5) as answer:
            return bool(json.load(answer)["scheduler"]["status"] == "healthy")
    except (OSError, urllib.error.URLError, KeyError, ValueError):
        return False


def free_port(told: str, host: str = "127.0.0.1") -> int:
    """Return the requested port if it is free.

    >>> free_port("eighty")
    Traceback (most recent call last):
        ...
    spillway.errors.InvalidValue: `PORT` must be a number from 1 to 65535, got 'eighty'; say: make ui PORT=8081
    """
    if not told.isascii() or not told.isdigit() or not 0 < int(told) < 65536:
        raise InvalidValue("PORT", "be a number from 1 to 65535", told, "say: make ui PORT=8081")
    port = int(told)
    with socket.socket() as probe:
        # as servers do: a port whose last connections are still being closed is free
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as problem:
            remedy = f"end what listens there, or choose another: make ui PORT={port % 65535 + 1}"
            raise InvalidValue("PORT", "be free", f"{port} ({problem.strerror})", remedy) from None
    return port


def open_private_log(log: Path) -> TextIO:
    """Open a log that only its owner can read, because Airflow writes the log-in into it."""
    log.unlink(missing_ok=True)
    return open(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8")


def main() -> int:
    try:
        with exit_on_signals():
            return serve(Settings.from_environment(), free_port(os.environ.get("PORT", "8080")))
    except SpillwayError as problem:
        print(f"spillway: {problem}", file=sys.stderr)
        return 1


def serve(settings: Settings, port: int) -> int:
    """Run Airflow until the process is asked to end."""
    address = f"http://127.0.0.1:{port}"
    env = airflow_home.environment(settings, port)
    airflow_home.prepare(env)
    log = Path(settings.build) / "logs" / "airflow-standalone.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    print(f"spillway: starting Airflow on {address} (about half a minute; its log: {log})", flush=True)
    command = [sys.executable, "-m", "airflow", "standalone"]
    with (
        open_private_log(log) as sink,
        guarded_process(
            command, env=env, stdin=subprocess.DEVNULL, stdout=sink, stderr=subprocess.STDOUT
        ) as server,
    ):
        deadline = time.monotonic() + PATIENCE_SECONDS
        while server.poll() is None and time.monotonic() < deadline and not is_healthy(address):
            time.sleep(1)
        if server.poll() is not None:
            print(f"spillway: Airflow stopped with code {server.returncode}; see {log}", file=sys.stderr)
            return 1
        for user, password in passwords(Path(env["AIRFLOW_HOME"])).items():
            print(f"spillway: {address}  user {user}  password {password}", flush=True)
        print("spillway: Ctrl-C stops it", flush=True)
        return server.wait()


if __name__ == "__main__":
    raise SystemExit(main())

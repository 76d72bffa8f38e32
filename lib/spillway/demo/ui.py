"""`make ui`: Airflow's own web page, scheduler included, on this machine only."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

from spillway.demo import airflow_home
from spillway.errors import SpillwayError
from spillway.settings import Settings

PATIENCE_SECONDS = 180.0


def passwords(home: Path) -> dict[str, str]:
    """The log-ins that Airflow made up at its first start; empty until then."""
    file = home / "simple_auth_manager_passwords.json.generated"
    try:
        found: dict[str, str] = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, json.JSONDecodeError):
        return {}
    return found


def healthy(address: str) -> bool:
    """Whether the server answers and its scheduler lives."""
    try:
        with urllib.request.urlopen(f"{address}/api/v2/monitor/health", timeout=5) as answer:
            return bool(json.load(answer)["scheduler"]["status"] == "healthy")
    except (OSError, urllib.error.URLError, KeyError, ValueError):
        return False


def main() -> int:
    port = int(os.environ.get("PORT", "8080"))
    address = f"http://127.0.0.1:{port}"
    settings = Settings.from_environment()
    try:
        env = airflow_home.environment(settings, port)
        airflow_home.prepare(env)
    except SpillwayError as problem:
        print(f"spillway: {problem}", file=sys.stderr)
        return 1
    log = Path(settings.build) / "logs" / "airflow-standalone.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    print(f"spillway: starting Airflow on {address} (about half a minute; its log: {log})", flush=True)
    with log.open("w", encoding="utf-8") as sink:
        server = subprocess.Popen(
            [sys.executable, "-m", "airflow", "standalone"],
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=subprocess.STDOUT,
        )
    try:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while server.poll() is None and time.monotonic() < deadline and not healthy(address):
            time.sleep(1)
        if server.poll() is not None:
            print(f"spillway: Airflow stopped with code {server.returncode}; see {log}", file=sys.stderr)
            return 1
        for user, password in passwords(Path(env["AIRFLOW_HOME"])).items():
            print(f"spillway: {address}  user {user}  password {password}", flush=True)
        print("spillway: Ctrl-C stops it", flush=True)
        return server.wait()
    except KeyboardInterrupt:
        return 0
    finally:
        if server.poll() is None:
            server.terminate()
            server.wait()


if __name__ == "__main__":
    raise SystemExit(main())

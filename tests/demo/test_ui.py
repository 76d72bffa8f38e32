"""`make ui` says what stands in its way before it starts anything."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from demo.ui import free_port
from spillway.errors import InvalidValue


@pytest.mark.parametrize("told", ["", "eighty", "0", "65536", "-1", "80.5"])
def test_a_port_that_is_none_is_refused_by_name(told: str) -> None:
    with pytest.raises(InvalidValue, match="`PORT` must be a number from 1 to 65535"):
        free_port(told)


def test_a_port_that_is_taken_ends_make_ui_with_a_sentence_and_starts_nothing(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        done = subprocess.run(
            [sys.executable, "-m", "demo.ui"],
            env=os.environ | {"PORT": str(port), "SPILLWAY_BUILD": str(tmp_path / "build")},
            capture_output=True,
            text=True,
        )
    assert done.returncode == 1
    assert (
        f"spillway: `PORT` must be free, got '{port} (Address already in use)'; end what listens there"
        in done.stderr
    )
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "build").exists()
    assert free_port(str(port)) == port

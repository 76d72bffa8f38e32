"""Lines that people see while something runs."""

from __future__ import annotations

import io
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

from rich.console import Console

from spillway.report.result import Progress

WORDS = 60
STREAMS = ("east", "west", "north", "south")


def test_what_streams_say_at_once_is_not_mixed() -> None:
    file = io.StringIO()
    progress, begun = Progress(Console(file=file, width=60)), Barrier(len(STREAMS))

    def say(stream: str) -> None:
        begun.wait()
        for _ in range(50):
            progress.detail(" ".join([stream] * WORDS))

    with ThreadPoolExecutor(len(STREAMS)) as pool:
        list(pool.map(say, STREAMS))

    said = [word for word in file.getvalue().split() if word in STREAMS]
    assert len(said) == len(STREAMS) * 50 * WORDS
    assert all(len(set(said[at : at + WORDS])) == 1 for at in range(0, len(said), WORDS))


def test_a_line_is_folded_behind_its_time() -> None:
    file = io.StringIO()
    Progress(Console(file=file, width=60)).failed(
        "one is red\nand so is another one, which is told in more words than fit"
    )
    first, *others = file.getvalue().splitlines()
    assert first.endswith(" s  FAILED: one is red")
    assert len(others) > 1
    assert all(line.startswith(" " * 10) and line.strip() for line in others)

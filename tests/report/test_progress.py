"""Lines that people see while something runs."""

from __future__ import annotations

import io
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest
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


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_nothing_but_failures_is_shown_where_there_is_no_terminal() -> None:
    file = io.StringIO()
    with Progress.for_stream(file) as progress:
        progress.step("Shed to capacity")
        progress.detail("weather: took in 9 tuples")
    assert file.getvalue() == ""
    progress.failed("it is red")
    assert file.getvalue().endswith("FAILED: it is red\n")


def test_on_a_terminal_a_detail_replaces_the_one_before() -> None:
    file = Terminal()
    with Progress.for_stream(file) as progress:
        progress.step("Shed to capacity")
        for batch in range(20):
            progress.detail(f"weather: batch {batch}: " + "attribute, " * 60)
    shown = file.getvalue()
    assert shown.count("\n") == 1, "the step stays"
    assert shown.count("\r\x1b[2K") == 20, "each detail is wiped, the last one at the end"
    assert shown.endswith("\r\x1b[2K")
    width = progress.console.width
    assert all(len(one) < width for one in shown.split("\n")[1].split("\r\x1b[2K")), "it never wraps"


def test_verbose_keeps_all_lines_and_repeats_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    file = io.StringIO()
    with Progress.for_stream(file, verbose=True) as progress:
        monkeypatch.setattr(progress, "elapsed", lambda: 3.0)
        for batch in range(3):
            progress.detail(f"weather: batch {batch}")
    first, *others = file.getvalue().splitlines()
    assert " s  " in first
    assert [line.strip() for line in others] == ["weather: batch 1", "weather: batch 2"]

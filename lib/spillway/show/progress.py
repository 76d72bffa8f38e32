"""What people see while something runs: the elapsed seconds and a line."""

from __future__ import annotations

import time
from typing import TextIO

from rich.console import Console

from spillway.show.lines import PAGE, sentences


class Progress:
    """Lines on a console, folded to its width."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.started = time.monotonic()

    @staticmethod
    def here(stream: TextIO) -> Progress:
        """On a terminal as wide as that is, else as wide as a page."""
        return Progress(Console(file=stream, width=None if stream.isatty() else PAGE))

    def elapsed(self) -> float:
        return time.monotonic() - self.started

    def step(self, text: str) -> None:
        self._line(text, "bold")

    def detail(self, text: str) -> None:
        self._line(text, "", indent=2)

    def failed(self, sentence: str) -> None:
        self._line(f"FAILED: {sentence}", "bold red")

    def _line(self, text: str, style: str, indent: int = 0) -> None:
        at = f"{self.elapsed():6.1f} s  "
        room = max(40, self.console.width - len(at))
        parts = [part for line in text.split("\n") for part in sentences(line, indent, room) or [""]]
        # in one piece: streams are taken in beside one another, and each says what it does
        whole = at + f"\n{' ' * len(at)}".join(parts)
        self.console.print(whole, style=style, highlight=False, markup=False, soft_wrap=True)

"""Compute the figures of the queries (Fiscato 2012), next to those of the thesis."""

from __future__ import annotations

from collections.abc import Mapping

from evidence.book import Book
from evidence.quality.federated import scaling_figures, table_figures
from evidence.quality.laws import law_figures
from evidence.quality.planning import plan_figures
from evidence.quality.replays import error_figures, interval_figures
from spillway.settings import Settings

DEFAULT = 20


def quality_figures(book: Book, settings: Settings, seeds: int) -> Mapping[str, float]:
    """Return every figure of the lever `quality`; some minutes with the default of 20 seeds."""
    scale = min(1.0, seeds / DEFAULT)
    book.section("Queries", "What answers rest on, and how fairly a room that is too small is shared.")
    found: dict[str, float] = {}
    found |= plan_figures()
    found |= law_figures(book, max(20, round(400 * scale)))
    found |= error_figures(book, max(3, round(60 * scale)))
    found |= interval_figures(book, max(3, round(40 * scale)))
    runs = max(1, round(5 * scale))
    found |= table_figures(book, runs)
    found |= scaling_figures(book, max(1, round(3 * scale)))
    return found

"""Compute the figures of the joins (Gedik, Wu, Yu, Liu 2007), next to those of the paper.

Streams of the evidence have the seeds 0, 1, .... Parameters (share of the sample, decay of learned counts, amount and
end of exploration) were tuned on the seeds 1000 to 1011. Coverage uses 2,000 seeds, including these, with shorter
windows and fewer rows.
"""

from __future__ import annotations

from evidence.book import Book
from evidence.joins import gains, honesty, shapes, utilities
from spillway.settings import Settings

ALL_SEEDS = 20


def join_figures(book: Book, settings: Settings, seeds: int) -> dict[str, float]:
    """Return every figure of the joins by name."""
    book.section(
        "Joins", "Comparisons are shed, not rows: what that finds, what it misses, what is said of it."
    )
    scale = min(1.0, seeds / ALL_SEEDS)
    found: dict[str, float] = {}
    found |= honesty.compare_with_oracle(book, max(1, round(5 * scale)))
    found |= honesty.coverage(book, max(40, round(2_000 * scale)))
    found |= honesty.unsteady_coverage(book, max(5, round(20 * scale)))
    found |= gains.gains(book, max(1, round(gains.SEEDS * scale)))
    found |= gains.peak_moves(book, max(1, round(3 * scale)))
    found |= shapes.drop_rates(book)
    found |= shapes.adaptations(book)
    found |= shapes.rate_by_window(book)
    found |= shapes.skew_and_basic_windows(book)
    found |= utilities.utilities(book, max(1, round(2 * scale)))
    return found

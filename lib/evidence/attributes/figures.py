"""The attribute lever's evidence (Ahuja 2006, chapters 3 and 4): tables and figures, ours beside the text's.

`attribute_figures` runs everything in a few minutes on two cores; fewer `seeds` give a quick look.
"""

from __future__ import annotations

from pathlib import Path

from evidence.attributes.bounds_kept import bounds_kept, bounds_kept_overall, rooms
from evidence.attributes.codecs.compare import compressors
from evidence.attributes.cycles import cycles
from evidence.attributes.golden import golden
from evidence.attributes.hits import hits
from evidence.attributes.lab import Lab
from evidence.attributes.lake import Lake
from evidence.attributes.nine import brought_through, nine
from evidence.attributes.precision import precision
from evidence.attributes.predictors import predictors
from evidence.attributes.rankings import rankings
from evidence.attributes.single_ways import single_ways
from evidence.attributes.summary import summary
from evidence.attributes.targets import targets
from evidence.attributes.thresholds import fixed_points, shares_by_accuracy
from evidence.book import Book
from spillway.contracts import load_contracts
from spillway.demo.data import STREAMS
from spillway.errors import Refused
from spillway.settings import Settings

NOISY_GENERATED = 10


def attribute_figures(book: Book, settings: Settings, seeds: int = 100) -> dict[str, float]:
    """Every figure of the attribute lever, flat, names with units; tables and drawings go into the book."""
    directory = Path(settings.home, "tests", "golden")
    if not directory.is_dir():
        raise Refused(
            "tests/golden", "lie under SPILLWAY_HOME", settings.home, "run from a checkout of the repository"
        )
    contracts = load_contracts(settings.schemas)
    streams = {name: contracts.streams[name] for name in STREAMS}
    lake = Lake.landed("demo", streams, {name: make() for name, make in STREAMS.items()}, contracts.channels)
    lake.train()
    lake.shed()
    kept: dict[str, float] = {}
    for name in streams:  # before rivals shed them anew
        kept |= bounds_kept(lake, name, name)
    labs = {name: Lab(lake, name) for name in streams}
    found = kept | golden(book, directory)
    found |= cycles(book, labs, Path(settings.schemas), seeds)
    found |= hits(book, labs, directory)
    found |= summary(book, labs, directory)
    found |= predictors(book, labs)
    found |= precision(book, labs)
    found |= compressors(book, labs, directory)
    found |= single_ways(book, labs)
    found |= rankings(book, labs)
    found |= fixed_points(book, labs, directory)
    found |= shares_by_accuracy(book, labs, directory)
    lake.forget()
    found |= nine(book, directory, min(seeds, NOISY_GENERATED))
    lab = brought_through(rooms())
    found |= bounds_kept(lab.lake, lab.stream, lab.stream)
    lab.lake.forget()
    found |= bounds_kept_overall(book, found)
    found |= targets(book, found, list(streams))
    return found

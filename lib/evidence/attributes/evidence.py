"""The attribute lever's evidence (Ahuja 2006, chapters 3 and 4): tables and figures, ours beside the text's.

`figures` runs everything in a few minutes on two cores; fewer `seeds` give a quick look.
"""

from __future__ import annotations

from pathlib import Path

from evidence.attributes.cycles import cycles
from evidence.attributes.golden import golden
from evidence.attributes.hits import hits
from evidence.attributes.lab import Lab
from evidence.attributes.nine import nine
from evidence.attributes.precision import precision
from evidence.attributes.predictors import predictors
from evidence.attributes.rankings import rankings
from evidence.attributes.shedding import capacities_kbps, shed_planned
from evidence.attributes.single_ways import single_ways
from evidence.attributes.streams import demo_streams
from evidence.attributes.summary import summary
from evidence.attributes.targets import targets
from evidence.attributes.thresholds import fixed_points, shares_by_accuracy
from evidence.attributes.trained import train
from evidence.book import Book
from spillway.contracts import load_contracts
from spillway.errors import SpillwayError
from spillway.settings import Settings

NOISY_GENERATED = 10


def figures(book: Book, settings: Settings, seeds: int = 100) -> dict[str, float]:
    """Every figure of the attribute lever, flat, names with units; tables and drawings go into the book."""
    directory = Path(settings.home, "tests", "golden")
    if not directory.is_dir():
        raise SpillwayError(
            f"`tests/golden` must lie under SPILLWAY_HOME, got {settings.home}; run from a checkout of the repository"
        )
    contracts = load_contracts(settings.schemas)
    streams = demo_streams(contracts)
    capacities = capacities_kbps(contracts, streams)
    facts = {name: train(stream, capacities[name]) for name, stream in streams.items()}
    done = {name: shed_planned(stream, facts[name], capacities[name]) for name, stream in streams.items()}
    labs = {name: Lab(stream, facts[name]) for name, stream in streams.items()}
    found = golden(book, directory)
    found |= cycles(
        book, streams, {name: one.cycle for name, one in facts.items()}, Path(settings.schemas), seeds
    )
    found |= hits(book, streams, facts, capacities, done, directory)
    found |= summary(book, labs, done, capacities, directory)
    found |= predictors(book, labs, done)
    found |= precision(book, labs, done)
    found |= single_ways(book, labs, capacities, done)
    found |= rankings(book, labs)
    found |= fixed_points(book, labs, directory)
    found |= shares_by_accuracy(book, labs, directory)
    found |= nine(book, directory, min(seeds, NOISY_GENERATED))
    found |= targets(book, found, list(streams))
    return found

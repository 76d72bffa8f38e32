"""Compute the evidence of the attribute lever (Ahuja 2006, chapters 3 and 4), next to the figures of the thesis.

`attribute_figures` runs everything in a few minutes on two cores; fewer `seeds` give a quick look.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from itertools import accumulate
from pathlib import Path

from evidence.attributes.at_capacity import at_capacities
from evidence.attributes.bound_violations import all_bound_violations, room_sensors
from evidence.attributes.cliff import cliffs
from evidence.attributes.codecs.compare import compressors
from evidence.attributes.codecs.samples import HELD_BACK
from evidence.attributes.cycles import cycles, identifiers
from evidence.attributes.every_treatment import bound_violations_every_treatment
from evidence.attributes.generated import sources
from evidence.attributes.golden import golden
from evidence.attributes.hits import hits
from evidence.attributes.lab import Lab, training_and_later
from evidence.attributes.lake import Lake
from evidence.attributes.ledger_bytes import counted_over_file_bytes
from evidence.attributes.lossless import lossless
from evidence.attributes.nine_streams import nine, run_through_channel
from evidence.attributes.precision import precision
from evidence.attributes.predictors import predictors
from evidence.attributes.rankings import rankings
from evidence.attributes.real_streams import TRIED_REAL, real_stream
from evidence.attributes.row_order import row_orders
from evidence.attributes.single_treatments import single_treatments
from evidence.attributes.small_batches import small_batches
from evidence.attributes.summary import original_and_recovered, summary
from evidence.attributes.targets import targets
from evidence.attributes.thresholds import fixed_points, shares_by_accuracy
from evidence.attributes.variants import with_settings, with_thesis_ranking
from evidence.book import Book
from evidence.narrow_links import narrow_contracts, narrow_files
from spillway.contracts import Channel, Contracts, StreamContract, load_contracts
from spillway.errors import InvalidValue
from spillway.levers.attributes.policy import own_settings
from spillway.settings import Settings

LEVER = "attributes"
NOISY_GENERATED = 10
TRIED_SEEDS = 30
PARTS = ("training", "later")
_HEADLINES = re.compile(
    r"attributes\.later\.(recovery_accuracy_pct|stored_share_pct|synopsis_over_columns_bytes|violations"
    r"|stored_bytes_over_last_value_(mean|largest)|net_bytes_over_best_single_way)(\.|$|_mean$)"
)


def attribute_figures(book: Book, settings: Settings, seeds: int = 20) -> dict[str, float]:
    """Return every figure of the attribute lever by name; write tables and charts into the book."""
    directory = Path(settings.home, "tests", "golden")
    if not directory.is_dir():
        raise InvalidValue(
            "tests/golden", "lie under SPILLWAY_HOME", settings.home, "run from a checkout of the repository"
        )
    contracts, files = narrow_contracts(load_contracts(settings.schemas)), narrow_files()
    streams = compared_streams(contracts, files)
    lake = land_and_shed(streams, files, contracts.channels)
    labs = {name: Lab(lake, name) for name in streams}
    found: dict[str, float] = {}
    for name, lab in labs.items():
        found |= bound_violations_every_treatment(lab, name)
    found |= golden(book, directory)
    found |= cycles(book, labs, Path(settings.schemas), seeds)
    found |= identifiers(book, min(seeds, TRIED_SEEDS))
    found |= hits(book, labs, directory)
    found |= recovery(book, labs, directory)
    for lab in labs.values():
        original_and_recovered(book, lab)
    found |= figures_by_part(book, labs, directory)
    found |= at_capacities(book, labs)
    found |= cliffs(book, sources(directory)[::3])  # one of each domain
    found |= compressors(book, labs, directory)
    found |= lossless(book, settings, directory)
    found |= row_orders(book, labs, directory)
    found |= fixed_points(book, labs, directory)
    found |= shares_by_accuracy(book, labs, directory)
    lake.forget()
    landed = {name: files[name] for name in streams}
    found |= counted_over_file_bytes(streams, landed, contracts.channels)
    found |= nine(book, directory, min(seeds, NOISY_GENERATED))
    found |= real_streams(book)
    found |= small_batches(book)
    lab = run_through_channel(room_sensors())
    found |= bound_violations_every_treatment(lab, lab.stream)
    lab.lake.forget()
    found |= all_bound_violations(book, found)
    found |= targets(book, found, list(streams))
    return found


def compared_streams(
    contracts: Contracts, files: Mapping[str, Mapping[str, bytes]]
) -> dict[str, StreamContract]:
    """Return the landed streams that this lever works on, with contracts that are compared on the same terms.

    A stream whose contract does not list the lever is left out. Other levers of a stream are left out too: the figures
    of this lever are about every row of the stream. The demo's own contracts show every treatment; here all streams
    have one ranking, the thesis's.
    """
    return {
        name: with_attribute_lever_only(with_thesis_ranking(contracts.streams[name]))
        for name in files
        if LEVER in contracts.streams[name].lever_names
    }


def land_and_shed(
    streams: Mapping[str, StreamContract],
    files: Mapping[str, Mapping[str, bytes]],
    channels: Mapping[str, Channel],
) -> Lake:
    """Deliver the streams in memory, train them, shed and recover them."""
    lake = Lake.land("demo", streams, {name: files[name] for name in streams}, channels)
    for name in streams:
        lake = lake.with_contract(trained_on_whole_batches(lake, name))
    lake.train()
    lake.shed()
    return lake


def with_attribute_lever_only(contract: StreamContract) -> StreamContract:
    """Return the contract with this lever as its only one."""
    return replace(contract, levers=tuple(one for one in contract.levers if one.lever == LEVER))


def recovery(book: Book, labs: Mapping[str, Lab], directory: Path) -> dict[str, float]:
    """Return the cost and the error of recovery, of the plan and of its rivals."""
    return {
        **summary(book, labs, directory),
        **predictors(book, labs),
        **precision(book, labs),
        **single_treatments(book, labs),
        **rankings(book, labs),
    }


def real_streams(book: Book) -> dict[str, float]:
    """Send real streams at several capacities, one after the other; held-out ones are marked."""
    book.section(
        "Real streams at capacity",
        f"Trained on their first half. Not looked at while the plan was made: {', '.join(HELD_BACK)}.",
    )
    found: dict[str, float] = {}
    for name in TRIED_REAL:
        lab = run_through_channel(real_stream(name))
        found |= bound_violations_every_treatment(lab, name)
        found |= at_capacities(book, {name: lab})
        lab.lake.forget()
    return found


def figures_by_part(book: Book, labs: Mapping[str, Lab], directory: Path) -> dict[str, float]:
    """Return the figures over the batches of the training, and over later ones: `attributes.later.<figure>`."""
    found: dict[str, float] = {}
    parts = {name: training_and_later(lab) for name, lab in labs.items()}
    for part in PARTS:
        mine: dict[str, Lab] = {name: every[part] for name, every in parts.items() if part in every}
        figures = recovery(Book(lambda _: None), mine, directory) if mine else {}
        found |= {part_name(name, part): value for name, value in figures.items()}
    compared = sorted({name for name in found if _HEADLINES.match(name)})
    book.section("Training and later tuples", "Batches that training saw, and batches that it did not.")
    book.table(
        "The same figures over training batches and over later ones",
        ("figure", "training", "later"),
        [
            (
                name.removeprefix("attributes.later."),
                found.get(name.replace(".later.", ".training.", 1)),
                found[name],
            )
            for name in compared
        ],
    )
    return found


def part_name(figure: str, part: str = "") -> str:
    """Return the name of a figure over a part of the tuples; without a part, the plain name.

    >>> part_name("attributes.violations", "later"), part_name("attributes.later.violations")
    ('attributes.later.violations', 'attributes.violations')
    """
    words = [word for word in figure.split(".") if word not in PARTS]
    return ".".join([words[0], *([part] if part else []), *words[1:]])


def trained_on_whole_batches(lake: Lake, stream: str) -> StreamContract:
    """Return the contract with no more training tuples than the first batches hold, if they hold fewer.

    So training has seen a batch either as a whole or not at all.
    """
    contract = lake.contracts.streams[stream]
    settings = own_settings(contract)
    ends = list(accumulate(batch.rows or 0 for batch in lake.batches(stream)))
    tuples = max([end for end in ends if end <= settings.training.tuples], default=settings.training.tuples)
    return with_settings(contract, replace(settings, training=replace(settings.training, tuples=tuples)))

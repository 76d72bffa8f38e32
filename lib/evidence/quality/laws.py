"""Check laws for any input: coverage is conserved, the decision is near the optimum, shed slices are not read."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from evidence.attributes.lake import Lake
from evidence.book import Book
from evidence.quality.load_streams import (
    FILES_A_WINDOW,
    TUPLES_A_FILE,
    landed_batches,
    landed_loads,
    load_query,
)
from evidence.quality.replays import answers_by_contract
from evidence.quality.row_group_reads import record_row_groups
from evidence.quality.sic import largest_sic_error
from spillway.levers.quality.admission import Batches, Entitlements, admit_fairly, max_min_level
from spillway.levers.quality.coverage import OperatorNode, SourceNode, propagate
from spillway.levers.quality.intervals import Clusters, WindowSample, have_even_sizes
from spillway.levers.quality.random_order import is_chosen_by_chance
from spillway.store.files import row_groups
from spillway.store.maintenance import compact


def batches_below_optimum(batches: Batches, to: Entitlements, room: float, admitted: np.ndarray) -> float:
    """Return by how many batches the worst-off query misses the optimum; at most 1 for `admit_fairly`.

    The unit is the largest batch of any query, in sic / weight.
    """
    best = max_min_level(batches, to, room)
    have = to.reached + np.bincount(
        batches.query[admitted], weights=batches.sic[admitted], minlength=len(to.weight)
    )
    largest = float((batches.sic / to.weight[batches.query]).max(initial=0.0))
    short = float(((best.sic - have) / to.weight).max(initial=0.0))
    return max(0.0, short) / largest if largest else 0.0


def random_graph(chance: np.random.Generator) -> tuple[list[SourceNode], list[OperatorNode]]:
    """Return sources that lost some tuples, and operators that read some edges each and produce tuples, or none."""
    sources = []
    for at in range(int(chance.integers(1, 9))):
        tuples = int(chance.integers(0, 5_000))
        sources.append(SourceNode(f"S{at}", f"s{at}", tuples, int(chance.integers(0, tuples + 1))))
    free = [source.edge for source in sources]
    operators = []
    for at in range(int(chance.integers(0, 40))):
        count = min(len(free), int(chance.integers(1, 5)))
        read = [str(one) for one in chance.choice(free, count, replace=False)]
        outputs = {
            f"e{at}.{i}": int(chance.integers(0, 1_000) * (chance.random() > 0.2))
            for i in range(int(chance.integers(1, 4)))
        }
        operators.append(OperatorNode(f"o{at}", tuple(read), outputs))
        free = [edge for edge in free if edge not in read] + list(outputs)
    order = chance.permutation(len(operators))
    return sources, [operators[at] for at in order]


def random_load(
    chance: np.random.Generator, queries: int, batches: int, even: bool
) -> tuple[Batches, Entitlements, float]:
    """Return queries with batches of one size or of many, with different weights and different past coverage."""
    query = chance.integers(0, queries, batches)
    size = np.ones(batches) if even else chance.integers(10, 100, batches).astype(np.float64)
    sic = size / np.bincount(query, size, queries)[query]
    to = replace(
        Entitlements.equal(queries, chance.random(queries) * 0.2), weight=chance.choice([0.5, 1, 3], queries)
    )
    return (
        Batches(query, sic, size, chance.permutation(batches)),
        to,
        float(size.sum()) * chance.uniform(0.05, 0.95),
    )


def bytes_read(lake: Lake, capacity: float | None) -> tuple[int, int, int]:
    """Return the bytes of the row groups that were read, and those of kept and of shed portions, as planned."""
    room = {} if capacity is None else {"capacity": {"tuples": capacity}}
    query = load_query("whole", "SELECT avg(gaussian) AS mean FROM loads", portion_tuples=None, **room)
    with record_row_groups() as read:
        rows = [row for _, row in answers_by_contract(lake, {"whole": query})["whole"].values()]
    opened = 0
    for file in lake.tables.at("transmitted", "loads").files():
        groups = row_groups(file, [])
        # a file that is one portion counts with its footer, as a plan counts it
        opened += sum(
            file.size if len(groups) == 1 else group.size
            for group in groups
            if (file.path, group.place) in read
        )
    kept = sum(row["bytes_kept"] for row in rows)
    return opened, kept, sum(row["bytes_offered"] for row in rows) - kept


MOST_DECLARED = 60
"""The number of random queries, each computed window by window."""
SHED_FROM = ("files", "row_groups", "files_put_together")


def shed_bytes_read(where: str) -> tuple[int, int, int]:
    """Return, with capacity for half: bytes read, those of shed portions among them, and all bytes of shed portions.

    `files`: a batch is a file; `row_groups`: one batch is one file of many row groups (`row_group_tuples`);
    `files_put_together`: batches that `spillway_keep` has put together to a file a date.
    """
    if where == "row_groups":
        lake = landed_loads("quality-bytes", 1, 1, row_group_tuples=TUPLES_A_FILE)
    else:
        lake = landed_batches("quality-bytes", 1)
    if where == "files_put_together":
        done = compact(lake.tables.at("transmitted", "loads"), lambda _: True)
        assert done.files_after < done.files_before, "there is something to put together"
    opened, kept, shed = bytes_read(lake, FILES_A_WINDOW * TUPLES_A_FILE / 2)
    lake.forget()
    return opened, opened - kept, shed


def interval_laws(trials: int) -> tuple[float, int]:
    """Return how often a 95 % interval of a mean over 20 portions holds, and how many rough answers had one.

    Values grow with a portion's size, as in bursts; three queries share capacity for a quarter to three quarters.
    """
    chance = np.random.default_rng(23)
    held, rough = [], 0
    for trial in range(trials):
        even = trial % 4 > 0
        sizes = (
            np.round(chance.uniform(67, 150, 20)) if even else chance.choice([20.0, 200.0], 20, p=[0.8, 0.2])
        )
        if not have_even_sizes(sizes):
            continue
        rough += not even
        values = sizes * (50 + 10 * sizes / sizes.mean() + chance.normal(0, 5, 20))
        whose, cost = np.repeat(np.arange(3), 20), np.tile(sizes, 3)
        load = Batches(whose, cost / sizes.sum(), cost, chance.permutation(60))
        room = float(cost.sum()) * (0.25, 0.5, 0.75)[trial % 3]
        admitted = admit_fairly(load, Entitlements.equal(3), room)
        kept = np.flatnonzero(admitted[:20])
        drawn = np.flatnonzero(is_chosen_by_chance(load, whose, admitted)[kept])
        whole = Clusters(sizes[kept], values[kept], sizes[kept])
        found = WindowSample(whole, np.delete(sizes, kept), drawn, assume_alike=True).mean()
        if found is not None and found.low is not None and found.high is not None and len(kept) < 20:
            held.append(found.low <= values.sum() / sizes.sum() <= found.high)
    return 100 * float(np.mean(held)), rough


def law_figures(book: Book, trials: int) -> dict[str, float]:
    """Return the largest conservation error, the largest distance to the optimum, and the bytes read of shed slices."""
    chance = np.random.default_rng(17)
    conserved = 0.0
    for _ in range(trials):
        sources, operators = random_graph(chance)
        left = sum((one.tuples - one.lost) / one.tuples if one.tuples else 1.0 for one in sources) / len(
            sources
        )
        found = float(propagate(sources, operators, exact=False).at_results)
        conserved = max(conserved, abs(found - left))
    short = []
    for trial in range(trials):
        batches, to, room = random_load(
            chance, int(chance.integers(2, 60)), int(chance.integers(50, 3_000)), trial % 2 == 0
        )
        short.append(batches_below_optimum(batches, to, room, admit_fairly(batches, to, room)))
    uneven, rough = interval_laws(10 * trials)
    shed_bytes = {where: shed_bytes_read(where) for where in SHED_FROM}
    sic_error, sic_compared = largest_sic_error(min(trials, MOST_DECLARED))
    book.table(
        "Laws",
        ("law", "largest", "of"),
        [
            ("sic lost or made by random graphs of operators", conserved, trials),
            ("error of sic, random queries over sifted inputs against fractions", sic_error, sic_compared),
            ("batches from the max-min optimum", max(short), trials),
            *(
                (f"bytes of shed portions read, {where}", float(of), float(shed))
                for where, (_, of, shed) in shed_bytes.items()
            ),
        ],
    )
    return {
        "quality.interval_coverage_pct.uneven_portions": uneven,
        "quality.intervals_of_rough_portions": rough,
        "quality.conservation_error_largest": conserved,
        "quality.sic_error_largest": sic_error,
        "quality.sic_comparisons": sic_compared,
        "quality.batches_from_max_min_largest": max(short),
        "quality.bytes_of_shed_batches": sum(shed for _, _, shed in shed_bytes.values()),
        "quality.bytes_of_shed_batches_read": sum(of for _, of, _ in shed_bytes.values()),
        **{f"quality.bytes_of_shed_batches_read.{where}": of for where, (_, of, _) in shed_bytes.items()},
    }

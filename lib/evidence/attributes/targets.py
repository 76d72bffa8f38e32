"""Targets and promises, whether they were reached, and why not, from the figures measured before.

Promises and targets are counted separately. A *promise* always holds; a rule that does nothing keeps it, too: it sends
everything, or always assumes the strictest class. A *target* measures quality, and a rule that does nothing must miss
it. If that rule reaches the target on a stream, the target is counted as vacuous there, not as met.

>>> from evidence.book import Book
>>> targets(Book(lambda _: None), {"attributes.violations": 0.0, "attributes.categories_correct.c1": 40.0}, [])
... # doctest: +NORMALIZE_WHITESPACE
{'attributes.targets': 1, 'attributes.targets_met': 1, 'attributes.targets_vacuous': 0,
 'attributes.promises': 1, 'attributes.promises_kept': 1}
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from evidence.book import Book


@dataclass(frozen=True)
class Target:
    """A figure, the limit it must keep to, and the sentence that explains a miss (with figures in braces)."""

    figure: str
    limit: float
    at_least: bool
    why: str = ""
    idle: str | float | None = None
    """The result of a rule that does nothing: a number, or the name of its figure; None: it cannot reach the target."""
    only_where: str | None = None
    """The figure that is 0 if nothing was done, so that the target is vacuous."""

    def is_vacuous(self, figures: Mapping[str, float], name: str) -> bool:
        """Whether a rule that does nothing reaches the target on this stream."""
        if self.only_where is not None and not figures.get(self.only_where.format(name), 1.0):
            return True
        idle = figures.get(self.idle.format(name)) if isinstance(self.idle, str) else self.idle
        return idle is not None and self.met(idle)

    def met(self, value: float) -> bool:
        return value >= self.limit if self.at_least else value <= self.limit


PROMISES = (
    Target("attributes.violations", 0, False),
    Target("attributes.zero_swaps", 0, False),
    Target("attributes.inexact_non_quantities", 0, False),
    Target("attributes.exact_differing_values", 0, False),
    # a rule that refuses every stream confuses none, and one that assumes the strictest class is never too loose
    Target("attributes.cid_wrong", 0, False),
    Target("attributes.categories_looser_than_truth", 0, False),
    # the last value alone takes exactly its own bytes
    Target(
        "attributes.stored_bytes_over_last_value_largest",
        1.0,
        False,
        "predictors are chosen on training rows; on all rows one measure takes a little more than by its last value",
    ),
)
OVERALL = (
    Target(
        "attributes.exact_bytes_over_best_lossless_geometric_mean",
        0.9,
        False,
        "footers, log entries, schemes and metadata take {attributes.exact_fixed_bytes_mean:.0f} bytes of a batch; "
        "without them the mean is {attributes.exact_bytes_without_fixed_over_best_lossless_geometric_mean:.2f}",
    ),
    Target(
        "attributes.exact_bytes_without_fixed_over_best_lossless_largest",
        1.02,
        False,
        "a batch of few rows is kept as it is if a file of synopses would take more than it saves; see the table of "
        "exact bytes by column",
    ),
    Target(
        "attributes.order_bytes_per_row_largest",
        0.2,
        False,
        "each page of a column takes at least about 50 bytes, which counts in a batch of few rows",
    ),
    Target(
        "attributes.cliff_points_largest",
        0,
        False,
        "two drafts are mixed by trial; the bytes of a dictionary are not proportional to the tuples of a small batch",
    ),
    Target("attributes.small_batches_lost_pct", 0, False, idle="attributes.small_batches_at_once_lost_pct"),
    Target(
        "attributes.fixed_bytes_alone_elsewhere",
        2_000,
        False,
        "the log states the edges of the first eight columns, about 60 bytes each; "
        "{attributes.checkpoint_bytes_alone_elsewhere:.0f} bytes are the batch's part of a checkpoint of the log",
    ),
    Target(
        "attributes.fixed_bytes_per_delivery_elsewhere",
        600,
        False,
        "a delivery takes {attributes.fixed_bytes_per_delivery:.0f} bytes if the destination is the lake",
    ),
    Target(
        "attributes.fixed_bytes_per_delivery_elsewhere_narrow",
        600,
        False,
        "if values are lost, the destination needs metadata, which has a file and a commit of its own: "
        "{attributes.metadata_bytes_per_delivery_elsewhere_narrow:.0f} bytes a delivery",
    ),
    Target(
        "attributes.recovery_accuracy_pct_mean",
        99,
        True,
        "E allows much more than 1 %, and finer corrections cost bytes: with these predictors 99 % take "
        "{attributes.bytes_over_last_value_at_99_pct_accuracy:.2f} of last-value's bytes; within 0.7 of them "
        "{attributes.best_accuracy_pct_at_0.7_of_last_value:.2f} % is the most",
    ),
    Target(
        "attributes.stored_bytes_over_last_value_mean",
        0.7,
        False,
        "what is steady or in coarse steps (wind direction, visibility, mtu) leaves nothing to predict, and a scheme "
        "that sheds every measure leaves no regressor",
        idle=1.0,
    ),
    Target("attributes.categories_correct.c1", 40, True),
    Target("attributes.categories_correct.c2", 38, True),
    Target(
        "attributes.categories_right_pct",
        90,
        True,
        "schemas of abbreviations that nobody wrote out; what is missed is held to the strictest class",
    ),
    Target(
        "attributes.bytes_over_sz3_largest.equal_bound",
        1.0,
        False,
        "columns of few steps or of noise, where entropy coding of the plain steps is all there is to gain",
    ),
    Target("attributes.bytes_over_sz3_largest.equal_error", 1.0, False, "as at equal bounds"),
    Target("attributes.bytes_over_pcodec_largest.equal_bound", 1.0, False, "as against SZ3"),
    Target("attributes.bytes_over_pcodec_largest.equal_error", 1.0, False, "as against SZ3"),
    Target("attributes.bytes_over_sz3_largest.any_precision", 1.01, False, "as at equal bounds"),
    Target("attributes.bytes_over_pcodec_largest.any_precision", 1.01, False, "as at equal bounds"),
    Target("attributes.bytes_over_sz3_largest.absolute_bound", 1.0, False, "as at equal bounds"),
    Target("attributes.bytes_over_pcodec_largest.absolute_bound", 1.0, False, "as at equal bounds"),
    Target("attributes.bytes_over_sz3_mean.absolute_bound", 0.75, False, "see the table by measure"),
    Target("attributes.bytes_over_pcodec_mean.absolute_bound", 0.75, False, "see the table by measure"),
    Target("attributes.bytes_over_sz3_mean.equal_bound", 0.75, False, "see the table by measure"),
    Target("attributes.bytes_over_sz3_mean.equal_error", 0.75, False, "see the table by measure"),
    Target("attributes.bytes_over_pcodec_mean.equal_bound", 0.75, False, "see the table by measure"),
    Target("attributes.bytes_over_pcodec_mean.equal_error", 0.75, False, "see the table by measure"),
)
_EVERY = tuple(f"{synopsis}.{capacity}" for synopsis in ("hold", "send") for capacity in (90, 75, 50, 25))
_CASES = ("hold", "send", "auto")
_CROSSES = "what crosses least is more than there is room for, and what is too much is on record"
PROMISED_AT_CAPACITIES = (
    *(
        Target(f"attributes.over_capacity_pct.{{}}.{case}.{capacity}", 0, False, _CROSSES)
        for case in _CASES
        for capacity in (90, 75, 50, 25)
    ),
    # a rule that sends everything keeps both: no error at full capacity, and no less error with less capacity
    *(Target(f"attributes.error_at_capacity_pct.{{}}.{case}.100", 0, False) for case in _CASES),
    *(Target(f"attributes.error_rises_points.{{}}.{case}", 0, False) for case in _CASES),
    Target("attributes.counted_over_file_bytes.{}", 1.01, False),
    Target("attributes.counted_over_file_bytes.{}", 0.99, True),
)
OF_CAPACITIES = (
    *(
        Target(
            f"attributes.error_over_best_ranking.{{}}.{place}",
            1.0,
            False,
            "three drafts do not always find the precisions that hindsight picks for the ranking",
            idle=f"attributes.random_over_best_ranking.{{}}.{place}",
        )
        for place in _EVERY
    ),
    *(
        Target(
            f"attributes.channel_used_pct.{{}}.{place}",
            90,
            True,
            "one attribute's next finer precision takes more than what is left",
        )
        for place in _EVERY
    ),
)
"""Of every stream that is sent at several capacities."""
PER_STREAM = (
    Target(
        "attributes.recovery_accuracy_pct.{}",
        99.5,
        True,
        "the channel leaves no room for more: see the curve of error at capacity",
        only_where="attributes.shed_attributes.{}",
    ),
    Target("attributes.cid_found_pct.{}", 100, True),
    Target(
        "attributes.cid_members_found_pct.{}", 100, True, "under noise one member may be put in a wrong place"
    ),
    Target(
        "attributes.stored_bytes_over_last_value_smallest.{}",
        1 / 3,
        False,
        "every related attribute is shed too, so what is left to predict from is the key's own past",
        idle=1.0,
    ),
    Target(
        "attributes.net_bytes_over_best_single_way.{}",
        1.0,
        False,
        idle="attributes.everything_kept_over_best_single_way.{}",
    ),
)
"""Hits, regret and evaluations have no target: never re-evaluating reached all of them on every stream."""


def targets(book: Book, figures: Mapping[str, float], streams: Sequence[str]) -> dict[str, float]:
    """Write the tables of targets and promises; entries without a figure are left out."""
    aims = _expanded(
        ((OVERALL, ""), (PER_STREAM, _OF_STREAM), (OF_CAPACITIES, _AT_CAPACITY)), figures, streams
    )
    promises = _expanded(((PROMISES, ""), (PROMISED_AT_CAPACITIES, _AT_CAPACITY)), figures, streams)
    vacuous = [(figure, name) for one, figure, name in aims if one.is_vacuous(figures, name)]
    aims = [(one, figure, name) for one, figure, name in aims if (figure, name) not in vacuous]
    book.section("Targets", "Targets and results. A rule that does nothing misses each of these targets.")
    met = _tell(book, "Targets", aims, figures)
    if vacuous:
        book.note(
            f"{len(vacuous)} targets are left out where a rule that does nothing reaches them as well, such as "
            f"{vacuous[0][0].removeprefix('attributes.')}."
        )
    kept = _tell(book, "Promises: they always hold", promises, figures)
    return {
        "attributes.targets": len(aims),
        "attributes.targets_met": met,
        "attributes.targets_vacuous": len(vacuous),
        "attributes.promises": len(promises),
        "attributes.promises_kept": kept,
    }


_OF_STREAM = ("attributes.recovery_accuracy_pct.", "")
_AT_CAPACITY = ("attributes.error_at_capacity_pct.", ".hold.25")
_Placed = list[tuple[Target, str, str]]
"""A target, its figure, and the stream that it is of."""


def _expanded(
    groups: Sequence[tuple[Sequence[Target], tuple[str, str] | str]],
    figures: Mapping[str, float],
    streams: Sequence[str],
) -> _Placed:
    """The targets of each group, for every stream that has figures of this beginning and end."""
    found: _Placed = []
    for group, named in groups:
        if isinstance(named, str):
            found += [(target, target.figure, "") for target in group]
            continue
        start, end = named
        every = [
            name.removeprefix(start).removesuffix(end)
            for name in figures
            if name.startswith(start) and name.endswith(end)
        ]
        names = dict.fromkeys([*streams, *every])
        found += [(target, target.figure.format(name), name) for target in group for name in names]
    return [(target, figure, name) for target, figure, name in found if figure in figures]


def _tell(book: Book, title: str, placed: _Placed, figures: Mapping[str, float]) -> int:
    """Write a table; return how many are met."""
    rows, met = [], 0
    for target, figure, name in placed:
        reached = target.met(figures[figure])
        met += reached
        why = "" if reached else _filled(target.why.replace("STREAM", name), figures)
        sign = "at least" if target.at_least else "at most"
        rows.append(
            (figure.removeprefix("attributes."), f"{sign} {target.limit:.4g}", figures[figure], reached, why)
        )
    book.table(title, ("figure", "target", "reached", "met", "why not"), rows)
    return met


def _filled(sentence: str, figures: Mapping[str, float]) -> str:
    """
    >>> _filled("at {a.b_0.7:.1f} %", {"a.b_0.7": 98.66})
    'at 98.7 %'
    """
    parts = sentence.split("{")
    found = [parts[0]]
    for part in parts[1:]:
        inside, _, rest = part.partition("}")
        name, _, form = inside.rpartition(":")
        found.append((format(figures[name], form) if name in figures else "-") + rest)
    return "".join(found)
